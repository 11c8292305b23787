"""The disk seam: everything the log does to a disk goes through `Disk` and `File`.

`PosixDisk` is a folder, `MemoryDisk` the same surface without one. Paths are relative to the disk's root and use "/".
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.disk import Chunk as Chunk
from ottla.log.disk import Disk as Disk
from ottla.log.disk import File as File
from ottla.log.disk import FileRegion as FileRegion
from ottla.log.memory import MemoryDisk as MemoryDisk
from ottla.log.memory import MemoryFile as MemoryFile

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")

MAX_IOVECS = 1024
"""Linux refuses a `writev` of more buffers (IOV_MAX)."""
DEFAULT_OPEN_FILES = 4096
"""Handles kept open at a time. A partition in use needs one (its active log file); indexes are opened for moments."""
THREAD_OPEN_FILES = 16
LOCK_FILE = ".lock"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""New folders and files are for the broker's user alone: the metadata holds keys of SCRAM users, the logs records.
What is there already keeps its mode, so that an owner may open it to others."""


def _failure(action: str, path: str, error: OSError) -> KafkaStorageError:
    return KafkaStorageError(f"{action} {path} failed: {error.strerror or error}")


class PosixFile:
    """A file of a `PosixDisk`; its handle comes and goes."""

    __slots__ = ("_disk", "_fd", "_torn", "path", "size", "used")

    def __init__(self, disk: PosixDisk, path: str, size: int) -> None:
        self._disk = disk
        self.path = path
        self.size = size
        self.used = False
        self._torn = False
        self._fd = -1

    def append(self, buffers: Sequence[Chunk]) -> int:
        fd = self._fd
        if fd < 0:
            fd = self._open()
        else:
            self.used = True  # opening alone does not count, else a pass over many files would push out the busy ones
        position = self.size
        if self._torn:
            # Appends go to the file's real end: with rubbish there they would not be where the indexes say.
            self.truncate(position)
        try:
            if len(buffers) == 1:
                wanted = len(buffers[0])
                written = os.write(fd, buffers[0])
            else:
                wanted = sum(map(len, buffers))
                written = os.writev(fd, buffers) if len(buffers) <= MAX_IOVECS else 0
            if written != wanted:
                self._write_rest(fd, buffers, written)
        except OSError as error:
            # What was half written must not be found by a later read or a recovery.
            self.take_back(position)
            raise _failure("append to", self.path, error) from error
        self.size = position + wanted
        return position

    def _write_rest(self, fd: int, buffers: Sequence[Chunk], written: int) -> None:
        """After a short write: usually the disk is full and the next write says so."""
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
            return os.pread(fd, length, position)
        except OSError as error:
            raise _failure("read of", self.path, error) from error

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
            os.ftruncate(self.fileno(), size)
        except OSError as error:
            raise _failure("truncation of", self.path, error) from error
        self.size = size
        self._torn = False

    def take_back(self, size: int) -> None:
        self.size = size
        try:
            os.ftruncate(self.fileno(), size)
        except (OSError, KafkaStorageError):
            self._torn = True

    def fsync(self) -> None:
        if self._fd < 0 and not self._disk.exists(self.path):
            return
        try:
            os.fsync(self.fileno())
        except OSError as error:
            raise _failure("flush of", self.path, error) from error

    def fileno(self) -> int:
        if self._fd < 0:
            return self._open()
        self.used = True
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.opened -= 1
            os.close(fd)

    def _open(self) -> int:
        disk = self._disk
        if disk.opened >= disk.max_open_files:
            disk.close_unused()
        try:
            fd = os.open(disk.resolve(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise _failure("open of", self.path, error) from error
        self._fd = fd
        disk.opened += 1
        disk.handles.append(self)
        return fd


class PosixDisk:
    """A folder. Handles are opened on use and the ones unused for longest are closed beyond `max_open_files`."""

    def __init__(self, root: str | os.PathLike[str], *, max_open_files: int = DEFAULT_OPEN_FILES) -> None:
        self.root = os.path.abspath(root)
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Half of what the process may open is left for sockets.
        self.max_open_files = max_open_files if soft_limit < 0 else max(min(max_open_files, soft_limit // 2), 16)
        self.opened = 0
        self.handles: deque[PosixFile] = deque()
        self.lock_handle = -1

    def __str__(self) -> str:
        return self.root

    def resolve(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def close_unused(self) -> None:
        """Second chance: a file that was used since the last round stays, and is asked again in the next one."""
        handles = self.handles
        for _ in range(2 * len(handles)):
            if self.opened < self.max_open_files or not handles:
                return
            file = handles.popleft()
            if file._fd < 0:
                continue
            if file.used:
                file.used = False
                handles.append(file)
            else:
                file.close()

    def open(self, path: str, *, size: int | None = None) -> PosixFile:
        if size is None:
            try:
                size = os.stat(self.resolve(path)).st_size
            except FileNotFoundError:
                size = 0
            except OSError as error:
                raise _failure("look-up of", path, error) from error
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
            raise _failure("listing of", folder or self.root, error) from error
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(self.resolve(path))

    def mkdir(self, folder: str) -> None:
        try:
            os.makedirs(self.resolve(folder), FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise _failure("creation of", folder or self.root, error) from error

    def rename(self, path: str, to: str) -> None:
        try:
            os.replace(self.resolve(path), self.resolve(to))
        except OSError as error:
            raise _failure("rename of", path, error) from error

    def remove(self, path: str) -> None:
        try:
            os.remove(self.resolve(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure("removal of", path, error) from error

    def remove_tree(self, folder: str) -> None:
        shutil.rmtree(self.resolve(folder), ignore_errors=True)

    def read_bytes(self, path: str) -> bytes:
        """The whole file; FileNotFoundError where there is none."""
        try:
            with open(self.resolve(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failure("read of", path, error) from error

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        target = self.resolve(path)
        temporary = target + ".tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, target)
        except OSError as error:
            with suppress(OSError):
                os.remove(temporary)
            raise _failure("write of", path, error) from error
        if sync:
            self.sync_folder(path.rpartition("/")[0])

    def touch(self, path: str) -> None:
        try:
            os.close(os.open(self.resolve(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        except OSError as error:
            raise _failure("creation of", path, error) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(self.resolve(path)).st_mtime_ns // 1_000_000
        except OSError as error:
            raise _failure("look-up of", path, error) from error

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(self.resolve(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise _failure("dating of", path, error) from error

    def for_thread(self) -> PosixDisk:
        return PosixDisk(self.root, max_open_files=THREAD_OPEN_FILES)

    def parts(self) -> Sequence[PosixDisk]:
        return [self]

    def part_of(self, folder: str) -> PosixDisk:
        return self

    def sync_folder(self, folder: str) -> None:
        try:
            fd = os.open(self.resolve(folder), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise _failure("flush of", folder or self.root, error) from error

    def sync_paths(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                fd = os.open(self.resolve(path), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failure("flush of", path, error) from error

    def sync_all(self) -> bool:
        if sys.platform != "linux":  # elsewhere sync() returns before the disk is done
            return False
        os.sync()
        return True

    def lock(self) -> None:
        """Keep a second process off this folder for as long as this one lives."""
        if self.lock_handle >= 0:
            return
        try:
            fd = os.open(self.resolve(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise _failure("lock of", self.root, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kind of lock that Apache Kafka takes on this file, so that neither starts on the other's folder.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            advice = "is another broker running on it?"
            raise KafkaStorageError(f"another process uses the data folder {self.root} ({advice})") from error
        self.lock_handle = fd

    def close(self) -> None:
        """Close every handle and give up the lock."""
        while self.handles:
            self.handles.popleft().close()
        if self.lock_handle >= 0:
            os.close(self.lock_handle)
            self.lock_handle = -1
