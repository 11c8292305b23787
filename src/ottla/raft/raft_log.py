"""The log of a Raft replica: batches with epochs, truncated to match the leader, with snapshots of the old part.

This is Kafka's `KafkaRaftLog`, with the same files: a folder with segments and `….checkpoint` files (KIP-630).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaStorageError
from ottla.log.producers import Origin
from ottla.records.batch import Batch, batches

if TYPE_CHECKING:
    from ottla.log.files import Disk
    from ottla.log.log import Log

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
READ_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of one fetch, as in Kafka."""


class OffsetAndEpoch(NamedTuple):
    """A position in the log: an end offset, and the epoch of the record before it."""

    offset: int
    epoch: int


class Snapshots:
    """The snapshot files in the folder of the log."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        found = (_SNAPSHOT.fullmatch(name) for name in disk.scan(folder))
        self._ids = sorted(OffsetAndEpoch(int(match[1]), int(match[2])) for match in found if match is not None)

    def __iter__(self) -> Iterator[OffsetAndEpoch]:
        return iter(self._ids)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self._ids[-1] if self._ids else None

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return self._ids[0] if self._ids else None

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._folder}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"

    def read(self, snapshot: OffsetAndEpoch) -> bytes:
        return self._disk.read_bytes(self.path(snapshot))

    def part(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A part of a snapshot, and the size of the snapshot."""
        content = self.read(snapshot)
        return content[position : position + max_bytes], len(content)

    def store(self, snapshot: OffsetAndEpoch, content: bytes) -> None:
        """Store a complete snapshot; it is on disk before this returns."""
        self._disk.write_atomic(self.path(snapshot), content, sync=True)
        if snapshot not in self._ids:
            self._ids = sorted([*self._ids, snapshot])

    def remove_before(self, snapshot: OffsetAndEpoch) -> None:
        for old in [each for each in self._ids if each < snapshot]:
            self._ids.remove(old)
            self._disk.remove(self.path(old))


class RaftLog:
    """One replica's copy of the log."""

    def __init__(self, disk: Disk, log: Log) -> None:
        self._disk = disk
        self.log = log
        self.snapshots = Snapshots(disk, log.folder)
        self._rebuild_epochs()
        self._recover()

    def _rebuild_epochs(self) -> None:
        """Rebuild the epochs from the batches: elections depend on them, and their file is not synced."""
        entries: list[tuple[int, int]] = []
        for batch in self.log.batches(self.log.log_start_offset):
            if not entries or batch.leader_epoch > entries[-1][0]:
                entries.append((batch.leader_epoch, batch.base_offset))
        epochs = self.log.epochs
        if entries != epochs.entries:
            epochs.clear()
            for epoch, offset in entries:
                epochs.assign(epoch, offset)

    def _recover(self) -> None:
        latest = self.snapshots.latest
        if latest is not None and (
            latest.offset > self.log.log_end_offset or latest.epoch > max(self.log.epochs.latest, 0)
        ):
            # The last run ended after it fetched the snapshot and before it truncated the log.
            self.truncate_to_snapshot()
        if self.log.log_start_offset > 0 and latest is None:
            raise KafkaStorageError(
                f"{self.log.folder} begins at offset {self.log.log_start_offset}, and there is no snapshot of what "
                "came before; remove this controller's folder and let it fetch the log from the others"
            )
        self.log.high_watermark = self.start_offset

    # -- start and end -----------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_epoch(self) -> int:
        """The epoch of the newest record, or of the snapshot if there are no records after it."""
        latest = self.snapshots.latest
        if latest is not None and latest.offset == self.end_offset:
            return latest.epoch
        return max(self.log.epochs.latest, 0)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def update_high_watermark(self, offset: int) -> None:
        if offset > self.log.high_watermark:
            self.log.update_high_watermark(offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The newest epoch at or below `epoch`, and its end offset."""
        found_epoch, found_offset = self.log.end_offset_for_epoch(epoch)
        if found_epoch < 0:
            return self.end
        if found_offset == self.start_offset and self.start_offset > 0:
            return OffsetAndEpoch(found_offset, self._epoch_at_start())
        return OffsetAndEpoch(found_offset, found_epoch)

    def _epoch_at_start(self) -> int:
        return next((each.epoch for each in self.snapshots if each.offset == self.start_offset), 0)

    # -- reading -----------------------------------------------------------------------------------------------

    def check_position(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """Where a replica's log, which ends at `offset` in `epoch`, diverges from this one; None if it does not.

        Call `needs_snapshot` first.
        """
        if offset == 0 and self.start_offset == 0:
            return None
        end = self.end_offset_for_epoch(epoch)
        return end if end.epoch != epoch or end.offset < offset else None

    def needs_snapshot(self, offset: int, epoch: int) -> OffsetAndEpoch | None:
        """The snapshot that a replica must load first, if the log no longer has the records that it needs."""
        start, earliest = self.start_offset, self.snapshots.earliest
        if earliest is None or (start == 0 and offset == 0 and earliest.offset == 0):
            return None
        if offset < start or (offset == start != 0 and epoch != self._epoch_at_start()) or epoch < earliest.epoch:
            return self.snapshots.latest if start > 0 else None
        return None

    def read(self, offset: int, max_bytes: int = READ_BYTES_MAX) -> bytes:
        """Whole batches from `offset` on; at least one if there is one."""
        found: list[bytes] = []
        size = 0
        for batch in self.log.batches(offset):
            if found and size + batch.size > max_bytes:
                break
            found.append(bytes(batch.view()))
            size += batch.size
        return b"".join(found)

    def committed(self, offset: int) -> Iterator[Batch]:
        """The committed batches from `offset` on."""
        return self.log.batches(offset, self.high_watermark)

    # -- writing -----------------------------------------------------------------------------------------------

    def append_as_leader(self, data: Sequence[bytearray], epoch: int) -> None:
        """Assign offsets to batches and write them; they are on disk before this returns."""
        for batch in data:
            self.log.append([Batch(batch)], leader_epoch=epoch, origin=Origin.REPLICATION)
        self.log.flush()

    def append_as_follower(self, data: bytes) -> list[Batch]:
        """Write batches from the leader; they are on disk before this returns. Existing batches are skipped."""
        new = [batch for batch in batches(bytearray(data)) if batch.base_offset >= self.end_offset]
        for batch in new:
            self.log.append_as_follower([batch])
        if new:
            self.log.flush()
        return new

    def truncate_to(self, leader_end: OffsetAndEpoch) -> None:
        """Remove records that the leader does not have. `leader_end`: the end of its newest epoch at or below ours."""
        own = self.end_offset_for_epoch(leader_end.epoch)
        offset = min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset
        offset = min(offset, self.end_offset)
        if offset < self.high_watermark:
            raise KafkaStorageError(
                f"a leader wants {self.log.name} cut at {offset}, below the high watermark {self.high_watermark}"
            )
        self.log.truncate_to(offset)
        self._sync()

    def _sync(self) -> None:
        """Truncated records must not return after a power cut: the next appends may go to another segment."""
        self.log.active_segment.flush()
        self._disk.sync_folder(self.log.folder)

    def truncate_to_snapshot(self) -> None:
        """Delete the log and continue after the newest snapshot."""
        latest = self.snapshots.latest
        assert latest is not None
        self.log.truncate_fully_and_start_at(latest.offset)
        self._sync()

    def clean(self) -> bool:
        """Delete the part of the log that the newest snapshot covers, and older snapshots."""
        latest = self.snapshots.latest
        if latest is None or latest.offset <= self.start_offset or latest.offset > self.high_watermark:
            return False
        self.log.roll(self.end_offset)
        self.log.advance_log_start_offset(latest.offset)
        self.log.delete_old_segments()
        self.snapshots.remove_before(latest)
        return True
