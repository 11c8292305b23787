"""What the log knows of a disk: the protocols `Disk` and `File`, and the part of a file that an answer carries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from ottla.errors import KafkaStorageError

Chunk: TypeAlias = bytes | bytearray | memoryview


_FEW_BYTES: Final = 16 << 10


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
        """The handle to send from, or None where there is none (memory).

        A file that cannot be opened is an OSError here: the answer is under way, nothing but the socket can tell.
        """
        if self._pinned >= 0:
            return self._pinned
        try:
            return self._file.fileno()
        except KafkaStorageError as error:
            raise OSError(str(error)) from error

    def skip(self, count: int) -> None:
        """The first `count` bytes are sent."""
        self.position += count
        self._length -= count

    def pin(self) -> None:
        """Keep a handle of our own until `release`."""
        if self._pinned < 0:
            fd = self.fileno()
            if fd is not None:
                self._pinned = os.dup(fd)

    def release(self) -> None:
        if self._pinned >= 0:
            os.close(self._pinned)
            self._pinned = -1

    def read(self) -> Chunk:
        """The bytes; a view without a copy where memory allows."""
        return self._file.view(self.position, self._length)

    def head(self, count: int) -> Chunk:
        """The first bytes, up to so many."""
        return self._file.view(self.position, min(count, self._length))

    def if_few(self) -> Chunk | None:
        """The bytes, where reading them costs less than handing over the file: one packet with the rest of an answer.

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
        """The bytes in pieces, for `writelines`; pieces of a memory file are not copied. OSError as in `fileno`."""
        try:
            return self._file.views(self.position, self._length)
        except KafkaStorageError as error:
            raise OSError(str(error)) from error


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
    def take_back(self, size: int) -> None:
        """Drop what was appended beyond `size`: at once for readers, before the next append on the disk."""
        ...

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

    def parts(self) -> Sequence[Disk]:
        """The folders that it is made of, each with checkpoints of its own; itself where it is one."""
        ...

    def part_of(self, folder: str) -> Disk:
        """The one of them that holds a partition's folder, or would."""
        ...

    def lock(self) -> None: ...
    def close(self) -> None: ...
