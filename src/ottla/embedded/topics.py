"""Inspects topics and appends records without a client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.embedded.decoding import TopicDecoder
from ottla.embedded.records import Given, Record, parts
from ottla.embedded.topic_handle import (
    DEFAULT_TIMEOUT_S,
    BlockingTopic,
    Condition,
    TopicHandle,
    any_record,
    checked,
    nothing_came,
    setting_text,
)
from ottla.embedded.unknown_names import unknown_topic
from ottla.errors import KafkaError, TopicAlreadyExists
from ottla.lazy_imports import lazy
from ottla.metadata.controller import NewTopic
from ottla.metadata.topics import INTERNAL_TOPICS
from ottla.records.batch import Record as StoredRecord
from ottla.records.batch import build_batch
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.client import producer
    from ottla.embedded.broker import Embedded
    from ottla.server.broker import Broker as Server
else:
    producer = lazy("ottla.client.producer")

_LOOK_AGAIN_S: Final = 0.02
"""The poll interval for topics that do not exist yet: their first record cannot wake a waiter."""
_APPEND_VERSION: Final = 9


class Topic(TopicHandle):
    """A topic of a broker in this process."""

    def __init__(self, broker: Embedded, name: str) -> None:
        super().__init__(name)
        self._broker = broker

    # -- creating it -------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        return self._broker.call(lambda server: len(self._indexes(server)))

    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> Self:
        wanted = NewTopic(
            self.name, partitions, configs={key: setting_text(value) for key, value in (config or {}).items()}
        )

        def create(server: Server) -> None:
            outcome = server.controller.create_topics([wanted])[0]
            if isinstance(outcome, TopicAlreadyExists):
                raise ValueError(f"topic {self.name!r} already exists: use another name, or delete() it first")
            if isinstance(outcome, KafkaError):
                raise ValueError(f"topic {self.name!r} cannot be created: {outcome.message}") from outcome

        self._broker.call(create)
        return self

    def delete(self) -> None:
        def delete(server: Server) -> None:
            topic = server.metadata.topics.get(self.name)
            if topic is not None:
                server.controller.delete_topics([topic])

        self._broker.call(delete)

    # -- looking into it ---------------------------------------------------------------------------------------

    def records(self, partition: int | None = None, *, committed_only: bool = True) -> list[Record]:
        return self._broker.call(lambda server: list(self._known(server)._read(server, partition, committed_only)))

    def end_offsets(self) -> dict[int, int]:
        return self._broker.call(
            lambda server: {
                index: server.replicas.leader(self.name, index).high_watermark
                for index in self._known(server)._indexes(server)
            }
        )

    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        given = checked(records)
        return self._broker.call(lambda server: self._append(server, given, partition, timestamp_ms))

    # -- housekeeping, now -------------------------------------------------------------------------------------

    def compact_now(self) -> None:
        def compact(server: Server) -> None:
            for index in self._known(server)._indexes(server):
                log = server.replicas.leader(self.name, index).log
                if not log.config.compact:
                    raise ValueError(f"topic {self.name} is not compacted: give it cleanup.policy=compact")
                if log.active_segment.size:
                    log.roll()
                for cleaning in server.housekeeper.compact_now(self.name, index):
                    server.housekeeper.cleaner.finish(cleaning)

        self._broker.call(compact)

    def delete_old_now(self) -> int:
        def delete(server: Server) -> int:
            indexes = self._known(server)._indexes(server)
            return sum(server.replicas.leader(self.name, index).log.delete_old_segments() for index in indexes)

        return self._broker.call(delete)

    # -- waiting -----------------------------------------------------------------------------------------------

    async def _await_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        wait = self._wait(condition, count, timeout)
        if threading.get_ident() == self._broker.thread:
            return await wait
        return await asyncio.wrap_future(self._broker.submit(wait))

    async def _wait(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        """On the broker's loop: check the records now, and again after each append."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        watcher = Watcher()
        try:
            while True:
                watcher.news.clear()
                server = self._broker.server
                # Watch first, then read: so a record that arrives in between is seen.
                watcher.watch(server.replicas.leader(self.name, index) for index in self._indexes(server))
                records = list(self._read(server, None, True))
                found = [record for record in records if condition(record)]
                if len(found) >= count:
                    return found
                left = deadline - loop.time()
                if left <= 0:
                    exists = bool(self._indexes(server))
                    raise AssertionError(nothing_came(self.name, exists, records, len(found), count, timeout))
                try:
                    await asyncio.wait_for(
                        watcher.news.wait(), min(left, left if watcher.partitions else _LOOK_AGAIN_S)
                    )
                except TimeoutError:
                    continue
        finally:
            watcher.stop()

    async def until_readable(self, appended: list[Record]) -> None:
        """On the broker's loop: wait until consumers can read these records. A single broker never waits."""

    def records_with_states(self) -> list[tuple[Record, str | None]]:
        """All records, each with the reason why a read_committed consumer does not see it, or None if it does."""

        def read(server: Server) -> list[tuple[Record, str | None]]:
            indexes = self._known(server)._indexes(server)
            decoder = self._decoder()
            leaders = [server.replicas.leader(self.name, index) for index in indexes]
            return [pair for leader in leaders for pair in self._with_states(leader, decoder)]

        return self._broker.call(read)

    # -- on the loop -------------------------------------------------------------------------------------------

    def _known(self, server: Server) -> Self:
        if self.name not in server.metadata.topics:
            raise unknown_topic(self.name, set(server.metadata.topics) - INTERNAL_TOPICS)
        return self

    def _indexes(self, server: Server) -> list[int]:
        topic = server.metadata.topics.get(self.name)
        return sorted(topic.partitions) if topic is not None else []

    def _decoder(self) -> TopicDecoder:
        broker = self._broker
        return TopicDecoder(lambda name: type(self)(broker, name).records())

    def _read(self, server: Server, partition: int | None, committed_only: bool) -> Iterator[Record]:
        indexes = self._indexes(server)
        if partition is not None:
            if indexes and partition not in indexes:
                raise ValueError(f"topic {self.name} has partitions 0 to {indexes[-1]}, not {partition}")
            indexes = [partition] if indexes else []
        decoder = self._decoder()
        for index in indexes:
            for record, state in self._with_states(server.replicas.leader(self.name, index), decoder):
                if state is None or not committed_only:
                    yield record

    def _with_states(self, partition: Partition, decoder: TopicDecoder) -> Iterator[tuple[Record, str | None]]:
        """The records, each with the reason why a read_committed consumer does not see it; None if it does."""
        start, stable, end = partition.log_start_offset, partition.last_stable_offset, partition.high_watermark
        aborted = partition.log.aborted_transactions(start, end)
        for batch in partition.log.batches(start, end):
            if batch.is_control:
                continue
            state = None
            if batch.is_transactional and any(
                txn.producer_id == batch.producer_id and txn.first_offset <= batch.base_offset <= txn.last_offset
                for txn in aborted
            ):
                state = "aborted"
            elif batch.last_offset >= stable:
                state = "open transaction" if batch.is_transactional else "behind an open transaction"
            for each in batch.records():
                if start <= each.offset < end:
                    record = Record(
                        self.name,
                        partition.index,
                        each.offset,
                        each.timestamp,
                        each.key,
                        each.value,
                        tuple(each.headers),
                        decoder,
                    )
                    yield record, state

    def _append(
        self, server: Server, given: list[Given], partition: int | None, timestamp_ms: int | None
    ) -> list[Record]:
        if self.name not in server.metadata.topics:
            server.controller.auto_create_topic(self.name)
        count = len(server.metadata.topics[self.name].partitions)
        at_ms = timestamp_ms if timestamp_ms is not None else server.clock.now_ms()
        done: list[Record] = []
        for index, share in _by_partition(given, partition, count).items():
            if not 0 <= index < count:
                raise ValueError(f"topic {self.name} has partitions 0 to {count - 1}, not {index}")
            stored = [StoredRecord(n, at_ms, key, value, headers) for n, (key, value, headers) in enumerate(share)]
            info = server.replicas.leader(self.name, index).append(build_batch(stored), _APPEND_VERSION)
            done += [
                Record(self.name, index, info.first_offset + n, at_ms, key, value, tuple(headers))
                for n, (key, value, headers) in enumerate(share)
            ]
        return done


def _by_partition(given: list[Given], partition: int | None, count: int) -> dict[int, list[Any]]:
    shares: dict[int, list[Any]] = {}
    for each in given:
        split = parts(each)
        key = split[0]
        index = partition if partition is not None else 0 if key is None else producer.partition_for(key, count)
        shares.setdefault(index, []).append(split)
    return shares


class Watcher:
    """Partitions notify this object after each append."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.partitions: set[Partition] = set()

    def watch(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.partitions.add(partition)
            partition.watchers.add(self)

    def appended(self, byte_count: int) -> None:
        self.news.set()

    def moved(self) -> None:
        self.news.set()

    def stop(self) -> None:
        for partition in self.partitions:
            partition.watchers.discard(self)


class AsyncTopic(Topic):
    """A topic of a broker on the running loop."""

    async def wait_for(self, condition: Condition = any_record, *, timeout: float = DEFAULT_TIMEOUT_S) -> Record:
        """Wait until a record meets the condition and return it; AssertionError with the records if none did."""
        return (await self._wait(condition, 1, timeout))[0]

    async def wait_for_all(
        self, condition: Condition = any_record, *, count: int, timeout: float = DEFAULT_TIMEOUT_S
    ) -> list[Record]:
        """Wait until at least `count` records meet the condition and return all that do."""
        return await self._wait(condition, count, timeout)


class SyncTopic(Topic, BlockingTopic):
    """A topic of a broker that runs in its own thread."""

    def _block_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        return self._broker.submit(self._wait(condition, count, timeout)).result()
