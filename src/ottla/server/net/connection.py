"""One client connection: cuts frames, serves them one at a time in order, and writes the answers.

The socket is driven directly with `add_reader`/`recv_into` instead of an asyncio transport: that saves one copy of
every produced byte and lets a fetch hand file bytes to `sendfile`. As in Kafka one request of a connection is in work
at a time, so the order of answers comes for free and a long poll holds back only its own connection.

State: a connection is *busy* while a request is pending (a long poll, say) or while the peer does not take the bytes
it was sent; a busy connection reads nothing, which is the back-pressure. Frames that had already arrived behind the
pending one wait in `_stash`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.clock import TimerHandle
from ottla.enums import ApiKey
from ottla.errors import KafkaError, UnknownServerError
from ottla.log.files import FileRegion
from ottla.server.api import Repeated, RequestContext, Route
from ottla.server.net.answering import next_buffers, queue_answer
from ottla.wire.frames import decode_request_header, skip_header_tags
from ottla.wire.primitives import MalformedMessage
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.broker import Broker
    from ottla.server.security.quotas import Quotas

logger = logging.getLogger(__name__)

_SIZE = Struct(">i").unpack_from
_HEADER = Struct(">hhih").unpack_from
_HEADER_BYTES = 10
FRAME_BYTES_MIN = _HEADER_BYTES

_LARGE_READ = 32 << 10
"""A read of this size is likely to be a part of a large frame."""

_QUEUE_MAX = 256
"""Answers' parts that may queue up before they are written: pipelined requests must not pile up large answers."""


class Connection:
    """A client's connection; owned by the event loop that accepted it."""

    wants_changes_only = False
    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_closed",
        "_closing",
        "_fd",
        "_frame_max",
        "_frame_min",
        "_have",
        "_loop",
        "_muted",
        "_need",
        "_out",
        "_partial",
        "_pending",
        "_reading",
        "_repeated",
        "_route",
        "_sock",
        "_stash",
        "_writing",
        "broker",
        "client_host",
        "client_software",
        "idle_timer",
        "last_active_ms",
        "listener",
        "local_host",
        "peer",
        "principal",
        "services",
        "serving_since_ns",
        "spent_ns",
        "state",
    )

    def __init__(self, broker: Broker, listener: Listener, sock: socket.socket, peer: str, host: str) -> None:
        self.broker = broker
        self.services = broker.services
        self.listener = listener
        self.peer = peer
        self.local_host: str = sock.getsockname()[0]
        self.client_host = "/" + host
        self.client_software: tuple[str, str] | None = None
        self.principal = "User:ANONYMOUS"
        self.state: dict[str, Any] | None = None
        self.idle_timer: TimerHandle | None = None
        self.last_active_ms = broker.clock.monotonic_ms()
        self._route = broker.registry.route
        self._loop = broker.loop
        self._sock = sock
        self._fd = sock.fileno()
        self._partial: memoryview | None = None
        self._have = 0
        self._need = 0
        self._stash: memoryview | None = None
        self._out: deque[Any] = deque()
        self._pending: Reply[Message | None] | None = None
        self._repeated: Repeated | None = None
        self._client_id_bytes: bytes | None = b""
        self._client_id: str | None = ""
        self._closed = False
        self._closing = False
        self._muted = False
        self._frame_min = FRAME_BYTES_MIN
        self._frame_max = broker.request_bytes_max
        self.serving_since_ns = 0
        self.spent_ns = 0
        self._writing = False
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    # -- reading -----------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._pending is not None or self._out:
            self._readable_while_busy()
            return
        partial = self._partial
        try:
            if partial is None:
                buffer = self.broker.buffers.shared
                received = self._sock.recv_into(buffer)
                if received > _LARGE_READ:
                    received = self._more_of_frame(buffer, received)
            else:
                received = self._sock.recv_into(partial[self._have : self._need])
                if received > _LARGE_READ:
                    received = self._more(partial, self._have, received, self._need)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error), logging.DEBUG)
            return
        if received == 0:
            self.close()
            return
        self.last_active_ms = self.broker.clock.monotonic_ms()
        if partial is not None:
            self._consume_partial(partial, received)
            if self._out:
                self._flush()
            else:
                self._keep_watching()
            return
        pace = self.broker.pace
        began_ns = perf_counter_ns() if pace is not None else 0
        self._consume(buffer, 0, received)
        if self._out:
            self._flush()
        else:
            self._keep_watching()
        if pace is not None and received < _LARGE_READ:
            pace.stay(self, began_ns, self._served_next)

    def _served_next(self, until_ns: int) -> bool:
        """Serve one more request if it comes until then."""
        buffer = self.broker.buffers.shared
        while self._pending is None and not self._out and self._partial is None and not self._closed:
            try:
                received = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                if perf_counter_ns() > until_ns:
                    break
                continue
            except OSError as error:
                self.close(str(error), logging.DEBUG)
                break
            if received == 0:
                self.close()
                break
            self._consume(buffer, 0, received)
            if self._out:
                self._flush()
            return True
        return False

    def _more_of_frame(self, buffer: memoryview, received: int) -> int:
        """The rest of a large frame usually follows at once: taking it now saves a copy and a round of the loop."""
        end = min(4 + _SIZE(buffer, 0)[0], len(buffer))
        return self._more(buffer, 0, received, end)

    def _more(self, buffer: memoryview, start: int, received: int, end: int) -> int:
        """Receive on into `buffer`, up to `end`, while something is there; returns how much came from `start` on."""
        while start + received < end:
            try:
                more = self._sock.recv_into(buffer[start + received : end])
            except (BlockingIOError, InterruptedError):
                break
            if more == 0:
                break  # the end of the stream is found again by the next read
            received += more
        return received

    def _readable_while_busy(self) -> None:
        """More bytes, or the end of the stream, arrived behind a request that still waits."""
        try:
            if not self._sock.recv(1, socket.MSG_PEEK):
                self.close()
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error), logging.DEBUG)
            return
        self._pause_reading()

    def _keep_watching(self) -> None:
        """Find a reset behind bytes that were read just now: uvloop reports a socket's error once and stops watching.
        An answer would fail, so this is only needed where none was sent."""
        if not self._closed and self._reading and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _consume(self, buffer: memoryview, start: int, end: int) -> None:
        """Serve the whole frames in buffer[start:end]; keep what is left of a partial one."""
        least, limit = self._frame_min, self._frame_max
        while end - start >= 4:
            repeated = self._repeated
            if (
                repeated is not None
                and repeated.route is not None
                and self.services.access.quotas is None
                and (stop := repeated.serve(buffer, start, end, self._out)) != start
            ):
                start = stop
            else:
                size: int = _SIZE(buffer, start)[0]
                if size < least or size > limit:
                    self.close(f"frame of {size} bytes, allowed are {least} to {limit} (socket.request.max.bytes)")
                    return
                stop = start + 4 + size
                if stop > end:
                    break
                self._serve(buffer[start + 4 : stop])
                start = stop
                if self._closed:
                    return
            if self._pending is not None or (len(self._out) > _QUEUE_MAX and not self._drained()):
                if start < end:
                    # The shared buffer is about to be used by others.
                    self._stash = memoryview(bytearray(buffer[start:end]))
                return
        if start < end:
            self._begin_partial(buffer[start:end])

    def _drained(self) -> bool:
        self._flush()
        return not self._out

    def _begin_partial(self, rest: memoryview) -> None:
        have = len(rest)
        need = 4 + _SIZE(rest, 0)[0] if have >= 4 else 4
        partial = self.broker.buffers.take(need)
        partial[:have] = rest
        self._partial, self._have, self._need = partial, have, need

    def _consume_partial(self, partial: memoryview, received: int) -> None:
        self._have += received
        if self._have < self._need:
            return
        if self._need == 4:
            # Only the length was known to be missing; now the size of the frame is.
            size: int = _SIZE(partial, 0)[0]
            least, limit = self._frame_min, self._frame_max
            if size < least or size > limit:
                self.close(f"frame of {size} bytes, allowed are {least} to {limit} (socket.request.max.bytes)")
                return
            self._partial = None
            self._begin_partial(partial[:4])
            self.broker.buffers.give_back(partial)
            return
        self._partial = None
        self._consume(partial, 0, self._need)
        self.broker.buffers.give_back(partial)

    # -- serving -----------------------------------------------------------------------------------------------

    def _serve(self, frame: memoryview) -> None:
        """Decode one request, call its handler, queue the answer (or remember that it is pending)."""
        try:
            api_key, version, correlation_id, id_length = _HEADER(frame)
            route = self._route(api_key, version)
            if route is None:
                route, version = self._unserved(frame, api_key, version)
                if route is None:
                    return
                request: Message | None = None
            else:
                position = _HEADER_BYTES
                if id_length >= 0:
                    position += id_length
                    if position > len(frame):
                        raise MalformedMessage("the client id runs past the end of the frame")
                    raw = bytes(frame[_HEADER_BYTES:position])
                    if raw != self._client_id_bytes:
                        self._client_id_bytes, self._client_id = raw, raw.decode(errors="replace")
                elif self._client_id_bytes is not None:
                    self._client_id_bytes = self._client_id = None
                if route.flexible_request:
                    if position < len(frame) and frame[position] == 0:
                        position += 1
                    else:
                        position = skip_header_tags(frame, position)
                # Bytes behind the request are ignored, as Kafka does: librdkafka sends some with its admin requests.
                request, _ = route.decode(frame, position)
        except MalformedMessage as error:
            self.close(f"malformed request: {error}")
            return
        ctx = RequestContext(self, api_key, version, correlation_id, self._client_id, len(frame))
        quotas = self.services.access.quotas
        if quotas is not None:
            self.serving_since_ns = perf_counter_ns()
        try:
            result = route.handler(ctx, request)
        except Exception as error:
            result = self._error_answer(ctx, route, request, error)
        if result.__class__ is route.response_type:
            if quotas is not None:
                self._settle(quotas, ctx, result)
            self._answer(ctx, route, result)
            if route.model is not None and quotas is None and request is not None and not self._closed:
                sent = self._out[-1]
                self._repeated = route.model(ctx, route, frame, request, result, sent, self._repeated)
        elif result is None:
            if quotas is not None:
                self._settle(quotas, ctx, None)
        else:
            assert isinstance(result, Reply), f"{route.api.name} answered with {result!r}"
            self._wait_for(ctx, route, request, result)

    def _unserved(self, frame: memoryview, api_key: int, version: int) -> tuple[Route | None, int]:
        """Only ApiVersions has an answer for versions nobody knows; anything else ends the connection."""
        if api_key == ApiKey.API_VERSIONS:
            decode_request_header(frame)  # of whatever version, the header has to be whole
            return self._route(api_key, 0), -1
        api = self.broker.registry.apis.get(api_key)
        if api is None:
            self.close(f"unknown api key {api_key}")
        else:
            self.close(f"unsupported version {version} of {api.name} ({api.min_version} to {api.max_version})")
        return None, version

    def _error_answer(self, ctx: RequestContext, route: Route, request: Message | None, error: Exception) -> Any:
        if not isinstance(error, KafkaError):
            logger.error("%s v%d from %s failed", route.api.name, ctx.version, self.peer, exc_info=error)
            error = UnknownServerError()
        try:
            return route.api.on_error(ctx, request, error)
        except Exception as second:
            self._give_up(ctx, route, second)
            return None

    def _give_up(self, ctx: RequestContext, route: Route, error: Exception) -> None:
        """Not even an error can be answered: a mistake of ours, and no reason to leave the client waiting."""
        logger.error("%s v%d from %s has no answer", route.api.name, ctx.version, self.peer, exc_info=error)
        self.close("its request cannot be answered")

    def _wait_for(
        self, ctx: RequestContext, route: Route, request: Message | None, reply: Reply[Message | None]
    ) -> None:
        self._pending = reply
        if self.serving_since_ns:
            # Waiting is not working: only what the handler took itself counts against a quota.
            self.spent_ns, self.serving_since_ns = perf_counter_ns() - self.serving_since_ns, 0

        def answer(reply: Reply[Message | None]) -> None:
            if self._closed:
                return
            self._pending = None
            error = reply.error
            if error is None:
                response = reply.value
            elif isinstance(error, Exception):
                response = self._error_answer(ctx, route, request, error)
            else:
                self.close()  # whatever the answer was waiting for was cancelled
                return
            if response is not None:
                if (quotas := self.services.access.quotas) is not None:
                    self._settle(quotas, ctx, response)
                self._answer(ctx, route, response)
            self._go_on()

        reply.when_done(answer)

    def _answer(self, ctx: RequestContext, route: Route, response: Message) -> None:
        try:
            queue_answer(self._out, route, ctx.correlation_id, response)
        except Exception as error:
            self._give_up(ctx, route, error)

    def _go_on(self) -> None:
        """A pending request was answered: write, serve what had arrived behind it, and read again."""
        if self._out:
            self._flush()
        while self._stash is not None and not (self._pending or self._out or self._closed or self._closing):
            stash, self._stash = self._stash, None
            self._consume(stash, 0, len(stash))
            if self._out:
                self._flush()
        if self._closing:
            self.finish()
        elif not self._reading and self._pending is None and not self._out and not self._closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    # -- writing -----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write as much of the queue as the peer takes now; the rest when it takes more."""
        out = self._out
        try:
            while out:
                if out[0].__class__ is FileRegion:
                    if not self._send_region():
                        break
                elif not self._send_bytes():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(str(error), logging.DEBUG)
            return
        if out:
            if not self._writing and self._pin_regions():
                self._writing = True
                self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _pin_regions(self) -> bool:
        """Keep the files of answers that have to wait; without a handle left, the slow reader is given up."""
        try:
            for item in self._out:
                if item.__class__ is FileRegion:
                    item.pin()
        except OSError as error:
            self.close(f"the answer cannot be kept for a slow reader: {error}")
            return False
        return True

    def _send_bytes(self) -> bool:
        """Send the byte strings at the head of the queue; False when the peer took less than all of them."""
        out = self._out
        if len(out) == 1:
            head = out[0]
            sent = self._sock.send(head)
            if sent == len(head):
                out.clear()
                return True
            out[0] = memoryview(head)[sent:]
            return False
        buffers, flags = next_buffers(out)
        sent = self._sock.send(buffers[0], flags) if len(buffers) == 1 else self._sock.sendmsg(buffers, (), flags)
        for buffer in buffers:
            length = len(buffer)
            if sent < length:
                out[0] = memoryview(buffer)[sent:]
                return False
            out.popleft()
            sent -= length
        return True

    def _send_region(self) -> bool:
        """Send the file bytes at the head of the queue straight from the page cache."""
        out = self._out
        region = out[0]
        fd = region.fileno()
        if fd is None:
            out.popleft()
            out.extendleft(reversed(region.parts()))
            return True
        while len(region):
            sent = os.sendfile(self._fd, fd, region.position, len(region))
            if sent == 0:
                # The file is shorter than promised (truncated under the read): the answer cannot be completed.
                self.close("log file shorter than the answer that was begun")
                return False
            region.skip(sent)
        region.release()
        out.popleft()
        return True

    def _on_writable(self) -> None:
        self._flush()
        if not self._out and not self._closed:
            self.last_active_ms = self.broker.clock.monotonic_ms()
            self._go_on()

    # -- the end -----------------------------------------------------------------------------------------------

    def mute(self, delay_ms: float, then: Callable[[], None] | None = None) -> None:
        """Neither read nor serve for a while; answers still go out. Afterwards do `then`, and go on."""
        if self._closed:
            return
        muted: Reply[Message | None] = Reply()
        self._pending, self._muted = muted, True

        def unmute() -> None:
            if self._pending is muted and not self._closed:
                self._pending, self._muted = None, False
                if then is not None:
                    then()
                if not self._closed:
                    self._go_on()

        if delay_ms <= 0:
            self._loop.call_soon(unmute)
            return
        muted.on_cancel = self.broker.timer.schedule(delay_ms, unmute).cancel

    @property
    def token_authenticated(self) -> bool:
        """Whether a delegation token, and no password or key, was the proof of identity."""
        return False

    def _settle(self, quotas: Quotas, ctx: RequestContext, response: Message | None) -> None:
        if (throttle_ms := quotas.settle(ctx, response)) > 0:
            self.mute(throttle_ms)

    def work_ns(self) -> int:
        return perf_counter_ns() - self.serving_since_ns if self.serving_since_ns else self.spent_ns

    def log_refusal(self, message: str, *arguments: object) -> None:
        """A line about something that this peer was refused; few of them for each address."""
        self.broker.security.refusals.warning(self.client_host, message, *arguments)

    def hold_back(self) -> None:
        """Read nothing until `let_go`, as a process that is stopped."""
        self._pause_reading()

    def let_go(self) -> None:
        if not self._closed:
            self._go_on()

    def finish(self) -> None:
        """Close as soon as the request in work, if any, has been answered and its answer taken."""
        self._closing = True
        if (self._pending is None or self._muted) and not self._out:
            self.close()

    def close(self, reason: str | None = None, level: int = logging.WARNING) -> None:
        """Drop the connection; `reason` goes to the log with the peer's address."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            self.broker.security.refusals.log(
                level, self.client_host, "closing connection from %s: %s", self.peer, reason
            )
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        for item in self._out:
            if item.__class__ is FileRegion:
                item.release()
        self._out.clear()
        self._stash = None
        partial, self._partial = self._partial, None
        if partial is not None:
            self.broker.buffers.give_back(partial)
        self._sock.close()
        self.broker.connection_closed(self)
