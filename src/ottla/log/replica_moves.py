"""Moves of logs between the folders of a disk (KIP-113), while they are in use.

A thread copies a log into a folder `topic-0.…-future` in the target data folder, round after round, until little is
left. The rest is copied on the event loop, where nothing can be appended in the meantime, and the two folders swap
names. Readers and writers keep using the same log: its files have the same names and bytes, and are reopened in their
new place.

A copy never holds more than the log had at the start of the round, so a partial append is not copied. A replaced file
(as in compaction) is a different file to the system, and is copied again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.errors import KafkaStorageError
from ottla.log.checkpoints import TopicPartition
from ottla.log.files import PosixDisk
from ottla.log.folder_names import FUTURE_SUFFIX, marked_folder
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.log.removal import DELETED_SUFFIX

logger = logging.getLogger(__name__)

_REST_BYTES: Final = 4 << 20
"""How much may be left to copy on the event loop: this takes some milliseconds."""
_ROUNDS_MAX: Final = 20
"""After this many rounds a log is moved even if it is written faster than it can be copied."""
_BUSY_PAUSE_MS: Final = 200

Run = Callable[[Callable[[], None], Callable[[], None]], object]


class Move:
    """The move of one log to `target`."""

    __slots__ = ("copied", "error", "folder", "is_off", "key", "log", "rounds", "target")

    def __init__(self, key: TopicPartition, log: Log, target: PosixDisk, folder: str) -> None:
        self.key = key
        self.log = log
        self.target = target
        self.folder = folder
        self.copied: dict[str, tuple[int, int]] = {}
        """{file: (its inode number, bytes copied)}"""
        self.rounds = 0
        self.error: Exception | None = None
        self.is_off = False

    @property
    def size_bytes(self) -> int:
        """How many bytes of the log are copied."""
        return sum(size for name, (_, size) in list(self.copied.items()) if name.endswith(".log"))

    @property
    def offset_lag(self) -> int:
        """The lag of the copy, in whole segments."""
        done = 0
        for segment in self.log.segments:
            if self.copied.get(segment.log.path.rpartition("/")[2], (0, -1))[1] < segment.log.size:
                return self.log.log_end_offset - max(segment.base_offset, self.log.log_start_offset, done)
            done = segment.base_offset
        return 0


class Moves:
    """All moves of a broker."""

    def __init__(
        self,
        logs: LogManager,
        disk: MultiDirDisk,
        run: Run,
        schedule: Callable[[float, Callable[[], None]], object],
        new_token: Callable[[], str],
        is_busy: Callable[[TopicPartition], bool],
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._run = run
        self._schedule = schedule
        self._new_token = new_token
        self._is_busy = is_busy
        self._moves: dict[TopicPartition, Move] = {}
        self._is_stopped = False
        self.on_moved: Callable[[TopicPartition], None] = lambda key: None

    def under_way(self) -> list[Move]:
        return list(self._moves.values())

    def start(self, key: TopicPartition, target: PosixDisk) -> None:
        """Move a log to `target`. Cancels a move of this log to another folder."""
        under_way = self._moves.get(key)
        if under_way is not None and under_way.target is target:
            return
        self.cancel(key)
        log = self._logs.get(*key)
        if log is None or self._disk.part_of(log.folder) is target:
            return
        folder = marked_folder(*key, self._new_token(), FUTURE_SUFFIX)
        self._disk.put(folder, target)
        self._disk.mkdir(folder)
        move = self._moves[key] = Move(key, log, target, folder)
        self._next_round(move)

    def cancel(self, key: TopicPartition) -> None:
        """Leave a log where it is, for example because it is about to be deleted."""
        move = self._moves.pop(key, None)
        if move is not None:
            move.is_off = True
            self._disk.remove_tree(move.folder)

    def stop(self) -> None:
        """Stop all moves. Unfinished ones begin again at the next start."""
        self._is_stopped = True
        for move in self._moves.values():
            move.is_off = True

    # -- copying -----------------------------------------------------------------------------------------------

    def _next_round(self, move: Move) -> None:
        move.rounds += 1
        sizes = self._sizes(move.log)

        def work() -> None:
            try:
                copied = [f"{move.folder}/{name}" for name in sizes if self._copy(move, name, sizes[name])]
                self._disk.sync_paths(copied)
            except (OSError, KafkaStorageError) as error:
                move.error = error

        self._run(work, lambda: self._copied(move))

    @staticmethod
    def _sizes(log: Log) -> dict[str, int]:
        """The record files with their current sizes. The other small files change, and are copied last."""
        return {segment.log.path.rpartition("/")[2]: segment.log.size for segment in log.segments}

    def _copy(self, move: Move, name: str, size: int) -> bool:
        """Copy the missing part of a file up to `size`; whether there was any. A missing file counts as empty."""
        path, to = f"{move.log.folder}/{name}", f"{move.folder}/{name}"
        number = self._disk.number_of(path)
        if number is None or move.is_off:
            return False
        before, start = move.copied.get(name, (number, 0))
        if before != number:
            start = 0
        if start == size and name in move.copied:
            return False
        self._disk.copy(path, to, start, size)
        move.copied[name] = number, size
        return True

    def _copied(self, move: Move) -> None:
        if self._is_stopped:
            return
        if move.is_off:
            self._disk.remove_tree(move.folder)  # the thread may have written after `cancel`
            return
        if move.error is not None:
            logger.error("%s stays where it is: %s", move.log.name, move.error)
            self.cancel(move.key)
            return
        sizes = self._sizes(move.log)
        left = sum(size - move.copied.get(name, (0, 0))[1] for name, size in sizes.items())
        if left > _REST_BYTES and move.rounds < _ROUNDS_MAX:
            self._next_round(move)
        elif self._is_busy(move.key):
            self._schedule(_BUSY_PAUSE_MS, lambda: self._copied(move))
        else:
            self._change_over(move, sizes)

    def _copy_rest(self, move: Move, sizes: dict[str, int]) -> None:
        """Copy the end of the log and the small files, and remove files that the log no longer has. Everything is
        flushed, because the source is about to be deleted."""
        disk, changed = self._disk, []
        present = {name: size for name, size in disk.scan(move.log.folder).items() if not name.endswith(DELETED_SUFFIX)}
        for name, size in present.items():
            if self._copy(move, name, sizes.get(name, size)):
                changed.append(f"{move.folder}/{name}")
        for name in disk.scan(move.folder):
            if name not in present:
                disk.remove(f"{move.folder}/{name}")
        disk.sync_paths([*changed, move.folder])

    # -- switching over ----------------------------------------------------------------------------------------

    def _change_over(self, move: Move, sizes: dict[str, int]) -> None:
        log, key = move.log, move.key
        try:
            self._copy_rest(move, sizes)
            self._logs.exchange(*key, move.folder)
        except (OSError, KafkaStorageError) as error:
            logger.error("%s stays where it is: %s", log.name, error)
            self.cancel(key)
            return
        del self._moves[key]
        logger.info("%s is in %s now", log.name, move.target.root)
        self.on_moved(key)
