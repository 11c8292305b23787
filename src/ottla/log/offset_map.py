"""Which offset holds the newest record of each key, in a bounded amount of memory.

Kafka packs 24 bytes a key into a fixed buffer. A dict is several times as fast here as any table of our own would be,
and several times as large; so the same setting, `log.cleaner.dedupe.buffer.size`, holds fewer keys, and a log with more
of them than fit takes another round. A short key stands for itself; of a longer one only a digest is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
"""A longer key is replaced by a digest of this size. Keys of exactly this size are digested too, so that a key is never
mistaken for the digest of another."""
BYTES_PER_ENTRY: Final = 192
"""Key object 64, offset 32, and the dict's share in the worst moment, right after it grew with the old table still
there; measured in the tests."""


class OffsetMap:
    """Key to its newest offset. `latest_offset` is how far the log was read, whether or not there were keys."""

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.capacity = max(int(memory_bytes // BYTES_PER_ENTRY * load_factor), 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[key if len(key) < DIGEST_BYTES else digest(key)] = offset

    def get(self, key: bytes) -> int:
        """-1 for a key that was not seen."""
        return self._offsets.get(key if len(key) < DIGEST_BYTES else digest(key), -1)


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
