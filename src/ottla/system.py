"""The only module that knows the differences between operating systems.

Linux has everything. macOS lacks a few calls, Windows more. A missing call is replaced by a slower
equivalent. OTTLA_PLAIN_SYSTEM=1 uses all replacements on any system, so that they can be tested.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio
    import fcntl
    import msvcrt
    import resource
    import signal
    import socket

    import uvloop
else:
    asyncio = lazy("asyncio")
    fcntl = lazy("fcntl")
    msvcrt = lazy("msvcrt")
    resource = lazy("resource")
    signal = lazy("signal")
    socket = lazy("socket")
    uvloop = lazy("uvloop")

PLAIN: Final = os.environ.get("OTTLA_PLAIN_SYSTEM") == "1"
"""Whether to use only calls that every system has."""

IS_WINDOWS: Final = sys.platform == "win32"
O_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Windows converts line ends in files that are opened without it."""
OPEN_FLAGS: Final = O_CLOEXEC | O_BINARY
RENAMES_OPEN_FILES: Final = not IS_WINDOWS and not PLAIN
"""Whether open files can be renamed or replaced. Otherwise they must be closed first."""
SYNC_WAITS: Final = sys.platform == "linux" and not PLAIN
"""Whether sync() waits for the disk."""
HAS_FORK: Final = hasattr(os, "fork") and not PLAIN
"""Whether a process can fork and share its listeners: --workers needs this."""

Buffer = bytes | bytearray | memoryview

# --- memory ----------------------------------------------------------------------------------------------------------

_ANONYMOUS: Final[int] = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_READY: Final[int] = 0 if PLAIN else getattr(mmap, "MAP_POPULATE", 0)


def memory(size: int, *, ready: bool = False) -> memoryview:
    """Zeroed memory that returns to the system with its last view.

    A page costs nothing until it is touched. With `ready` all pages are allocated immediately, which costs a third less
    than a page fault for each.
    """
    if not _ANONYMOUS or PLAIN:
        return memoryview(mmap.mmap(-1, size))
    return memoryview(mmap.mmap(-1, size, flags=_ANONYMOUS | (_READY if ready else 0)))


# --- files -----------------------------------------------------------------------------------------------------------

_seek_lock: Final = threading.Lock()


def _pread_by_seeking(fd: int, length: int, position: int) -> bytes:
    # Threads share the handle, and so its position.
    with _seek_lock:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, length)


def _writev_by_joining(fd: int, buffers: Sequence[Any]) -> int:
    return os.write(fd, b"".join(buffers))


pread: Final[Callable[[int, int, int], bytes]] = os.pread if hasattr(os, "pread") and not PLAIN else _pread_by_seeking
writev: Final[Callable[[int, Sequence[Any]], int]] = (
    os.writev if hasattr(os, "writev") and not PLAIN else _writev_by_joining
)


def sync_folder(path: str) -> None:
    """Flush the names in a folder to disk. Windows cannot open folders, and keeps names in its journal."""
    if IS_WINDOWS:
        return
    fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_files_limit() -> int:
    """How many files and sockets this process may have open; -1 if this is unlimited or unknown."""
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:
        return -1


def lock_file(fd: int, *, shared: bool = False) -> None:
    """Lock a file without waiting, or raise OSError if another process holds the lock.

    Systems with two kinds of locks use both: Apache Kafka uses the second, so neither starts on the other's folder.
    """
    if IS_WINDOWS:  # locks bytes: the first byte represents the file
        os.lseek(fd, 0, os.SEEK_SET)
        locks: Any = msvcrt
        locks.locking(fd, locks.LK_NBLCK, 1)
        return
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    fcntl.flock(fd, kind)
    fcntl.lockf(fd, kind)


# --- sockets ---------------------------------------------------------------------------------------------------------

_COPY_BYTES: Final = 1 << 18


def _sendfile_by_copying(sock: socket.socket, fd: int, position: int, length: int) -> int:
    data = pread(fd, min(length, _COPY_BYTES), position)
    return sock.send(data) if data else 0


def _sendfile(sock: socket.socket, fd: int, position: int, length: int) -> int:
    return os.sendfile(sock.fileno(), fd, position, length)


sendfile: Final[Callable[[socket.socket, int, int, int], int]] = (
    _sendfile if hasattr(os, "sendfile") and not PLAIN else _sendfile_by_copying
)
"""Send bytes of a file, from the page cache if the system can. Returns how many were sent, 0 at the end."""


_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_HEADER: Final = Struct("=IHHII")
_WANTED: Final = Struct("=BBBBI")
_ADDRESSES: Final = Struct(">HH4s12x4s12x")
_ANY_COOKIE: Final = bytes(4) + b"\xff" * 8
_UID_AND_INODE: Final = Struct("=II")
_UID_POSITION: Final = _HEADER.size + 4 + _ADDRESSES.size + len(_ANY_COOKIE) + 12


def is_of_another_user(server: tuple[str, int], client: tuple[str, int]) -> bool:
    """Whether the client of a connection on 127.0.0.1 is run by another user of this machine, who is not root.

    Linux reports the owner of a socket (sock_diag). A socket that its client has closed has no owner, and counts as
    another user's. On other systems the answer is always False.
    """
    if PLAIN or sys.platform != "linux":
        return False
    addresses = _ADDRESSES.pack(client[1], server[1], socket.inet_aton(client[0]), socket.inet_aton(server[0]))
    wanted = _WANTED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + addresses + _ANY_COOKIE
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(_HEADER.pack(_HEADER.size + len(wanted), _BY_FAMILY, 1, 0, 0) + wanted)
            answer = kernel.recv(4096)
    except OSError:
        return False  # a kernel or a sandbox without it
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return True
    uid, inode = _UID_AND_INODE.unpack_from(answer, _UID_POSITION)
    return inode == 0 or uid not in (0, os.getuid())


def sendmsg_of(sock: socket.socket) -> Callable[..., int]:
    """`sendmsg`, or a replacement for it: several buffers in one call."""
    if hasattr(sock, "sendmsg") and not PLAIN:
        return sock.sendmsg
    return lambda buffers, _ancillary=(), flags=0: sock.send(b"".join(buffers), flags)


# --- the event loop --------------------------------------------------------------------------------------------------


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop that can watch sockets: uvloop if it is installed, and never the Proactor of Windows."""
    if not PLAIN and not IS_WINDOWS:
        with suppress(ImportError):
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """RuntimeError for a loop that cannot watch sockets."""
    proactor: type[Any] | None = getattr(asyncio, "ProactorEventLoop", None)
    if proactor is not None and isinstance(loop, proactor):
        raise RuntimeError(
            "a broker cannot run on the Proactor event loop of Windows: use ottla.serve(), which has its own "
            "loop, or asyncio.run(main(), loop_factory=asyncio.SelectorEventLoop)"
        )


def on_signal(loop: asyncio.AbstractEventLoop, number: int, callback: Callable[[], object]) -> None:
    """Call back on the loop when a signal arrives. Only event loops on Unix support that themselves."""
    if not PLAIN and not IS_WINDOWS:
        loop.add_signal_handler(number, callback)
        return
    signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))
