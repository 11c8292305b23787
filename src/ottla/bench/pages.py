"""Memory that the page cache is about to need.

A virtual machine often gets its memory from the host page by page, at the first touch, and gives back what it freed:
a write to the page cache then costs three times as much in one run as in the next, whatever broker makes it. So the
pages are touched and freed right before they are needed, and the next write finds them.
"""

from __future__ import annotations

import tempfile

_CHUNK = bytes(1 << 20)


def touch(byte_count: int) -> None:
    """Let so many bytes of the page cache be taken and freed."""
    with tempfile.TemporaryFile() as file:
        for _ in range(byte_count // len(_CHUNK) + 1):
            file.write(_CHUNK)
