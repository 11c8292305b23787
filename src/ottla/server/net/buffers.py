"""Receive buffers: one shared by all connections, and a few of its own for a frame that arrives in pieces.

An idle connection owns no buffer at all. A frame that was received whole is served straight from the shared buffer;
only a frame that is still partial gets a buffer, and gives it back when it has been served.
"""

from __future__ import annotations

import mmap

SHARED_BYTES = 2 << 20
"""Room for what a producer of large batches has under way, which costs less to receive in few pieces; untouched pages
cost nothing."""

POOLED_BYTES_MAX = 4 << 20
"""Frames above this are rare: they get anonymous memory, whose pages cost nothing until the bytes really arrive."""

_POOL_BYTES_MAX = 32 << 20


class ReceiveBuffers:
    """The shared receive buffer and a bounded pool of power-of-two buffers for partial frames."""

    __slots__ = ("_free", "_free_bytes", "shared")

    def __init__(self) -> None:
        # Anonymous memory too: to fill a megabyte with zeros takes as long as all else that a new broker does.
        self.shared = memoryview(mmap.mmap(-1, SHARED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._free: dict[int, list[memoryview]] = {}
        self._free_bytes = 0

    def take(self, size: int) -> memoryview:
        """A writable view of at least `size` bytes."""
        if size > POOLED_BYTES_MAX:
            return memoryview(mmap.mmap(-1, size))
        rounded = 1 << max(10, (size - 1).bit_length())
        free = self._free.get(rounded)
        if free:
            self._free_bytes -= rounded
            return free.pop()
        return memoryview(bytearray(rounded))

    def give_back(self, buffer: memoryview) -> None:
        size = len(buffer)
        if size > POOLED_BYTES_MAX or self._free_bytes + size > _POOL_BYTES_MAX:
            return
        self._free_bytes += size
        self._free.setdefault(size, []).append(buffer)
