"""The metadata log of a controller in a quorum. It replays committed records; the leader also replays what it writes.

A replaced leader may have replayed records that nobody else has. Then its image is rebuilt from committed records, and
requests that waited for the lost records fail with NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply
from ottla.enums import ControlRecordType
from ottla.errors import NotController
from ottla.metadata.image import MetadataImage
from ottla.metadata.image_records import image_records
from ottla.metadata.metadata_log import records_batch, records_of, snapshot_content
from ottla.metadata.metadata_source import QuorumReplica, QuorumView, Subscriber
from ottla.raft.control_records import kraft_versions
from ottla.raft.leader import Leader
from ottla.raft.raft_log import OffsetAndEpoch
from ottla.records.batch import Batch, batches
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message
from ottla.wire.stored import control

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.raft_node import RaftNode
    from ottla.multibroker.voter_changes import VoterChanges
    from ottla.raft.voters import Voter


class QuorumMetadata:
    """The `MetadataSource` of a controller."""

    is_own = False

    def __init__(self, raft: RaftNode, image: MetadataImage, clock: Clock, snapshot_bytes: int) -> None:
        """A snapshot is written after each `snapshot_bytes` of records."""
        self.raft = raft
        self.image = image
        self._clock = clock
        self._snapshot_bytes = snapshot_bytes
        self._bytes_since_snapshot = 0
        self._subscribers: list[Subscriber] = []
        self.applied_to = 0
        """The offset after the last record in the image."""
        self._loaded = 0
        self._claimed: Leader | None = None
        self._waiting: list[tuple[int, Reply[Any], Any]] = []
        self.on_claim: Callable[[], None] = lambda: None
        """Called when this controller becomes active and its image contains everything that was committed."""
        self.on_lost: Callable[[], None] = lambda: None
        self.on_rebuilt: Callable[[], None] = lambda: None
        """Called after the image was rebuilt."""
        self.voter_changes: VoterChanges
        self.serve_node: Callable[[Message], Answer[Message]] = _refuse

    def start(self) -> None:
        """Read the newest snapshot. Later records count when the quorum knows that they are committed."""
        self.raft.on_step.append(self.follow)
        self._load_snapshot()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._claimed is not None

    @property
    def last_offset(self) -> int:
        return self.applied_to - 1

    @property
    def leader_epoch(self) -> int:
        return self.raft.replica.epoch

    @property
    def leader_id(self) -> int:
        return self.raft.replica.leader_id

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def serve(self, request: Message) -> Answer[Message]:
        return self.serve_node(request)

    def upgrade_kraft_version(self) -> None:
        self.voter_changes.upgrade()

    def add_voter(self, voter: Voter) -> Answer[None]:
        return self.voter_changes.add(voter)

    def remove_voter(self, voter: Voter) -> Answer[None]:
        return self.voter_changes.remove(*voter.key)

    def describe_quorum(self) -> QuorumView:
        replica = self.raft.replica
        leader = replica.leading
        if leader is None:
            raise NotController
        log, now_ms, voters = replica.log, self._clock.now_ms(), replica.voters
        shows_directories = replica.history.kraft_version > 0
        found: list[QuorumReplica] = []
        for voter in voters:
            directory = voter.directory_id if shows_directories else ZERO_UUID
            if voter.is_replica(*replica.node):
                found.append(QuorumReplica(voter.node_id, directory, log.end_offset, now_ms, now_ms))
                continue
            known = leader.progress_of_voter(voters, voter.node_id)
            times = (-1, -1, -1) if known is None else _times(known[1])
            found.append(QuorumReplica(voter.node_id, directory, *times))
        observers = [
            QuorumReplica(*key, *_times(progress))
            for key, progress in sorted(leader.replicas.items())
            if not voters.has(*key)
        ]
        endpoints = {voter.node_id: [(e.name, e.host, e.port) for e in voter.endpoints] for voter in voters}
        return QuorumView(replica.node.node_id, replica.epoch, log.high_watermark, found, observers, endpoints)

    # -- writing -----------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Message]) -> None:
        """Write records and replay them. Use `when_committed` to learn when they are committed."""
        if self._claimed is None:
            raise NotController
        replica = self.raft.replica
        first = replica.log.end_offset
        batch = records_batch(records, self._clock.now_ms(), replica.epoch)
        self.raft.write([batch])
        self._replay([(first + number, record) for number, record in enumerate(records)])
        self.applied_to = first + len(records)
        self._bytes_since_snapshot += len(batch)
        self.raft.step()

    def write_control(self, batch: bytearray) -> None:
        """Write a record for the quorum itself. Images do not contain it."""
        if self._claimed is None:
            raise NotController
        first = self.raft.replica.log.end_offset
        self.raft.write([batch])
        self._replay(list(kraft_versions(Batch(batch))))
        self.applied_to = self.raft.replica.log.end_offset
        assert self.applied_to > first
        self.raft.step()

    def when_committed(self, value: Any) -> Answer[Any]:
        """Return the value as soon as everything that was written so far is committed."""
        log = self.raft.replica.log
        is_committed = log.high_watermark >= log.end_offset
        # A leader that removed itself from the voters resigned with that commit.
        if self._claimed is None and (self.raft.replica.is_voter or not is_committed):
            raise NotController
        if is_committed:
            return value
        reply: Reply[Any] = Reply()
        self._waiting.append((log.end_offset, reply, value))
        return reply

    # -- following ---------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Called when something may have changed in the quorum."""
        replica = self.raft.replica
        leader = replica.leading
        if self._claimed is not None and self._claimed is not leader:
            self._lose()
        if self._claimed is None:
            self._follow_committed()
            if leader is not None and replica.log.high_watermark > leader.start_offset:
                self._claimed = leader
                self.on_claim()
        self._answer_waiting()
        if self._bytes_since_snapshot >= self._snapshot_bytes:
            self.take_snapshot()

    def _lose(self) -> None:
        self._claimed = None
        self.on_lost()
        waiting, self._waiting = self._waiting, []
        for _, reply, _ in waiting:
            reply.fail(NotController())
        if self.applied_to > self.raft.replica.log.high_watermark:
            self._load_snapshot()
            self._follow_committed()
            self.on_rebuilt()

    def _answer_waiting(self) -> None:
        high_watermark = self.raft.replica.log.high_watermark
        while self._waiting and self._waiting[0][0] <= high_watermark:
            _, reply, value = self._waiting.pop(0)
            reply.resolve(value)

    def _follow_committed(self) -> None:
        replica = self.raft.replica
        if replica.snapshots_loaded != self._loaded:
            self._loaded = replica.snapshots_loaded
            self._load_snapshot()
            self.on_rebuilt()
        for batch in replica.log.committed(self.applied_to):
            self._replay(list(records_of(batch)))
            self._bytes_since_snapshot += batch.size
            self.applied_to = batch.next_offset

    def _load_snapshot(self) -> None:
        """Start again from the newest snapshot."""
        log = self.raft.replica.log
        self.image.clear()
        latest = log.snapshots.latest
        self.applied_to = 0 if latest is None else latest.offset
        self._bytes_since_snapshot = 0
        if latest is not None:
            for batch in batches(log.snapshots.read(latest)):
                for _, record in records_of(batch, log.snapshots.path(latest)):
                    self.image.replay(record, latest.offset - 1)
        self.image.removed_topics.clear()

    def _replay(self, appended: list[tuple[int, Message]]) -> None:
        for offset, record in appended:
            self.image.replay(record, offset)
        records = [record for _, record in appended]
        if records:
            for subscriber in self._subscribers:
                subscriber(records)
        self.image.removed_topics.clear()

    def take_snapshot(self) -> bool:
        """Write a snapshot of the image, if all of it is committed, and drop the log before it."""
        replica = self.raft.replica
        log = replica.log
        if self.applied_to != log.high_watermark or self.applied_to <= log.start_offset:
            return False
        snapshot = OffsetAndEpoch(self.applied_to, log.log.epochs.epoch_for_offset(self.applied_to - 1))
        history = replica.history
        control_records: list[tuple[int, Message]] = []
        if history.kraft_version > 0:
            control_records = [
                (ControlRecordType.KRAFT_VERSION, control.KRaftVersionRecord(k_raft_version=history.kraft_version)),
                (ControlRecordType.KRAFT_VOTERS, history.committed_voters(log.high_watermark).to_record()),
            ]
        content = snapshot_content(
            list(image_records(self.image)), self._clock.now_ms(), snapshot.epoch, control_records=control_records
        )
        log.snapshots.store(snapshot, content)
        self._bytes_since_snapshot = 0
        return log.clean()


def _times(progress: Any) -> tuple[int, int, int]:
    return progress.end_offset, progress.last_fetch_wall_ms, progress.last_caught_up_wall_ms


def _refuse(request: Message) -> Answer[Message]:
    raise NotController
