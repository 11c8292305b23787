"""A Kafka cluster that is already there, behind the same handles as an Ottla in this process.

What only a broker of our own can do (faults, its clock, its requests) raises `NeedsOttla`; the pytest plugin skips such
tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ottla.client import Client, admin, offsets
from ottla.client.fetcher import Fetcher, visible
from ottla.client.producer import Producer, partition_for
from ottla.embedded.groups import Member, TopicPartition
from ottla.embedded.records import Given, Record, difference, parts
from ottla.enums import IsolationLevel
from ottla.errors import KafkaError
from ottla.records.batch import Record as StoredRecord
from ottla.records.batch import build_batch
from ottla.testing.over_http import DEFAULT_TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from ottla.embedded.clock import VirtualClock
    from ottla.embedded.faults import Faults

T = TypeVar("T")


class NeedsOttla(RuntimeError):
    """This test uses what only Ottla has, and runs on another broker."""


class ExternalBroker:
    """A cluster by its bootstrap address."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run something with a client, in a thread: the caller may be on an event loop of its own."""

        async def run() -> T:
            async with Client(self.bootstrap) as client:
                return await work(client)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(run())).result()

    def topic(self, name: str) -> ExternalTopic:
        return ExternalTopic(self, name)

    def group(self, group_id: str) -> ExternalGroup:
        return ExternalGroup(self, group_id)

    def delete(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        """Clean up; what is in use or gone already stays as it is."""
        names, ids = list(topics), list(groups)
        if names:
            self.ask(lambda client: admin.delete_topics(client, names))
        if ids:
            self.ask(lambda client: admin.delete_groups(client, ids))

    @property
    def faults(self) -> Faults:
        self._needs_ottla("faults")

    @property
    def clock(self) -> VirtualClock:
        self._needs_ottla("a clock that can be moved")

    def requests(self, *_: object, **__: object) -> list[Any]:
        self._needs_ottla("a look at requests")

    def _needs_ottla(self, what: str) -> NoReturn:
        raise NeedsOttla(f"{what}: only Ottla has that, and this run is on {self.bootstrap}")


class ExternalTopic:
    """A topic of that cluster."""

    def __init__(self, broker: ExternalBroker, name: str) -> None:
        self._broker = broker
        self.name = name

    def __str__(self) -> str:
        return self.name

    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> ExternalTopic:
        configs: dict[str, str | None] = {key: str(value) for key, value in (config or {}).items()}
        wanted = admin.NewTopic(self.name, partitions, configs=configs)
        outcome = self._broker.ask(lambda client: admin.create_topics(client, [wanted]))[self.name]
        if isinstance(outcome, KafkaError):
            raise ValueError(f"topic {self.name!r} cannot be made: {outcome.message}") from outcome
        return self

    def delete(self) -> None:
        self._broker.delete([self.name], [])

    def records(self) -> list[Record]:
        """Everything that a read_committed consumer sees."""
        found = self._broker.ask(self._read)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def _read(self, client: Client) -> list[Record]:
        topic = await client.topic(self.name)
        partitions = [(self.name, index) for index in topic.partitions]
        bounds = await offsets.bounds(client, partitions, IsolationLevel.READ_COMMITTED)
        positions = {tp: start for tp, (start, end) in bounds.items() if start < end}
        found: list[Record] = []
        fetcher = Fetcher(client, positions, isolation=IsolationLevel.READ_COMMITTED)
        try:
            while any(fetcher.positions[tp] < bounds[tp][1] for tp in positions):
                for fetched in await fetcher.poll():
                    for batch in visible(fetched.batches, fetched.aborted):
                        found += self._decoded(batch, fetched.tp[1], bounds[fetched.tp][1])
        finally:
            await fetcher.close()
        return found

    def _decoded(self, batch: Any, index: int, end: int) -> list[Record]:
        return [
            Record(self.name, index, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
            for each in batch.records()
            if each.offset < end
        ]

    def texts(self) -> list[str | None]:
        return [record.text for record in self.records()]

    def jsons(self) -> list[Any]:
        return [record.json for record in self.records()]

    def expect(self, expected: Iterable[Given]) -> None:
        diff = difference(list(expected), self.records())
        if diff is not None:
            raise AssertionError(f"topic {self.name} holds something else (- expected, + found):\n{diff}")

    def append(self, records: Iterable[Given], *, partition: int | None = None) -> None:
        given = [parts(each) for each in records]

        async def append(client: Client) -> None:
            count = len((await client.topic(self.name)).partitions)
            producer = Producer(client)
            now_ms = time.time_ns() // 1_000_000
            for key, value, headers in given:
                index = partition if partition is not None else 0 if key is None else partition_for(key, count)
                await producer.append((self.name, index), build_batch([StoredRecord(0, now_ms, key, value, headers)]))

        self._broker.ask(append)

    def wait_for(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """Block until `count` records meet the condition."""
        return wait_for(self, condition, count, timeout)

    async def wait_for_async(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """The same for tests on an asyncio loop."""
        return await asyncio.to_thread(wait_for, self, condition, count, timeout)


class ExternalGroup:
    """A group of that cluster."""

    def __init__(self, broker: ExternalBroker, group_id: str) -> None:
        self._broker = broker
        self.group_id = group_id

    def __str__(self) -> str:
        return self.group_id

    @property
    def state(self) -> str:
        return self._broker.ask(lambda client: admin.describe_group(client, self.group_id)).state

    def members(self) -> list[Member]:
        found = self._broker.ask(lambda client: admin.describe_group(client, self.group_id)).members
        return [
            Member(each.member_id, each.client_id, each.host, each.instance_id, tuple(sorted(each.partitions)))
            for each in found
        ]

    def committed(self) -> dict[TopicPartition, int]:
        found = self._broker.ask(lambda client: offsets.committed(client, self.group_id))
        return {tp: each.offset for tp, each in sorted(found.items())}

    def lag(self, topic: str | None = None) -> int:
        return sum(lag for (name, _), lag in self.lags().items() if topic is None or name == topic)

    def lags(self) -> dict[TopicPartition, int]:
        async def look(client: Client) -> dict[TopicPartition, int]:
            found = await offsets.committed(client, self.group_id)
            ends = await offsets.bounds(client, found, IsolationLevel.READ_COMMITTED)
            return {tp: max(ends[tp][1] - each.offset, 0) for tp, each in found.items()}

        return self._broker.ask(look)
