"""The records of `__consumer_offsets`, and their encoding.

A key is an int16 record type and the key's message; a value is an int16 version and the value's message; a null value
is a tombstone. Types (4.3): 0, 1 offset commit, 2 classic group, 3-8 and 16 consumer group, 9-15 share, 17-23 streams.
Offset commits are most of the log and its only hot path, so they have a hand-written codec; the rest uses the schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from ottla.coordinator.groups.interfaces import RECORD_TYPES, import_records, kind_of_type
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.wire.primitives import ZERO_UUID, encode_uvarint
from ottla.wire.schema import Message
from ottla.wire.stored import LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue

LEGACY_OFFSET_TYPE: Final = 0
OFFSET_TYPE: Final = 1
# The versions that Kafka 4.3 writes: only v1 has a field for a commit's own expiry.
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_OFFSET_KEY_HEAD = Struct(">hh")
_OFFSET_V1_HEAD = Struct(">hqh")
_OFFSET_V1_TAIL = Struct(">qq")
_OFFSET_V4_HEAD = Struct(">hqi")
# A commit timestamp, then one tagged field: tag 0 of 16 bytes, the topic id.
_OFFSET_V4_TAIL = Struct(">q3s16s")
_ONE_TOPIC_ID_TAG = b"\x01\x00\x10"
_NO_TAGS = b"\x00"


class CommittedOffset(NamedTuple):
    """One committed offset: where a group continues to read a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """From the retention in commits v2-v4; -1 means the broker's retention."""
    topic_id: bytes = ZERO_UUID


class OffsetRecord(NamedTuple):
    group: str
    topic: str
    partition: int
    value: CommittedOffset | None

    def encode(self) -> tuple[bytes, bytes | None]:
        group, topic, partition, value = self
        return offset_key(group, topic, partition), None if value is None else offset_value(value)


class StoredRecord(NamedTuple):
    key: Message
    value: Message | None
    version: int = 0

    def encode(self) -> tuple[bytes, bytes | None]:
        key = _INT16.pack(_TYPE_BY_KEY[type(self.key)]) + self.key.encode(0)
        if self.value is None:
            return key, None
        return key, _INT16.pack(self.version) + self.value.encode(self.version)


CoordinatorRecord: TypeAlias = OffsetRecord | StoredRecord

_KEY_TYPES: Final[dict[int, tuple[type[Message], type[Message]]]] = {}
_TYPE_BY_KEY: Final[dict[type[Message], int]] = {}
_KIND_BY_KEY: Final[dict[type[Message], str]] = {}
REMEMBERED_TEXT_MAX: Final = 600
"""Clients choose names, which can be up to 32 KB: only keys of usual length are cached."""


def register_types(kind: str, types: Mapping[int, tuple[type[Message], type[Message]]]) -> None:
    """Register the keys and values of a kind of group, by number. The kind's `records` calls this on import."""
    assert types.keys() <= RECORD_TYPES[kind]
    _KEY_TYPES.update(types)
    for number, (key, _) in types.items():
        _TYPE_BY_KEY[key] = number
        _KIND_BY_KEY[key] = kind


def kind_of(key: Message) -> str:
    return _KIND_BY_KEY[type(key)]


def _types_of(number: int) -> tuple[type[Message], type[Message]] | None:
    types = _KEY_TYPES.get(number)
    if types is None:
        kind = kind_of_type(number)
        if kind is not None:
            import_records(kind)
            types = _KEY_TYPES.get(number)
    return types


def offset_key(group: str, topic: str, partition: int) -> bytes:
    if len(group) + len(topic) > REMEMBERED_TEXT_MAX:
        return _offset_key.__wrapped__(group, topic, partition)
    return _offset_key(group, topic, partition)


@lru_cache(maxsize=65536)
def _offset_key(group: str, topic: str, partition: int) -> bytes:
    group_bytes, topic_bytes = group.encode(), topic.encode()
    return b"".join(
        (
            _OFFSET_KEY_HEAD.pack(OFFSET_TYPE, len(group_bytes)),
            group_bytes,
            _INT16.pack(len(topic_bytes)),
            topic_bytes,
            _INT32.pack(partition),
        )
    )


def offset_value(value: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = value
    metadata_bytes = metadata.encode()
    if expire_timestamp_ms != -1:
        return b"".join(
            (
                _OFFSET_V1_HEAD.pack(OFFSET_VALUE_WITH_EXPIRY_VERSION, offset, len(metadata_bytes)),
                metadata_bytes,
                _OFFSET_V1_TAIL.pack(commit_timestamp_ms, expire_timestamp_ms),
            )
        )
    head = _OFFSET_V4_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
    if topic_id == ZERO_UUID:
        tail = _INT64.pack(commit_timestamp_ms) + _NO_TAGS
    else:
        tail = _OFFSET_V4_TAIL.pack(commit_timestamp_ms, _ONE_TOPIC_ID_TAG, topic_id)
    return b"".join((head, encode_uvarint(len(metadata_bytes) + 1), metadata_bytes, tail))


def decode_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """Decode a record; None for an unknown type. Raises CorruptRecord."""
    if key is None or len(key) < _INT16.size:
        raise CorruptRecord("a record of the offsets log has no key")
    (number,) = _INT16.unpack_from(key)
    try:
        if number in (OFFSET_TYPE, LEGACY_OFFSET_TYPE):
            name, _ = OffsetCommitKey.decoder(0)(key, _INT16.size)
            return OffsetRecord(name.group, name.topic, name.partition, _decode_offset(value, number))
        types = _types_of(number)
        if types is None:
            return None
        key_message, _ = types[0].decoder(0)(key, _INT16.size)
        if value is None:
            return StoredRecord(key_message, None)
        (version,) = _INT16.unpack_from(value)
        if not 0 <= version <= types[1].MAX_VERSION:
            raise CorruptRecord(f"{types[1].__name__} has no version {version}")
        value_message, _ = types[1].decoder(version)(value, _INT16.size)
        return StoredRecord(key_message, value_message, version)
    except (ValueError, IndexError, StructError) as error:
        raise CorruptRecord(f"type {number}: {error}") from error


def _decode_offset(value: bytes | None, key_type: int) -> CommittedOffset | None:
    if value is None:
        return None
    (version,) = _INT16.unpack_from(value)
    if key_type == LEGACY_OFFSET_TYPE and version == 0:
        legacy, _ = LegacyOffsetCommitValue.decoder(0)(value, _INT16.size)
        return CommittedOffset(legacy.offset, -1, legacy.metadata, legacy.commit_timestamp)
    if not 0 <= version <= OffsetCommitValue.MAX_VERSION:
        raise CorruptRecord(f"OffsetCommitValue has no version {version}")
    stored, _ = OffsetCommitValue.decoder(version)(value, _INT16.size)
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
