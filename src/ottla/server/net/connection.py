"""One client connection: serves its frames one at a time, in order, and writes the answers.

It is built from parts that can be read separately: a transport moves bytes (`transport.py`, or TLS), the
`FrameReader` cuts them into frames (`framing.py`), an authentication stage may come before the first request (SASL, a
client certificate), and `dispatch` calls the handlers.

The socket is driven directly with `add_reader`/`recv_into` instead of an asyncio transport: that saves one copy of
every produced byte and lets a fetch hand file bytes to `sendfile`. As in Kafka, a connection handles one request at a
time, so answers are in order, and a long poll delays only its own connection.

State: a connection is *busy* while a request is pending (a long poll, say) or while the peer does not accept the bytes
sent to it. A busy connection reads nothing, which creates back-pressure. Frames that have already arrived after the
pending one wait in the frame reader.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from ottla.answers import Reply
from ottla.clock import TimerHandle
from ottla.enums import ApiKey
from ottla.log.files import FileRegion
from ottla.server.api import Repeated, RequestContext, Route
from ottla.server.dispatch import dispatch, give_up
from ottla.server.net.answering import queue_answer
from ottla.server.net.framing import FRAME_BYTES_MIN, FrameError, FrameReader
from ottla.server.net.transport import HandshakeFailed, PlainTransport, TransportError
from ottla.server.net.turns import RECEIVE_BYTES, TURN_NS
from ottla.wire.frames import decode_request_header, skip_header_tags
from ottla.wire.primitives import REPLACING, MalformedMessage
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.net.connections import Connections
    from ottla.server.net.transport import Transport
    from ottla.server.security.quotas import Quotas
    from ottla.server.services import Services

logger = logging.getLogger(__name__)

_HEADER = Struct(">hhih").unpack_from
_HEADER_BYTES = 10

_LARGE_READ = 32 << 10
"""A read of this size is probably part of a large frame."""

_QUEUE_MAX = 256
"""The most queued parts of answers before they are written: pipelined requests must not pile up large answers."""


class Authentication(Protocol):
    """The authentication of a peer, before its requests are served, and later if its session can expire."""

    def admits(self, frame: memoryview) -> bool:
        """Whether a frame is a request to serve. If not, it has already been handled."""


class Connection:
    """A client's connection; owned by the event loop that accepted it."""

    wants_changes_only = False

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_closed",
        "_closing",
        "_connections",
        "_fd",
        "_frames",
        "_loop",
        "_muted",
        "_out",
        "_pending",
        "_reading",
        "_repeated",
        "_route",
        "_sends_much",
        "_sock",
        "_transport",
        "_writing",
        "authentication",
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
        "token_authenticated",
    )

    def __init__(
        self,
        services: Services,
        connections: Connections,
        listener: Listener,
        sock: socket.socket,
        peer: str,
        host: str,
        transport: Transport | None = None,
    ) -> None:
        self.services = services
        self._connections = connections
        self.listener = listener
        self.peer = peer
        self.local_host: str = sock.getsockname()[0]
        self.client_host = "/" + host
        self.client_software: tuple[str, str] | None = None
        self.principal = "User:ANONYMOUS"
        self.state: dict[str, Any] | None = None
        self.idle_timer: TimerHandle | None = None
        self.last_active_ms = services.clock.monotonic_ms()
        self._route = services.registry.route
        self._loop = services.loop
        self._sock = sock
        self._fd = sock.fileno()
        self._transport: Transport = transport if transport is not None else PlainTransport(sock)
        self._frames = FrameReader(connections.buffers, FRAME_BYTES_MIN, connections.request_bytes_max)
        self.authentication: Authentication | None = None
        """Runs before the dispatcher until it is complete; None if there is nothing to check."""
        self.token_authenticated = False
        """Whether the client authenticated with a delegation token."""
        self._out: deque[Any] = deque()
        self._pending: Reply[Message | None] | None = None
        self._repeated: Repeated | None = None
        self._client_id_bytes: bytes | None = b""
        self._client_id: str | None = ""
        self._closed = False
        self._closing = False
        self._muted = False
        self._sends_much = False
        self.serving_since_ns = 0
        self.spent_ns = 0
        self._writing = False
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str | None:
        """The client id in the last request."""
        return self._client_id

    def _on_readable(self) -> None:
        if self._pending is not None or self._out:
            self._readable_while_busy()
            return
        frames, transport, turns = self._frames, self._transport, self._connections.turns
        turns.take(self)
        room = frames.room
        if self._sends_much and not turns.is_alone:
            frames.expect_pieces(RECEIVE_BYTES)
            room = frames.room[:RECEIVE_BYTES]
        is_partial = frames.partial is not None
        try:
            received = transport.receive(room)
            self._sends_much = is_partial or received > _LARGE_READ
            if received > _LARGE_READ:
                received = self._more(room, received)
        except Exception as error:
            self._not_received(error)
            return
        if received == 0:
            self.close()
            return
        self.last_active_ms = self.services.clock.monotonic_ms()
        pace = None if is_partial or not transport.can_poll else self._connections.pace
        began_ns = perf_counter_ns() if pace is not None else 0
        try:
            frames.received(received)
            self._serve_frames()
            self.services.wakeups.serve_single()
            if self._out:
                self._flush()
            else:
                self._keep_watching()
            if transport.buffered:
                self._serve_buffered()
            elif pace is not None and received < _LARGE_READ:
                pace.stay(self, began_ns, self._served_next)
        except Exception as error:
            self._failed(error)

    def _not_received(self, error: Exception) -> None:
        if isinstance(error, (BlockingIOError, InterruptedError)):
            if self._transport.unsent:
                self._flush()  # a handshake needs several messages
        elif isinstance(error, HandshakeFailed):
            self._flush()  # the TLS alert with the reason
            if not self._closed:
                self.log_refusal("TLS handshake with %s failed: %s", self.peer, error)
                self.mute(self.services.config["connection.failed.authentication.delay.ms"], self.close)
        elif isinstance(error, TransportError):
            self.close(str(error))
        elif isinstance(error, OSError):
            self.close(str(error), logging.DEBUG)
        else:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A bug in the broker, found in a callback of the event loop: the state of the connection is unknown, so it
        is closed."""
        if not self._closed:
            self.log_refusal("serving %s failed", self.peer, exc_info=error)
        self.close()

    def _serve_buffered(self) -> None:
        """Serve what the transport has already received, unless the connection must wait: the socket will not report
        these bytes again."""
        frames, transport = self._frames, self._transport
        while transport.buffered and not (self._pending is not None or self._out or self._closed or self._closing):
            try:
                received = transport.receive(frames.room)
            except Exception as error:
                self._not_received(error)
                return
            if received == 0:
                self.close()
                return
            frames.received(received)
            self._serve_frames()
            if self._out:
                self._flush()
        if transport.unsent and not self._closed:
            self._flush()

    def _served_next(self, until_ns: int) -> bool:
        """Serve one more request if it arrives by the given time."""
        frames, receive = self._frames, self._transport.receive
        while self._pending is None and not self._out and frames.partial is None and not self._closed:
            try:
                received = receive(frames.room)
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
            frames.received(received)
            self._serve_frames()
            self.services.wakeups.serve_single()
            if self._out:
                self._flush()
            return True
        return False

    def _more(self, room: memoryview, received: int) -> int:
        """The rest of a large frame usually follows immediately: reading it now saves a copy and a loop iteration."""
        end = min(self._frames.wanted(), len(room))
        while received < end:
            try:
                more = self._transport.receive(room[received:end])
            except (BlockingIOError, InterruptedError):
                break
            if more == 0:
                break  # the next read finds the end of the stream again
            received += more
        return received

    def _readable_while_busy(self) -> None:
        """More bytes, or the end of the stream, arrived while a request is pending."""
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
        """Detect a reset that follows the bytes that were just read: uvloop reports a socket error once and stops
        watching. Sending an answer would also detect it, so this is needed only if none was sent."""
        if not self._closed and self._reading and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _serve_frames(self) -> None:
        """Serve the complete frames that have arrived, up to one that must wait."""
        frames, out = self._frames, self._out
        leave_ns = perf_counter_ns() + TURN_NS
        while frames.start < frames.end:
            repeated = self._repeated
            if (
                repeated is not None
                and repeated.route is not None
                and self.authentication is None
                and self.services.access.quotas is None
                and (stop := repeated.serve(frames.buffer, frames.start, frames.end, out)) != frames.start
            ):
                frames.start = stop
            else:
                try:
                    frame = frames.next()
                except FrameError as error:
                    self.close(str(error))
                    return
                if frame is None:
                    return
                if self.authentication is None or self.authentication.admits(frame):
                    self.serve(frame)
                if self._closed:
                    return
            if self._pending is not None or (len(out) > _QUEUE_MAX and not self._drained()):
                break
            if frames.start < frames.end and perf_counter_ns() > leave_ns:
                self.mute(0)  # until others have had their turn
                break
        if frames.start < frames.end or frames.partial is not None:
            frames.keep()

    def _drained(self) -> bool:
        self._flush()
        return not self._out

    # -- serving -----------------------------------------------------------------------------------------------

    def serve(self, frame: memoryview) -> None:
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
                        self._client_id_bytes, self._client_id = raw, raw.decode("utf-8", REPLACING)
                elif self._client_id_bytes is not None:
                    self._client_id_bytes = self._client_id = None
                if route.flexible_request:
                    if position < len(frame) and frame[position] == 0:
                        position += 1
                    else:
                        position = skip_header_tags(frame, position)
                # Bytes after the request are ignored, as in Kafka: librdkafka sends some with its admin requests.
                request, _ = route.decode(frame, position, self._connections.request_elements_max)
        except (MalformedMessage, StructError) as error:
            self.close(f"malformed request: {error}")
            return
        ctx = RequestContext(self, api_key, version, correlation_id, self._client_id, len(frame))
        quotas = self.services.access.quotas
        if quotas is not None:
            self.serving_since_ns = perf_counter_ns()
        result = dispatch(route.handler, route.api, ctx, request)
        if result.__class__ is route.response_type:
            if quotas is not None:
                self._settle(quotas, ctx, result)
            try:
                queue_answer(self._out, route, correlation_id, result)
            except Exception as error:
                give_up(route.api, ctx, error)
            if route.model is not None and quotas is None and request is not None and not self._closed:
                sent = self._out[-1]
                self._repeated = route.model(ctx, route, frame, request, result, sent, self._repeated)
        elif result is None:
            if quotas is not None:
                self._settle(quotas, ctx, None)
        else:
            assert isinstance(result, Reply), f"{route.api.name} answered with {result!r}"
            self._wait_for(ctx, route, result)

    def _unserved(self, frame: memoryview, api_key: int, version: int) -> tuple[Route | None, int]:
        """Only ApiVersions has an answer for unknown versions; anything else ends the connection."""
        if api_key == ApiKey.API_VERSIONS:
            decode_request_header(frame)  # the header must be complete in any version
            return self._route(api_key, 0), -1
        api = self.services.registry.apis.get(api_key)
        if api is None:
            self.close(f"unknown api key {api_key}")
        else:
            self.close(f"unsupported version {version} of {api.name} ({api.min_version} to {api.max_version})")
        return None, version

    def _wait_for(self, ctx: RequestContext, route: Route, reply: Reply[Message | None]) -> None:
        self._pending = reply
        if self.serving_since_ns:
            # Waiting is not counted: only the handler's own time counts against a quota.
            self.spent_ns, self.serving_since_ns = perf_counter_ns() - self.serving_since_ns, 0

        def answer(reply: Reply[Message | None]) -> None:
            if self._closed:
                return
            self._pending = None
            if reply.error is not None:
                self.close()  # what the answer was waiting for was cancelled
                return
            try:
                response = reply.value
                if response is not None:
                    if (quotas := self.services.access.quotas) is not None:
                        self._settle(quotas, ctx, response)
                    self.answer(ctx, route, response)
                self._go_on()
            except Exception as error:
                self._failed(error)

        reply.when_done(answer)

    def answer(self, ctx: RequestContext, route: Route, response: Message) -> None:
        """Queue the frame of an answer."""
        try:
            queue_answer(self._out, route, ctx.correlation_id, response)
        except Exception as error:
            give_up(route.api, ctx, error)

    def answer_raw(self, content: bytes) -> None:
        """Queue bytes that are not an answer to a request."""
        self._out.append(content)

    def _go_on(self) -> None:
        """A pending request was answered: write, serve what arrived after it, and read again."""
        if self._out:
            self._flush()
        frames = self._frames
        while frames.start < frames.end and not (self._pending or self._out or self._closed or self._closing):
            self._serve_frames()
            if self._out:
                self._flush()
        if self._transport.buffered:
            self._serve_buffered()
        if self._closing:
            self.finish()
        elif not self._reading and self._pending is None and not self._out and not self._closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    # -- writing -----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write as much of the queue as the peer accepts now; write the rest when it accepts more."""
        out = self._out
        try:
            self._transport.send(out)
        except (BlockingIOError, InterruptedError):
            pass
        except TransportError as error:
            self.close(str(error))
            return
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
        """Keep the files of waiting answers open; if no file handle is left, disconnect the slow reader."""
        try:
            for item in self._out:
                if item.__class__ is FileRegion:
                    item.pin()
        except OSError as error:
            self.close(f"the answer cannot be kept for a slow reader: {error}")
            return False
        return True

    def _on_writable(self) -> None:
        try:
            self._flush()
            if not self._out and not self._closed:
                self.last_active_ms = self.services.clock.monotonic_ms()
                self._go_on()
        except Exception as error:
            self._failed(error)

    # -- the end -----------------------------------------------------------------------------------------------

    def mute(self, delay_ms: float, then: Callable[[], None] | None = None) -> None:
        """Do not read or serve for a while; answers are still sent. Afterwards call `then`, and continue."""
        if self._closed:
            return
        muted: Reply[Message | None] = Reply()
        self._pending, self._muted = muted, True

        def unmute() -> None:
            if self._pending is muted and not self._closed:
                self._pending, self._muted = None, False
                try:
                    if then is not None:
                        then()
                    if not self._closed:
                        self._go_on()
                except Exception as error:
                    self._failed(error)

        if delay_ms <= 0:
            self._loop.call_soon(unmute)
            return
        muted.on_cancel = self.services.timer.schedule(delay_ms, unmute).cancel

    def _settle(self, quotas: Quotas, ctx: RequestContext, response: Message | None) -> None:
        if (throttle_ms := quotas.settle(ctx, response)) > 0:
            self.mute(throttle_ms)

    def work_ns(self) -> int:
        return perf_counter_ns() - self.serving_since_ns if self.serving_since_ns else self.spent_ns

    def limit_frames(self, frame_min: int, frame_max: int) -> None:
        """Set the allowed sizes of frames."""
        self._frames.frame_min, self._frames.frame_max = frame_min, frame_max

    def authenticated(self, principal: str, *, by_token: bool = False) -> None:
        """The peer is authenticated: its requests are served."""
        self.principal = principal
        self.token_authenticated = by_token
        self.limit_frames(FRAME_BYTES_MIN, self._connections.request_bytes_max)

    def log_refusal(self, message: str, *arguments: object, exc_info: Exception | None = None) -> None:
        """Log a refusal for this peer; rate-limited per address."""
        level = logging.WARNING if exc_info is None else logging.ERROR
        self.services.security.refusals.log(level, self.client_host, message, *arguments, exc_info=exc_info)

    def hold_back(self) -> None:
        """Read nothing until `let_go`, like a stopped process."""
        self._pause_reading()

    def let_go(self) -> None:
        if not self._closed:
            self._go_on()

    def finish(self) -> None:
        """Close as soon as the current request, if any, has been answered and its answer sent."""
        self._closing = True
        if (self._pending is None or self._muted) and not self._out:
            self.close()

    def close(self, reason: str | None = None, level: int = logging.WARNING) -> None:
        """Drop the connection; `reason` goes to the log with the peer's address."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            self.services.security.refusals.log(
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
        self._frames.close()
        self._sock.close()
        self._connections.closed(self)
