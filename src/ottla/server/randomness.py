"""Randomness, passed in like time and disk: the system's for users, a seeded one for runs that must repeat exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import random
else:
    random = lazy("random")

_RESERVED_UUIDS = frozenset({bytes(16), bytes(15) + b"\x01"})
"""Kafka keeps the zero id for "none" and one more for its metadata topic."""


class SystemRandomness:
    """Unpredictable, for ids that others must not guess."""

    def randbelow(self, limit: int) -> int:
        # Enough extra bits that no number is noticeably more likely than another.
        return int.from_bytes(os.urandom(32), "big") % limit

    def randbytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uuid(self) -> bytes:
        return _version_4(os.urandom)


class SeededRandomness:
    """The same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def randbelow(self, limit: int) -> int:
        return self._random.randrange(limit)

    def randbytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uuid(self) -> bytes:
        return _version_4(self._random.randbytes)


def _version_4(random_bytes: Callable[[int], bytes]) -> bytes:
    while True:
        drawn = bytearray(random_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        # An id that starts with "-" looks like an option to command-line tools: Kafka also draws again.
        if bytes(drawn) not in _RESERVED_UUIDS and drawn[0] >> 2 != 62:
            return bytes(drawn)
