"""The controller quorum: elections, snapshots, voters and features."""

from __future__ import annotations

from collections.abc import Sized

from ottla.enums import ApiKey

from ..primitives import INT32_MAX
from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, string, struct, uint16, uuid
from ..schema import records as record_data


class VoteRequest(Message, key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    """v1 voter and directory ids (KIP-853); v2 pre-votes, which do not raise the epoch (KIP-996)."""

    class PartitionData(Struct):
        partition_index: int = int32()
        replica_epoch: int = int32()
        replica_id: int = int32()
        replica_directory_id: bytes = uuid("1+")
        voter_directory_id: bytes = uuid("1+")
        last_offset_epoch: int = int32()
        last_offset: int = int64()
        pre_vote: bool = boolean("2+")

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[VoteRequest.PartitionData] = array("PartitionData")

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData)


class VoteResponse(Message, key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    """v1 endpoint of the leader."""

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()
        vote_granted: bool = boolean()

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[VoteResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class BeginQuorumEpochRequest(Message, key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """A new leader announces itself (KIP-595). v1 flexible, voter key and endpoints (KIP-853)."""

    class PartitionData(Struct):
        partition_index: int = int32()
        voter_directory_id: bytes = uuid("1+")
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[BeginQuorumEpochRequest.PartitionData] = array("PartitionData")

    class LeaderEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")


class BeginQuorumEpochResponse(Message, key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """v1 endpoint of the leader."""

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[BeginQuorumEpochResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class EndQuorumEpochRequest(Message, key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """A leader resigns (KIP-595). v1 flexible, preferred candidates with directory ids (KIP-853)."""

    class ReplicaInfo(Struct):
        candidate_id: int = int32()
        candidate_directory_id: bytes = uuid()

    class PartitionData(Struct):
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32()
        preferred_successors: list[int] = array(int32, "0")
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = array("ReplicaInfo", "1+")

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[EndQuorumEpochRequest.PartitionData] = array("PartitionData")

    class LeaderEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")


class EndQuorumEpochResponse(Message, key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """v1 endpoint of the leader."""

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[EndQuorumEpochResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class DescribeQuorumRequest(Message, key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    """The replicas of the metadata log (KIP-595)."""

    class PartitionData(Struct):
        partition_index: int = int32()

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[DescribeQuorumRequest.PartitionData] = array("PartitionData")

    topics: list[TopicData] = array(TopicData)


class DescribeQuorumResponse(Message, key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    """v1 fetch and caught-up times (KIP-836); v2 error messages, directory ids and nodes (KIP-853)."""

    class ReplicaState(Struct):
        replica_id: int = int32()
        replica_directory_id: bytes = uuid("2+")
        log_end_offset: int = int64()
        last_fetch_timestamp: int = int64("1+", default=-1)
        last_caught_up_timestamp: int = int64("1+", default=-1)

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string("2+", nullable="2+")
        leader_id: int = int32()
        leader_epoch: int = int32()
        high_watermark: int = int64()
        current_voters: list[DescribeQuorumResponse.ReplicaState] = array("ReplicaState")
        observers: list[DescribeQuorumResponse.ReplicaState] = array("ReplicaState")

    class TopicData(Struct):
        topic_name: str = string()
        partitions: list[DescribeQuorumResponse.PartitionData] = array("PartitionData")

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    class Node(Struct):
        node_id: int = int32()
        listeners: list[DescribeQuorumResponse.Listener] = array("Listener")

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")


class UpdateFeaturesRequest(Message, key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    """v0 has only a flag to allow downgrades; v1 upgrade types and validate only (KIP-778)."""

    class FeatureUpdateKey(Struct):
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdateFeaturesResponse(Message, key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    """v0–1 a result for each feature, v2 only the top-level error."""

    class UpdatableFeatureResult(Struct):
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


class FetchSnapshotRequest(Message, key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    """Reads a metadata snapshot by position (KIP-630). v1 directory id (KIP-853)."""

    class SnapshotId(Struct):
        end_offset: int = int64()
        epoch: int = int32()

    class PartitionSnapshot(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32()
        snapshot_id: FetchSnapshotRequest.SnapshotId = struct("SnapshotId")
        position: int = int64()
        replica_directory_id: bytes = uuid("1+", tag=0)

    class TopicSnapshot(Struct):
        name: str = string()
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = array("PartitionSnapshot")

    cluster_id: str | None = string(nullable="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=INT32_MAX)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class FetchSnapshotResponse(Message, key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    """v1 endpoint of the leader."""

    class SnapshotId(Struct):
        end_offset: int = int64()
        epoch: int = int32()

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class PartitionSnapshot(Struct):
        index: int = int32()
        error_code: int = int16()
        snapshot_id: FetchSnapshotResponse.SnapshotId = struct("SnapshotId")
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch | None = struct("LeaderIdAndEpoch", tag=0)
        size: int = int64()
        position: int = int64()
        unaligned_records: Sized | None = record_data()

    class TopicSnapshot(Struct):
        name: str = string()
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = array("PartitionSnapshot")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = uint16()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class UnregisterBrokerRequest(Message, key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    """Removes a broker that will not return (KIP-500)."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    """An error and its message."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AddRaftVoterRequest(Message, key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+"):
    """A new controller joins the quorum (KIP-853). v1 may respond before the change is committed (KIP-1186)."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+"):
    """An error and its message."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class RemoveRaftVoterRequest(Message, key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    """A controller leaves the quorum (KIP-853)."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(Message, key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    """An error and its message."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateRaftVoterRequest(Message, key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+"):
    """A controller reports new endpoints or versions (KIP-853)."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    class KRaftVersionFeature(Struct):
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class UpdateRaftVoterResponse(Message, key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+"):
    """Contains the leader if this node is not the leader."""

    class CurrentLeader(Struct):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)
        host: str = string()
        port: int = int32()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct(CurrentLeader, tag=0)
