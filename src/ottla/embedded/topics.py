"""A topic, looked at and filled without a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.producer import partition_for
from ottla.embedded.records import Given, Record, difference, parts
from ottla.errors import KafkaError, TopicAlreadyExists
from ottla.metadata.controller import NewTopic
from ottla.records.batch import Record as StoredRecord
from ottla.records.batch import build_batch
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.embedded.broker import Embedded
    from ottla.server.broker import Broker as Server

DEFAULT_TIMEOUT_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.02
"""For topics that are not there yet: nobody can be told of their first record."""
_APPEND_VERSION: Final = 9
_SHOWN_RECORDS: Final = 20


class Topic:
    """A handle on a topic by name; the topic itself may come and go."""

    def __init__(self, broker: Embedded, name: str) -> None:
        self._broker = broker
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    # -- making it ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return self._broker.call(lambda server: self.name in server.metadata.topics)

    @property
    def partitions(self) -> int:
        """How many partitions it has; 0 if it does not exist."""
        return self._broker.call(lambda server: len(self._indexes(server)))

    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> Topic:
        """Make it; -1 partitions stands for the broker's `num.partitions`."""
        wanted = NewTopic(self.name, partitions, configs={key: _text(value) for key, value in (config or {}).items()})

        def create(server: Server) -> None:
            outcome = server.controller.create_topics([wanted])[0]
            if isinstance(outcome, TopicAlreadyExists):
                raise ValueError(f"topic {self.name!r} exists already: take another name, or delete() it first")
            if isinstance(outcome, KafkaError):
                raise ValueError(f"topic {self.name!r} cannot be made: {outcome.message}") from outcome

        self._broker.call(create)
        return self

    def delete(self) -> None:
        """Remove it, with its records and the offsets that groups committed for it."""

        def delete(server: Server) -> None:
            topic = server.metadata.topics.get(self.name)
            if topic is not None:
                server.controller.delete_topics([topic])

        self._broker.call(delete)

    # -- looking into it ---------------------------------------------------------------------------------------

    def records(self, partition: int | None = None, *, committed_only: bool = True) -> list[Record]:
        """Everything in it, partition by partition, in order of offsets.

        `committed_only` leaves out what a read_committed consumer does not see: open and aborted transactions.
        """
        return self._broker.call(lambda server: list(self._read(server, partition, committed_only)))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def texts(self) -> list[str | None]:
        return [record.text for record in self.records()]

    def jsons(self) -> list[Any]:
        return [record.json for record in self.records()]

    def end_offsets(self) -> dict[int, int]:
        """{partition: the offset that the next record gets}."""
        return self._broker.call(
            lambda server: {
                index: server.replicas.leader(self.name, index).high_watermark for index in self._indexes(server)
            }
        )

    def expect(self, expected: Iterable[Given], partition: int | None = None) -> None:
        """Assert that exactly these values (or (key, value) pairs) are in it, in this order; the error shows a diff."""
        found = self.records(partition)
        diff = difference(list(expected), found)
        if diff is not None:
            raise AssertionError(f"topic {self.name} holds something else (- expected, + found):\n{diff}")

    # -- filling it --------------------------------------------------------------------------------------------

    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        """Append records as a producer would: those with a key go where Kafka's Java client puts them.

        Others go to `partition`, or to partition 0. The topic is made if it does not exist.
        """
        if isinstance(records, (str, bytes, Mapping)):
            raise TypeError("append takes a list of records: put the value into [ ]")
        given = list(records)
        return self._broker.call(lambda server: self._append(server, given, partition, timestamp_ms))

    def save(self, path: str | PathLike[str]) -> int:
        """Write its records to a file, a JSON object a line; returns how many."""
        records = self.records()
        with Path(path).open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record.to_dict(), ensure_ascii=False) + "\n")
        return len(records)

    def load(self, path: str | PathLike[str]) -> list[Record]:
        """Append the records of such a file, each to its partition and with its timestamp."""
        loaded: list[Record] = []
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    loaded.append(Record.from_dict(self.name, json.loads(line)))
                except (ValueError, AttributeError) as error:
                    raise ValueError(f"{path}, line {number}: not a record in JSON ({error})") from error
        count = max((record.partition for record in loaded), default=0) + 1
        if not self.exists:
            self.create(count)
        done: list[Record] = []
        for record in loaded:
            timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
            done += self.append([record], partition=record.partition, timestamp_ms=timestamp_ms)
        return done

    # -- waiting -----------------------------------------------------------------------------------------------

    async def _wait(self, condition: Callable[[Record], bool], count: int, timeout: float) -> list[Record]:
        """On the broker's loop: look at the records, and again whenever something is appended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        watcher = _Watcher()
        try:
            while True:
                watcher.news.clear()
                server = self._broker.server
                # First watched, then read: a record that comes in between is seen.
                watcher.watch(server.replicas.leader(self.name, index) for index in self._indexes(server))
                records = list(self._read(server, None, True))
                found = [record for record in records if condition(record)]
                if len(found) >= count:
                    return found
                left = deadline - loop.time()
                if left <= 0:
                    raise AssertionError(self._nothing_came(records, found, count, timeout))
                try:
                    await asyncio.wait_for(
                        watcher.news.wait(), min(left, left if watcher.partitions else _LOOK_AGAIN_S)
                    )
                except TimeoutError:
                    continue
        finally:
            watcher.stop()

    def _nothing_came(self, records: list[Record], found: list[Record], count: int, timeout: float) -> str:
        wanted = "no record" if count == 1 else f"{len(found)} of {count} records"
        if not records:
            there = "the topic is empty" if self._indexes(self._broker.server) else "the topic does not exist"
            return f"{wanted} in topic {self.name} met the condition within {timeout:g} s: {there}"
        lines = [f"  {record}" for record in records[-_SHOWN_RECORDS:]]
        if len(records) > len(lines):
            lines.insert(0, f"  … {len(records) - len(lines)} more before these")
        return f"{wanted} in topic {self.name} met the condition within {timeout:g} s; it holds:\n" + "\n".join(lines)

    # -- on the loop -------------------------------------------------------------------------------------------

    def _indexes(self, server: Server) -> list[int]:
        topic = server.metadata.topics.get(self.name)
        return sorted(topic.partitions) if topic is not None else []

    def _read(self, server: Server, partition: int | None, committed_only: bool) -> Iterator[Record]:
        indexes = self._indexes(server)
        if partition is not None:
            if indexes and partition not in indexes:
                raise ValueError(f"topic {self.name} has partitions 0 to {indexes[-1]}, not {partition}")
            indexes = [partition] if indexes else []
        for index in indexes:
            yield from self._read_partition(server.replicas.leader(self.name, index), committed_only)

    def _read_partition(self, partition: Partition, committed_only: bool) -> Iterator[Record]:
        start = partition.log_start_offset
        end = partition.last_stable_offset if committed_only else partition.high_watermark
        aborted = partition.log.aborted_transactions(start, end) if committed_only else []
        for batch in partition.log.batches(start, end):
            if batch.is_control or (
                batch.is_transactional
                and any(
                    txn.producer_id == batch.producer_id and txn.first_offset <= batch.base_offset <= txn.last_offset
                    for txn in aborted
                )
            ):
                continue
            for record in batch.records():
                if start <= record.offset < end:
                    yield Record(
                        self.name,
                        partition.index,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )

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
        index = partition if partition is not None else 0 if key is None else partition_for(key, count)
        shares.setdefault(index, []).append(split)
    return shares


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Watcher:
    """Told by partitions that something was appended."""

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

    async def wait_for(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """Wait until `count` records meet the condition and return them; AssertionError with what was there if not."""
        return await self._wait(condition, count, timeout)


class SyncTopic(Topic):
    """A topic of a broker that has a thread of its own."""

    def wait_for(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """Block until `count` records meet the condition and return them; AssertionError with what was there if not."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._broker.submit(self._wait(condition, count, timeout)).result()
        raise RuntimeError("wait_for would block this event loop: use `await topic.wait_for_async(…)` here")

    async def wait_for_async(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """The same for tests on an asyncio loop, which must go on while they wait."""
        return await asyncio.wrap_future(self._broker.submit(self._wait(condition, count, timeout)))
