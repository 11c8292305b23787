"""The cost of the console for a broker: nothing until it is opened, and little with one page open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from urllib.request import urlopen

from ottla.bench.lines.fetch import SHAPE
from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, NotMeasurable, Size, line, value_at_least, value_at_most
from ottla.bench.targets import OttlaMaker, Target, free_port

TURNS = 4
PAGE_SECONDS = 2.0
"""How often the first page of the console refreshes."""


def _makers(target: Target) -> tuple[OttlaMaker, OttlaMaker, int]:
    """Brokers without a console and with one, and the console's port."""
    plain = target.fresh()
    if not isinstance(plain, OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    port = free_port(plain.base_port + 50)
    return plain, plain.with_console(port), port


@line(
    "console-unused",
    "a console that is configured and not opened, against none",
    Figure("start", "× of none", False, (value_at_most(1.15),), title="start to the first answer"),
    Figure("memory", "× of none", False, (value_at_most(1.05),), title="idle memory"),
    reference=False,
    repeats=1,
)
def console_unused(target: Target, size: Size) -> dict[str, float]:
    plain, with_console, _ = _makers(target)
    starts: dict[bool, list[float]] = {False: [], True: []}
    memories: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(size.pick(TURNS * 2 - 1, 1)):
        for has_console, maker in ((False, plain), (True, with_console)):
            folder, port = maker.prepare()
            started = time.perf_counter()
            broker = maker.launch(folder, port)
            try:
                broker.await_ready()
                starts[has_console].append(time.perf_counter() - started)
                time.sleep(size.pick(1.0, 0.2))
                memories[has_console].append(broker.resident_mb())
            finally:
                broker.stop()
    return {
        "start": median(starts[True]) / median(starts[False]),
        "memory": median(memories[True]) / median(memories[False]),
    }


@contextmanager
def _open_page(port: int) -> Iterator[None]:
    """Send the requests of the first page, as often as it does."""
    stop = threading.Event()

    def ask() -> None:
        while True:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/overview", timeout=30) as response:
                response.read()
            if stop.wait(PAGE_SECONDS):
                return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@line(
    "console-open",
    "produce and fetch with one page of the console open, against none",
    Figure("produce", "× of none", True, (value_at_least(0.95),), title="produce"),
    Figure("fetch", "× of none", True, (value_at_least(0.95),), title="fetch"),
    reference=False,
    repeats=1,
)
def console_open(target: Target, size: Size) -> dict[str, float]:
    _, with_console, port = _makers(target)
    broker = with_console.start()
    speeds: dict[tuple[str, bool], list[float]] = {}
    limits = {"limit_bytes": size.pick(640_000_000, 16_000_000), "limit_seconds": size.pick(5.0, 1.0)}

    def measure(load: str, name: str, is_open: bool) -> None:
        driven = drive(broker, load, topic=name, connections=1, **SHAPE, **limits)
        speeds.setdefault((load, is_open), []).append(driven["bytes"] / driven.seconds)

    try:
        for turn in range(size.pick(TURNS, 1) * 2):
            is_open = turn % 4 in (1, 2)  # so that neither always comes first
            with topic(broker, 1) as name, _open_page(port) if is_open else nullcontext():
                measure("produce", name, is_open)
                measure("fetch", name, is_open)
    finally:
        broker.stop()
    return {load: median(speeds[load, True]) / median(speeds[load, False]) for load in ("produce", "fetch")}
