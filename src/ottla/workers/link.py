"""The socket between two workers: messages in order, and calls that get an answer.

Both ends are forks of one process, on a socket pair that nobody else can reach, so a message is a marshalled tuple
with its length in front.
"""

from __future__ import annotations

import asyncio
import itertools
import marshal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from time import perf_counter_ns
from typing import Any

from ottla.answers import Answer, Reply
from ottla.errors import KafkaError, UnknownServerError, error_for

_LENGTH = Struct(">I")
_RECEIVE_BYTES = 256 * 1024
# All links of a process run on one loop. A new buffer for each receive would be mapped and unmapped each time.
_received_bytes = memoryview(bytearray(_RECEIVE_BYTES))

_LOOK_NS = 300_000
"""Longer than a sleeping worker takes to wake up and answer a small request."""
_PASSED_OVER_MAX = 1024
_HANDLES_MAX = 253
"""The maximum number of file handles that Linux passes in one message (SCM_MAX_FD)."""

# Kinds of messages that the link itself handles; all others go to the listener.
_CALL, _ANSWER, _FAILURE = "call", "answer", "failure"

Arguments = tuple[Any, ...]
Service = Callable[["Link", str, Arguments], "Answer[Any]"]
Receiver = Callable[["Link", str, Arguments], None]
Message = tuple[str, Arguments]
Answered = Callable[[Any, Exception | None], None]
"""Called once with the result or the error."""


class LinkLost(Exception):
    """The worker at the other end is gone."""


class Link:
    """One end of the socket to another worker."""

    def __init__(self, sock: socket.socket, peer_id: int, loop: asyncio.AbstractEventLoop) -> None:
        self.peer_id = peer_id
        self.is_lost = False
        self._sock = sock
        self._loop = loop
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._unserved: deque[Message] = deque()
        self._passed_over = self._pass_over = 0
        self._numbers = itertools.count(1)
        self._calls: dict[int, Answered] = {}
        self._serving: set[Reply[Any]] = set()
        self._service: Service
        self._receiver: Receiver
        self._on_lost: Callable[[Link], None]
        sock.setblocking(False)

    def start(self, receiver: Receiver, service: Service, on_lost: Callable[[Link], None]) -> None:
        """Start reading. Earlier messages wait in the socket."""
        self._receiver, self._service, self._on_lost = receiver, service, on_lost
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    # -- sending -----------------------------------------------------------------------------------------------

    def send(self, kind: str, *arguments: Any) -> None:
        """Send a message, in order and without waiting. Nothing is sent to a worker that is gone."""
        if self.is_lost:
            return
        body = marshal.dumps((kind, arguments))
        idle = not self._out
        self._out.append(memoryview(_LENGTH.pack(len(body)) + body))
        if idle:
            self._flush()
            if self._out:
                self._loop.add_writer(self._sock.fileno(), self._on_writable)

    def send_handles(self, handles: Sequence[int]) -> None:
        """Pass file handles to the other worker; call this before sending any message."""
        with suppress(OSError):  # gone: the reader finds the end of the stream and reports it
            socket.send_fds(self._sock, [b"\0"], handles)

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.send(out[0])
                if sent < len(out[0]):
                    out[0] = out[0][sent:]
                    return
                out.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            out.clear()  # the reader finds the end of the stream and reports it

    def _on_writable(self) -> None:
        self._flush()
        if not self._out:
            self._loop.remove_writer(self._sock.fileno())

    def finish(self) -> None:
        """Wait until everything is sent; used for the last messages of a process."""
        if self._out:
            self._loop.remove_writer(self._sock.fileno())
            self._sock.setblocking(True)
            self._flush()

    def ask(self, answered: Answered, name: str, *arguments: Any) -> None:
        """Call the other worker. Errors are a KafkaError from it, or LinkLost."""
        if self.is_lost:
            answered(None, LinkLost())
            return
        number = next(self._numbers)
        self._calls[number] = answered
        self.send(_CALL, number, name, arguments)

    def ask_and_look(self, answered: Answered, name: str, *arguments: Any) -> None:
        """Like `ask`, but poll for the answer for a moment if this worker has nothing else to do, because waking a
        sleeping process takes longer than the answer. If the answer does not arrive in that time, the next calls do not
        poll; each failure increases their number.
        """
        self.ask(answered, name, *arguments)
        if self._passed_over < self._pass_over:
            self._passed_over += 1
        elif not self.is_lost and not self._unserved:
            self._passed_over = 0
            number = next(reversed(self._calls))
            self._pass_over = 0 if self._found(number) else min(self._pass_over * 2 or 1, _PASSED_OVER_MAX)

    def _found(self, number: int) -> bool:
        """Poll for the answer to a call. Other messages wait for the loop, because the caller is busy."""
        until_ns = perf_counter_ns() + _LOOK_NS
        while True:
            messages = self._receive()
            if messages:
                break
            if messages is None or perf_counter_ns() > until_ns:
                return False
        kind, arguments = messages[0]
        if len(messages) == 1 and kind in (_ANSWER, _FAILURE) and arguments[0] == number:
            self._received(kind, arguments)
            return True
        self._unserved += messages
        self._loop.call_soon(self._serve_received)
        return False

    def call(self, name: str, *arguments: Any) -> asyncio.Future[Any]:
        """Like `ask`, as a coroutine."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any, error: Exception | None) -> None:
            if future.done():
                return  # the caller has left
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.ask(answered, name, *arguments)
        return future

    # -- receiving ---------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        messages = self._receive()
        if messages is None:
            try:
                self._serve_received()  # polling may have found its last messages
            finally:
                self._lost()
            return
        if self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            # Read its last messages before the end of the stream: uvloop does not watch a socket with an error.
            self._loop.remove_reader(self._sock.fileno())
            self._loop.add_reader(self._sock.fileno(), self._on_readable)
        self._unserved += messages
        self._serve_received()

    def _serve_received(self) -> None:
        try:
            while self._unserved and not self.is_lost:
                self._received(*self._unserved.popleft())
        finally:
            if self._unserved and not self.is_lost:  # one failed and is reported; the others continue
                self._loop.call_soon(self._serve_received)

    def _receive(self) -> list[Message] | None:
        """The complete messages so far; None at the end of the stream."""
        try:
            count = self._sock.recv_into(_received_bytes)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            count = 0
        if not count:
            return None
        if self._in:
            self._in += _received_bytes[:count]
            if len(self._in) < 4 or len(self._in) < 4 + _LENGTH.unpack_from(self._in)[0]:
                return []
            messages = memoryview(bytes(self._in))
        else:
            messages = _received_bytes[:count]  # the common case: nothing was left over, so nothing is copied
        start, stop = 0, len(messages)
        found = []
        while stop - start >= 4:
            end = start + 4 + _LENGTH.unpack_from(messages, start)[0]
            if end > stop:
                break
            found.append(marshal.loads(messages[start + 4 : end]))
            start = end
        self._in = bytearray(messages[start:])
        return found

    def _received(self, kind: str, arguments: Arguments) -> None:
        if kind == _CALL:
            self._serve(*arguments)
        elif kind == _ANSWER:
            number, result = arguments
            self._calls.pop(number)(result, None)
        elif kind == _FAILURE:
            number, code, message = arguments
            self._calls.pop(number)(None, error_for(code, message))
        else:
            self._receiver(self, kind, arguments)

    def _serve(self, number: int, name: str, arguments: Arguments) -> None:
        try:
            result = self._service(self, name, arguments)
        except KafkaError as error:
            self.send(_FAILURE, number, error.code, error.message)
            return
        except Exception:
            self.send(_FAILURE, number, UnknownServerError.code, None)  # the caller must not wait forever
            raise
        if isinstance(result, Reply):
            self._serving.add(result)
            result.when_done(lambda reply: self._serve_later(number, reply))
        else:
            self.send(_ANSWER, number, result)

    def _serve_later(self, number: int, reply: Reply[Any]) -> None:
        self._serving.discard(reply)
        error = reply.error
        if error is None:
            self.send(_ANSWER, number, reply.value)
        elif isinstance(error, KafkaError):
            self.send(_FAILURE, number, error.code, error.message)
        elif isinstance(error, Exception):
            self.send(_FAILURE, number, UnknownServerError.code, None)
            raise error

    # -- the end -----------------------------------------------------------------------------------------------

    def _lost(self) -> None:
        self.close()
        self._on_lost(self)

    def close(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._out.clear()
        calls, self._calls = self._calls, {}
        for answered in calls.values():
            answered(None, LinkLost())
        for reply in tuple(self._serving):
            reply.cancel()


def receive_first(sock: socket.socket) -> tuple[list[int], str, Arguments]:
    """The handles and the first message of a link that is not started yet; waits for them. Raises LinkLost."""
    sock.setblocking(True)
    _, handles, _, _ = socket.recv_fds(sock, 1, _HANDLES_MAX)
    if not handles:
        raise LinkLost
    (length,) = _LENGTH.unpack(_receive(sock, 4))
    kind, arguments = marshal.loads(_receive(sock, length))
    return handles, kind, arguments


def _receive(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = sock.recv(min(count, _RECEIVE_BYTES))
        except OSError:
            part = b""
        if not part:
            raise LinkLost
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
