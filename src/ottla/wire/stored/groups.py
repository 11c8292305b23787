"""Records of classic and consumer groups in `__consumer_offsets`."""

from __future__ import annotations

from ..schema import Message, Struct, array, int8, int32, int64, octets, string, struct, uuid


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    """Offsets of Kafka 0.8.1, still readable."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    """Offsets of Kafka 0.8.1, still readable."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, key=1, versions="0"):
    """Identifies an offset of a group."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    """v1 an expiry time, in that version only; v3 leader epoch (KIP-320); v4 flexible, with a topic id (KIP-848)."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class GroupMetadataKey(Message, key=2, versions="0"):
    """A group of the classic protocol."""

    group: str = string()


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    """v1 rebalance timeout; v2 time of the last change of state; v3 instance ids (KIP-345); v4 is flexible."""

    class MemberMetadata(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1)
        session_timeout: int = int32()
        subscription: bytes = octets()
        assignment: bytes = octets()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    """A group of the new protocol (KIP-848)."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    """The group epoch, and a hash of the topics it was computed from (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    """Replaced in Kafka 4.1 by the hash in the group's own record. Only tombstones are written now."""

    group_id: str = string()


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    """Topics that the group subscribes to, with their partitions and racks."""

    class PartitionMetadata(Struct):
        partition: int = int32()
        racks: list[str] = array(string)

    class TopicMetadata(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = array("PartitionMetadata")

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    """A member's description of itself."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    """Classic members of the group keep their protocols in a tag."""

    class ClassicProtocol(Struct):
        name: str = string()
        metadata: bytes = octets()

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int = int32()
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = array("ClassicProtocol")

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    """The epoch of the target assignment."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    """Written last: the records before it belong to this epoch."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    """The target assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    """Partitions by topic id."""

    class TopicPartition(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    """The current assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    """Assigned partitions and those it must still revoke, with the epochs in which they were assigned."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    """A regular expression that members subscribe with."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    """The topics it matched when it was last resolved."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
