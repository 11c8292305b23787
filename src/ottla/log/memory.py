"""A disk without one: the same surface as a folder, gone with the process."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ottla.clock import Clock, SystemClock
from ottla.errors import KafkaStorageError
from ottla.log.disk import Chunk, FileRegion


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

    def take_back(self, size: int) -> None:
        self.truncate(size)

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

    def lock(self) -> None:
        if self._locked:
            raise KafkaStorageError("this memory disk is in use by another broker")
        self._locked = True

    def close(self) -> None:
        self._locked = False
