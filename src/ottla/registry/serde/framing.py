"""How a value refers to its schema: with an id before the payload, or with a GUID in a header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_ID_BYTES: Final = 5
_GUID_BYTES: Final = 17
HEADERS: Final = {True: "__key_schema_id", False: "__value_schema_id"}
"""The names of the headers with a GUID, for keys and for values."""

FIRST_MESSAGE: Final = (0,)


class NotFramed(ValueError):
    """The bytes were not written by a schema registry's serializer."""


class Framed(NamedTuple):
    """A payload and the id or GUID of its schema.

    A Protobuf payload begins with the path of its message in the schema, unless the header contains it.
    """

    schema: int | str
    payload: bytes
    path_in_header: bytes | None = None


def unframe(value: bytes, headers: Iterable[tuple[str, bytes | None]] = (), *, is_key: bool = False) -> Framed:
    """Split a key or a value. The header takes precedence, as in Confluent's deserializers. Raises NotFramed."""
    header = next((data for name, data in headers if name == HEADERS[is_key] and data), None)
    if header is not None and header[0] == _GUID_MAGIC and len(header) >= _GUID_BYTES:
        return Framed(str(UUID(bytes=header[1:_GUID_BYTES])), value, header[_GUID_BYTES:])
    if len(value) < _ID_BYTES or value[0] != _ID_MAGIC:
        raise NotFramed("it was not written with a schema registry: it does not begin with a zero and a schema's id")
    return Framed(int.from_bytes(value[1:_ID_BYTES], "big"), value[_ID_BYTES:])


def frame(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", _ID_MAGIC, schema_id) + payload


def read_path(data: bytes) -> tuple[Sequence[int], bytes]:
    """The path of a Protobuf message (indexes from the file down to the message), and the remaining bytes."""
    count, data = _read_varint(data)
    if count == 0:
        return FIRST_MESSAGE, data
    path = []
    for _ in range(count):
        index, data = _read_varint(data)
        path.append(index)
    return path, data


def write_path(path: Sequence[int]) -> bytes:
    if tuple(path) == FIRST_MESSAGE:
        return b"\0"
    return b"".join(_varint(number) for number in (len(path), *path))


def _read_varint(data: bytes) -> tuple[int, bytes]:
    number = shift = 0
    for length, byte in enumerate(data[:5], 1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            value = (number >> 1) ^ -(number & 1)
            if value < 0:
                break
            return value, data[length:]
    raise NotFramed("the path of its Protobuf message is damaged")


def _varint(number: int) -> bytes:
    number <<= 1  # zigzag; indexes are never negative
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
