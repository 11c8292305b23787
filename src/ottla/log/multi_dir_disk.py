"""Several folders as one disk (`log.dirs` with more than one entry): each partition lives in one of them.

The first part of a path is the name of a partition's folder, which determines the location. Everything else is in the
first folder. Checkpoints, `meta.properties` and the clean-stop marker are in each folder for its own partitions
(`parts`), as in Apache Kafka. So one folder, or all of them, can move to Apache Kafka and back.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final, NoReturn

from ottla import system
from ottla.errors import KafkaStorageError
from ottla.log.checkpoints import META_FILE
from ottla.log.files import (
    DEFAULT_OPEN_FILES,
    FILE_MODE,
    THREAD_OPEN_FILES,
    DiskFailure,
    FolderFailure,
    PosixDisk,
)
from ottla.log.folder_names import DELETE_SUFFIX, STRAY_SUFFIX, parse_folder

logger = logging.getLogger(__name__)

METADATA_FOLDER: Final = "__cluster_metadata-0"
_COPY_BYTES: Final = 1 << 20
_GIVEN_UP: Final = (DELETE_SUFFIX, STRAY_SUFFIX)


class MultiDirDisk(PosixDisk):
    """Partitions in the folders `roots`, the metadata log in `metadata_root` (by default the first)."""

    is_spread = True

    def __init__(
        self,
        roots: Sequence[str],
        metadata_root: str | None = None,
        *,
        max_open_files: int = DEFAULT_OPEN_FILES,
        places: dict[str, PosixDisk] | None = None,
    ) -> None:
        super().__init__(roots[0], max_open_files=max_open_files)
        self.roots = list(dict.fromkeys(map(os.path.abspath, roots)))
        """The folders for partitions, including failed ones."""
        self._folders = [PosixDisk(root) for root in self.roots]
        self._parts = list(self._folders)
        self._places: dict[str, PosixDisk] = {} if places is None else places
        """The known location of each folder. Shared with copies for other threads."""
        self._held: Counter[str] = Counter()
        self.offline: list[PosixDisk] = []
        """Failed folders. Their partitions are neither searched nor created in other folders."""
        self.cordoned: Callable[[], Sequence[str]] = tuple
        """The folders that get no new partitions."""
        if metadata_root is not None:
            self._places[METADATA_FOLDER] = self._part_at(metadata_root)
        self._all = list(self._parts)

    def _part_at(self, root: str) -> PosixDisk:
        root = os.path.abspath(root)
        for part in self._parts:
            if part.root == root:
                return part
        part = PosixDisk(root)
        self._parts.append(part)  # only for the metadata
        return part

    # -- where things are --------------------------------------------------------------------------------------

    def parts(self) -> Sequence[PosixDisk]:
        return self._parts

    @property
    def folders(self) -> Sequence[PosixDisk]:
        """The folders that hold partitions."""
        return self._folders

    @property
    def metadata_root(self) -> str:
        """The folder of the metadata log. A broker cannot run without it."""
        part = self._places.get(METADATA_FOLDER)
        return self._parts[0].root if part is None else part.root

    def part_of(self, folder: str) -> PosixDisk:
        part = self._places.get(folder)
        if part is not None:
            return part
        for part in self._parts:
            if os.path.exists(part.resolve(folder)):
                self.put(folder, part)
                return part
        return self._parts[0]

    def put(self, folder: str, part: PosixDisk) -> None:
        """Set the location of a folder that exists or will be created there."""
        self._forget(folder)
        self._places[folder] = part
        self._held[part.root] += _counts(folder)

    def _forget(self, folder: str) -> None:
        part = self._places.pop(folder, None)
        if part is not None:
            self._held[part.root] -= _counts(folder)

    def keep_only(self, keys: Container[tuple[str, int]]) -> None:
        """Other processes own the other partitions: forget where they are, and do not count them."""
        for folder in list(self._places):
            found = parse_folder(folder)
            if found is not None and folder != METADATA_FOLDER and found[:2] not in keys:
                self._forget(folder)

    def resolve(self, path: str) -> str:
        folder, _, _ = path.partition("/")
        if not folder:
            return self.root
        part = self.part_of(folder)
        if part.is_offline:
            raise KafkaStorageError(f"the data folder {part.root} is offline, and {path} is in it")
        return part.resolve(path)

    def root_of(self, path: str) -> str:
        return self.part_of(path.partition("/")[0]).root

    # -- folders that fail -------------------------------------------------------------------------------------

    def watch(self, on_failure: FolderFailure) -> None:
        self.on_failure = on_failure
        for part in self._parts:
            part.on_failure = on_failure

    def take_offline(self, root: str) -> PosixDisk | None:
        """Stop using a folder. None if it is not in use."""
        part = next((part for part in self._parts if part.root == root), None)
        if part is None:
            return None
        part.is_offline = True
        self.offline.append(part)
        self._parts = [each for each in self._parts if each is not part]
        self._folders = [each for each in self._folders if each is not part]
        for file in list(self.handles):
            if self.part_of(file.path.partition("/")[0]) is part:
                file.close()
        part.close()
        return part

    def _leave_out_unusable(self) -> None:
        """Start without folders that cannot be read or written. The metadata folder is required."""
        self._parts = list(self._all)
        self._folders = [part for part in self._all if part.root in self.roots]
        self.offline = []
        for part in self._all:
            part.is_offline = False
        for part in list(self._parts):
            try:
                _check(part)
            except DiskFailure as error:
                if part.root == self.metadata_root or len(self._folders) == 1:
                    raise
                logger.error(
                    "the data folder %s is offline: %s. The broker continues with the others; repair it and restart",
                    part.root,
                    error,
                )
                self.take_offline(part.root)

    def _least_used(self) -> PosixDisk:
        """The folder with the fewest partitions, as in Apache Kafka."""
        cordoned = self.cordoned()
        open_ = [part for part in self._folders if part.root not in cordoned] or self._folders
        return min(open_, key=lambda part: self._held[part.root])

    # -- operations on more than one path ----------------------------------------------------------------------

    def mkdir(self, folder: str) -> None:
        if not folder:
            self._leave_out_unusable()
            return
        if "/" not in folder and folder not in self._places and not os.path.exists(self.resolve(folder)):
            self.put(folder, self._parts[0] if folder == METADATA_FOLDER else self._least_used())
        super().mkdir(folder)

    def scan(self, folder: str) -> dict[str, int]:
        if folder:
            return super().scan(folder)
        found: dict[str, int] = {}
        for part in self._parts:
            for name, size in part.scan("").items():
                if size < 0:
                    self._found(name, part)
                if size < 0 or part is self._parts[0]:
                    found[name] = size
        return found

    def _found(self, folder: str, part: PosixDisk) -> None:
        other = self._places.get(folder)
        if other is not None and other is not part and os.path.exists(other.resolve(folder)):
            raise KafkaStorageError(
                f"{folder} is in two of the folders of log.dirs, {other.root} and {part.root}; move one of them away"
            )
        self.put(folder, part)

    def rename(self, path: str, to: str) -> None:
        if "/" in to:
            super().rename(path, to)
            return
        part = self.part_of(path)  # a folder stays in its data folder when it is renamed
        part.rename(path, to)
        self._forget(path)
        self.put(to, part)

    def remove_tree(self, folder: str) -> None:
        if not self.part_of(folder).is_offline:
            super().remove_tree(folder)
        self._forget(folder)

    def sync_folder(self, folder: str) -> None:
        if folder:
            super().sync_folder(folder)
        else:
            for part in self._parts:
                part.sync_folder("")

    # -- copies, for moves between the folders -----------------------------------------------------------------

    def number_of(self, path: str) -> int | None:
        """Distinguishes a file from a later one with the same name (inode). None if there is no file."""
        try:
            return os.stat(self.resolve(path)).st_ino
        except FileNotFoundError:
            return None

    def copy(self, path: str, to: str, start: int, end: int) -> None:
        """Cut `to` to `start` bytes, then append the bytes of `path` from `start` to `end`."""
        opened: list[int] = []
        at_fault = path
        try:
            opened.append(os.open(self.resolve(path), os.O_RDONLY | system.OPEN_FLAGS))
            at_fault = to
            opened.append(os.open(self.resolve(to), os.O_WRONLY | os.O_CREAT | system.OPEN_FLAGS, FILE_MODE))
            source, target = opened
            os.ftruncate(target, start)
            os.lseek(target, start, os.SEEK_SET)
            while start < end:
                at_fault = path
                data = system.pread(source, min(_COPY_BYTES, end - start), start)
                if not data:
                    raise KafkaStorageError(f"{path} ends before {end}: it changed while it was copied")
                at_fault = to
                start += os.write(target, data)
        except OSError as error:
            raise self.failure("copy of", at_fault, error) from error
        finally:
            for handle in opened:
                os.close(handle)

    # -- the rest ----------------------------------------------------------------------------------------------

    def for_thread(self) -> MultiDirDisk:
        roots = [part.root for part in self._folders]
        disk = MultiDirDisk(roots, max_open_files=THREAD_OPEN_FILES, places=self._places)
        if self.on_failure is not None:
            disk.watch(self.on_failure)
        return disk

    def snapshot(self) -> NoReturn:
        raise KafkaStorageError("a snapshot needs one data folder, and log.dirs names several")

    def lock(self) -> None:
        for part in self._parts:
            part.lock()

    def close(self) -> None:
        super().close()
        for part in self._parts:
            part.close()


def _check(part: PosixDisk) -> None:
    part.mkdir("")
    part.scan("")
    if part.exists(META_FILE):
        part.read_bytes(META_FILE)
    if not os.access(part.root, os.W_OK):
        raise part.failure("write to", part.root, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _counts(folder: str) -> bool:
    """Whether a folder counts as a partition when the least used data folder is chosen."""
    found = parse_folder(folder)
    return found is not None and folder != METADATA_FOLDER and found[2] not in _GIVEN_UP
