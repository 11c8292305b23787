"""An existing Kafka cluster, with the same handles as an Ottla broker in this process.

Features of Ottla (faults, the clock, the list of requests) raise `NeedsOttla`; the pytest plugin skips such tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from ottla.client import Client, admin, offsets
from ottla.client.connection import UnknownTopic
from ottla.client.fetcher import Fetcher, visible
from ottla.client.producer import Producer, partition_for
from ottla.embedded.client_config import ClientName, Role, Settings, client_config
from ottla.embedded.decoding import TopicDecoder
from ottla.embedded.group_waits import GroupWaits
from ottla.embedded.groups import Member, TopicPartition
from ottla.embedded.records import Given, Record, parts
from ottla.embedded.topic_handle import BlockingTopic, Condition, checked, setting_text
from ottla.embedded.unknown_names import NotFoundError, no_commits, unknown_topic
from ottla.enums import IsolationLevel
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.records.batch import Record as StoredRecord
from ottla.records.batch import build_batch
from ottla.testing.over_http import poll_for

if TYPE_CHECKING:
    from ottla.embedded import registry_handle
    from ottla.embedded.registry_handle import RegistryHandle
    from ottla.embedded.rules import GroupName, TopicName
    from ottla.testing import external_registry
    from ottla.testing.protocols import ClockHandle, FaultsHandle, SeenRequest
else:
    external_registry = lazy("ottla.testing.external_registry")
    registry_handle = lazy("ottla.embedded.registry_handle")

T = TypeVar("T")


class NeedsOttla(RuntimeError):
    """This test needs a feature of Ottla but runs on another broker."""


class ExternalBroker:
    """A cluster by its bootstrap address."""

    def __init__(self, bootstrap: str, registry_url: str | None = None) -> None:
        self.bootstrap = bootstrap
        self._registry_url = registry_url

    @property
    def has_registry(self) -> bool:
        return self._registry_url is not None

    def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run something with a client, in a thread: the caller may be on its own event loop."""

        async def run() -> T:
            async with Client(self.bootstrap) as client:
                return await work(client)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(run())).result()

    def topic(self, name: str) -> ExternalTopic:
        """A topic by its name, which need not exist yet."""
        return ExternalTopic(self, name)

    def group(self, group_id: str) -> ExternalGroup:
        """A group by its id, which need not exist yet."""
        return ExternalGroup(self, group_id)

    def bootstrap_for(self, listener: str | None = None) -> str:
        """An existing cluster has only one address here."""
        if listener is not None:
            self._needs_ottla("the address of a listener by its name")
        return self.bootstrap

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings: the cluster's address, and short delays for tests."""
        return client_config(self.bootstrap, client, role, user=user, mechanism=mechanism)

    def topics(self) -> list[str]:
        """The names of all topics except the internal ones."""
        return self.ask(_topic_names)

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return [each.group for each in self.ask(admin.list_groups)]

    def __repr__(self) -> str:
        return f"<Kafka at {self.bootstrap}>"

    @property
    def registry_url(self) -> str:
        """The schema registry of that cluster."""
        if self._registry_url is None:
            raise NeedsOttla("no schema registry is named for this cluster: run with --ottla-registry URL")
        return self._registry_url

    @property
    def registry(self) -> RegistryHandle:
        """The schema registry of that cluster, of any vendor."""
        return registry_handle.RegistryHandle(external_registry.ExternalRegistry(self.registry_url))

    def delete(self, topics: Iterable[str], groups: Iterable[str], subjects: Iterable[str] = ()) -> None:
        """Clean up; names that are in use or already gone are ignored."""
        for subject in subjects:
            for permanent in (False, True):
                with suppress(external_registry.RegistryError):
                    self.registry.delete(subject, permanent=permanent)
        names, ids = list(topics), list(groups)
        if names:
            self.ask(lambda client: admin.delete_topics(client, names))
        if ids:
            self.ask(lambda client: admin.delete_groups(client, ids))

    @property
    def faults(self) -> FaultsHandle:
        """Only Ottla has them."""
        self._needs_ottla("faults")

    @property
    def clock(self) -> ClockHandle:
        """Only Ottla has a clock that can be moved."""
        self._needs_ottla("a clock that can be moved")

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> list[SeenRequest]:
        """Only Ottla keeps them."""
        self._needs_ottla("a look at requests")

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = 5.0,
    ) -> SeenRequest:
        """Only Ottla keeps them."""
        self._needs_ottla("a look at requests")

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = 5.0,
    ) -> SeenRequest:
        """Only Ottla keeps them."""
        self._needs_ottla("a look at requests")

    def snapshot(self) -> NoReturn:
        """Only Ottla has them."""
        self._needs_ottla("a snapshot")

    def restore(self, state: object) -> NoReturn:
        """Only Ottla has them."""
        self._needs_ottla("a snapshot")

    def branch(self, data: object = None) -> NoReturn:
        """Only Ottla has them."""
        self._needs_ottla("a branch")

    def record(self, path: object) -> NoReturn:
        """Only Ottla records requests."""
        self._needs_ottla("a recording of requests")

    def run_scenario(self, scenario: object) -> list[dict[str, Any]]:
        """Only Ottla runs scenarios."""
        self._needs_ottla("scenarios")

    def down(self) -> NoReturn:
        """Only Ottla can be stopped by a test."""
        self._needs_ottla("stopping and starting it")

    up = kill = restart = down

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Delete these topics, groups and subjects. They must be listed, because other programs may use the rest."""
        if topics is None and groups is None and subjects is None:
            self._needs_ottla("a reset of everything (name topics=, groups= or subjects= here)")
        self.delete(topics or (), groups or (), subjects or ())

    def _needs_ottla(self, what: str) -> NoReturn:
        raise NeedsOttla(f"{what}: only Ottla has that, and this run is on {self.bootstrap}")


class ExternalTopic(BlockingTopic):
    """A topic of that cluster."""

    def __init__(self, broker: ExternalBroker, name: str) -> None:
        super().__init__(name)
        self._broker = broker

    @property
    def partitions(self) -> int:
        try:
            return len(self._broker.ask(lambda client: _partitions(client, self.name)))
        except NotFoundError:
            return 0

    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> Self:
        configs: dict[str, str | None] = {key: setting_text(value) for key, value in (config or {}).items()}
        wanted = admin.NewTopic(self.name, partitions, configs=configs)
        outcome = self._broker.ask(lambda client: admin.create_topics(client, [wanted]))[self.name]
        if isinstance(outcome, KafkaError):
            raise ValueError(f"topic {self.name!r} cannot be made: {outcome.message}") from outcome
        return self

    def delete(self) -> None:
        self._broker.delete([self.name], [])

    def records(self, partition: int | None = None, *, committed_only: bool = True) -> list[Record]:
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        found = self._broker.ask(lambda client: self._read(client, partition, isolation))
        decoder = TopicDecoder(lambda name: ExternalTopic(self._broker, name).records())
        found = [replace(record, decoder=decoder) for record in found]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def _read(self, client: Client, partition: int | None, isolation: int) -> list[Record]:
        indexes = await _partitions(client, self.name)
        if partition is not None and partition not in indexes:
            raise ValueError(f"topic {self.name} has partitions 0 to {indexes[-1]}, not {partition}")
        wanted = [(self.name, index) for index in indexes if partition in (None, index)]
        bounds = await offsets.bounds(client, wanted, isolation)
        positions = {tp: start for tp, (start, end) in bounds.items() if start < end}
        found: list[Record] = []
        fetcher = Fetcher(client, positions, isolation=isolation)
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

    def end_offsets(self) -> dict[int, int]:
        async def look(client: Client) -> dict[int, int]:
            partitions = [(self.name, index) for index in await _partitions(client, self.name)]
            bounds = await offsets.bounds(client, partitions)
            return {index: end for (_, index), (_, end) in bounds.items()}

        return self._broker.ask(look)

    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        given = [parts(each) for each in checked(records)]
        at_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        if not self.exists:
            self.create()

        async def append(client: Client) -> list[Record]:
            count = len(await _partitions(client, self.name))
            producer = Producer(client)
            done = []
            for key, value, headers in given:
                index = partition if partition is not None else 0 if key is None else partition_for(key, count)
                if not 0 <= index < count:
                    raise ValueError(f"topic {self.name} has partitions 0 to {count - 1}, not {index}")
                batch = build_batch([StoredRecord(0, at_ms, key, value, headers)])
                offset = await producer.append((self.name, index), batch)
                done.append(Record(self.name, index, offset, at_ms, key, value, tuple(headers)))
            return done

        return self._broker.ask(append)

    def compact_now(self) -> None:
        """Only Ottla compacts on demand."""
        self._broker._needs_ottla("compaction on demand")

    def delete_old_now(self) -> int:
        """Only Ottla checks the retention on demand."""
        self._broker._needs_ottla("a check of the retention on demand")

    def _block_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        return poll_for(self, condition, count, timeout)

    async def _await_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        return await asyncio.to_thread(poll_for, self, condition, count, timeout)


class ExternalGroup(GroupWaits):
    """A group of that cluster."""

    def __init__(self, broker: ExternalBroker, group_id: str) -> None:
        self._broker = broker
        self.group_id = group_id

    def __str__(self) -> str:
        return self.group_id

    def __repr__(self) -> str:
        return f"<group {self.group_id}>"

    @property
    def state(self) -> str:
        """Kafka's name of its state; `Dead` for a group that does not exist."""
        return self._broker.ask(lambda client: admin.describe_group(client, self.group_id)).state

    def members(self) -> list[Member]:
        """Its members, with the partitions that are assigned to them."""
        found = self._broker.ask(lambda client: admin.describe_group(client, self.group_id)).members
        return [
            Member(each.member_id, each.client_id, each.host, each.instance_id, tuple(sorted(each.partitions)))
            for each in found
        ]

    def committed(self) -> dict[TopicPartition, int]:
        """{(topic, partition): the next offset to read}, as committed."""
        found = self._broker.ask(lambda client: offsets.committed(client, self.group_id))
        return {tp: each.offset for tp, each in sorted(found.items())}

    def lag(self, of: object = None) -> int:
        """How many records the group has not read yet; the same as for a group in this process."""
        lags = self.lags() if of is None else self._broker.ask(lambda client: self._unread(client, str(of)))
        if not lags:
            raise no_commits(self.group_id, self._broker.groups())
        return sum(lags.values())

    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition with a committed offset."""

        async def look(client: Client) -> dict[TopicPartition, int]:
            found = await offsets.committed(client, self.group_id)
            ends = await offsets.bounds(client, found, IsolationLevel.READ_COMMITTED)
            return {tp: max(ends[tp][1] - each.offset, 0) for tp, each in found.items()}

        return self._broker.ask(look)

    def delete(self) -> None:
        """Delete the group and its offsets. A group with members stays, as in Kafka."""
        self._broker.delete([], [self.group_id])

    async def _unread(self, client: Client, topic: str) -> dict[TopicPartition, int]:
        partitions = [(topic, index) for index in await _partitions(client, topic)]
        committed = await offsets.committed(client, self.group_id)
        bounds = await offsets.bounds(client, partitions, IsolationLevel.READ_COMMITTED)
        return {
            tp: max(end - (committed[tp].offset if tp in committed else start), 0)
            for tp, (start, end) in bounds.items()
        }


async def _partitions(client: Client, topic: str) -> list[int]:
    """The partitions of a topic that must exist."""
    try:
        return sorted((await client.topic(topic)).partitions)
    except UnknownTopic:
        raise unknown_topic(topic, await _topic_names(client)) from None


async def _topic_names(client: Client) -> list[str]:
    known = await client.metadata()
    return sorted(name for name, topic in known.topics.items() if not topic.is_internal)
