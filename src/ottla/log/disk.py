"""The log's view of a disk: the protocols `Disk` and `File`, and the part of a file that a response carries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from ottla.errors import KafkaStorageError

Chunk: TypeAlias = bytes | bytearray | memoryview


_FEW_BYTES: Final = 16 << 10


class DiskFailure(KafkaStorageError):
    """The system could not read or write a file."""

    is_reported = False
    """Whether the data folders are monitored, so that the failed one is taken offline."""


class FileRegion:
    """A part of a file that a response can carry without reading it.

    `fileno()` opens the file if necessary. The handle is valid until other files are opened, so call it right before
    each `sendfile`. A region that waits for a slow reader is pinned: it then survives the deletion of the file.
    """

    __slots__ = ("_file", "_kept", "_length", "_pinned", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file = file
        self.position = position
        self._length = length
        self._pinned = -1
        self._kept: list[Chunk] | None = None

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int | None:
        """The handle to send from, or None if there is none (memory).

        Raises OSError if the file cannot be opened: the response has begun, so only the socket can report it.
        """
        if self._pinned >= 0:
            return self._pinned
        try:
            return self._file.fileno()
        except KafkaStorageError as error:
            raise OSError(str(error)) from error

    def skip(self, count: int) -> None:
        """The first `count` bytes were sent."""
        self.position += count
        self._length -= count

    def pin(self) -> None:
        """Hold a separate handle until `release`, or the bytes themselves if there is no handle."""
        if self._pinned < 0 and self._kept is None:
            fd = self.fileno()
            if fd is not None:
                self._pinned = os.dup(fd)
            else:
                self._kept = self.parts()

    def release(self) -> None:
        if self._pinned >= 0:
            os.close(self._pinned)
            self._pinned = -1

    def read(self) -> Chunk:
        """The bytes. A view without a copy for memory."""
        return self._file.view(self.position, self._length)

    def head(self, count: int) -> Chunk:
        """The first bytes, at most `count`."""
        return self._file.view(self.position, min(count, self._length))

    def if_few(self) -> Chunk | None:
        """The bytes, if reading them is cheaper than sending from the file: one packet with the rest of the response.

        Also None if they cannot be read; sending from the file then raises the error.
        """
        if self._length > _FEW_BYTES:
            return None
        try:
            data = self.read()
        except KafkaStorageError:
            return None
        return data if len(data) == self._length else None

    def parts(self) -> list[Chunk]:
        """The bytes in pieces, without a copy for memory files. OSError as in `fileno`, or if some are missing."""
        if self._kept is not None:
            return self._kept
        try:
            found = self._file.views(self.position, self._length)
        except KafkaStorageError as error:
            raise OSError(str(error)) from error
        if sum(map(len, found)) != self._length:
            raise OSError(f"{self._file.path} is shorter than the answer that was started")
        return found


class File(Protocol):
    """An append-only file. `size` is tracked in this process, so reading it costs no system call."""

    path: str
    size: int

    def append(self, buffers: Sequence[Chunk]) -> int:
        """Write all buffers at the end and return the position of the first. On failure the file is unchanged."""
        ...

    def pread(self, length: int, position: int) -> bytes: ...
    def view(self, position: int, length: int) -> Chunk: ...
    def views(self, position: int, length: int) -> list[Chunk]: ...
    def region(self, position: int, length: int) -> FileRegion: ...
    def truncate(self, size: int) -> None: ...
    def take_back(self, size: int) -> None:
        """Drop everything after `size`: immediately for readers, and on the disk before the next append."""
        ...

    def fsync(self) -> None: ...
    def fileno(self) -> int | None: ...
    def close(self) -> None: ...


class DiskSnapshot(Protocol):
    """The content of a disk at some moment. Only a disk of the same kind can read it."""

    def close(self) -> None:
        """Release the files. A disk that was restored from it keeps its content."""
        ...


class Disk(Protocol):
    """A tree of files."""

    is_spread: bool
    """Whether it consists of several folders, even if only one of them still works."""

    def open(self, path: str, *, size: int | None = None) -> File:
        """A file, created by the first write. `size` saves a system call if the caller knows it."""
        ...

    def scan(self, folder: str) -> dict[str, int]:
        """The names in a folder, with the size of each file (-1 for a folder)."""
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
        """Flush files through separate handles. Files may be missing. The only method that other threads may call."""
        ...

    def sync_all(self) -> bool:
        """Flush everything at once, if the system supports it. Cheaper than thousands of single files."""
        ...

    def for_thread(self) -> Disk:
        """The same files through separate handles, for work in another thread."""
        ...

    def parts(self) -> Sequence[Disk]:
        """Its folders, each with its own checkpoints. The disk itself if there is only one."""
        ...

    def part_of(self, folder: str) -> Disk:
        """The part that holds a partition's folder, or would hold it."""
        ...

    def snapshot(self) -> DiskSnapshot:
        """The current content. The bytes of files are shared, not copied; later writes do not change the snapshot."""
        ...

    def restore(self, snapshot: DiskSnapshot) -> None:
        """Replace all content with a snapshot of this disk or another one of its kind. Must not be in use."""
        ...

    def lock(self) -> None: ...
    def close(self) -> None: ...
