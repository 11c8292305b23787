"""The requests and responses of the quorum. All of them are about one partition: `__cluster_metadata-0`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.errors import NONE
from ottla.raft.quorum_state import ElectionState
from ottla.raft.raft_log import OffsetAndEpoch
from ottla.raft.voters import Endpoint, ReplicaKey, Voter
from ottla.wire.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.wire.schema import Message

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"


def vote_request(
    cluster_id: str, sender: ReplicaKey, voter: Voter, epoch: int, end: OffsetAndEpoch, *, pre_vote: bool
) -> VoteRequest:
    partition = VoteRequest.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=sender.node_id,
        replica_directory_id=sender.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    return VoteRequest(
        cluster_id=cluster_id,
        voter_id=voter.node_id,
        topics=[VoteRequest.TopicData(topic_name=TOPIC, partitions=[partition])],
    )


def begin_request(
    cluster_id: str, leader_id: int, epoch: int, voter: Voter, endpoints: Iterable[Endpoint]
) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequest.PartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.node_id,
        topics=[BeginQuorumEpochRequest.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[BeginQuorumEpochRequest.LeaderEndpoint(name=n, host=h, port=p) for n, h, p in endpoints],
    )


def end_request(
    cluster_id: str, leader_id: int, epoch: int, successors: Iterable[ReplicaKey], endpoints: Iterable[Endpoint]
) -> EndQuorumEpochRequest:
    candidates = list(successors)
    partition = EndQuorumEpochRequest.PartitionData(
        partition_index=0,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.node_id for key in candidates],
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
            for key in candidates
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[EndQuorumEpochRequest.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[EndQuorumEpochRequest.LeaderEndpoint(name=n, host=h, port=p) for n, h, p in endpoints],
    )


def fetch_request(
    cluster_id: str, sender: ReplicaKey, epoch: int, end: OffsetAndEpoch, high_watermark: int, max_wait_ms: int
) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        log_start_offset=-1,
        partition_max_bytes=8 * 1024 * 1024,
        replica_directory_id=sender.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=sender.node_id,
        replica_state=FetchRequest.ReplicaState(replica_id=sender.node_id),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=8 * 1024 * 1024,
        topics=[FetchRequest.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot_request(
    cluster_id: str, sender: ReplicaKey, epoch: int, snapshot: OffsetAndEpoch, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=sender.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=sender.node_id,
        max_bytes=max_bytes,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=TOPIC, partitions=[partition])],
    )


def partition_of(message: Any) -> Any:
    """The metadata partition in a request or a response of the quorum; None if it is not the only partition."""
    topics = message.responses if isinstance(message, FetchResponse) else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic: Any = topics[0]
    partition = topic.partitions[0]
    if isinstance(message, (FetchRequest, FetchResponse)):
        is_metadata = topic.topic_id == TOPIC_ID
    elif isinstance(message, (FetchSnapshotRequest, FetchSnapshotResponse)):
        is_metadata = topic.name == TOPIC
    else:
        is_metadata = topic.topic_name == TOPIC
    if isinstance(message, (FetchRequest, FetchSnapshotRequest)):
        index = partition.partition
    else:
        index = partition.index if isinstance(message, FetchSnapshotResponse) else partition.partition_index
    return partition if is_metadata and index == 0 else None


def leader_of(partition: Any) -> tuple[int, int]:
    """(leader, epoch) in a response; (-1, -1) if it has none."""
    if isinstance(partition, (FetchResponse.PartitionData, FetchSnapshotResponse.PartitionSnapshot)):
        leader = partition.current_leader
        return (-1, -1) if leader is None else (leader.leader_id, leader.leader_epoch)
    return partition.leader_id, partition.leader_epoch


def add_leader_endpoint(response: Any, leader: Voter) -> None:
    """Add the address of the leader, for a node that does not know it (KIP-853)."""
    kind = type(response).NodeEndpoint
    response.node_endpoints = [kind(node_id=leader.node_id, host=e.host, port=e.port) for e in leader.endpoints[:1]]


# -- responses -----------------------------------------------------------------------------------------------------


def vote_response(state: ElectionState, *, granted: bool = False, error: int = NONE) -> VoteResponse:
    partition = VoteResponse.PartitionData(
        partition_index=0,
        error_code=error,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        vote_granted=granted,
    )
    return VoteResponse(topics=[VoteResponse.TopicData(topic_name=TOPIC, partitions=[partition])])


def begin_response(state: ElectionState, error: int = NONE) -> BeginQuorumEpochResponse:
    partition = BeginQuorumEpochResponse.PartitionData(
        partition_index=0, error_code=error, leader_id=state.leader_id, leader_epoch=state.epoch
    )
    return BeginQuorumEpochResponse(
        topics=[BeginQuorumEpochResponse.TopicData(topic_name=TOPIC, partitions=[partition])]
    )


def end_response(state: ElectionState, error: int = NONE) -> EndQuorumEpochResponse:
    partition = EndQuorumEpochResponse.PartitionData(
        partition_index=0, error_code=error, leader_id=state.leader_id, leader_epoch=state.epoch
    )
    return EndQuorumEpochResponse(topics=[EndQuorumEpochResponse.TopicData(topic_name=TOPIC, partitions=[partition])])


def fetch_response(
    state: ElectionState,
    error: int = NONE,
    *,
    log_start_offset: int,
    high_watermark: int = -1,
    records: bytes = b"",
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> FetchResponse:
    data = FetchResponse
    partition = data.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=-1,
        log_start_offset=log_start_offset,
        current_leader=data.LeaderIdAndEpoch(leader_id=state.leader_id, leader_epoch=state.epoch),
        diverging_epoch=None
        if diverging is None
        else data.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=None if snapshot is None else data.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        records=records,
    )
    return data(responses=[data.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])])


def fetch_snapshot_response(
    state: ElectionState,
    error: int = NONE,
    *,
    snapshot: OffsetAndEpoch,
    size: int = 0,
    position: int = 0,
    content: bytes = b"",
) -> FetchSnapshotResponse:
    data = FetchSnapshotResponse
    partition = data.PartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=data.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=data.LeaderIdAndEpoch(leader_id=state.leader_id, leader_epoch=state.epoch),
        size=size,
        position=position,
        unaligned_records=content,
    )
    return data(topics=[data.TopicSnapshot(name=TOPIC, partitions=[partition])])


RESPONSES: dict[type[Message], type[Message]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
}
