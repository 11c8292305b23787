"""Replication: followers fetch the log, or a snapshot, from the leader (KIP-595, KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import (
    NONE,
    InvalidRequest,
    NotLeaderOrFollower,
    PositionOutOfRange,
    SnapshotNotFound,
)
from ottla.raft import control_records, messages
from ottla.raft.leader import Answer, Leader, WaitingFetch
from ottla.raft.messages import partition_of
from ottla.raft.raft_log import OffsetAndEpoch
from ottla.raft.roles import Follower, SnapshotDownload
from ottla.raft.voters import ReplicaKey
from ottla.wire.messages import FetchRequest, FetchSnapshotRequest
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.raft.replica import RaftReplica

# -- the leader's side ---------------------------------------------------------------------------------------------


def serve_fetch(replica: RaftReplica, request: FetchRequest, answer: Answer) -> None:
    asked = partition_of(request)
    is_valid = 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
    if not is_valid or asked.fetch_offset < 0 or request.max_wait_ms < 0:
        answer(replica.refused_fetch(InvalidRequest.code))
        return
    error = replica.check_leads(asked.current_leader_epoch)
    leader = replica.leading
    if error != NONE or leader is None:
        answer(replica.refused_fetch(error or NotLeaderOrFollower.code))
        return
    if not _answer_now(replica, leader, request, answer):
        leader.waiting.append(WaitingFetch(request, answer, replica.now_ms + request.max_wait_ms))


def sender_of(request: FetchRequest) -> ReplicaKey:
    state = request.replica_state
    node_id = request.replica_id if state is None or state.replica_id < 0 else state.replica_id
    return ReplicaKey(node_id, partition_of(request).replica_directory_id)


def _answer_now(replica: RaftReplica, leader: Leader, request: FetchRequest, answer: Answer) -> bool:
    """Answer a fetch if there is anything to return."""
    asked, log = partition_of(request), replica.log
    offset, epoch = asked.fetch_offset, asked.last_fetched_epoch
    snapshot = log.needs_snapshot(offset, epoch)
    diverging = log.check_position(offset, epoch) if snapshot is None else None
    if snapshot is None and diverging is None:
        _note_progress(replica, leader, sender_of(request), offset)
        if replica.leading is not leader:
            answer(replica.refused_fetch(NotLeaderOrFollower.code))
            return True
        knows_all = asked.high_watermark >= log.high_watermark or log.high_watermark <= leader.start_offset
        if offset >= log.end_offset and knows_all and request.max_wait_ms > 0:
            return False
    else:
        _note_contact(replica, leader, sender_of(request))
    _respond(replica, request, answer, diverging, snapshot)
    return True


def _respond(
    replica: RaftReplica,
    request: FetchRequest,
    answer: Answer,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> None:
    asked, log = partition_of(request), replica.log
    records = b"" if diverging or snapshot else log.read(asked.fetch_offset, asked.partition_max_bytes)
    answer(
        messages.fetch_response(
            replica.known,
            high_watermark=_told_high_watermark(replica),
            log_start_offset=log.start_offset,
            records=records,
            diverging=diverging,
            snapshot=snapshot,
        )
    )


def _told_high_watermark(replica: RaftReplica) -> int:
    """-1 until a record of the leader's own epoch is committed: before that, it does not know the high watermark."""
    leader = replica.leading
    assert leader is not None
    return replica.log.high_watermark if replica.log.high_watermark > leader.start_offset else -1


def _note_progress(replica: RaftReplica, leader: Leader, key: ReplicaKey, offset: int) -> None:
    if key.node_id < 0:
        return  # a tool that reads the log
    heard_majority = leader.fetched(
        key, offset, replica.log.end_offset, replica.now_ms, replica.context.wall_ms(), replica.voters
    )
    if heard_majority:
        replica.voter_fetched(leader)
    if replica.maybe_commit(leader):
        answer_waiting(replica, leader)


def _note_contact(replica: RaftReplica, leader: Leader, key: ReplicaKey) -> None:
    """The replica must first truncate its log or load a snapshot, but it follows this leader."""
    if key.node_id < 0:
        return
    progress = leader.progress_of(key)
    progress.last_fetch_ms, progress.last_fetch_wall_ms = replica.now_ms, replica.context.wall_ms()
    progress.has_acknowledged = True
    if leader.heard_from(key, replica.voters):
        replica.voter_fetched(leader)


def answer_waiting(replica: RaftReplica, leader: Leader) -> None:
    """Answer fetches for which there is new data, or whose wait time is over."""
    if not leader.waiting:
        return
    waiting, leader.waiting = leader.waiting, []
    log, now_ms = replica.log, replica.now_ms
    for fetch in waiting:
        asked = partition_of(fetch.request)
        has_news = asked.fetch_offset < log.end_offset or (
            asked.high_watermark < log.high_watermark and log.high_watermark > leader.start_offset
        )
        if replica.leading is not leader:
            fetch.answer(replica.refused_fetch(NotLeaderOrFollower.code))
        elif has_news or fetch.until_ms <= now_ms:
            _respond(replica, fetch.request, fetch.answer)
        else:
            leader.waiting.append(fetch)


def serve_snapshot(replica: RaftReplica, request: FetchSnapshotRequest, asked: Any) -> Message:
    error = replica.check_leads(asked.current_leader_epoch)
    snapshot = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if error == NONE and snapshot not in list(replica.log.snapshots):
        error = SnapshotNotFound.code
    leader = replica.leading
    if error != NONE or leader is None:
        return messages.fetch_snapshot_response(replica.known, error or NotLeaderOrFollower.code, snapshot=snapshot)
    content, size = replica.log.snapshots.part(
        snapshot, max(asked.position, 0), min(request.max_bytes, replica.settings.snapshot_bytes_max)
    )
    if not 0 <= asked.position < size:
        return messages.fetch_snapshot_response(replica.known, PositionOutOfRange.code, snapshot=snapshot)
    _note_contact(replica, leader, ReplicaKey(request.replica_id, asked.replica_directory_id))
    return messages.fetch_snapshot_response(
        replica.known, snapshot=snapshot, size=size, position=asked.position, content=content
    )


# -- the follower's side -------------------------------------------------------------------------------------------


def fetch_from(replica: RaftReplica, node_id: int) -> None:
    """Fetch from the leader, or from a node that may know the leader."""
    role, settings = replica.role, replica.settings
    if isinstance(role, Follower) and role.download is not None:
        if not replica.is_asking(node_id, FetchSnapshotRequest):
            replica.ask(
                node_id,
                messages.fetch_snapshot_request(
                    replica.cluster_id,
                    replica.node,
                    replica.epoch,
                    role.download.snapshot,
                    len(role.download.content),
                    settings.snapshot_bytes_max,
                ),
            )
    elif not replica.is_asking(node_id, FetchRequest):
        replica.ask(
            node_id,
            messages.fetch_request(
                replica.cluster_id,
                replica.node,
                replica.epoch,
                replica.log.end,
                replica.log.high_watermark,
                settings.fetch_max_wait_ms,
            ),
        )


def _heard_leader(replica: RaftReplica, role: Follower) -> None:
    role.has_fetched = True
    role.fetch_by_ms = replica.now_ms + replica.settings.fetch_timeout_ms


def fetched(replica: RaftReplica, node_id: int, request: FetchRequest, partition: Any) -> None:
    """Handle the response to a fetch: append, truncate, or start with a snapshot."""
    role, asked = replica.role, partition_of(request)
    if (
        partition.error_code != NONE
        or not isinstance(role, Follower)
        or role.leader_id != node_id
        or asked.current_leader_epoch != replica.epoch
        or asked.fetch_offset != replica.log.end_offset
    ):
        replica.fetch_at_ms = replica.now_ms + replica.settings.retry_backoff_ms
        return
    _heard_leader(replica, role)
    log = replica.log
    if partition.diverging_epoch is not None and partition.diverging_epoch.epoch >= 0:
        end = OffsetAndEpoch(partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch)
        log.truncate_to(end)
        replica.history.truncate_to(log.end_offset)
        return
    if partition.snapshot_id is not None and partition.snapshot_id.epoch >= 0:
        role.download = SnapshotDownload(OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
        return
    if partition.records:
        offset = log.end_offset
        log.append_as_follower(bytes(partition.records))
        control_records.follow(log, replica.history, offset)
    if partition.high_watermark > log.high_watermark:
        log.update_high_watermark(min(partition.high_watermark, log.end_offset))
    role.is_caught_up = 0 <= partition.high_watermark <= log.high_watermark


def snapshot_fetched(replica: RaftReplica, node_id: int, request: FetchSnapshotRequest, partition: Any) -> None:
    """Handle a part of a snapshot. After the last part, the snapshot replaces the log."""
    role = replica.role
    if not isinstance(role, Follower) or role.leader_id != node_id or role.download is None:
        return
    download = role.download
    given = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if partition.error_code != NONE or given != download.snapshot or partition.position != len(download.content):
        role.download = None  # the leader may have a newer one: fetch again to find it
        replica.fetch_at_ms = replica.now_ms + replica.settings.retry_backoff_ms
        return
    _heard_leader(replica, role)
    download.content += bytes(partition.unaligned_records or b"")
    if len(download.content) < partition.size:
        return
    role.download = None
    log = replica.log
    log.snapshots.store(download.snapshot, bytes(download.content))
    log.truncate_to_snapshot()
    log.update_high_watermark(log.end_offset)
    replica.history.clear()
    control_records.load(log, replica.history)
    replica.snapshots_loaded += 1
