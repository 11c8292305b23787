"""A broker inside tests: what a test pays for it. The programs that are timed are in `ottla.bench.in_tests`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from ottla.bench.in_tests import consume_first
from ottla.bench.lines.topics import topic
from ottla.bench.model import Figure, NotMeasurable, Size, line, value_at_most
from ottla.bench.targets import OttlaMaker, Target

PROGRAM = Path(__file__).parent.parent / "in_tests.py"


def _run(target: Target, *arguments: str) -> dict[str, float]:
    if not isinstance(target.fresh(), OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@line(
    "first-record",
    "from nothing to the first record consumed by a group",
    Figure("ms", "ms", False, (value_at_most(100),), title="the first broker of a test run; for others, a process"),
    Figure("import_ms", "ms", False, title="the import before it"),
)
def first_record(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    if isinstance(maker, OttlaMaker):
        return _run(target, "first-record")
    folder, port = maker.prepare()
    started = time.perf_counter()
    broker = maker.launch(folder, port)
    try:
        broker.await_ready()
        with topic(broker, 1) as name:
            consume_first(broker.address, name, "first")
        return {"ms": (time.perf_counter() - started) * 1e3}
    finally:
        broker.stop()


@line(
    "in-tests",
    "a broker inside tests",
    Figure("fresh_ms", "ms", False, (value_at_most(20),), title="a fresh broker for a test, started and stopped"),
    Figure("reset_ms", "ms", False, (value_at_most(5),), title="a reset between two tests"),
    reference=False,
)
def in_tests(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "brokers")


@line(
    "thousand-tests",
    "1,000 tests, each with its own topic and group",
    Figure("s", "s", False, (value_at_most(30),), title="the whole run of pytest"),
    repeats=1,
    reference=False,
)
def thousand_tests(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "thousand", str(size.pick(1000, 20)))
