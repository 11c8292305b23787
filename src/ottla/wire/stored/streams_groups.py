"""Records of streams groups in `__consumer_offsets` (KIP-1071)."""

from __future__ import annotations

from ..schema import Message, Struct, array, int8, int16, int32, int64, string, struct, uint16


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    """A streams group (KIP-1071)."""

    group_id: str = string()


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    """The group epoch, with a hash of the topics and the topology that it was computed from."""

    class LastAssignmentConfig(Struct):
        key: str = string()
        value: str = string()

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(LastAssignmentConfig, nullable="0+", tag=1)


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    """A member's description of itself."""

    group_id: str = string()
    member_id: str = string()


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    """Process, endpoint and tags of the member."""

    class Endpoint(Struct):
        host: str = string()
        port: int = uint16()

    class KeyValue(Struct):
        key: str = string()
        value: str = string()

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    """The epoch of the target assignment."""

    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    """Written last: the records before it belong to this epoch."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    """The target assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    """Active, standby and warm-up tasks."""

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    """The current assignment of a member."""

    group_id: str = string()
    member_id: str = string()


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    """Its tasks, and those it must still revoke."""

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds)


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    """The topology of the application."""

    group_id: str = string()


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    """Subtopologies with their source, sink and changelog topics."""

    class TopicConfig(Struct):
        key: str = string()
        value: str = string()

    class TopicInfo(Struct):
        name: str = string()
        partitions: int = int32()
        replication_factor: int = int16()
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = array("TopicConfig")

    class CopartitionGroup(Struct):
        source_topics: list[int] = array(int16)
        source_topic_regex: list[int] = array(int16)
        repartition_source_topics: list[int] = array(int16)

    class Subtopology(Struct):
        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        source_topic_regex: list[str] = array(string)
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = array("TopicInfo")
        repartition_sink_topics: list[str] = array(string)
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = array("TopicInfo")
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = array("CopartitionGroup")

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
