"""What consumers of the classic protocol put inside JoinGroup and SyncGroup, each with its version (int16) in front."""

from __future__ import annotations

from ..schema import Message, Struct, array, int32, octets, string


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a consumer puts into JoinGroup's metadata. v1 owned partitions (KIP-429); v2 generation (KIP-792); v3
    rack (KIP-881).
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
    """What the leader of a consumer group puts into SyncGroup for each member; all versions look the same."""

    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable="0+", default=None)
