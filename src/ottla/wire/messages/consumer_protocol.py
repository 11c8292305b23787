"""Consumer data inside JoinGroup and SyncGroup of the classic protocol, each preceded by its version (int16)."""

from __future__ import annotations

from ..schema import Message, Struct, array, int32, octets, string


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The metadata of a consumer in JoinGroup. v1 owned partitions (KIP-429); v2 generation (KIP-792); v3 rack
    (KIP-881).
    """

    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[str] = array(string)
    user_data: bytes | None = octets(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The assignment of each member in the SyncGroup of a group's leader. All versions are identical."""

    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable="0+", default=None)
