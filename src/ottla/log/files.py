"""The disk seam: everything the log does to a disk goes through `Disk` and `File`.

`PosixDisk` is a folder, `MemoryDisk` the same surface without one. Paths are relative to the disk's root and use "/".
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import sys
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from ottla.clock import Clock, SystemClock
from ottla.errors import KafkaStorageError

Chunk: TypeAlias = bytes | bytearray | memoryview

MAX_IOVECS = 1024
"""Linux refuses a `writev` of more buffers (IOV_MAX)."""
DEFAULT_OPEN_FILES = 4096
"""Handles kept open at a time. A partition in use needs one (its active log file); indexes are opened for moments."""
THREAD_OPEN_FILES = 16
LOCK_FILE = ".lock"


class FileRegion:
    """A part of a file that a response can carry without reading it.

    `fileno()` opens the file if it has to, and holds until other files are opened: ask for it right before
    each `sendfile`. A region that waits for a slow reader is pinned: it then outlives the file's deletion.
    """

    __slots__ = ("_file", "_length", "_pinned", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file = file
        self.position = position
        self._length = length
        self._pinned = -1

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int | None:
        """The handle to send from, or None where there is none (memory)."""
        return self._pinned if self._pinned >= 0 else self._file.fileno()

    def skip(self, count: int) -> None:
        """The first `count` bytes are sent."""
        self.position += count
        self._length -= count

    def pin(self) -> None:
        """Keep a handle of our own until `release`."""
        if self._pinned < 0:
            fd = self._file.fileno()
            if fd is not None:
                self._pinned = os.dup(fd)

    def release(self) -> None:
        if self._pinned >= 0:
            os.close(self._pinned)
            self._pinned = -1

    def read(self) -> Chunk:
        """The bytes; a view without a copy where memory allows."""
        return self._file.view(self.position, self._length)

    def parts(self) -> list[Chunk]:
        """The bytes in pieces, for `writelines`; pieces of a memory file are not copied."""
        return self._file.views(self.position, self._length)


class File(Protocol):
    """An append-only file. `size` is what this process wrote or found, so asking costs no system call."""

    path: str
    size: int

    def append(self, buffers: Sequence[Chunk]) -> int:
        """Write all buffers at the end and return the position of the first; on failure nothing stays behind."""
        ...

    def pread(self, length: int, position: int) -> bytes: ...
    def view(self, position: int, length: int) -> Chunk: ...
    def views(self, position: int, length: int) -> list[Chunk]: ...
    def region(self, position: int, length: int) -> FileRegion: ...
    def truncate(self, size: int) -> None: ...
    def fsync(self) -> None: ...
    def fileno(self) -> int | None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of files."""

    def open(self, path: str, *, size: int | None = None) -> File:
        """A file, made when something is first written. `size` saves asking where the caller knows it."""
        ...

    def scan(self, folder: str) -> dict[str, int]:
        """Names in a folder with the size of each file, -1 for a folder."""
        ...

    def exists(self, path: str) -> bool: ...
    def mkdir(self, folder: str) -> None: ...
    def rename(self, path: str, to: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, folder: str) -> None: ...
    def read_bytes(self, path: str) -> bytes: ...
    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None: ...
    def touch(self, path: str) -> None: ...
    def modified_ms(self, path: str) -> int: ...
    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...
    def sync_folder(self, folder: str) -> None: ...
    def sync_paths(self, paths: Sequence[str]) -> None:
        """Flush files that may be gone by now, through handles of its own: the one method for other threads."""
        ...

    def sync_all(self) -> bool:
        """Flush everything at once where the system can wait for that; cheaper than thousands of files one by one."""
        ...

    def for_thread(self) -> Disk:
        """The same files through handles of its own, for work in another thread."""
        ...

    def lock(self) -> None: ...
    def close(self) -> None: ...


def _failure(action: str, path: str, error: OSError) -> KafkaStorageError:
    return KafkaStorageError(f"{action} {path} failed: {error.strerror or error}")


class PosixFile:
    """A file of a `PosixDisk`; its handle comes and goes."""

    __slots__ = ("_disk", "_fd", "path", "size", "used")

    def __init__(self, disk: PosixDisk, path: str, size: int) -> None:
        self._disk = disk
        self.path = path
        self.size = size
        self.used = False
        self._fd = -1

    def append(self, buffers: Sequence[Chunk]) -> int:
        fd = self._fd
        if fd < 0:
            fd = self._open()
        else:
            self.used = True  # opening alone does not count, else a pass over many files would push out the busy ones
        position = self.size
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
            with suppress(OSError):
                os.ftruncate(fd, position)
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
            fd = os.open(disk.resolve(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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
        return PosixFile(self, path, size)

    def scan(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        with os.scandir(self.resolve(folder)) as entries:
            for entry in entries:
                # A file may be renamed or removed while the folder is read.
                with suppress(FileNotFoundError):
                    found[entry.name] = -1 if entry.is_dir() else entry.stat().st_size
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(self.resolve(path))

    def mkdir(self, folder: str) -> None:
        try:
            os.makedirs(self.resolve(folder), exist_ok=True)
        except OSError as error:
            raise _failure("creation of", folder or self.root, error) from error

    def rename(self, path: str, to: str) -> None:
        try:
            os.replace(self.resolve(path), self.resolve(to))
        except OSError as error:
            raise _failure("rename of", path, error) from error

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.remove(self.resolve(path))

    def remove_tree(self, folder: str) -> None:
        shutil.rmtree(self.resolve(folder), ignore_errors=True)

    def read_bytes(self, path: str) -> bytes:
        with open(self.resolve(path), "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        target = self.resolve(path)
        temporary = target + ".tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
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
            os.close(os.open(self.resolve(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except OSError as error:
            raise _failure("creation of", path, error) from error

    def modified_ms(self, path: str) -> int:
        return os.stat(self.resolve(path)).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(self.resolve(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def for_thread(self) -> PosixDisk:
        return PosixDisk(self.root, max_open_files=THREAD_OPEN_FILES)

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
            with suppress(FileNotFoundError):
                fd = os.open(self.resolve(path), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                except OSError as error:
                    raise _failure("flush of", path, error) from error
                finally:
                    os.close(fd)

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
            fd = os.open(self.resolve(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _failure("lock of", self.root, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kind of lock that Apache Kafka takes on this file, so that neither starts on the other's folder.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise KafkaStorageError(f"another process uses the data folder {self.root}") from error
        self.lock_handle = fd

    def close(self) -> None:
        """Close every handle and give up the lock."""
        while self.handles:
            self.handles.popleft().close()
        if self.lock_handle >= 0:
            os.close(self.lock_handle)
            self.lock_handle = -1


class MemoryFile:
    """Appended chunks, found by binary search. Chunks are immutable, so readers hold views of them without a copy."""

    __slots__ = ("_chunks", "_starts", "modified_ms", "path", "size")

    def __init__(self, path: str, modified_ms: int) -> None:
        self.path = path
        self.size = 0
        self.modified_ms = modified_ms
        self._chunks: list[bytes] = []
        self._starts = array("Q")

    def append(self, buffers: Sequence[Chunk]) -> int:
        position = self.size
        chunk = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        if chunk:
            self._chunks.append(chunk)
            self._starts.append(position)
            self.size = position + len(chunk)
        return position

    def views(self, position: int, length: int) -> list[Chunk]:
        end = min(position + length, self.size)
        if position >= end:
            return []
        starts, chunks = self._starts, self._chunks
        first = bisect_right(starts, position) - 1
        inside = position - starts[first]
        if end - starts[first] <= len(chunks[first]):
            return [memoryview(chunks[first])[inside : end - starts[first]]]
        last = bisect_right(starts, end - 1) - 1
        found: list[Chunk] = list(chunks[first : last + 1])
        if inside:
            found[0] = memoryview(chunks[first])[inside:]
        if end - starts[last] < len(chunks[last]):
            found[-1] = memoryview(chunks[last])[: end - starts[last]]
        return found

    def view(self, position: int, length: int) -> Chunk:
        found = self.views(position, length)
        return found[0] if len(found) == 1 else b"".join(found)

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self.view(position, length))

    def region(self, position: int, length: int) -> FileRegion:
        return FileRegion(self, position, length)

    def truncate(self, size: int) -> None:
        if size >= self.size:
            return
        keep = bisect_right(self._starts, size - 1) if size else 0
        del self._chunks[keep:], self._starts[keep:]
        if keep:
            self._chunks[-1] = self._chunks[-1][: size - self._starts[-1]]
        self.size = size

    def fsync(self) -> None:
        pass

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        pass


class MemoryDisk:
    """A disk that is gone with the process; the log does not know the difference."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._files: dict[str, MemoryFile] = {}
        self._folders: dict[str, dict[str, int]] = {"": {}}
        self._locked = False

    def open(self, path: str, *, size: int | None = None) -> MemoryFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = MemoryFile(path, self._clock.now_ms())
            folder, _, name = path.rpartition("/")
            self._folders[folder][name] = 0
        return file

    def scan(self, folder: str) -> dict[str, int]:
        prefix = folder + "/" if folder else ""
        return {name: kind if kind < 0 else self._files[prefix + name].size for name, kind in self._names(folder)}

    def _names(self, folder: str) -> Iterator[tuple[str, int]]:
        if folder not in self._folders:
            raise FileNotFoundError(folder)
        yield from list(self._folders[folder].items())

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def mkdir(self, folder: str) -> None:
        if folder not in self._folders:
            parent, _, name = folder.rpartition("/")
            self.mkdir(parent)
            self._folders[folder] = {}
            self._folders[parent][name] = -1

    def rename(self, path: str, to: str) -> None:
        parent, _, name = path.rpartition("/")
        to_parent, _, to_name = to.rpartition("/")
        if path in self._files:
            file = self._files.pop(path)
            file.path = to
            self._files[to] = file
        elif path in self._folders:
            names = self._folders.pop(path)
            self._folders[to] = names
            for child, kind in names.items():
                if kind < 0:
                    raise KafkaStorageError(f"rename of {path} failed: it holds folders")
                file = self._files.pop(f"{path}/{child}")
                file.path = f"{to}/{child}"
                self._files[file.path] = file
        else:
            raise KafkaStorageError(f"rename of {path} failed: it does not exist")
        self._folders[to_parent][to_name] = self._folders[parent].pop(name)

    def remove(self, path: str) -> None:
        if self._files.pop(path, None) is not None:
            folder, _, name = path.rpartition("/")
            self._folders[folder].pop(name, None)

    def remove_tree(self, folder: str) -> None:
        names = self._folders.pop(folder, None)
        if names is None:
            return
        for name, kind in names.items():
            if kind < 0:
                self.remove_tree(f"{folder}/{name}")
            else:
                self._files.pop(f"{folder}/{name}", None)
        parent, _, own = folder.rpartition("/")
        if parent in self._folders:
            self._folders[parent].pop(own, None)

    def read_bytes(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        file = self._files[path]
        return file.pread(file.size, 0)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        # A fresh file, as after a rename: who holds the old one goes on reading the old bytes.
        self._files.pop(path, None)
        self.open(path).append([data])

    def touch(self, path: str) -> None:
        self.open(path)

    def modified_ms(self, path: str) -> int:
        return self._files[path].modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._files[path].modified_ms = modified_ms

    def for_thread(self) -> MemoryDisk:
        return self

    def sync_folder(self, folder: str) -> None:
        pass

    def sync_paths(self, paths: Sequence[str]) -> None:
        pass

    def sync_all(self) -> bool:
        return True

    def lock(self) -> None:
        if self._locked:
            raise KafkaStorageError("this memory disk is in use by another broker")
        self._locked = True

    def close(self) -> None:
        self._locked = False
