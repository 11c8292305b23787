"""Writes the files of a whole data folder: checkpoints, and the marker of a clean stop.

Several processes may share one folder. Then one of them writes these files, and the others send it their part
(`workers/checkpoints.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Protocol, TypeAlias

from ottla.log import checkpoints
from ottla.log.checkpoints import TopicPartition
from ottla.log.files import Disk

Offsets: TypeAlias = dict[TopicPartition, int]
Background: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], object]
"""`background(work, done)`: run `work` in a thread, then `done` on the event loop if it did not fail."""


class FolderCheckpoints(Protocol):
    """Receives the checkpoints of a log manager."""

    def write(self, path: str, offsets: Offsets) -> None:
        """Write these offsets to the disk soon. After `closing` was called, write them immediately."""

    def write_for_snapshot(self, path: str, offsets: Offsets) -> None:
        """Write immediately without a flush: a snapshot does not have to survive a machine crash."""

    def closing(self) -> None:
        """The logs are about to be closed. The next checkpoints are those of a clean stop."""

    def note_clean_stop(self, broker_epoch: int) -> None:
        """All logs are flushed and closed, and all checkpoints written."""


class CheckpointWriter:
    """Writes the checkpoints into the folder. Unchanged offsets are not written again, so an idle broker leaves the
    disk alone."""

    def __init__(self, disk: Disk, background: Background | None) -> None:
        """Writes in the `background` if it is given, because waiting for a disk would block every connection."""
        self._disk = disk
        self._background = background
        self._written: dict[str, Offsets] = {}
        self._under_way: set[str] = set()
        self._lock = Lock()
        self._closing = False

    def write(self, path: str, offsets: Offsets) -> None:
        if self._written.get(path) == offsets:
            return
        if self._background is None or self._closing:
            with self._lock:
                checkpoints.write_offsets(self._disk, path, offsets)
            self._written[path] = offsets
        elif path not in self._under_way:
            self._under_way.add(path)

            def work() -> None:
                try:
                    with self._lock:
                        if not self._closing:  # otherwise newer offsets were or will be written
                            checkpoints.write_offsets(self._disk, path, offsets)
                            self._written[path] = offsets
                finally:
                    self._under_way.discard(path)

            self._background(work, lambda: None)

    def write_for_snapshot(self, path: str, offsets: Offsets) -> None:
        if self._written.get(path) != offsets:
            with self._lock:
                checkpoints.write_offsets(self._disk, path, offsets, sync=False)
            self._written.pop(path, None)  # the next checkpoint is flushed as usual

    def closing(self) -> None:
        self._closing = True

    def note_clean_stop(self, broker_epoch: int) -> None:
        checkpoints.write_clean_stop(self._disk, broker_epoch)
