"""Which offset holds the newest record of each key, in a bounded amount of memory.

Kafka packs 24 bytes per key into a fixed buffer. In Python a dict is several times faster than a custom table, and
several times larger. So the same setting, `log.cleaner.dedupe.buffer.size`, holds fewer keys, and a log with more keys
takes another round. A short key is kept as it is; a longer one is replaced by a digest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 31
"""A longer key is replaced by a digest of this size, the largest whose object takes 64 bytes. Keys of exactly this size
are digested too, so that a key is never mistaken for the digest of another."""
BYTES_PER_ENTRY: Final = 192
"""Key object 64, offset 32, and the dict's share in the worst case, right after it grew while the old table still
exists. Measured in the tests."""


class OffsetMap:
    """Maps each key to its newest offset. `latest_offset` is the last offset that was read, with or without a key.

    A value is twice the offset, plus one if the record is a tombstone.
    """

    __slots__ = ("_has_tombstones", "_marks", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.capacity = max(int(memory_bytes // BYTES_PER_ENTRY * load_factor), 1)
        self._marks: dict[bytes, int] = {}
        self._has_tombstones = False
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def is_full(self) -> bool:
        return len(self._marks) >= self.capacity

    def put(self, key: bytes, offset: int, tombstone: bool = False) -> None:
        self._marks[key if len(key) < DIGEST_BYTES else digest(key)] = offset << 1 | tombstone
        self._has_tombstones |= tombstone

    def put_all(self, keys: Sequence[bytes], base_offset: int, offset_deltas: list[int]) -> None:
        """Records with values, in order. There must be room for all of them."""
        if not keys:
            return
        if max(map(len, keys)) >= DIGEST_BYTES:
            keys = [key if len(key) < DIGEST_BYTES else digest(key) for key in keys]
        marks: Sequence[int]
        first, count = base_offset + offset_deltas[0], len(keys)
        if offset_deltas == list(range(offset_deltas[0], offset_deltas[0] + count)):
            marks = range(first << 1, first + count << 1, 2)  # almost always true; the list takes twice the time
        else:
            marks = [base_offset + delta << 1 for delta in offset_deltas]
        self._marks.update(zip(keys, marks, strict=True))

    def get(self, key: bytes) -> int:
        """The newest offset, or -1 for an unknown key."""
        return self._marks.get(key if len(key) < DIGEST_BYTES else digest(key), -2) >> 1

    def newest(self) -> NewestOffsets:
        """Only the offsets. Call this after all keys were added."""
        return NewestOffsets(array("q", sorted(self._marks.values())), self._has_tombstones)


class NewestOffsets:
    """The offsets of the newest record of each key, to judge batches without decoding them."""

    __slots__ = ("_has_tombstones", "_marks")

    def __init__(self, marks: array[int], has_tombstones: bool) -> None:
        self._marks = marks
        self._has_tombstones = has_tombstones

    def between(self, first_offset: int, end_offset: int) -> array[int]:
        """The marks of the offsets from `first_offset` up to, but not including, `end_offset`."""
        first = bisect_left(self._marks, first_offset << 1)
        return self._marks[first : bisect_left(self._marks, end_offset << 1, first)]

    def has_tombstone(self, marks: array[int]) -> bool:
        return self._has_tombstones and any(mark & 1 for mark in marks)


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
