"""Prepares memory that the page cache is about to need.

A virtual machine often gets its memory from the host page by page, at the first access, and returns freed pages. A
write to the page cache may then cost three times as much in one run as in the next, regardless of the broker. So this
module touches and frees pages right before they are needed, and the next write finds them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = bytes(1 << 20)


def touch(byte_count: int) -> None:
    """Allocate this many bytes of the page cache, and free them."""
    with tempfile.TemporaryFile() as file:
        for _ in range(byte_count // len(_CHUNK) + 1):
            file.write(_CHUNK)


@contextmanager
def used(byte_count: int) -> Iterator[None]:
    """Occupy this many bytes of the page cache with recently freed pages, so that writes need other pages."""
    with tempfile.TemporaryFile() as file:
        for _ in range(byte_count // len(_CHUNK)):
            file.write(_CHUNK)
        yield
