"""Varints, UUID text and the only exception of this layer. Everything here works on plain bytes."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

ELEMENTS_MAX = 204_800
"""The most elements in all arrays of a request together, unless the caller of its decoder sets another limit. One byte
can be an element that takes a kilobyte in memory, so the size of a frame limits little."""

STRING_BYTES_MAX = 0x7FFF
"""Kafka refuses a longer string in a request. It is the limit from before lengths became varints."""

# Kafka's varints hold 32 bits: five groups of seven.


class MalformedMessage(ValueError):
    """The bytes are not a well-formed message of the expected type and version."""


REPLACING = "replaced as in Java"
"""The error handler for invalid UTF-8 in requests. Valid text costs nothing extra."""


def _replace(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each longest part that could start a character. As in Java, half a surrogate pair is one."""
    assert isinstance(error, UnicodeDecodeError)
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[end : end + 1], "big") <= 0xBF:
        end += 2 if 0x80 <= int.from_bytes(data[end + 1 : end + 2], "big") <= 0xBF else 1
    return "\ufffd", end


codecs.register_error(REPLACING, _replace)

# One object for each single-byte varint: almost all lengths and counts are below 128.
SMALL_UVARINTS = tuple(bytes((value,)) for value in range(128))


def encode_uvarint(value: int) -> bytes:
    if value < 128:
        return SMALL_UVARINTS[value]
    # The lengths of record batches. Unrolled, because a fetch has one for each partition.
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uvarint_tail(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, above 127, was already read. Returns (value, position after it)."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
    raise MalformedMessage("a varint is longer than five bytes")


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position after it). Raises IndexError at the end of the buffer."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return uvarint_tail(buffer, position + 1, first)


def skip_tags(buffer: Buffer, position: int, count: int, end: int) -> int:
    """Skip `count` tagged fields that this version does not know."""
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > end:
            raise MalformedMessage("a tagged field reaches beyond the message")
    return position


class RunOf(dict[int, Callable[..., Any]]):
    """n -> the function that packs or unpacks n equal fixed-width items. Created on use; only short ones are kept."""

    __slots__ = ("code", "method", "prefix")
    KEPT_COUNT = 256

    def __init__(self, method: str, code: str, prefix: str = "") -> None:
        super().__init__()
        self.method = method
        self.code = code
        self.prefix = prefix

    def __missing__(self, count: int) -> Callable[..., Any]:
        items = self.code * count if self.code == "16s" else f"{count}{self.code}"
        function: Callable[..., Any] = getattr(Layout(f">{self.prefix}{items}"), self.method)
        if count <= self.KEPT_COUNT:
            self[count] = function
        return function


def uuid_to_base64(value: bytes) -> str:
    """Kafka's text form: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_base64(text: str) -> bytes:
    # 16 bytes take 22 characters. Kafka refuses a longer text, even if it would decode to 16 bytes.
    if len(text) > 24:
        raise ValueError(f"a UUID has 22 base64 characters, {text!r} has {len(text)}")
    value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text!r} holds {len(value)} bytes, a UUID has 16")
    return value
