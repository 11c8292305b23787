"""Flat cost: the cost of each kind of request with ten times as many idle objects, such as topics.

Two brokers run at the same time, one with ten times as much as the other. They take turns, and the cheapest turn of
each counts: other load on the machine only makes a turn more expensive, never cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ottla.bench.client import Client
from ottla.bench.lines.groups import coordinated_group, idle_cpu_percent
from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import CONFIGS, new_topic
from ottla.bench.lines.transactions import placed_id
from ottla.bench.load import Driven, drive
from ottla.bench.model import Figure, Line, Size, register, value_at_most
from ottla.bench.targets import Target

FLAT = value_at_most(1.2)
# Half a percent of one core is the smallest amount that the kernel's tick can show over the measured time.
SILENT = value_at_most(0.5)
TIMES = 10
TURNS = 3
CREATE_AT_ONCE = 100
FILL_SECONDS = 300.0

Fill = Callable[[Target, int, ExitStack], str]
"""Creates that many objects on a broker, and returns the topic for the requests."""


def _transaction(target: Target, topic: str, seconds: float) -> Driven:
    transactional_id = placed_id(target, topic, across=False)  # across workers it always costs more
    options = {"transactional_id": transactional_id, "record_bytes": 100, "records": 1, "limit": 10**9}
    return drive(target, "transactions", topic=topic, limit_seconds=seconds, abort_every=0, **options)


OPERATIONS: dict[str, Callable[[Target, str, float], Driven]] = {
    "produce": lambda target, topic, seconds: drive(
        target, "requests", topic=topic, record_bytes=100, depth=5, limit_seconds=seconds
    ),
    "fetch": lambda target, topic, seconds: drive(
        target, "asking", topic=topic, kind="fetch", depth=5, limit_seconds=seconds
    ),
    "offsets": lambda target, topic, seconds: drive(
        target, "asking", topic=topic, kind="offsets", depth=5, limit_seconds=seconds
    ),
    "metadata": lambda target, topic, seconds: drive(
        target, "asking", topic=topic, kind="metadata", depth=5, limit_seconds=seconds
    ),
    "commit": lambda target, topic, seconds: drive(
        target, "commits", topic=topic, group=coordinated_group(target), depth=5, limit_seconds=seconds
    ),
    "transaction": _transaction,
}


def _cost_us(driven: Driven) -> float:
    if "requests" in driven.result:
        return per_request(driven)["cpu_us"]
    assert driven.broker_cpu_seconds is not None, "a broker of the benchmark's own has a process"
    return driven.broker_cpu_seconds / int(driven["transactions"]) * 1e6


def growth(few: Target, many: Target, topics: tuple[str, str], size: Size, names: list[str]) -> dict[str, float]:
    """The CPU time of each operation on the second broker, as a multiple of the first's."""
    seconds, turns = size.pick(1.5, 0.1), size.pick(TURNS, 1)
    figures = {}
    for name in names:
        costs: tuple[list[float], list[float]] = ([], [])
        for _ in range(turns):
            for target, topic, mine in zip((few, many), topics, costs, strict=True):
                mine.append(_cost_us(OPERATIONS[name](target, topic, seconds)))
        figures[name] = min(costs[1]) / max(min(costs[0]), 0.1)
    return figures


def _add(name: str, title: str, counts: tuple[int, int], fill: Fill, leave_out: tuple[str, ...] = ()) -> None:
    names = [operation for operation in OPERATIONS if operation not in leave_out]

    def run(target: Target, size: Size) -> dict[str, float]:
        few_count, quick_count = counts
        count = size.pick(few_count, quick_count)
        with ExitStack() as stack:
            brokers = []
            for _ in range(2):
                brokers.append(target.fresh().start())
                stack.callback(brokers[-1].stop)
            few, many = brokers
            topics = fill(few, count, stack), fill(many, TIMES * count, stack)
            figures = growth(few, many, topics, size, names)
            seconds = size.pick(5.0, 0.2)
            figures["idle"] = max(0.0, idle_cpu_percent(many, seconds) - idle_cpu_percent(few, seconds))
            return figures

    figures = [Figure(each, "× CPU", False, (FLAT,), title=each) for each in names]
    idle = Figure("idle", "% CPU", False, (SILENT,), title="added while idle")
    register(Line(f"flat-{name}", title, (*figures, idle), run, repeats=1, reference=False))


def _fill_log(target: Target, megabytes: int, stack: ExitStack) -> str:
    name = new_topic(target, 1, "flat")
    shape = {"record_bytes": 1024, "batch_bytes": 65536, "codec": "none", "connections": 1}
    drive(target, "produce", topic=name, limit_bytes=megabytes * 1_000_000, limit_seconds=FILL_SECONDS, **shape)
    return name


def _fill_topics(target: Target, count: int, stack: ExitStack) -> str:
    names = [f"idle-{number}" for number in range(count)]
    with target.client() as client:
        for first in range(0, count, CREATE_AT_ONCE):
            client.create_topics(names[first : first + CREATE_AT_ONCE], 3, CONFIGS)
    return new_topic(target, 1, "flat")


def _fill_partitions(target: Target, count: int, stack: ExitStack) -> str:
    return new_topic(target, count, "flat")


def _fill_groups(target: Target, count: int, stack: ExitStack) -> str:
    drive(target, "idle_groups", group=coordinated_group(target), first=0, groups=count)
    return new_topic(target, 1, "flat")


def _fill_connections(target: Target, count: int, stack: ExitStack) -> str:
    for _ in range(count):
        stack.callback(Client(target.address).sock.close)
    return new_topic(target, 1, "flat")


_add("log", "a log of 1 GB against one of 100 MB", (100, 2), _fill_log, ("commit", "transaction"))
_add("topics", "1,000 idle topics × 3 partitions against 100", (100, 3), _fill_topics)
# Without metadata: the answer lists all partitions of the topic, so it is ten times as long.
_add("partitions", "a topic of 1,000 partitions against one of 100", (100, 3), _fill_partitions, ("metadata",))
_add("groups", "10,000 idle groups against 1,000", (1000, 5), _fill_groups)
_add("connections", "1,000 idle connections against 100", (100, 3), _fill_connections)
