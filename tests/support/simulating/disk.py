"""A disk in memory that fails on command, and that can lose its power.

Written data survives a kill of the process, but only synced data survives a power loss: any part of the rest of a file
may remain, or be replaced by zeros. Names are kept as in a journaling file system: in order, and reliably only up to
the last `sync_folder`.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from ottla.clock import Clock
from ottla.errors import KafkaStorageError
from ottla.log.files import Chunk, MemoryDisk, MemoryFile

Check = Callable[[str, str], str | None]
"""(operation, path): why it fails, or None."""


class SimFile(MemoryFile):
    __slots__ = ("disk", "durable")

    def __init__(self, disk: "SimDisk", path: str, modified_ms: int) -> None:
        super().__init__(path, modified_ms)
        self.disk = disk
        self.durable = b""

    def append(self, buffers: Sequence[Chunk]) -> int:
        self.disk.before("append", self.path)
        return super().append(buffers)

    def views(self, position: int, length: int) -> list[Chunk]:
        self.disk.before("read", self.path)
        return super().views(position, length)

    def truncate(self, size: int) -> None:
        self.disk.before("truncate", self.path)
        super().truncate(size)

    def take_back(self, size: int) -> None:
        super().truncate(size)

    def fsync(self) -> None:
        self.disk.before("fsync", self.path)
        self.durable = self.content()

    def content(self) -> bytes:
        return content_of(self)


class SimDisk(MemoryDisk):
    """See above. `check` decides which operations fail; `operations` counts them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.check: Check | None = None
        self.operations = 0
        self._journal: list[tuple[str, Any, Any]] = []
        self._kept: dict[str, SimFile | None] = {}
        """Names that are certain: files, and None for folders."""

    def before(self, operation: str, path: str) -> None:
        self.operations += 1
        if self.check is not None:
            reason = self.check(operation, path)
            if reason is not None:
                raise KafkaStorageError(f"{operation} of {path} failed: {reason}")

    # -- names

    def open(self, path: str, *, size: int | None = None) -> MemoryFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SimFile(self, path, self._clock.now_ms())
            folder, _, name = path.rpartition("/")
            self._folders[folder][name] = 0
            self._journal.append(("add", path, file))
        return file

    def mkdir(self, folder: str) -> None:
        if folder not in self._folders:
            self.before("mkdir", folder)
            super().mkdir(folder)
            self._journal.append(("add", folder, None))

    def touch(self, path: str) -> None:
        self.before("touch", path)
        super().touch(path)

    def rename(self, path: str, to: str) -> None:
        self.before("rename", path)
        super().rename(path, to)
        self._journal.append(("rename", path, to))

    def remove(self, path: str) -> None:
        self.before("remove", path)
        if path in self._files:
            super().remove(path)
            self._journal.append(("remove", path, None))

    def remove_tree(self, folder: str) -> None:
        super().remove_tree(folder)
        self._journal.append(("remove", folder, None))

    def write_atomic(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.before("write", path)
        file = SimFile(self, path, self._clock.now_ms())
        MemoryFile.append(file, [data])
        if sync:
            file.durable = bytes(data)
        self._files[path] = file
        folder, _, name = path.rpartition("/")
        self._folders[folder][name] = 0
        self._journal.append(("add", path, file))
        if sync:
            self.sync_folder(folder)

    def read_bytes(self, path: str) -> bytes:
        self.before("read", path)
        return super().read_bytes(path)

    def sync_folder(self, folder: str) -> None:
        self.before("sync", folder)
        self._commit(len(self._journal))

    def sync_paths(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path in self._files:
                self._files[path].fsync()
            elif path in self._folders:
                self.sync_folder(path)

    def sync_all(self) -> bool:
        self.before("sync", "")
        for file in self._files.values():
            assert isinstance(file, SimFile)
            file.durable = file.content()
        self._commit(len(self._journal))
        return True

    def _commit(self, count: int) -> None:
        for entry in self._journal[:count]:
            _apply(self._kept, entry)
        del self._journal[:count]

    # -- the end

    def after_kill(self) -> "SimDisk":
        """The process was killed, but the machine still runs: all written data remains."""
        return self._again({path: content_of(file) for path, file in self._files.items()}, list(self._folders))

    def after_power_loss(self, chance: random.Random) -> "SimDisk":
        names = dict(self._kept)
        for entry in self._journal[: chance.randint(0, len(self._journal))]:
            _apply(names, entry)
        files = {path: _survived(file, chance) for path, file in names.items() if file is not None}
        return self._again(files, ["", *(path for path, file in names.items() if file is None)])

    def _again(self, files: dict[str, bytes], folders: list[str]) -> "SimDisk":
        again = SimDisk(self._clock)
        for folder in sorted(folders):
            again.mkdir(folder)
        for path, content in sorted(files.items()):
            if path.rpartition("/")[0] in again._folders:
                file = again.open(path)
                MemoryFile.append(file, [content])
                assert isinstance(file, SimFile)
                file.durable = content
        again._commit(len(again._journal))
        again.operations = 0
        return again


def content_of(file: MemoryFile) -> bytes:
    """Read past the disk: it is gone, or must not count the read."""
    return b"".join(MemoryFile.views(file, 0, file.size))


def _apply(names: dict[str, SimFile | None], entry: tuple[str, Any, Any]) -> None:
    kind, path, what = entry
    if kind == "add":
        names[path] = what
        return
    inside = [name for name in names if name == path or name.startswith(path + "/")]
    for name in inside:
        file = names.pop(name)
        if kind == "rename":
            names[what + name[len(path) :]] = file


def _survived(file: SimFile, chance: random.Random) -> bytes:
    durable, content = file.durable, file.content()
    if not content.startswith(durable):
        return chance.choice((durable, content))
    rest = content[len(durable) :]
    kept = chance.randint(0, len(rest))
    return durable + chance.choice((b"", rest, rest[:kept], bytes(kept), rest[:kept] + bytes(len(rest) - kept)))
