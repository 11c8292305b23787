"""The boundary to the disk: all disk access of the log goes through `Disk` and `File`.

`PosixDisk` is a folder, `MemoryDisk` the same interface in memory. Paths are relative to the disk's root and use "/".
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla import system
from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.disk import Chunk as Chunk
from ottla.log.disk import Disk as Disk
from ottla.log.disk import DiskFailure as DiskFailure
from ottla.log.disk import DiskSnapshot as DiskSnapshot
from ottla.log.disk import File as File
from ottla.log.disk import FileRegion as FileRegion
from ottla.log.memory import MemoryDisk as MemoryDisk
from ottla.log.memory import MemoryFile as MemoryFile

if TYPE_CHECKING:
    import shutil

    from ottla.log import folder_snapshot
else:
    folder_snapshot = lazy("ottla.log.folder_snapshot")
    shutil = lazy("shutil")

FolderFailure: TypeAlias = Callable[[str, str], None]
"""(data folder, description of the failure)"""

MAX_IOVECS = 1024
"""Linux refuses a `writev` with more buffers (IOV_MAX)."""
DEFAULT_OPEN_FILES = 4096
"""The most open handles. A partition in use needs one (its active log file); indexes are opened briefly."""
THREAD_OPEN_FILES = 16
LOCK_FILE = ".lock"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""New folders and files are readable only by the broker's user: the metadata holds keys of SCRAM users, and the logs
hold records. Existing files keep their mode, so that an owner can open them to others."""


_OF_FOLDER: Final = frozenset(
    number
    for name in (
        "EIO",
        "EROFS",
        "EACCES",
        "EPERM",
        "ENOTDIR",
        "ENODEV",
        "ENXIO",
        "ESTALE",
        "EUCLEAN",
    )
    if (number := getattr(errno, name, None)) is not None
)
"""Errors of the folder. Too many open files are an error of the process. A full disk is not a failed one: Kafka takes
the folder offline or exits, but here the write is refused, and writes succeed again once there is space."""


class PosixFile:
    """A file of a `PosixDisk`. Its handle is opened and closed as needed."""

    __slots__ = ("_disk", "_fd", "_linked", "_torn", "path", "size", "used")

    def __init__(self, disk: PosixDisk, path: str, size: int) -> None:
        self._disk = disk
        self.path = path
        self.size = size
        self.used = False
        self._torn = False
        """The next append needs a repair first: there may be garbage at the end, or the file is linked."""
        self._linked = False
        self._fd = -1

    def append(self, buffers: Sequence[Chunk]) -> int:
        fd = self._fd
        if fd < 0:
            fd = self._open()
        else:
            self.used = True  # opening alone does not count: a pass over many files would evict the busy ones
        position = self.size
        if self._torn:
            # Appends go to the file's real end. With garbage there, they would not be where the indexes point.
            self.truncate(position)
            fd = self.fileno()
        try:
            if len(buffers) == 1:
                wanted = len(buffers[0])
                written = os.write(fd, buffers[0])
            else:
                wanted = sum(map(len, buffers))
                written = system.writev(fd, buffers) if len(buffers) <= MAX_IOVECS else 0
            if written != wanted:
                self._write_rest(fd, buffers, written)
        except OSError as error:
            # A later read or a recovery must not find a partial write.
            self.take_back(position)
            raise self._disk.failure("append to", self.path, error) from error
        self.size = position + wanted
        return position

    def _write_rest(self, fd: int, buffers: Sequence[Chunk], written: int) -> None:
        """Continue after a short write. Usually the disk is full, and the next write raises the error."""
        for buffer in buffers:
            if written >= len(buffer):
                written -= len(buffer)
                continue
            rest = memoryview(buffer)[written:]
            written = 0
            while rest:
                rest = rest[os.write(fd, rest) :]

    def pread(self, length: int, position: int) -> bytes:
        fd = self._fd
        if fd < 0:
            if not self.size:
                return b""
            fd = self._open()
        else:
            self.used = True
        try:
            return system.pread(fd, length, position)
        except OSError as error:
            raise self._disk.failure("read of", self.path, error) from error

    def view(self, position: int, length: int) -> Chunk:
        return self.pread(length, position)

    def views(self, position: int, length: int) -> list[Chunk]:
        return [self.pread(length, position)]

    def region(self, position: int, length: int) -> FileRegion:
        return FileRegion(self, position, length)

    def truncate(self, size: int) -> None:
        if self._fd < 0 and not self.size and not size:
            return
        try:
            self.fileno()
            if self._linked and os.fstat(self._fd).st_nlink > 1:
                self._own()
            os.ftruncate(self.fileno(), size)
        except OSError as error:
            raise self._disk.failure("truncation of", self.path, error) from error
        self.size = size
        self._torn = False

    def _own(self) -> None:
        """Replace the file with a copy: it has other hard links, as in a snapshot, which must not change."""
        target = self._disk.resolve(self.path)
        shutil.copy2(target, target + ".tmp")
        self.close()
        os.replace(target + ".tmp", target)
        self._linked = False

    def take_back(self, size: int) -> None:
        try:
            self.truncate(size)
        except (OSError, KafkaStorageError):
            self._torn = True
        self.size = size

    def fsync(self) -> None:
        if self._fd < 0 and not self._disk.exists(self.path):
            return
        try:
            os.fsync(self.fileno())
        except OSError as error:
            raise self._disk.failure("flush of", self.path, error) from error

    def fileno(self) -> int:
        if self._fd < 0:
            return self._open()
        self.used = True
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            del self._disk.handles[self]
            os.close(fd)

    def _open(self) -> int:
        disk = self._disk
        if len(disk.handles) >= disk.max_open_files:
            disk.close_unused()
        try:
            fd = os.open(disk.resolve(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND | system.OPEN_FLAGS, FILE_MODE)
        except OSError as error:
            raise self._disk.failure("open of", self.path, error) from error
        self._fd = fd
        disk.handles[self] = None
        if os.fstat(fd).st_nlink > 1:
            self._linked = self._torn = True
        return fd


class PosixDisk:
    """A folder. Handles are opened on use. Beyond `max_open_files`, the least recently used ones are closed."""

    is_spread = False

    def __init__(self, root: str | os.PathLike[str], *, max_open_files: int = DEFAULT_OPEN_FILES) -> None:
        self.root = os.path.abspath(root)
        soft_limit = system.open_files_limit()
        # Leave half of the process's file descriptors for sockets.
        self.max_open_files = max_open_files if soft_limit < 0 else max(min(max_open_files, soft_limit // 2), 16)
        self.handles: OrderedDict[PosixFile, None] = OrderedDict()
        """The files that are open, in the order in which `close_unused` looks at them."""
        self.lock_handle = -1
        self.is_offline = False
        """Whether the folder failed. It is then not used until the next start."""
        self.on_failure: FolderFailure | None = None

    def failure(self, action: str, path: str, error: OSError) -> DiskFailure:
        """The exception for an OSError. Calls `on_failure`, in the current thread."""
        failure = DiskFailure(f"{action} {path} failed: {error.strerror or error}")
        if self.on_failure is not None:
            root = self.root_of(path)
            if error.errno in _OF_FOLDER or not os.path.isdir(root):
                failure.is_reported = True
                self.on_failure(root, f"{action} {path}: {error.strerror or error}")
        return failure

    def root_of(self, path: str) -> str:
        """The data folder of a path."""
        return self.root

    def watch(self, on_failure: FolderFailure) -> None:
        """Set the callback for a failed data folder. It may be called several times, and from other threads."""
        self.on_failure = on_failure

    def __str__(self) -> str:
        return self.root

    def resolve(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def close_unused(self) -> None:
        """Second chance: a file that was used since the last round stays open, and is checked again in the next one."""
        handles = self.handles
        for _ in range(2 * len(handles)):
            if len(handles) < self.max_open_files:
                return
            file = next(iter(handles))
            if file.used:
                file.used = False
                handles.move_to_end(file)
            else:
                file.close()

    def open(self, path: str, *, size: int | None = None) -> PosixFile:
        if size is None:
            try:
                size = os.stat(self.resolve(path)).st_size
            except FileNotFoundError:
                size = 0
            except OSError as error:
                raise self.failure("look-up of", path, error) from error
        return PosixFile(self, path, size)

    def scan(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        try:
            with os.scandir(self.resolve(folder)) as entries:
                for entry in entries:
                    # A file may be renamed or removed while the folder is read.
                    with suppress(FileNotFoundError):
                        found[entry.name] = -1 if entry.is_dir() else entry.stat().st_size
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.failure("listing of", folder or self.root, error) from error
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(self.resolve(path))

    def mkdir(self, folder: str) -> None:
        try:
            os.makedirs(self.resolve(folder), FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise self.failure("creation of", folder or self.root, error) from error

    def rename(self, path: str, to: str) -> None:
        try:
            if not system.RENAMES_OPEN_FILES:
                self.close_handles()
            os.replace(self.resolve(path), self.resolve(to))
        except OSError as error:
            raise self.failure("rename of", path, error) from error

    def remove(self, path: str) -> None:
        try:
            if not system.RENAMES_OPEN_FILES:
                self.close_handles()
            os.remove(self.resolve(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self.failure("removal of", path, error) from error

    def remove_tree(self, folder: str) -> None:
        shutil.rmtree(self.resolve(folder), ignore_errors=True)

    def read_bytes(self, path: str) -> bytes:
        """The whole file. FileNotFoundError if there is none."""
        try:
            with open(self.resolve(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.failure("read of", path, error) from error

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        target = self.resolve(path)
        temporary = target + ".tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system.OPEN_FLAGS, FILE_MODE)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            if not system.RENAMES_OPEN_FILES:
                self.close_handles()
            os.replace(temporary, target)
        except OSError as error:
            with suppress(OSError):
                os.remove(temporary)
            raise self.failure("write of", path, error) from error
        if sync:
            self.sync_folder(path.rpartition("/")[0])

    def touch(self, path: str) -> None:
        try:
            os.close(os.open(self.resolve(path), os.O_WRONLY | os.O_CREAT | system.OPEN_FLAGS, FILE_MODE))
        except OSError as error:
            raise self.failure("creation of", path, error) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(self.resolve(path)).st_mtime_ns // 1_000_000
        except OSError as error:
            raise self.failure("look-up of", path, error) from error

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(self.resolve(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise self.failure("dating of", path, error) from error

    def for_thread(self) -> PosixDisk:
        disk = PosixDisk(self.root, max_open_files=THREAD_OPEN_FILES)
        disk.on_failure = self.on_failure
        return disk

    def parts(self) -> Sequence[PosixDisk]:
        return [self]

    def part_of(self, folder: str) -> PosixDisk:
        return self

    def sync_folder(self, folder: str) -> None:
        try:
            system.sync_folder(self.resolve(folder))
        except OSError as error:
            raise self.failure("flush of", folder or self.root, error) from error

    def sync_paths(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                fd = os.open(self.resolve(path), os.O_RDONLY | system.OPEN_FLAGS)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self.failure("flush of", path, error) from error

    def sync_all(self) -> bool:
        if not system.SYNC_WAITS:
            return False
        os.sync()
        return True

    def lock(self) -> None:
        """Keep other processes out of this folder while this one runs."""
        if self.lock_handle >= 0:
            return
        try:
            fd = os.open(self.resolve(LOCK_FILE), os.O_RDWR | os.O_CREAT | system.OPEN_FLAGS, FILE_MODE)
        except OSError as error:
            raise self.failure("lock of", self.root, error) from error
        try:
            system.lock_file(fd)
        except OSError as error:
            os.close(fd)
            advice = "is another broker running on it?"
            raise KafkaStorageError(f"another process uses the data folder {self.root} ({advice})") from error
        self.lock_handle = fd

    def snapshot(self) -> DiskSnapshot:
        self.close_handles()  # the next write opens its file again, and finds that it is linked
        try:
            return folder_snapshot.FolderSnapshot(self.root)
        except OSError as error:
            raise self.failure("snapshot of", self.root, error) from error

    def restore(self, snapshot: DiskSnapshot) -> None:
        if not isinstance(snapshot, folder_snapshot.FolderSnapshot):
            raise KafkaStorageError("this snapshot is of a broker in memory, and this one has a data folder")
        self.close_handles()
        try:
            snapshot.restore_to(self.root)
        except OSError as error:
            raise self.failure("restoring of", self.root, error) from error

    def close_handles(self) -> None:
        for file in list(self.handles):
            file.close()

    def close(self) -> None:
        """Close every handle and release the lock."""
        self.close_handles()
        if self.lock_handle >= 0:
            os.close(self.lock_handle)
            self.lock_handle = -1
