"""Disks that fail on demand, to test how a broker handles a full or failing disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.clock import Clock
from ottla.errors import KafkaStorageError
from ottla.log.files import Chunk, MemoryDisk, MemoryFile, PosixDisk, PosixFile

Check: TypeAlias = Callable[[str, str], None]
"""(operation, path): raises the error that the disk would raise."""


class DiskFaults:
    """Checked before each operation; shared by a disk and its files."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Check | None = None

    def before(self, operation: str, path: str) -> None:
        if self.check is not None:
            self.check(operation, path)


def full(path: str) -> KafkaStorageError:
    return KafkaStorageError(f"append to {path} failed: No space left on device")


def flush_failed(path: str) -> KafkaStorageError:
    return KafkaStorageError(f"flush of {path} failed: Input/output error")


class _PosixFile(PosixFile):
    __slots__ = ("_faults",)

    def __init__(self, disk: PosixDisk, path: str, size: int, faults: DiskFaults) -> None:
        super().__init__(disk, path, size)
        self._faults = faults

    def append(self, buffers: Sequence[Chunk]) -> int:
        self._faults.before("append", self.path)
        return super().append(buffers)

    def fsync(self) -> None:
        self._faults.before("fsync", self.path)
        super().fsync()


class FaultyFolders(PosixDisk):
    """Folders whose disk may be full, or fail to flush."""

    faults: DiskFaults

    def open(self, path: str, *, size: int | None = None) -> PosixFile:
        return _PosixFile(self, path, super().open(path, size=size).size, self.faults)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.faults.before("append", path)
        super().write_atomic(path, data, sync=sync)

    def sync_paths(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.faults.before("fsync", path)
        super().sync_paths(paths)

    def sync_all(self) -> bool:
        self.faults.before("fsync", "")
        return super().sync_all()


class FaultyPosixDisk(FaultyFolders):
    """One folder."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.faults = DiskFaults()


class _MemoryFile(MemoryFile):
    __slots__ = ("_faults",)

    def __init__(self, path: str, modified_ms: int, faults: DiskFaults) -> None:
        super().__init__(path, modified_ms)
        self._faults = faults

    def append(self, buffers: Sequence[Chunk]) -> int:
        self._faults.before("append", self.path)
        return super().append(buffers)

    def fsync(self) -> None:
        self._faults.before("fsync", self.path)


class FaultyMemoryDisk(MemoryDisk):
    """Memory that can be full, or fail to flush, like a disk."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.faults = DiskFaults()

    def open(self, path: str, *, size: int | None = None) -> MemoryFile:
        if path not in self._files:
            folder, _, name = path.rpartition("/")
            self._files[path] = _MemoryFile(path, self._clock.now_ms(), self.faults)
            self._folders[folder][name] = 0
        return self._files[path]

    def sync_paths(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.faults.before("fsync", path)

    def sync_all(self) -> bool:
        self.faults.before("fsync", "")
        return True


FaultyDisk: TypeAlias = FaultyFolders | FaultyMemoryDisk
