"""Two workers compared with one process, line by line, and how evenly workers share many connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from ottla.bench import proc
from ottla.bench.lines.topics import new_topic, topic
from ottla.bench.lines.transactions import placed_id
from ottla.bench.load import drive
from ottla.bench.model import LINES, Figure, NotMeasurable, Size, line, value_at_least, value_at_most
from ottla.bench.targets import OttlaMaker, Target

TURNS = 3
PAIRS = 64
NEVER_SLOWER = value_at_least(0.9)
NEVER_LATER = value_at_most(1 / 0.9)

# The line, its figure, whether higher is better, and its CPU figure.
COMPARED: dict[str, tuple[str, str, bool, str | None]] = {
    "produce_1": ("produce-1k-64k-none-1", "mb_s", True, "cpu_gb"),
    "produce_4": ("produce-1k-64k-none-4", "mb_s", True, "cpu_gb"),
    "produce_512k": ("produce-1k-512k-none-1", "mb_s", True, "cpu_gb"),
    "fetch_1": ("fetch-1", "mb_s", True, "cpu_gb"),
    "fetch_4": ("fetch-4", "mb_s", True, "cpu_gb"),
    "requests_1": ("requests-1", "rate", True, "cpu_us"),
    "requests_5": ("requests-5", "rate", True, "cpu_us"),
    "commits_5": ("commits-5", "rate", True, "cpu_us"),
    "latency": ("latency", "p50_ms", False, None),
    "join_10": ("join-10", "ms", False, None),
}


@contextmanager
def brokers(target: Target, *counts: int) -> Iterator[list[Target]]:
    """One broker for each number of workers."""
    maker = target.fresh()
    if not isinstance(maker, OttlaMaker):
        raise NotMeasurable("only Ottla has workers")
    with ExitStack() as stack:
        started: list[Target] = []
        for count in counts:
            broker = maker.with_workers(count).start()
            stack.callback(broker.stop)
            started.append(broker)
        yield started


def compared(
    pair: list[Target], size: Size, measure: Callable[[Target], dict[str, float]], higher_is_better: dict[str, bool]
) -> dict[str, float]:
    """The first broker's figures as multiples of the second's.

    They take turns, and the best turn of each counts: other load on the machine only makes a turn worse.
    """
    measured: list[list[dict[str, float]]] = [[] for _ in pair]
    for _ in range(size.pick(TURNS, 1)):
        for broker, mine in zip(pair, measured, strict=True):
            mine.append(measure(broker))
    ratios = {}
    for key, more in higher_is_better.items():
        first, second = ((max if more else min)(turn[key] for turn in turns) for turns in measured)
        ratios[key] = first / max(second, 1e-9)
    return ratios


def transactions(size: Size, across: bool, target: Target) -> dict[str, float]:
    """One producer whose coordinator is the worker that it writes to or, with `across`, another one."""
    with topic(target, 1) as name:
        transactional_id = placed_id(target, name, across=across)
        options = {"record_bytes": 100, "records": 1, "limit": 10**9, "limit_seconds": size.pick(3.0, 0.3)}
        driven = drive(target, "transactions", topic=name, transactional_id=transactional_id, abort_every=0, **options)
    assert driven.broker_cpu_seconds is not None, "a broker of the benchmark's own has a process"
    done = driven["transactions"]
    return {"rate": done / driven.seconds, "cpu_us": driven.broker_cpu_seconds / done * 1e6}


def _figures() -> list[Figure]:
    figures = []
    for key, (name, figure, more, cpu) in COMPARED.items():
        unit = f"× {LINES[name].figure(figure).unit}"
        figures.append(Figure(key, unit, more, (NEVER_SLOWER if more else NEVER_LATER,), title=name))
        if cpu is not None:
            figures.append(Figure(f"{key}_cpu", "× CPU", False, title=name))
    for key, title in (("transactions", "on one worker"), ("transactions_across", "across workers")):
        figures.append(Figure(key, "× transactions/s", True, (NEVER_SLOWER,), title=f"transactions, {title}"))
        figures.append(Figure(f"{key}_cpu", "× CPU", False, title=f"transactions, {title}"))
    return figures


@line("workers-2", "two workers against one process", *_figures(), repeats=1, reference=False)
def two_workers(target: Target, size: Size) -> dict[str, float]:
    figures = {}
    with brokers(target, 2, 1) as pair:
        for key, (name, figure, more, cpu) in COMPARED.items():
            wanted = {figure: more} if cpu is None else {figure: more, cpu: False}
            found = compared(pair, size, partial(_run, name, size), wanted)
            figures[key] = found[figure]
            if cpu is not None:
                figures[f"{key}_cpu"] = found[cpu]
        for key, across in (("transactions", False), ("transactions_across", True)):
            found = compared(pair, size, partial(transactions, size, across), {"rate": True, "cpu_us": False})
            figures |= {key: found["rate"], f"{key}_cpu": found["cpu_us"]}
    return figures


def _run(name: str, size: Size, target: Target) -> dict[str, float]:
    return LINES[name].run(target, size)


def _crowd(target: Target, size: Size) -> tuple[float, list[float]]:
    """CPU microseconds per record with many connections, and the CPU seconds of each worker."""
    pids = proc.tree(target.process())
    workers = pids[1:] or pids
    pairs = size.pick(PAIRS, 8)
    name = new_topic(target, pairs, "split")
    before = [proc.cpu_seconds(pid) for pid in workers]
    # A fixed amount of work for each: with a time limit, the figure would show the scheduler and not the distribution.
    limits = {"records_each": size.pick(300, 10), "limit_seconds": 120.0, "limit_bytes": 10**9}
    driven = drive(target, "crowd", topic=name, pairs=pairs, record_bytes=100, batch_bytes=1, **limits)
    spent = [proc.cpu_seconds(pid) - earlier for pid, earlier in zip(workers, before, strict=True)]
    return sum(spent) / max(1, driven["records"]) * 1e6, spent


@line(
    "workers-split",
    "64 producers and 64 consumers, one record per request, each pair on its own partition",
    Figure("split_2", "× of the most", True, (value_at_least(0.8),), title="2 workers: the least CPU of one"),
    Figure("split_4", "× of the most", True, (value_at_least(0.7),), title="4 workers: the least CPU of one"),
    Figure("cpu_2", "× CPU per record", False, (value_at_most(1.2),), title="2 workers against 1"),
    Figure("cpu_4", "× CPU per record", False, (value_at_most(1.3),), title="4 workers against 1"),
    reference=False,
)
def split(target: Target, size: Size) -> dict[str, float]:
    with brokers(target, 1, 2, 4) as (one, two, four):
        _crowd(one, size)
        alone_us, _ = _crowd(one, size)
        two_us, of_two = _crowd(two, size)
        four_us, of_four = _crowd(four, size)
    return {
        "split_2": min(of_two) / max(max(of_two), 0.01),
        "split_4": min(of_four) / max(max(of_four), 0.01),
        "cpu_2": two_us / max(alone_us, 0.01),
        "cpu_4": four_us / max(alone_us, 0.01),
    }
