"""One data folder in the hands of several processes.

Each worker opens the logs of the partitions that it leads, and only those. The files that speak for the whole folder,
the checkpoints and the clean-stop marker, are written by the controller; the others hand in their part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.log import checkpoints
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.manager import LogManager

Offsets = dict[TopicPartition, int]


class ControllerLogs(LogManager):
    """The controller's logs, and the checkpoints of everybody's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._leader_of: Callable[[TopicPartition], int | None] | None = None
        self._own_id = -1
        self._parts: dict[str, dict[int, Offsets]] = {}
        self.all_closed = True
        """Whether every other worker closed its logs; only then was the stop a clean one."""

    def share_out(self, own_id: int, leader_of: Callable[[TopicPartition], int | None]) -> None:
        """From now on only the partitions that this worker leads are its own."""
        self._own_id = own_id
        self._leader_of = leader_of
        self._unopened = {key: None for key in self._unopened if leader_of(key) == own_id}

    def load_all(self) -> None:
        """Before it is known who leads what there is nothing to recover: each worker recovers its own."""
        if self._leader_of is not None:
            super().load_all()

    def write_checkpoint(self, path: str, offsets: Offsets) -> None:
        self._hand_in(self._own_id, path, {key: offset for key, offset in offsets.items() if self._is_own(key)})

    def _is_own(self, key: TopicPartition) -> bool:
        return key in self._logs or key in self._unopened

    def hand_in(self, worker_id: int, path: str, offsets: Offsets) -> None:
        """Another worker's part of a checkpoint."""
        self._hand_in(worker_id, path, offsets)

    def _hand_in(self, worker_id: int, path: str, offsets: Offsets) -> None:
        parts = self._parts.get(path)
        if parts is None:
            parts = self._parts[path] = self._last_parts(path)
        parts[worker_id] = offsets
        everything: Offsets = {}
        for part in parts.values():
            everything.update(part)
        super().write_checkpoint(path, everything)

    def _last_parts(self, path: str) -> dict[int, Offsets]:
        """What the file says so far stands until the worker that leads the partition says something newer."""
        parts: dict[int, Offsets] = {}
        if self._leader_of is not None:
            for key, offset in checkpoints.read_offsets(self.disk, path).items():
                leader = self._leader_of(key)
                if leader is not None:
                    parts.setdefault(leader, {})[key] = offset
        return parts

    def _note_clean_stop(self, broker_epoch: int) -> None:
        if self.all_closed:
            super()._note_clean_stop(broker_epoch)


class FollowerLogs(LogManager):
    """The logs of a worker that is not the controller."""

    hand_in: Callable[[str, Offsets], None]
    """Gives a part of a checkpoint to the controller."""
    closed_cleanly = False

    def open_shared(self, identity: MetaProperties, clean_start: bool, own: list[TopicPartition]) -> None:
        """The folder is locked and checked by the controller; `own` are the partitions that this worker leads."""
        disk = self.disk
        self.meta = identity
        self.clean_start = clean_start
        self._locked = True
        self._recovery_points = checkpoints.read_offsets(disk, checkpoints.RECOVERY_POINTS_FILE)
        self._start_offsets = checkpoints.read_offsets(disk, checkpoints.LOG_START_OFFSETS_FILE)
        self._high_watermarks = checkpoints.read_offsets(disk, checkpoints.HIGH_WATERMARKS_FILE)
        folders = disk.scan("")
        self._unopened = {key: None for key in own if folders.get(f"{key[0]}-{key[1]}") == -1}
        self.report_missing(own)

    def write_checkpoint(self, path: str, offsets: Offsets) -> None:
        own = {key: offset for key, offset in offsets.items() if key in self._logs or key in self._unopened}
        if self._written.get(path) != own:
            self._written[path] = own
            self.hand_in(path, own)

    def _note_clean_stop(self, broker_epoch: int) -> None:
        self.closed_cleanly = True
