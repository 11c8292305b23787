"""The checkpoints of data folders that several processes share.

Each worker opens the logs of the partitions that it leads, and only those. The controller writes the files of each
folder, the checkpoints and the clean-stop marker; the others send their parts to it. A worker knows the folders
of its partitions, so it sends the offsets of each folder separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.errors import KafkaStorageError
from ottla.log import checkpoints
from ottla.log.checkpoint_writer import FolderCheckpoints, Offsets
from ottla.log.checkpoints import TopicPartition
from ottla.log.files import Disk

IsOwn = Callable[[TopicPartition], bool]
"""Whether this worker leads a partition."""
RootOf = Callable[[TopicPartition], str]
"""The path of the folder that holds a partition."""
ByFolder: TypeAlias = dict[str, Offsets]
"""A checkpoint, by the path of the folder."""


def _own(offsets: Offsets, is_own: IsOwn, root_of: RootOf) -> ByFolder:
    own: ByFolder = {}
    for key, offset in offsets.items():
        if is_own(key):
            own.setdefault(root_of(key), {})[key] = offset
    return own


class SharedFolder(NamedTuple):
    """A data folder, and the writer of its checkpoints."""

    disk: Disk
    writer: FolderCheckpoints


class ControllerCheckpoints:
    """Merges the parts of all workers, and writes them into each of `folders`, by their paths."""

    def __init__(self, folders: dict[str, SharedFolder], is_own: IsOwn, root_of: RootOf) -> None:
        self._folders = folders
        self._is_own = is_own
        self._root_of = root_of
        self._own_id = -1
        self._leader_of: Callable[[TopicPartition], int | None] = lambda key: None
        self._parts: dict[tuple[str, str], dict[int, Offsets]] = {}
        """By folder and file: the offsets of each worker."""
        self.all_closed = True
        """Whether every other worker has closed its logs; only then was the stop clean."""

    def share_out(self, own_id: int, leader_of: Callable[[TopicPartition], int | None]) -> None:
        """Called when it is known which worker leads which partition."""
        self._own_id = own_id
        self._leader_of = leader_of

    def leave_out(self, root: str) -> None:
        """Stop writing to a folder that is offline."""
        self._folders.pop(root, None)

    def write(self, path: str, offsets: Offsets) -> None:
        self.hand_in(self._own_id, path, _own(offsets, self._is_own, self._root_of))

    def hand_in(self, worker_id: int, path: str, offsets: ByFolder) -> None:
        """Accept a worker's part of a checkpoint. If one folder fails, the others are still written."""
        failed: KafkaStorageError | None = None
        for folder, joined in self._joined(worker_id, path, offsets):
            try:
                folder.writer.write(path, joined)
            except KafkaStorageError as error:
                failed = error
        if failed is not None:
            raise failed

    def write_for_snapshot(self, path: str, offsets: Offsets) -> None:
        own = _own(offsets, self._is_own, self._root_of)
        for folder, joined in self._joined(self._own_id, path, own):
            folder.writer.write_for_snapshot(path, joined)

    def _joined(self, worker_id: int, path: str, offsets: ByFolder) -> Iterator[tuple[SharedFolder, Offsets]]:
        """The merged checkpoint of all workers for each folder. A worker has nothing in folders that it omits."""
        for root, folder in list(self._folders.items()):
            parts = self._parts.get((root, path))
            if parts is None:
                parts = self._parts[root, path] = self._last_parts(folder.disk, path)
            parts[worker_id] = offsets.get(root, {})
            everything: Offsets = {}
            for part in parts.values():
                everything.update(part)
            yield folder, everything

    def _last_parts(self, disk: Disk, path: str) -> dict[int, Offsets]:
        """The entries in the file. Each stays until the worker that leads the partition reports a newer value."""
        parts: dict[int, Offsets] = {}
        for key, offset in checkpoints.read_offsets(disk, path).items():
            leader = self._leader_of(key)
            if leader is not None:
                parts.setdefault(leader, {})[key] = offset
        return parts

    def closing(self) -> None:
        for folder in self._folders.values():
            folder.writer.closing()

    def note_clean_stop(self, broker_epoch: int) -> None:
        if self.all_closed:
            for folder in self._folders.values():
                folder.writer.note_clean_stop(broker_epoch)


class FollowerCheckpoints:
    """Sends its part to the controller."""

    def __init__(self, hand_in: Callable[[str, ByFolder], None], is_own: IsOwn, root_of: RootOf) -> None:
        self._hand_in = hand_in
        self._is_own = is_own
        self._root_of = root_of
        self._handed: dict[str, ByFolder] = {}
        self.closed_cleanly = False

    def write(self, path: str, offsets: Offsets) -> None:
        own = _own(offsets, self._is_own, self._root_of)
        if self._handed.get(path) != own:
            self._handed[path] = own
            self._hand_in(path, own)

    def write_for_snapshot(self, path: str, offsets: Offsets) -> None:
        self.write(path, offsets)

    def closing(self) -> None:
        """Do nothing: parts are sent in order."""

    def note_clean_stop(self, broker_epoch: int) -> None:
        self.closed_cleanly = True
