"""One connection to a broker: negotiates versions and pipelines requests; answers arrive in order."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from struct import Struct
from typing import Any, Final, Protocol

from ottla import __version__
from ottla.client.sasl import authenticate
from ottla.client.security import Security
from ottla.enums import ApiKey
from ottla.errors import BY_CODE, SaslAuthenticationFailed, UnsupportedVersion, error_for
from ottla.wire.frames import decode_response_header, encode_request, response_header_version
from ottla.wire.messages import RESPONSES
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.primitives import MalformedMessage
from ottla.wire.schema import Message

CLIENT_ID: Final = "ottla-cli"
CONNECT_TIMEOUT_S: Final = 10.0
MAX_FRAME_BYTES: Final = 1 << 30
"""More than any possible answer: a larger size means that this is not a Kafka broker (HTTP looks like 1.2 GB)."""
_READ_BYTES: Final = 1 << 20
_SIZE: Final = Struct(">i")

# Later versions identify topics by id. Commands use names, which every release of Kafka accepts.
NAMED_VERSIONS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}


class ClientError(Exception):
    """An error with a one-line message that a user can act on."""


class GroupHasMembers(ClientError):
    """The operation needs a group without members."""


class UnknownTopic(ClientError):
    """A required topic does not exist."""


class ConnectionLost(ClientError):
    """The broker cannot be reached, or the connection broke; a retry may work."""


class ConnectionRefused(ConnectionLost):
    """Nothing listens on the port, perhaps not yet."""


class BrokerConnection(Protocol):
    """The interface of a connection to a broker that `Client` uses."""

    @property
    def address(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...

    def version_for(self, request: type[Message], highest: int | None = None) -> int:
        """The newest version that both sides know."""

    async def call(self, request: Message, highest: int | None = None) -> Any:
        """Send a request and wait for its answer."""

    def send(self, request: Message, version: int, *, answered: bool = True) -> asyncio.Future[Any]:
        """Send a request and return a future for its answer (None, immediately, for a request without an answer)."""

    async def drain(self) -> None:
        """Wait until the broker accepts more requests."""

    async def close(self) -> None: ...


def common_version(
    address: str, versions: Mapping[int, tuple[int, int]], request: type[Message], highest: int | None = None
) -> int:
    """The newest version of a request that both this client and a broker with these versions know."""
    low, high = versions.get(request.API_KEY, (0, -1))
    limits = [high, request.STABLE_VERSION, NAMED_VERSIONS.get(request.API_KEY, high)]
    version = min(limits if highest is None else [*limits, highest])
    if version < max(low, request.MIN_VERSION):
        name = request.__name__.removesuffix("Request")
        what = f"versions {low} to {high} of {name}" if high >= 0 else f"no {name}"
        raise UnsupportedVersion(f"the broker at {address} serves {what}, which this command cannot use")
    return version


class Connection:
    """A connection; created by `open_connection`."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.client_id: str | None = CLIENT_ID
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: ApiVersionsResponse = ApiVersionsResponse()
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._closed: ConnectionLost | None = None
        self._task = asyncio.create_task(self._read_answers())

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    def version_for(self, request: type[Message], highest: int | None = None) -> int:
        """The newest version that both sides know."""
        return common_version(self.address, self.versions, request, highest)

    async def call(self, request: Message, highest: int | None = None) -> Any:
        """Send a request and wait for its answer."""
        return await self.send(request, self.version_for(type(request), highest))

    def send(self, request: Message, version: int, *, answered: bool = True) -> asyncio.Future[Any]:
        """Write a request to the socket and return a future for its answer (None, immediately, if there is none)."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._closed is not None:
            raise self._closed
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        if answered:
            self._waiting.append((request.API_KEY, version, self._correlation_id, future))
        else:
            future.set_result(None)
        self._writer.write(encode_request(request, version, self._correlation_id, self.client_id))
        return future

    async def drain(self) -> None:
        with suppress(ConnectionError):
            await self._writer.drain()

    async def _read_answers(self) -> None:
        reason = "closed the connection"
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not 4 <= size <= MAX_FRAME_BYTES:
                    raise MalformedMessage(f"a frame of {size} bytes")
                self._take(await self._reader.readexactly(size))
        except (MalformedMessage, ValueError) as error:
            reason = f"does not speak Kafka's protocol as expected ({error})"
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, OSError) and error.strerror:
                reason = f"broke the connection: {error.strerror}"
        finally:
            self._fail(ConnectionLost(f"{self.address} {reason}"))

    def _take(self, frame: bytes) -> None:
        if not self._waiting:
            raise MalformedMessage("an answer that nobody asked for")
        api_key, version, correlation_id, future = self._waiting.popleft()
        try:
            found, position = decode_response_header(frame, response_header_version(api_key, version))
            if found != correlation_id:
                raise MalformedMessage(f"answer {found} instead of {correlation_id}")
            body = memoryview(frame)[position:]
            if api_key == ApiVersionsRequest.API_KEY and bytes(body[:2]) == UnsupportedVersion.code.to_bytes(2, "big"):
                version = 0  # the only answer whose version differs from the request's
            response = RESPONSES[api_key].decode(body, version)
        except MalformedMessage as error:
            if not future.done():
                future.set_exception(ConnectionLost(f"{self.address} sent an answer that cannot be read: {error}"))
            raise
        if not future.done():  # a caller may have been cancelled
            future.set_result(response)

    def _fail(self, error: ConnectionLost) -> None:
        if self._closed is None:
            self._closed = error
        while self._waiting:
            future = self._waiting.popleft()[3]
            if not future.done():
                future.set_exception(error)
        self._writer.close()

    async def negotiate(self) -> None:
        """Request the versions that the broker serves; retry with an older version if the broker is old."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        response: ApiVersionsResponse = await self.send(request, 3)
        if response.error_code == UnsupportedVersion.code:
            response = await self.send(request, 0)
        if response.error_code:
            raise error_for(response.error_code)
        self.versions = {
            api.api_key: (api.min_version, api.max_version)
            for api in response.api_keys
            if not isinstance(api, bytes)  # never after decoding
        }
        self.features = response

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()


async def open_connection(host: str, port: int, security: Security) -> Connection:
    """Connect, authenticate if necessary, and get the broker's versions."""
    address = f"{host}:{port}"
    try:
        tls = security.ssl_context()
    except ValueError as error:
        raise ClientError(str(error)) from None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_READ_BYTES)
    except TimeoutError:
        raise ConnectionLost(f"cannot reach {address} within {CONNECT_TIMEOUT_S:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ClientError(f"{address} has a certificate that is not trusted: {error.verify_message}") from None
    except OSError as error:
        if tls is not None and isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
            raise ConnectionLost(f"{address} breaks off the TLS handshake; is TLS spoken at this port?") from None
        # asyncio rewords the system's errors; an unknown host name has a negative errno.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        kind = ConnectionRefused if isinstance(error, ConnectionRefusedError) else ConnectionLost
        raise kind(f"cannot connect to {address}: {reason}") from None
    connection = Connection(address, reader, writer)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _begin(connection, security)
    except BaseException as error:
        await connection.close()
        if isinstance(error, TimeoutError):
            raise ConnectionLost(f"{address} accepts connections but does not answer; is it a Kafka broker?") from None
        raise
    return connection


async def _begin(connection: Connection, security: Security) -> None:
    await connection.negotiate()
    if security.mechanism is not None:
        try:
            await authenticate(connection, security)
        except ConnectionLost as error:
            raise BY_CODE[SaslAuthenticationFailed.code](f"{error} while authenticating") from None
