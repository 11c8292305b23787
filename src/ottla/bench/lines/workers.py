"""Two workers against one process, line by line, and how evenly workers share the load of many connections."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from ottla.bench import proc
from ottla.bench.lines.topics import new_topic, topic
from ottla.bench.load import drive
from ottla.bench.model import LINES, Figure, NotMeasurable, Size, line, value_at_least, value_at_most
from ottla.bench.targets import OttlaMaker, Target

TURNS = 3
PAIRS = 64
NEVER_SLOWER = value_at_least(0.9)
NEVER_LATER = value_at_most(1 / 0.9)

_numbers = itertools.count(1)

# Line, its figure, and whether more is better.
COMPARED = {
    "produce_1": ("produce-1k-64k-none-1", "mb_s", True),
    "produce_4": ("produce-1k-64k-none-4", "mb_s", True),
    "produce_512k": ("produce-1k-512k-none-1", "mb_s", True),
    "fetch_1": ("fetch-1", "mb_s", True),
    "fetch_4": ("fetch-4", "mb_s", True),
    "requests_1": ("requests-1", "rate", True),
    "requests_5": ("requests-5", "rate", True),
    "commits_5": ("commits-5", "rate", True),
    "latency": ("latency", "p50_ms", False),
    "join_10": ("join-10", "ms", False),
}


@contextmanager
def brokers(target: Target, *counts: int) -> Iterator[list[Target]]:
    """A broker of each number of workers."""
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


def _best(measured: list[list[float]], higher_is_better: bool) -> list[float]:
    """The best turn of each broker: what else the machine does only makes a turn worse."""
    return [max(turns) if higher_is_better else min(turns) for turns in measured]


def compared(pair: list[Target], size: Size, measure: Callable[[Target], float], higher_is_better: bool) -> float:
    """The first broker's figure as a multiple of the second's; they take turns."""
    measured: list[list[float]] = [[] for _ in pair]
    for _ in range(size.pick(TURNS, 1)):
        for broker, mine in zip(pair, measured, strict=True):
            mine.append(measure(broker))
    first, second = _best(measured, higher_is_better)
    return first / second


def transactions_per_second(size: Size, across: bool, target: Target) -> float:
    """One producer whose coordinator is the worker that it writes to, or another one."""
    with topic(target, 1) as name, target.client() as client:
        leader = client.leaders(name)[0]
        is_alone = len(proc.tree(target.process())) == 1
        for number in _numbers:
            transactional_id = f"workers-{number}"
            if is_alone or (client.coordinator(transactional_id, "transaction") != leader) == across:
                break
        options = {"record_bytes": 100, "records": 1, "limit": 10**9, "abort_every": 0}
        limit_seconds = size.pick(3.0, 0.3)
        driven = drive(
            target,
            "transactions",
            topic=name,
            transactional_id=transactional_id,
            limit_seconds=limit_seconds,
            **options,
        )
        return float(driven["transactions"] / driven.seconds)


@line(
    "workers-2",
    "two workers against one process",
    *(
        Figure(key, f"× {LINES[name].figure(figure).unit}", more, (NEVER_SLOWER if more else NEVER_LATER,), title=name)
        for key, (name, figure, more) in COMPARED.items()
    ),
    Figure("transactions", "× transactions/s", True, (NEVER_SLOWER,), title="transactions, on one worker"),
    Figure("transactions_across", "× transactions/s", True, (NEVER_SLOWER,), title="transactions, across workers"),
    repeats=1,
    reference=False,
)
def two_workers(target: Target, size: Size) -> dict[str, float]:
    figures = {}
    with brokers(target, 2, 1) as pair:
        for key, (name, figure, more) in COMPARED.items():
            figures[key] = compared(pair, size, partial(_figure, name, figure, size), more)
        for key, across in (("transactions", False), ("transactions_across", True)):
            figures[key] = compared(pair, size, partial(transactions_per_second, size, across), True)
    return figures


def _figure(name: str, figure: str, size: Size, target: Target) -> float:
    return LINES[name].run(target, size)[figure]


def _crowd(target: Target, size: Size) -> tuple[float, list[float]]:
    """CPU microseconds a record with many connections, and the CPU seconds of each worker."""
    pids = proc.tree(target.process())
    workers = pids[1:] or pids
    pairs = size.pick(PAIRS, 8)
    name = new_topic(target, pairs, "split")
    before = [proc.cpu_seconds(pid) for pid in workers]
    limits = {"limit_seconds": size.pick(5.0, 0.5), "limit_bytes": 10**9}
    driven = drive(target, "crowd", topic=name, pairs=pairs, record_bytes=100, batch_bytes=1, **limits)
    spent = [proc.cpu_seconds(pid) - earlier for pid, earlier in zip(workers, before, strict=True)]
    return sum(spent) / max(1, driven["records"]) * 1e6, spent


@line(
    "workers-split",
    "64 producers and 64 consumers, one record a request, each pair on a partition of its own",
    Figure("split_2", "× of the most", True, (value_at_least(0.8),), title="2 workers: the least CPU of one"),
    Figure("split_4", "× of the most", True, (value_at_least(0.7),), title="4 workers: the least CPU of one"),
    Figure("cpu_2", "× CPU a record", False, (value_at_most(1.2),), title="2 workers against 1"),
    Figure("cpu_4", "× CPU a record", False, (value_at_most(1.3),), title="4 workers against 1"),
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
