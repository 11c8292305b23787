"""Chance, passed in like time and disk: the system's for users, a seeded one for runs that must repeat exactly."""

from __future__ import annotations

import os

_RESERVED_UUIDS = frozenset({bytes(16), bytes(15) + b"\x01"})
"""Kafka keeps the zero id for "none" and one more for its metadata topic."""


class SystemChance:
    """Unpredictable, for ids that others must not guess."""

    def randbelow(self, limit: int) -> int:
        assert limit > 0
        # As `secrets` does it, whose hashes a start need not wait for: drawn again until it is within the limit.
        bits = (limit - 1).bit_length()
        size = (bits + 7) // 8
        while (drawn := int.from_bytes(os.urandom(size), "big") >> (size * 8 - bits)) >= limit:
            pass
        return drawn

    def uuid(self) -> bytes:
        return _version_4(os.urandom)


class SeededChance:
    """The same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        import random

        self._random = random.Random(seed)

    def randbelow(self, limit: int) -> int:
        return self._random.randrange(limit)

    def uuid(self) -> bytes:
        return _version_4(self._random.randbytes)


def _version_4(random_bytes: object) -> bytes:
    assert callable(random_bytes)
    while True:
        drawn = bytearray(random_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        # An id whose text starts with "-" looks like an option to command-line tools: Kafka draws again, too.
        if bytes(drawn) not in _RESERVED_UUIDS and drawn[0] >> 2 != 62:
            return bytes(drawn)
