"""The sparse indexes of a segment: offset to position, timestamp to offset, and aborted transactions.

Entries are written in pages. Until a page is full they stay in memory, which is safe because recovery after an unclean
stop rebuilds the indexes of every unflushed segment. Look-ups keep only the first key of each page in memory, so a 2 MB
index takes 4 KB of memory and one page read, regardless of the size of the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress
from itertools import pairwise
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from ottla.errors import KafkaStorageError
from ottla.log.files import Disk, File

PAGE_ENTRIES: Final = 512
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF


class CorruptIndex(Exception):
    """An index contradicts itself. Its segment rebuilds it from the log."""


class PagedIndex:
    """Fixed-size entries (key, value), both increasing, found by binary search over pages."""

    ENTRY: ClassVar[Struct]

    __slots__ = (
        "_distrusted",
        "_firsts",
        "_last_key",
        "_loaded",
        "_page",
        "_page_number",
        "_pending",
        "_written",
        "base_offset",
        "count",
        "file",
    )

    def __init__(self, file: File, base_offset: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.count = 0
        self._written = 0
        self._pending = bytearray()
        self._firsts = array("q")
        self._last_key: int | None = None
        """None if it must be read."""
        self._page = b""
        self._page_number = -1
        self._loaded = file.size == 0
        self._distrusted = False

    def load(self) -> None:
        """Read the file once, and cut the zeros of Kafka's preallocation, which remain if Kafka is killed."""
        if self._loaded:
            return
        if self._distrusted:
            raise CorruptIndex(f"{self.file.path}: entries that do not count any more could not be removed")
        size = self.ENTRY.size
        data = self.file.pread(self.file.size, 0)
        valid = -(-len(data.rstrip(b"\0")) // size) * size
        if valid > len(data):
            raise CorruptIndex(f"{self.file.path}: {len(data)} bytes are not a multiple of {size}")
        if valid != self.file.size:
            self.file.truncate(valid)
        self.count = self._written = valid // size
        unpack = self.ENTRY.unpack_from
        self._firsts = array("q", [unpack(data, at)[0] for at in range(0, valid, PAGE_ENTRIES * size)])
        keys = [*self._firsts, unpack(data, valid - size)[0]] if valid else []
        if any(key < 0 for key in keys) or any(a > b for a, b in pairwise(keys)):
            raise CorruptIndex(f"{self.file.path}: keys do not grow")
        self._loaded = True

    def entry(self, slot: int) -> tuple[int, int]:
        """Key and value of a slot."""
        if not self._loaded:
            self.load()
        if slot >= self._written:
            key, value = self.ENTRY.unpack_from(self._pending, (slot - self._written) * self.ENTRY.size)
        else:
            page, first = self._page_of(slot // PAGE_ENTRIES)
            key, value = self.ENTRY.unpack_from(page, (slot - first) * self.ENTRY.size)
        return key, value

    def slot_for(self, key: int) -> int:
        """The last slot whose key is at most `key`, or -1 if there is none."""
        if not self._loaded:
            self.load()
        number = bisect_right(self._firsts, key) - 1
        if number < 0:
            return -1
        page, first = self._page_of(number)
        low, high = 0, min(PAGE_ENTRIES, self.count - first)
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        while high - low > 1:
            middle = (low + high) >> 1
            if unpack(page, middle * size)[0] <= key:
                low = middle
            else:
                high = middle
        return first + low

    def _page_of(self, number: int) -> tuple[bytes | bytearray, int]:
        """A page's bytes and its first slot. Only pages on disk are cached, because they do not change."""
        first = number * PAGE_ENTRIES
        if number == self._page_number:
            return self._page, first
        if first >= self._written:
            skip = (first - self._written) * self.ENTRY.size
            return self._pending[skip:] if skip else self._pending, first
        size = self.ENTRY.size
        end = min(first + PAGE_ENTRIES, self._written)
        page = self.file.pread((end - first) * size, first * size)
        if end - first == PAGE_ENTRIES:
            self._page, self._page_number = page, number
        elif self._pending:
            page += self._pending
        return page, first

    def _append(self, key: int, value: int) -> None:
        if not self._loaded:
            self.load()
        if self.count % PAGE_ENTRIES == 0:
            self._firsts.append(key)
        self._pending += self.ENTRY.pack(key, value)
        self._last_key = key
        self.count += 1
        if len(self._pending) >= PAGE_ENTRIES * self.ENTRY.size:
            # On a full disk, the log's own append fails as well. Until there is space, entries stay in memory.
            with suppress(KafkaStorageError):
                self.write_pending()
                self.file.close()

    def write_pending(self) -> None:
        """Write the pending entries to the file."""
        if self._pending:
            self.file.append([self._pending])
            self._pending = bytearray()
            self._written = self.count

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        if not self._loaded:
            self.load()
        if count >= self.count:
            return
        if count >= self._written:  # entries that were never written need no disk access
            del self._pending[(count - self._written) * self.ENTRY.size :]
        else:
            self.file.truncate(count * self.ENTRY.size)
            self._pending.clear()
            self._written = count
        self.count = count
        self._last_key = None
        del self._firsts[-(-count // PAGE_ENTRIES) :]
        self._page, self._page_number = b"", -1

    def distrust(self) -> None:
        """Entries are wrong and cannot be removed from the disk: use none until `reset` succeeds."""
        self._loaded = False
        self._last_key = None
        self._distrusted = True

    def reset(self) -> None:
        """Discard all entries, even those of an unreadable file."""
        self._pending = bytearray()
        self.file.truncate(0)
        self.count = self._written = 0
        self._last_key = None
        self._firsts = array("q")
        self._page, self._page_number = b"", -1
        self._loaded = True
        self._distrusted = False

    def flush(self) -> None:
        self.write_pending()
        self.file.fsync()

    def close(self) -> None:
        self.write_pending()
        self.file.close()


class OffsetIndex(PagedIndex):
    """Maps the last offset of a batch, relative to the segment's base, to the position of that batch."""

    ENTRY = Struct(">ii")
    __slots__ = ()

    @property
    def last_offset(self) -> int:
        if not self._loaded:
            self.load()
        return self.base_offset + (self.entry(self.count - 1)[0] if self.count else 0)

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def entry_before(self, offset: int) -> tuple[int, int]:
        """The last entry at or before `offset`: relative offset and position. (0, 0) if there is none."""
        slot = self.slot_for(offset - self.base_offset)
        return self.entry(slot) if slot >= 0 else (0, 0)

    def truncate_to(self, offset: int) -> None:
        relative = offset - self.base_offset
        slot = self.slot_for(relative)
        self.truncate_entries(slot if slot >= 0 and self.entry(slot)[0] == relative else slot + 1)


class TimeIndex(PagedIndex):
    """Maps the largest timestamp so far to the relative offset of the batch that holds it."""

    ENTRY = Struct(">qi")
    __slots__ = ()

    @property
    def last_entry(self) -> tuple[int, int]:
        """Timestamp and offset, or (-1, base offset) if empty."""
        if not self._loaded:
            self.load()
        if not self.count:
            return -1, self.base_offset
        timestamp, relative = self.entry(self.count - 1)
        return timestamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp grew since the last one."""
        last = self._last_key
        if timestamp > (last if last is not None else self.last_entry[0]):
            self._append(timestamp, offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record with `timestamp` or a later one."""
        slot = self.slot_for(timestamp)
        return self.base_offset + (self.entry(slot)[1] if slot >= 0 else 0)

    def truncate_to(self, offset: int) -> None:
        relative = offset - self.base_offset
        if not self._loaded:
            self.load()
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            if self.entry(middle)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self.truncate_entries(low)


class AbortedTransaction(NamedTuple):
    """The data that a consumer needs to skip a transaction, and how far to search."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of a segment, in the order of their markers. Most segments have no such file."""

    ENTRY: Final = Struct(">hqqqq")

    __slots__ = ("_data", "_disk", "_unwritten", "path")

    def __init__(self, disk: Disk, path: str, exists: bool) -> None:
        self._disk = disk
        self.path = path
        self._data: bytearray | None = None if exists else bytearray()
        self._unwritten = False

    def _entries(self) -> bytearray:
        if self._data is None:
            data = bytearray(self._disk.read_bytes(self.path))
            del data[len(data) - len(data) % self.ENTRY.size :]
            self._data = data
        return self._data

    @property
    def on_disk(self) -> bool:
        return self._data is None or bool(self._data)

    def append(self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        data = self._entries()
        before = len(data)
        data += self.ENTRY.pack(0, producer_id, first_offset, last_offset, last_stable_offset)
        try:
            if self._unwritten:
                self.write_unwritten()
                return
            file = self._disk.open(self.path)
            if file.size != before:
                file.truncate(before)
            file.append([data[before:]])
            file.close()
        except KafkaStorageError:
            # The marker is already in the log. Readers see the entry; the next flush, roll or close writes it or fails.
            self._unwritten = True

    def write_unwritten(self) -> None:
        """Retry the entries that could not be written."""
        if self._unwritten:
            self._replace(self._entries())
            self._unwritten = False

    def collect(self, fetch_offset: int, upper_bound: int, into: list[AbortedTransaction]) -> bool:
        """Add the transactions that overlap [fetch_offset, upper_bound). True if no later segment can add more."""
        data = self._entries()
        size, unpack = self.ENTRY.size, self.ENTRY.unpack_from
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * size)[3] < fetch_offset:
                low = middle + 1
            else:
                high = middle
        for at in range(low * size, len(data), size):
            entry = AbortedTransaction(*unpack(data, at))
            if entry.first_offset < upper_bound:
                into.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def check(self, base_offset: int, size: int) -> list[AbortedTransaction]:
        """The entries, if they are plausible. `size` is the file's size."""
        if not size or size % self.ENTRY.size:
            raise CorruptIndex(f"{self.path} is damaged: {size} bytes are not a whole number of entries")
        entries = [AbortedTransaction(*entry) for entry in self.ENTRY.iter_unpack(self._entries())]
        last = base_offset
        for entry in entries:
            if entry.version or entry.producer_id < 0 or not last <= entry.last_offset >= entry.first_offset >= 0:
                raise CorruptIndex(f"{self.path} is damaged: impossible entry {tuple(entry)}")
            last = entry.last_offset
        return entries

    def truncate_to(self, offset: int) -> None:
        data = self._entries()
        kept = 0
        for entry in self.ENTRY.iter_unpack(data):
            if entry[3] >= offset:
                break
            kept += self.ENTRY.size
        if kept < len(data):
            self._replace(data[:kept])

    def reset(self) -> None:
        if self.on_disk:
            self._replace(bytearray())

    def _replace(self, data: bytearray) -> None:
        self._data = data
        if data:
            self._disk.write_atomic(self.path, bytes(data))
        else:
            self._disk.remove(self.path)

    def flush(self) -> None:
        self.write_unwritten()
        if self.on_disk and self._disk.exists(self.path):
            file = self._disk.open(self.path)
            file.fsync()
            file.close()
