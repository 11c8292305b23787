"""SASL on a listener: its mechanisms, and the conversation of each connection.

    state        takes                        then
    ----------   --------------------------   ----------------------------------------------------------
    START        ApiVersions                  HANDSHAKE (a version that we do not know is answered, and START stays)
                 SaslHandshake                TOKENS, or FAILED for a mechanism that is not enabled
    HANDSHAKE    SaslHandshake                the same
    TOKENS       SaslAuthenticate, or raw     TOKENS until the mechanism is through, then DONE; FAILED
                 tokens after handshake v0
    DONE         everything else              a handshake starts again from HANDSHAKE if the session has an end
                                              (KIP-368), and is answered with ILLEGAL_SASL_STATE if it has none
    FAILED       nothing                      closed after `connection.failed.authentication.delay.ms`

Any other request closes the connection. In the state TOKENS it is first answered with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.config import Config, ConfigError
from ottla.enums import ApiKey
from ottla.errors import NONE, IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from ottla.server.api import RequestContext
from ottla.server.security import mechanisms
from ottla.server.security.jaas import LoginModule, parse_jaas
from ottla.server.security.mechanisms import Mechanism, Refused, RefusedOpenly
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.wire.primitives import MalformedMessage

if TYPE_CHECKING:
    from ottla.server.api import Route
    from ottla.server.net.connection import Connection
    from ottla.server.security.manager import Security

SUPPORTED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_API_VERSIONS_BYTES = ApiKey.API_VERSIONS.to_bytes(2, "big")
_SIZE = Struct(">i").pack
_REAUTHENTICATION_MIN_MS = 1000
"""A client that re-authenticates more often than once a second is refused, as in Kafka."""

logger = logging.getLogger(__name__)


class SaslListener:
    """The SASL settings of one listener; replaced when they change."""

    def __init__(self, config: Config, listener: str, security: Security) -> None:
        self.name = listener
        enabled = [m.strip().upper() for m in config.for_listener(listener, "sasl.enabled.mechanisms")]
        self.mechanisms: dict[str, Callable[[], Mechanism]] = {}
        self.lifetimes_ms: dict[str, int] = {}
        for mechanism in dict.fromkeys(enabled):
            if mechanism not in SUPPORTED:
                raise ConfigError(
                    f"sasl.enabled.mechanisms of listener {listener}: {mechanism} is not served here "
                    f"(choose from {', '.join(SUPPORTED)})"
                )
            self.mechanisms[mechanism] = self._maker(config, mechanism, security)
            self.lifetimes_ms[mechanism] = config.for_listener(listener, "connections.max.reauth.ms", mechanism)
        if not self.mechanisms:
            raise ConfigError(f"sasl.enabled.mechanisms: listener {listener} uses SASL, but has no mechanism")
        self.frame_bytes_max: int = config.for_listener(listener, "sasl.server.max.receive.size")
        self.failure_delay_ms: int = config.for_listener(listener, "connection.failed.authentication.delay.ms")

    def _maker(self, config: Config, mechanism: str, security: Security) -> Callable[[], Mechanism]:
        module = self._login_module(config, mechanism)
        if mechanism == "OAUTHBEARER":
            validate = security.bearer_tokens(self.name, module)
            return lambda: mechanisms.OAuthBearer(validate)
        handler = config.for_listener(self.name, "sasl.server.callback.handler.class", mechanism)
        if handler:
            raise ConfigError(
                f"sasl.server.callback.handler.class of listener {self.name}: {handler} is a JVM class, which cannot "
                "run here"
            )
        if mechanism == "PLAIN":
            if module is None or module.short_name != "PlainLoginModule":
                raise ConfigError(
                    f"{self._jaas_key(mechanism)} must define the users: org.apache.kafka.common.security.plain."
                    'PlainLoginModule required user_alice="…";'
                )
            users = {
                name.removeprefix("user_"): password
                for name, password in module.options.items()
                if name.startswith("user_")
            }
            return lambda: mechanisms.Plain(users)
        hash_name, find, find_token = security.scram(mechanism)
        return lambda: mechanisms.Scram(hash_name, find, find_token, security.new_nonce)

    def _jaas_key(self, mechanism: str) -> str:
        return f"listener.name.{self.name.lower()}.{mechanism.lower()}.sasl.jaas.config"

    def _login_module(self, config: Config, mechanism: str) -> LoginModule | None:
        """Like Kafka, read a broker's JAAS line only under the name of its listener and mechanism."""
        key = self._jaas_key(mechanism)
        text = config.get(key)
        return parse_jaas(text, key) if text else None


class State(Enum):
    START = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


class SaslAuthentication:
    """The authentication of a connection, and its state. See the table at the top."""

    __slots__ = (
        "_connection",
        "_expires_at_ms",
        "_is_raw",
        "_last_start_ms",
        "_listener",
        "_mechanism",
        "_mechanism_name",
        "_previous",
        "_state",
    )

    def __init__(self, connection: Connection, listener: SaslListener) -> None:
        self._connection = connection
        self._listener = listener
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""
        self._is_raw = False
        self._previous: tuple[str, str] | None = None
        self._last_start_ms: float | None = None
        self._expires_at_ms: float | None = None
        self._state = State.START
        connection.limit_frames(0, listener.frame_bytes_max)

    def admits(self, frame: memoryview) -> bool:
        """Whether a frame is a request to serve: in an authenticated session that has not ended."""
        if self._state is State.DONE:
            if self._goes_on(int.from_bytes(frame[:2], "big")):
                return True
            if self._state is State.DONE:
                return False  # closed: the session has ended
        return self._hear(frame)

    # -- after authentication ----------------------------------------------------------------------------------------

    def _goes_on(self, api_key: int) -> bool:
        """Whether the session continues. It ends when its time is up, or when the client authenticates again."""
        assert self._expires_at_ms is not None
        now_ms = self._connection.services.clock.monotonic_ms()
        if api_key == ApiKey.SASL_HANDSHAKE and (
            self._last_start_ms is None or now_ms - self._last_start_ms >= _REAUTHENTICATION_MIN_MS
        ):
            self._last_start_ms = now_ms
            self._previous = (self._mechanism_name, self._connection.principal)
            self._state = State.HANDSHAKE
            return False
        if now_ms > self._expires_at_ms:
            self._connection.close("the session has expired and was not renewed (connections.max.reauth.ms)")
            return False
        return True

    # -- before it ---------------------------------------------------------------------------------------------------

    def _hear(self, frame: memoryview) -> bool:
        """Handle one frame of a connection that is not authenticated; returns whether anyone may send it."""
        if self._state is State.FAILED:
            return False
        if self._state is State.TOKENS and self._is_raw:
            self._raw_token(bytes(frame))
            return False
        if self._state is State.START and frame[:2] == _API_VERSIONS_BYTES:
            # This includes unknown versions, whose header cannot be read: they get an answer too.
            if (
                self._connection.services.registry.route(ApiKey.API_VERSIONS, int.from_bytes(frame[2:4], "big"))
                is not None
            ):
                self._state = State.HANDSHAKE
            return True
        try:
            header, position = decode_request_header(frame)
            route = self._connection.services.registry.route(header.api_key, header.api_version)
            ctx = RequestContext(
                self._connection,
                header.api_key,
                header.api_version,
                header.correlation_id,
                header.client_id,
                len(frame),
            )
            if self._state is State.TOKENS:
                self._request_for_token(ctx, route, frame, position)
            elif header.api_key == ApiKey.SASL_HANDSHAKE and route is not None:
                request, _ = route.decode(frame, position)
                self._handshake(ctx, route, request.mechanism)
            else:
                self._connection.close(f"api key {header.api_key} before authentication")
        except (MalformedMessage, UnicodeDecodeError, IndexError) as error:
            self._connection.close(f"malformed request before authentication: {error}")
        return False

    def _handshake(self, ctx: RequestContext, route: Route, mechanism: str) -> None:
        enabled = list(self._listener.mechanisms)
        make = self._listener.mechanisms.get(mechanism)
        if make is None:
            response = SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=enabled)
            self._fail("asked for a SASL mechanism that is not enabled", ctx, route, response)
            return
        self._connection.answer(ctx, route, SaslHandshakeResponse(error_code=NONE, mechanisms=enabled))
        self._mechanism, self._mechanism_name = make(), mechanism
        self._is_raw = ctx.version == 0
        self._state = State.TOKENS

    def _request_for_token(self, ctx: RequestContext, route: Route | None, frame: memoryview, position: int) -> None:
        if route is None:
            self._connection.close(f"api key {ctx.api_key} v{ctx.version} during authentication")
            return
        request, _ = route.decode(frame, position)
        if self._previous is not None and self._previous[0] != self._mechanism_name:
            # Kafka accepts the handshake and then closes without an answer.
            self._fail(f"came back with {self._mechanism_name} after {self._previous[0]}")
            return
        if ctx.api_key != ApiKey.SASL_AUTHENTICATE:
            response = route.api.on_error(ctx, request, IllegalSaslState())
            self._fail(f"sent {route.api.name} during authentication", ctx, route, response)
            return
        try:
            token, lifetime_ms = self._evaluate(request.auth_bytes)
        except Refused as refused:
            response = SaslAuthenticateResponse(
                error_code=SaslAuthenticationFailed.code, error_message=self._told(refused), auth_bytes=b""
            )
            self._fail(str(refused), ctx, route, response)
            return
        self._connection.answer(
            ctx,
            route,
            SaslAuthenticateResponse(
                error_code=NONE, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
            ),
        )

    def _raw_token(self, token: bytes) -> None:
        try:
            answer, _ = self._evaluate(token)
        except Refused as refused:
            self._fail(str(refused))
            return
        # There is always an answer, even an empty one, so that the client knows that it is authenticated.
        self._connection.answer_raw(_SIZE(len(answer)) + answer)

    def _told(self, refused: Refused) -> str:
        if isinstance(refused, RefusedOpenly):
            return str(refused)
        kind = "re-authentication" if self._previous is not None else "authentication"
        return (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism_name}"
        )

    def _evaluate(self, token: bytes) -> tuple[bytes, int]:
        """The answer to a token, and how long the session may last (0: without limit)."""
        assert self._mechanism is not None
        try:
            answer = self._mechanism.evaluate(token)
        except Refused:
            raise
        except Exception as error:  # a bug must not leave a connection half authenticated
            logger.error("%s from %s failed", self._mechanism_name, self._connection.peer, exc_info=error)
            raise Refused("a token that made us fail") from None
        if not self._mechanism.complete:
            return answer, 0
        principal = f"User:{self._mechanism.user}"
        if self._previous is not None and self._previous[1] != principal:
            before, now = self._previous[1].replace(":", ".", 1), principal.replace(":", ".", 1)
            raise RefusedOpenly(f"Cannot change principals during re-authentication from {before}: {now}")
        return answer, self._succeed(principal)

    def _succeed(self, principal: str) -> int:
        mechanism, clock = self._mechanism, self._connection.services.clock
        assert mechanism is not None
        lifetimes = [self._listener.lifetimes_ms[self._mechanism_name]]
        limits = [limit for limit in lifetimes if limit > 0]
        if mechanism.expires_ms is not None:
            limits.append(mechanism.expires_ms - clock.now_ms())
        lifetime_ms = max(0, min(limits)) if limits else 0
        self._expires_at_ms = clock.monotonic_ms() + lifetime_ms if limits else None
        self._mechanism = None
        self._state = State.DONE
        self._connection.authenticated(principal, by_token=mechanism.by_token)
        # A session without an end needs no timer.
        self._connection.authentication = self if limits else None
        return lifetime_ms

    def _fail(
        self, reason: str, ctx: RequestContext | None = None, route: Route | None = None, response: Any = None
    ) -> None:
        """Answer and close after a delay: guessing must be slow."""
        self._state = State.FAILED
        self._mechanism = None
        connection = self._connection
        connection.log_refusal("failed authentication from %s: %s", connection.peer, reason)

        def end() -> None:
            if response is not None and ctx is not None and route is not None:
                connection.answer(ctx, route, response)
            connection.finish()

        connection.mute(self._listener.failure_delay_ms, end)
