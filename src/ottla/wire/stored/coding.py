"""The framing of stored messages.

In coordinator records, the key and the value each start with an int16: in the key it is the type of the record, in the
value its version. Control records and producer snapshots have their version in the same place. Records of the metadata
log have three varints at the start: the frame's version, the type and the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.lazy_imports import lazy

from ..primitives import Buffer, MalformedMessage, decode_uvarint, encode_uvarint
from ..schema import Message

if TYPE_CHECKING:
    from ottla.wire import stored
else:
    stored = lazy("ottla.wire.stored")

_INT16: Final = Layout(">h")
METADATA_FRAME_VERSION: Final = 1

M = TypeVar("M", bound=Message)


class UnknownRecordType(ValueError):
    """A record of an unknown type, perhaps written by a newer broker. It is not corrupt."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"unknown record type {record_type}")
        self.record_type = record_type


def encode_versioned(message: Message, version: int) -> bytes:
    """The version as int16, then the message."""
    parts: list[Any] = [_INT16.pack(version)]
    message.early_encoder(version)(message, parts)
    return b"".join(parts)


def peek_int16(buffer: Buffer) -> int:
    """The number at the start: the type of a coordinator key, or the version of a value."""
    if len(buffer) < 2:
        raise MalformedMessage("the record is too short for its type or version")
    number: int = _INT16.unpack_from(buffer)[0]
    return number


def decode_versioned(cls: type[M], buffer: Buffer) -> tuple[M, int]:
    """(message, version)."""
    version = peek_int16(buffer)
    return _decode_body(cls, buffer, version, 2), version


def _decode_body(cls: type[M], buffer: Buffer, version: int, position: int) -> M:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise MalformedMessage(f"{cls.__name__} has no version {version}")
    message, end = cls.early_decoder(version)(buffer, position)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__name__} v{version} leaves {len(buffer) - end} bytes unread")
    found: M = message
    return found


class CoordinatorRecords:
    """The record types of one internal topic: type -> (class of the key, class of the value)."""

    __slots__ = ("types",)

    def __init__(self, classes: Iterable[type[Message]]) -> None:
        by_name = {cls.__name__: cls for cls in classes}
        self.types: Mapping[int, tuple[type[Message], type[Message]]] = {
            cls.API_KEY: (cls, by_name[name.removesuffix("Key") + "Value"])
            for name, cls in by_name.items()
            if name.endswith("Key")
        }

    @staticmethod
    def encode_key(key: Message) -> bytes:
        """The type of the record as int16, then the key, which has only one version."""
        parts: list[Any] = [_INT16.pack(key.API_KEY)]
        key.early_encoder(0)(key, parts)
        return b"".join(parts)

    @staticmethod
    def encode_value(value: Message, version: int) -> bytes:
        """The caller chooses the version: Kafka does not always write the newest one that it can read."""
        return encode_versioned(value, version)

    def decode_key(self, buffer: Buffer) -> Message:
        """Raises MalformedMessage, and UnknownRecordType, which a reader should skip."""
        record_type = peek_int16(buffer)
        found = self.types.get(record_type)
        if found is None:
            raise UnknownRecordType(record_type)
        return _decode_body(found[0], buffer, 0, 2)

    def decode(self, key: Buffer, value: Buffer | None) -> tuple[Message, Message | None]:
        """Key and value of a record; a tombstone has no value."""
        decoded = self.decode_key(key)
        if value is None:
            return decoded, None
        return decoded, decode_versioned(self.types[decoded.API_KEY][1], value)[0]


def encode_metadata_record(record: Message, version: int) -> bytes:
    parts: list[Any] = [bytes((METADATA_FRAME_VERSION,)) + encode_uvarint(record.API_KEY) + encode_uvarint(version)]
    record.early_encoder(version)(record, parts)
    return b"".join(parts)


def decode_metadata_record(buffer: Buffer) -> tuple[Message, int]:
    """(record, version). Raises UnknownRecordType and MalformedMessage."""
    try:
        frame_version, position = decode_uvarint(buffer, 0)
        record_type, position = decode_uvarint(buffer, position)
        version, position = decode_uvarint(buffer, position)
    except IndexError:
        raise MalformedMessage("the metadata record ends inside its frame") from None
    if frame_version != METADATA_FRAME_VERSION:
        raise MalformedMessage(f"metadata records have frame version {METADATA_FRAME_VERSION}, not {frame_version}")
    cls = stored.METADATA_RECORDS.get(record_type)
    if cls is None:
        raise UnknownRecordType(record_type)
    return _decode_body(cls, buffer, version, position), version
