"""A disk in memory: the same interface as a folder, lost with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla import system
from ottla.clock import Clock, SystemClock
from ottla.errors import KafkaStorageError
from ottla.log.disk import Chunk, DiskSnapshot, FileRegion

FileContent: TypeAlias = "tuple[list[memoryview], array[int], int]"
"""The content of a memory file: its chunks, the start of each, and its size."""

_CHUNK_BYTES: Final = 1 << 20
"""The largest chunk, by which a file grows. Allocating one takes a third of a millisecond."""

_MAPPED_BYTES: Final = 64 << 10
"""Larger chunks are mappings: their memory returns to the system with the last reader, regardless of fragmentation in
the allocator."""

_PAGE_BYTES: Final = 4096
_NO_ROOM: Final = memoryview(bytearray())


class MemoryFile:
    """Chunks that are filled one after the other, found by binary search.

    A written byte never changes, so readers hold views of chunks without a copy. Removed data is freed once it has no
    readers. A chunk is at most a quarter of the file, or the size of one append.
    """

    __slots__ = ("_chunks", "_room", "_starts", "modified_ms", "path", "size")

    def __init__(self, path: str, modified_ms: int) -> None:
        self.path = path
        self.size = 0
        self.modified_ms = modified_ms
        self._chunks: list[memoryview] = []
        self._starts = array("Q")
        self._room = _NO_ROOM
        """The unwritten part of the last chunk."""

    def append(self, buffers: Sequence[Chunk]) -> int:
        position = self.size
        wanted = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        for buffer in buffers:
            length = len(buffer)
            if length <= len(self._room):
                self._room[:length] = buffer
                self._room = self._room[length:]
                self.size += length
                continue
            try:
                self._append_in_pieces(memoryview(buffer), position + wanted - self.size)
            except (OSError, MemoryError) as error:
                self.truncate(position)
                raise KafkaStorageError(f"append to {self.path} failed: no memory left") from error
        return position

    def _append_in_pieces(self, rest: memoryview, wanted: int) -> None:
        """Fill the chunk, and as many new ones as necessary. `wanted` is the total number of bytes to append."""
        while rest:
            if not self._room:
                self._add_chunk(wanted)
            count = min(len(self._room), len(rest))
            self._room[:count] = rest[:count]
            self._room, rest = self._room[count:], rest[count:]
            self.size += count
            wanted -= count

    def _add_chunk(self, wanted: int) -> None:
        size = min(max(wanted, self.size >> 2), _CHUNK_BYTES)
        if size < _MAPPED_BYTES:
            self._room = memoryview(bytearray(size))
        else:
            size = -(-size // _PAGE_BYTES) * _PAGE_BYTES
            self._room = system.memory(size, ready=True)
        self._chunks.append(self._room.toreadonly())
        self._starts.append(self.size)

    def views(self, position: int, length: int) -> list[Chunk]:
        end = min(position + length, self.size)
        if position >= end:
            return []
        starts, chunks = self._starts, self._chunks
        first = bisect_right(starts, position) - 1
        inside = position - starts[first]
        if end - starts[first] <= len(chunks[first]):
            return [chunks[first][inside : end - starts[first]]]
        last = bisect_right(starts, end - 1) - 1
        found: list[Chunk] = list(chunks[first : last + 1])
        if inside:
            found[0] = chunks[first][inside:]
        if end - starts[last] < len(chunks[last]):
            found[-1] = chunks[last][: end - starts[last]]
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
        self.size = size
        del self._chunks[keep:], self._starts[keep:]
        self._close_chunk()

    def _close_chunk(self) -> None:
        """Start a new chunk with the next append: readers or snapshots may still use the bytes after the end."""
        if self._chunks:
            self._chunks[-1] = self._chunks[-1][: self.size - self._starts[-1]]
        self._room = _NO_ROOM

    def discard(self) -> None:
        """Free the chunks of a deleted file, even if the file object lives on. Readers keep their views."""
        self.truncate(0)

    def take_back(self, size: int) -> None:
        self.truncate(size)

    def shared(self) -> FileContent:
        """The current content. Written bytes do not change, so nothing is copied."""
        self._close_chunk()
        return list(self._chunks), self._starts[:], self.size

    def use(self, content: FileContent) -> None:
        """Use this content from now on."""
        chunks, starts, self.size = content
        self._chunks, self._starts, self._room = list(chunks), starts[:], _NO_ROOM

    def fsync(self) -> None:
        pass

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The files of a memory disk at some moment."""

    folders: dict[str, dict[str, int]]
    files: dict[str, tuple[FileContent, int]]
    """By path: the content, and the time of the last change."""

    def close(self) -> None:
        self.folders.clear()
        self.files.clear()


class MemoryDisk:
    """A disk that is lost with the process. The log does not notice the difference."""

    is_spread = False

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._files: dict[str, MemoryFile] = {}
        self._folders: dict[str, dict[str, int]] = {"": {}}
        self._locked = False

    def __str__(self) -> str:
        return "in memory"

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
            elif (file := self._files.pop(f"{folder}/{name}", None)) is not None:
                file.discard()
        parent, _, own = folder.rpartition("/")
        if parent in self._folders:
            self._folders[parent].pop(own, None)

    def read_bytes(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        file = self._files[path]
        return file.pread(file.size, 0)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        # A new file, as after a rename: readers of the old one still see the old bytes.
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

    def parts(self) -> list[MemoryDisk]:
        return [self]

    def part_of(self, folder: str) -> MemoryDisk:
        return self

    def sync_folder(self, folder: str) -> None:
        pass

    def sync_paths(self, paths: Sequence[str]) -> None:
        pass

    def sync_all(self) -> bool:
        return True

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(
            {folder: dict(names) for folder, names in self._folders.items()},
            {path: (file.shared(), file.modified_ms) for path, file in self._files.items()},
        )

    def restore(self, snapshot: DiskSnapshot) -> None:
        if not isinstance(snapshot, MemorySnapshot):
            raise KafkaStorageError("this snapshot is of a data folder, and the broker keeps its data in memory")
        self._files.clear()
        self._folders = {folder: dict(names) for folder, names in snapshot.folders.items()}
        for path, (content, modified_ms) in snapshot.files.items():
            file = self.open(path)
            file.use(content)
            file.modified_ms = modified_ms

    def lock(self) -> None:
        if self._locked:
            raise KafkaStorageError("this memory disk is in use by another broker")
        self._locked = True

    def close(self) -> None:
        self._locked = False
