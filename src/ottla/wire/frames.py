"""Frames without their length prefix: request and response headers around a message.

There are three special cases. A request header v2 keeps a client id with a two-byte length, so that a broker can read
it before it knows the version. The response to ApiVersions always has header v0, so that a client can read it in the
same way. And ControlledShutdown v0 was the only request without a client id (header v0).
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as layout_error
from typing import Any, NamedTuple

from ottla.enums import ApiKey

from .messages import REQUESTS
from .primitives import REPLACING, Buffer, MalformedMessage, skip_tags, uvarint_tail
from .schema import Message

_START = Layout(">hhi")
_START_WITH_LENGTH = Layout(">hhih")
_INT32 = Layout(">i")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


# (key, version) -> header version, filled on use; limited by the number of existing versions.
_request_header_versions: dict[tuple[int, int], int] = {}


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, 1 for others. 1 for an unknown key, whose header must still be read."""
    found = _request_header_versions.get((api_key, api_version))
    if found is not None:
        return found
    message = REQUESTS.get(api_key)
    if message is None:
        return 0 if (api_key, api_version) == (ApiKey.CONTROLLED_SHUTDOWN, 0) else 1
    header_version = 2 if message.is_flexible(api_version) else 1
    if message.MIN_VERSION <= api_version <= message.MAX_VERSION:
        _request_header_versions[api_key, api_version] = header_version
    return header_version


def response_header_version(api_key: int, api_version: int) -> int:
    """1, which has tags, for flexible versions. Always 0 for ApiVersions."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if request_header_version(api_key, api_version) == 2 else 0


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header and the position of the body. Raises MalformedMessage."""
    try:
        api_key, api_version, correlation_id, size = _START_WITH_LENGTH.unpack_from(buffer, position)
    except layout_error:
        return _decode_short_header(buffer, position)
    header_version = _request_header_versions.get((api_key, api_version))
    if header_version is None:
        header_version = request_header_version(api_key, api_version)
        if header_version == 0:
            return _decode_short_header(buffer, position)
    position += _START_WITH_LENGTH.size
    client_id: str | None = None
    end = len(buffer)
    if size >= 0:
        stop = position + size
        if stop > end:
            raise MalformedMessage("the client id reaches beyond the frame")
        client_id = str(buffer[position:stop], "utf-8", REPLACING)
        position = stop
    elif size != -1:
        raise MalformedMessage(f"the client id has length {size}")
    if header_version == 2:
        position = skip_header_tags(buffer, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _decode_short_header(buffer: Buffer, position: int) -> tuple[RequestHeader, int]:
    try:
        api_key, api_version, correlation_id = _START.unpack_from(buffer, position)
    except layout_error:
        raise MalformedMessage("the request header ends too early") from None
    if request_header_version(api_key, api_version) != 0:
        raise MalformedMessage("the request header ends too early")
    return RequestHeader(api_key, api_version, correlation_id, None), position + _START.size


def skip_header_tags(buffer: Buffer, position: int) -> int:
    try:
        count = buffer[position]
        position += 1
        if count:
            if count > 127:
                count, position = uvarint_tail(buffer, position, count)
            position = skip_tags(buffer, position, count, len(buffer))
    except IndexError:
        raise MalformedMessage("the header's tags end too early") from None
    return position


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    header_version = request_header_version(api_key, api_version)
    start = _START.pack(api_key, api_version, correlation_id)
    if header_version == 0:
        return start
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    return start + size.to_bytes(2, "big", signed=True) + name + (b"\x00" if header_version == 2 else b"")


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """A request ready to send: length prefix, header and body."""
    parts: list[Any] = [b"", encode_request_header(message.API_KEY, version, correlation_id, client_id)]
    message.early_encoder(version)(message, parts)
    parts[0] = _INT32.pack(sum(map(len, parts)))
    return b"".join(parts)


def decode_response_header(buffer: Buffer, header_version: int, position: int = 0) -> tuple[int, int]:
    """(correlation id, position of the body)."""
    try:
        (correlation_id,) = _INT32.unpack_from(buffer, position)
    except layout_error:
        raise MalformedMessage("the response header ends too early") from None
    position += _INT32.size
    return correlation_id, skip_header_tags(buffer, position) if header_version else position
