"""The consumer's own format inside the opaque bytes of JoinGroup and SyncGroup ("consumer" protocol type).

The coordinator decodes them for two reasons: to find the topics that a group reads (so that their offsets do not
expire), and to convert subscriptions and assignments when a group moves between the classic and the consumer protocol.
Each blob is an int16 version and then a message of that version; newer versions only add fields at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import TypeVar

from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import Message

PROTOCOL_TYPE = "consumer"

_VERSION = Struct(">h")

M = TypeVar("M", bound=Message)


class MalformedMetadata(ValueError):
    """The embedded bytes do not follow the consumer protocol."""


def read_version(data: bytes) -> int:
    """The member's version, capped at the newest known one. Its assignment is encoded in the same version."""
    if len(data) < _VERSION.size:
        raise MalformedMetadata("the version is missing")
    version = int(_VERSION.unpack_from(data)[0])
    if version < 0:
        raise MalformedMetadata(f"version {version}")
    return min(version, ConsumerProtocolSubscription.MAX_VERSION)


def decode_topics(data: bytes) -> list[str]:
    """Decode only the topics, which are in every version."""
    read_version(data)
    return _decode(ConsumerProtocolSubscription, data, 0).topics


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return _decode(ConsumerProtocolSubscription, data, read_version(data))


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Empty bytes are an empty assignment: the leader assigned nothing to this member."""
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return _decode(ConsumerProtocolAssignment, data, read_version(data))


def encode_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(indexes))
            for topic, indexes in partitions.items()
        ]
    )
    return _VERSION.pack(version) + assignment.encode(version)


def _decode(message: type[M], data: bytes, version: int) -> M:
    try:
        decoded, _ = message.decoder(version)(data, _VERSION.size)
    except (ValueError, IndexError, StructError) as error:
        raise MalformedMetadata(str(error)) from error
    assert isinstance(decoded, message)
    return decoded
