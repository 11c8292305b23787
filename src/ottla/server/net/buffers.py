"""Receive buffers: one is shared by all connections, and a frame that arrives in pieces gets its own.

An idle connection owns no buffer. A complete frame is served directly from the shared buffer; only a partial frame gets
its own buffer, which is returned when the frame has been served.
"""

from __future__ import annotations

from ottla import system

SHARED_BYTES = 2 << 20
"""Holds the in-flight requests of a producer of large batches. Receiving in few pieces costs less, and untouched pages
cost nothing."""

POOLED_BYTES_MAX = 4 << 20
"""Frames above this are rare: they get anonymous memory, whose pages cost nothing until the bytes really arrive."""

_POOL_BYTES_MAX = 32 << 20


class ReceiveBuffers:
    """The shared receive buffer and a bounded pool of power-of-two buffers for partial frames."""

    __slots__ = ("_free", "_free_bytes", "shared")

    def __init__(self) -> None:
        # Anonymous memory too: zeroing a megabyte takes as long as the rest of a broker's start.
        self.shared = system.memory(SHARED_BYTES)
        self._free: dict[int, list[memoryview]] = {}
        self._free_bytes = 0

    def take(self, size: int) -> memoryview:
        """A writable view of at least `size` bytes."""
        if size > POOLED_BYTES_MAX:
            return system.memory(size)
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
