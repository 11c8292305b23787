"""Copies partitions from one cluster to another, record by record. It can be interrupted at any point.

Committed records are read in order and written in order, so the end of the target's log shows the exact progress: after
an interruption, records that were written but not yet in the state file are counted there and skipped.
Offsets stay the same if the source has no gaps. Gaps of retention, compaction or transaction markers shift them, and
a map of the shifts is kept for the offsets of groups.
"""

from __future__ import annotations

import asyncio
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.common import CommandError
from ottla.client.fetcher import AnyBatch, Fetched, Fetcher, visible
from ottla.client.offsets import bounds
from ottla.client.producer import DEFAULT_BATCH_BYTES, RECORD_OVERHEAD, Producer
from ottla.enums import IsolationLevel
from ottla.errors import MessageTooLarge
from ottla.records.batch import CODEC_MASK, LOG_APPEND_TIME, Batch, Record, build_batch, pack_batch

if TYPE_CHECKING:
    from ottla.client import Client

TopicPartition = tuple[str, int]

STATE_VERSION: Final = 1
SMALL_BATCH_BYTES: Final = 16 * 1024
"""Smaller batches are merged; larger ones keep their compressed bytes."""
SAVE_EVERY_S: Final = 1.0
QUEUED_FETCHES: Final = 2


@dataclass(slots=True)
class Copy:
    """The progress of one partition, and how its offsets map. Offsets are those of the source unless named
    otherwise.
    """

    tp: TopicPartition
    next_offset: int
    target_next: int = 0
    shifts: list[tuple[int, int, bool]] = field(default_factory=list)
    """(offset, target offset, whether no offset is missing within the batch that starts there), where that changes."""
    skip: int = 0
    """Records that are already on the target but not in the state file."""
    end: int = 0

    def note(self, offset: int, target_offset: int, dense: bool) -> None:
        """Record that a batch that starts at `offset` is at `target_offset` on the target."""
        if self.shifts:
            last_offset, last_target, last_dense = self.shifts[-1]
            if dense and last_dense and offset - last_offset == target_offset - last_target:
                return
        self.shifts.append((offset, target_offset, dense))

    def shifted(self, offset: int) -> tuple[int, int | None]:
        """The position of an offset on the target; with a second number if the batch there has to be counted."""
        slot = bisect_right(self.shifts, offset, key=lambda entry: entry[0]) - 1
        if slot < 0:
            return (self.shifts[0][1] if self.shifts else self.target_next), None
        start, target, dense = self.shifts[slot]
        limit = self.shifts[slot + 1][1] if slot + 1 < len(self.shifts) else self.target_next
        if not dense and offset > start:
            return min(target, limit), start
        return min(target + offset - start, limit), None


class State:
    """The state file: the progress so far, and the two clusters."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source_id: str | None = None
        self.target_id: str | None = None
        self.copies: dict[TopicPartition, Copy] = {}

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def load(self) -> None:
        try:
            content = json.loads(self.path.read_text("utf-8"))
            if content["version"] != STATE_VERSION:
                raise ValueError(f"version {content['version']}")
            self.source_id, self.target_id = content["source"], content["target"]
            for entry in content["partitions"]:
                tp = (entry["topic"], entry["partition"])
                shifts = [(a, b, bool(c)) for a, b, c in entry["shifts"] if a < entry["next_offset"]]
                self.copies[tp] = Copy(tp, entry["next_offset"], entry["target_next"], shifts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CommandError(f"the state file {self.path} cannot be read: {error}") from None

    def save(self) -> None:
        content = {
            "version": STATE_VERSION,
            "source": self.source_id,
            "target": self.target_id,
            "partitions": [
                {
                    "topic": copy.tp[0],
                    "partition": copy.tp[1],
                    "next_offset": copy.next_offset,
                    "target_next": copy.target_next,
                    "shifts": copy.shifts,
                }
                for copy in self.copies.values()
            ],
        }
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


async def resume_points(target: Client, copies: Mapping[TopicPartition, Copy]) -> None:
    """Find out from the target's end offsets what was written after the state was last saved."""
    for tp, (_, end) in (await bounds(target, copies)).items():
        copy = copies[tp]
        if end < copy.target_next:
            raise CommandError(
                f"{tp[0]}-{tp[1]} ends at {end} on the target, but {copy.target_next} records were copied: "
                "it was changed or created again; delete the topic there and the state file to start over"
            )
        copy.skip = end - copy.target_next


class Copier:
    """Copies partitions in parallel, each in order."""

    def __init__(
        self,
        source: Client,
        target: Client,
        copies: Sequence[Copy],
        *,
        advance: Callable[[int], None],
        save: Callable[[], None],
        on_gap: Callable[[TopicPartition, int, int], None],
        follow: bool = False,
    ) -> None:
        self._copies = {copy.tp: copy for copy in copies if follow or copy.next_offset < copy.end}
        self._producer = Producer(target)
        self._advance = advance
        self._save = save
        self._follow = follow
        self._woken = asyncio.Event()
        self._queues: dict[TopicPartition, asyncio.Queue[Fetched | None]] = {}
        positions = {tp: copy.next_offset for tp, copy in self._copies.items()}
        self._fetcher = Fetcher(source, positions, isolation=IsolationLevel.READ_COMMITTED, on_gap=on_gap)

    async def run(self) -> None:
        """Run until every partition is copied, or forever with --follow."""
        if not self._copies:
            return
        try:
            async with asyncio.TaskGroup() as group:
                for tp in self._copies:
                    self._queues[tp] = asyncio.Queue()
                    group.create_task(self._write_all(self._copies[tp]))
                saver = group.create_task(self._save_now_and_then())
                await self._fetch_all()
                for queue in self._queues.values():
                    await queue.join()
                saver.cancel()
        except BaseExceptionGroup as failures:
            raise _first(failures) from None
        finally:
            await self._fetcher.close()
            self._save()

    async def _fetch_all(self) -> None:
        fetcher = self._fetcher
        while fetcher.positions:
            if fetcher.positions.keys() <= fetcher.paused:
                self._woken.clear()
                await self._woken.wait()
            for fetched in await fetcher.poll():
                queue = self._queues[fetched.tp]
                queue.put_nowait(fetched)
                if queue.qsize() >= QUEUED_FETCHES:
                    fetcher.paused.add(fetched.tp)
            if not self._follow:
                for tp in [tp for tp, at in fetcher.positions.items() if at >= self._copies[tp].end]:
                    del fetcher.positions[tp]
                    self._queues[tp].put_nowait(None)

    async def _write_all(self, copy: Copy) -> None:
        queue = self._queues[copy.tp]
        while True:
            fetched = await queue.get()
            try:
                if fetched is None:
                    return
                await _Writing(self._producer, copy).run(fetched)
                reached = fetched.batches[-1].next_offset
                self._advance(min(reached, copy.end or reached) - min(copy.next_offset, copy.end or reached))
                copy.next_offset = reached
            finally:
                queue.task_done()
            self._fetcher.paused.discard(copy.tp)
            self._woken.set()

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            self._save()


def _first(failures: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Writing:
    """Writes the result of one fetch. The copy's state changes only when all of it is written."""

    def __init__(self, producer: Producer, copy: Copy) -> None:
        self._producer = producer
        self._copy = copy
        self._cursor = copy.target_next
        self._written = copy.target_next + copy.skip
        self._skip = copy.skip
        self._pending: list[Record] = []
        self._pending_bytes = 0
        self._codec = 0

    async def run(self, fetched: Fetched) -> None:
        for batch in visible(fetched.batches, fetched.aborted):
            if self._passes_through(batch):
                assert isinstance(batch, Batch)
                self._copy.note(batch.base_offset, self._cursor, True)
                await self._flush()
                await self._send(_fresh(batch), batch.record_count)
                self._cursor += batch.record_count
            else:
                await self._take_records(batch)
        await self._flush()
        self._copy.target_next = self._cursor
        self._copy.skip = self._skip

    def _passes_through(self, batch: AnyBatch) -> bool:
        """Whether the bytes can be sent unchanged: no record missing, none to skip, and timestamps from the records."""
        return (
            isinstance(batch, Batch)
            and batch.size >= SMALL_BATCH_BYTES
            and not self._skip
            and batch.base_offset >= self._copy.next_offset
            and batch.record_count == batch.last_offset_delta + 1
            and batch.timestamp_type != LOG_APPEND_TIME
            and not batch.has_delete_horizon
        )

    async def _take_records(self, batch: AnyBatch) -> None:
        records = [record for record in batch.records() if record.offset >= self._copy.next_offset]
        if not records:
            return
        dense = records[-1].offset - records[0].offset + 1 == len(records)
        self._copy.note(records[0].offset, self._cursor, dense)
        self._cursor += len(records)
        skipped = min(self._skip, len(records))
        self._skip -= skipped
        records = records[skipped:]
        if self._pending and batch.codec != self._codec:
            await self._flush()
        self._codec = batch.codec
        for record in records:
            size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
            size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
            if self._pending and self._pending_bytes + size > DEFAULT_BATCH_BYTES:
                await self._flush()
            self._pending.append(record)
            self._pending_bytes += size

    async def _flush(self) -> None:
        if self._pending:
            records, self._pending, self._pending_bytes = self._pending, [], 0
            await self._send_records(records)

    async def _send_records(self, records: list[Record]) -> None:
        numbered = [record._replace(offset=number) for number, record in enumerate(records)]
        try:
            await self._send(build_batch(numbered, codec=self._codec), len(records))
        except MessageTooLarge:
            if len(records) == 1:
                raise
            half = len(records) // 2
            await self._send_records(records[:half])
            await self._send_records(records[half:])

    async def _send(self, batch: bytearray, count: int) -> None:
        offset = await self._producer.append(self._copy.tp, batch)
        if offset >= 0 and offset != self._written:
            topic, partition = self._copy.tp
            raise CommandError(
                f"{topic}-{partition}: another program writes to it on the target (offset {offset} instead of "
                f"{self._written}); stop it, delete the topic there and the state file, and start over"
            )
        self._written += count


def _fresh(batch: Batch) -> bytearray:
    """The same records as a producer would send them: no transaction, no leader, offsets from 0."""
    return pack_batch(
        batch.payload(),
        batch.record_count,
        base_offset=0,
        leader_epoch=-1,
        attributes=batch.attributes & CODEC_MASK,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


async def target_offset(source: Client, copy: Copy, offset: int) -> int:
    """The offset on the target at which a group that committed `offset` at the source continues."""
    target, count_from = copy.shifted(offset)
    if count_from is None:
        return target
    # Compaction removed records of this batch: count those that are left before the offset.
    fetcher = Fetcher(source, {copy.tp: count_from}, isolation=IsolationLevel.READ_COMMITTED)
    try:
        while fetcher.positions[copy.tp] <= offset:
            for fetched in await fetcher.poll():
                for batch in visible(fetched.batches, fetched.aborted):
                    target += sum(count_from <= record.offset < offset for record in batch.records())
    finally:
        await fetcher.close()
    return min(target, copy.target_next)
