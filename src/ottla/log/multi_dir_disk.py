"""Several folders as one disk (`log.dirs` with more than one entry): each partition lives in one of them.

A path begins with the name of a partition's folder, and that says where it is; everything else is in the first folder.
Checkpoints, `meta.properties` and the marker of a clean stop are in each folder for what it holds (`parts`), as Apache
Kafka has them. So a folder, or all of them, can be given to Apache Kafka and back.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from ottla.errors import KafkaStorageError
from ottla.log.files import DEFAULT_OPEN_FILES, FILE_MODE, THREAD_OPEN_FILES, PosixDisk

METADATA_FOLDER: Final = "__cluster_metadata-0"
_COPY_BYTES: Final = 1 << 20
_GIVEN_UP: Final = ("-delete", "-stray")


class MultiDirDisk(PosixDisk):
    """Partitions in the folders `roots`, the metadata log in `metadata_root` (the first if it is not given)."""

    def __init__(
        self,
        roots: Sequence[str],
        metadata_root: str | None = None,
        *,
        max_open_files: int = DEFAULT_OPEN_FILES,
        places: dict[str, PosixDisk] | None = None,
    ) -> None:
        super().__init__(roots[0], max_open_files=max_open_files)
        self._folders = [PosixDisk(root) for root in dict.fromkeys(map(os.path.abspath, roots))]
        self._parts = list(self._folders)
        self._places: dict[str, PosixDisk] = {} if places is None else places
        """What was looked for and found; shared with those who work in other threads."""
        self._held: Counter[str] = Counter()
        self.cordoned: Callable[[], Sequence[str]] = tuple
        """The folders that get no new partitions."""
        if metadata_root is not None:
            self._places[METADATA_FOLDER] = self._part_at(metadata_root)

    def _part_at(self, root: str) -> PosixDisk:
        root = os.path.abspath(root)
        for part in self._parts:
            if part.root == root:
                return part
        part = PosixDisk(root)
        self._parts.append(part)  # for the metadata alone
        return part

    # -- where things are --------------------------------------------------------------------------------------

    def parts(self) -> Sequence[PosixDisk]:
        return self._parts

    @property
    def folders(self) -> Sequence[PosixDisk]:
        """Those of them that hold partitions."""
        return self._folders

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
        """A folder is in this one, or shall be made there."""
        self._forget(folder)
        self._places[folder] = part
        self._held[part.root] += _counts(folder)

    def _forget(self, folder: str) -> None:
        part = self._places.pop(folder, None)
        if part is not None:
            self._held[part.root] -= _counts(folder)

    def resolve(self, path: str) -> str:
        folder, _, _ = path.partition("/")
        return self.part_of(folder).resolve(path) if folder else self.root

    def _least_used(self) -> PosixDisk:
        """As Apache Kafka chooses: where the fewest partitions are."""
        cordoned = self.cordoned()
        open_ = [part for part in self._folders if part.root not in cordoned] or self._folders
        return min(open_, key=lambda part: self._held[part.root])

    # -- what concerns more than one path ----------------------------------------------------------------------

    def mkdir(self, folder: str) -> None:
        if not folder:
            for part in self._parts:
                part.mkdir("")
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
        part = self.part_of(path)  # a folder stays where it is, whatever its name
        part.rename(path, to)
        self._forget(path)
        self.put(to, part)

    def remove_tree(self, folder: str) -> None:
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
        """What tells a file from another one that takes its name later; None where there is none."""
        try:
            return os.stat(self.resolve(path)).st_ino
        except FileNotFoundError:
            return None

    def copy(self, path: str, to: str, start: int, end: int) -> None:
        """Have `to` hold what `path` holds from `start` to `end`, behind what it holds up to there."""
        source = os.open(self.resolve(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(self.resolve(to), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.ftruncate(target, start)
                os.lseek(target, start, os.SEEK_SET)
                while start < end:
                    data = os.pread(source, min(_COPY_BYTES, end - start), start)
                    if not data:
                        raise KafkaStorageError(f"{path} ends before {end}: it changed while it was copied")
                    start += os.write(target, data)
            finally:
                os.close(target)
        finally:
            os.close(source)

    # -- the rest ----------------------------------------------------------------------------------------------

    def for_thread(self) -> MultiDirDisk:
        roots = [part.root for part in self._folders]
        return MultiDirDisk(roots, max_open_files=THREAD_OPEN_FILES, places=self._places)

    def lock(self) -> None:
        for part in self._parts:
            part.lock()

    def close(self) -> None:
        super().close()
        for part in self._parts:
            part.close()


def _counts(folder: str) -> bool:
    """Whether a folder counts as a partition where the least used one is looked for."""
    return folder != METADATA_FOLDER and not folder.endswith(_GIVEN_UP)
