"""Records of share groups in `__consumer_offsets`, and the records of `__share_group_state` (KIP-932)."""

from __future__ import annotations

from ..schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    """A member's description of itself."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    """Rack, client and subscribed topics."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    """A share group (KIP-932)."""

    group_id: str = string()


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    """The group epoch, and a hash of the topics it was computed from."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    """The epoch of the target assignment."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    """Written last: the records before it belong to this epoch."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    """The target assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    """Partitions by topic id."""

    class TopicPartition(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    """The current assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    """Assigned partitions and the epochs of the member."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    """Which share partitions have state at a share coordinator."""

    group_id: str = string()


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    """Topics whose state is being initialized, is initialized, or is being deleted."""

    class TopicPartitionsInfo(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class TopicInfo(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


class ShareSnapshotKey(Message, key=0, versions="0"):
    """The whole state of one share partition."""

    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    """Starts a new snapshot epoch; the updates after it belong to that epoch."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, key=1, versions="0"):
    """A change to the state of one share partition."""

    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    """Only the changed batches."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)
