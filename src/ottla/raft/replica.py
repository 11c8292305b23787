"""A replica of the metadata quorum: elections and replication as a state machine without network I/O.

The driver passes in requests (`handle`), responses (`received`) and time (`poll`), and sends the messages that it gets
through the `send` callback. State is written to disk before any message that depends on it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.errors import (
    NONE,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from ottla.raft import control_records, fetching, messages
from ottla.raft.leader import Answer, Leader
from ottla.raft.messages import leader_of, partition_of
from ottla.raft.quorum_state import NOBODY, ElectionState, QuorumStateFile
from ottla.raft.raft_log import RaftLog
from ottla.raft.roles import Candidate, Election, Follower, Prospective, Resigned, Unattached
from ottla.raft.voters import QuorumHistory, ReplicaKey, VoterSet
from ottla.wire.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

logger = logging.getLogger(__name__)

NEVER_MS = float("inf")

Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned


class RaftSettings(NamedTuple):
    """Kafka's `controller.quorum.…` settings."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    snapshot_bytes_max: int = 8 * 1024 * 1024


class Randomness(Protocol):
    def randbelow(self, limit: int) -> int: ...


class RaftContext(NamedTuple):
    """The environment of a replica."""

    send: Callable[[int, Message], None]
    monotonic_ms: Callable[[], float]
    wall_ms: Callable[[], int]
    randomness: Randomness


class RaftReplica:
    """One node of the quorum, a voter or an observer."""

    def __init__(
        self,
        node: ReplicaKey,
        cluster_id: str,
        log: RaftLog,
        state_file: QuorumStateFile,
        voters: VoterSet,
        settings: RaftSettings,
        context: RaftContext,
    ) -> None:
        """`voters` are the configured voters, which apply until the log has its own."""
        self.node = node
        self.cluster_id = cluster_id
        self.log = log
        self.settings = settings
        self.context = context
        self.history = QuorumHistory(voters)
        self._file = state_file
        self.state = ElectionState()
        self.role: Role = Unattached(NEVER_MS)
        self._in_flight: dict[tuple[int, type[Message]], tuple[Message, float]] = {}
        self.fetch_at_ms = 0.0
        """The earliest time of the next fetch: it is delayed after an error."""
        self._next_voter = 0
        self.snapshots_loaded = 0
        """Counts the snapshots that replaced the log: all state built from the log must then be rebuilt."""

    def start(self) -> None:
        """Load the state of the last run. If this node was the leader, there may be another one now."""
        control_records.load(self.log, self.history)
        self.state = self._file.read(self.log.last_epoch)
        if self.state.epoch < self.log.last_epoch:
            self.state = ElectionState(self.log.last_epoch)
        self._become_unattached()
        if self.is_voter and len(self.voters) == 1:
            self.stand_for_election()

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def is_voter(self) -> bool:
        return self.voters.has(*self.node)

    @property
    def leading(self) -> Leader | None:
        return self.role if isinstance(self.role, Leader) else None

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch; -1 if it is unknown or has resigned."""
        return self.state.leader_id if isinstance(self.role, (Leader, Follower)) else NOBODY

    @property
    def others(self) -> list[int]:
        return [voter.node_id for voter in self.voters if not voter.is_replica(*self.node)]

    @property
    def now_ms(self) -> float:
        return self.context.monotonic_ms()

    def _random_timeout_ms(self) -> float:
        base = self.settings.election_timeout_ms
        return base + self.context.randomness.randbelow(max(base, 1))

    # -- transitions -------------------------------------------------------------------------------------------

    def _remember(self, epoch: int, leader_id: int = NOBODY, voted: ReplicaKey | None = None) -> None:
        """Move to an epoch, or store its leader. Within an epoch, a known leader or vote is kept."""
        old = self.state
        assert epoch >= old.epoch, f"epoch {epoch} after {old.epoch}"
        if epoch == old.epoch:
            assert NOBODY in (old.leader_id, leader_id) or old.leader_id == leader_id, "two leaders in an epoch"
            leader_id = leader_id if old.leader_id == NOBODY else old.leader_id
            voted = old.voted if voted is None else voted
        new = ElectionState(epoch, leader_id, voted)
        if new != old:
            self._file.write(new, self.history.kraft_version, self.voters.ids)
            self.state = new

    def _enter(self, role: Role) -> None:
        former, self.role = self.role, role
        self._in_flight.clear()
        self.fetch_at_ms = 0.0
        if isinstance(former, Leader):
            logger.info("node %d no longer leads epoch %d", self.node.node_id, former.epoch)
            for fetch in former.waiting:
                fetch.answer(self.refused_fetch(NotLeaderOrFollower.code))

    def _become_unattached(self) -> None:
        self._enter(Unattached(self.now_ms + self._random_timeout_ms() if self.is_voter else NEVER_MS))

    def _become_follower(self, leader_id: int) -> None:
        self._enter(Follower(leader_id, self.now_ms + self.settings.fetch_timeout_ms))

    def learn(self, epoch: int, leader_id: int) -> None:
        """Another node has reported an epoch, and maybe its leader."""
        if epoch < self.epoch or leader_id == self.node.node_id:
            return
        if epoch == self.epoch:
            if leader_id == NOBODY or isinstance(self.role, (Leader, Follower, Resigned)):
                return
            if self.state.leader_id not in (NOBODY, leader_id):
                return
            if isinstance(self.role, Election) and self.state.leader_id == leader_id:
                return  # this is the leader that this node wants to replace
        self._remember(epoch, leader_id)
        if leader_id == NOBODY:
            self._become_unattached()
        else:
            self._become_follower(leader_id)

    def stand_for_election(self) -> None:
        """Start with a pre-vote, to find out whether the election can be won."""
        self._enter(Prospective(self.now_ms + self._random_timeout_ms(), {self.node.node_id}))
        self._count_votes()

    def _become_candidate(self) -> None:
        self._remember(self.epoch + 1, voted=self.node)
        self._enter(Candidate(self.now_ms + self._random_timeout_ms(), {self.node.node_id}))
        self._count_votes()

    def _become_leader(self, granted: set[int]) -> None:
        self._remember(self.epoch, self.node.node_id)
        leader = Leader(self.node, self.epoch, self.log.end_offset, self._check_quorum_at_ms())
        self._enter(leader)
        logger.info("node %d leads epoch %d", self.node.node_id, self.epoch)
        self.write(control_records.first_of_epoch(self, granted))

    def _check_quorum_at_ms(self) -> float:
        return self.now_ms + self.settings.fetch_timeout_ms * 1.5

    def resign(self) -> None:
        """Stop leading, and send the others the preferred candidates: the most advanced replicas first."""
        leader = self.leading
        if leader is None:
            return
        progress = {node: leader.progress_of_voter(self.voters, node) for node in self.others}
        ends = {node: -1 if found is None else found[1].end_offset for node, found in progress.items()}
        successors = sorted(self.others, key=lambda node: -ends[node])
        self._enter(Resigned(successors, self.now_ms + self._random_timeout_ms()))

    # -- time --------------------------------------------------------------------------------------------------

    def poll(self) -> float:
        """Do all work that is due; returns when to call again, in monotonic milliseconds."""
        now_ms = self.now_ms
        for key, (_, until_ms) in list(self._in_flight.items()):
            if until_ms <= now_ms:
                del self._in_flight[key]
        role = self.role
        if isinstance(role, Unattached):
            due_ms = self._poll_unattached(role)
        elif isinstance(role, Election):
            due_ms = self._poll_election(role)
        elif isinstance(role, Follower):
            due_ms = self._poll_follower(role)
        elif isinstance(role, Leader):
            due_ms = self._poll_leader(role)
        else:
            due_ms = self._poll_resigned(role)
        if self.role is not role:
            return self.poll()
        return min([due_ms, *(until_ms for _, until_ms in self._in_flight.values())])

    def postpone(self, ms: float) -> None:
        """Extend all deadlines: the driver knows that no node could make progress in that time.

        A wait for another node restarts, because its message may still be in transit.
        """
        role = self.role
        self._in_flight = {key: (request, until_ms + ms) for key, (request, until_ms) in self._in_flight.items()}
        if isinstance(role, Unattached):
            role.election_at_ms += ms
        elif isinstance(role, Follower):
            role.fetch_by_ms = self.now_ms + self.settings.fetch_timeout_ms
        elif isinstance(role, Leader):
            role.check_quorum_at_ms = self._check_quorum_at_ms()
        else:
            role.ends_at_ms += ms

    def _poll_unattached(self, role: Unattached) -> float:
        if role.election_at_ms <= self.now_ms:
            self.stand_for_election()
            return self.now_ms
        if not self.others:
            return role.election_at_ms
        # Another voter may know the leader: try one after the other.
        if not any(kind is FetchRequest for _, kind in self._in_flight) and self.fetch_at_ms <= self.now_ms:
            self._next_voter = (self._next_voter + 1) % len(self.others)
            fetching.fetch_from(self, self.others[self._next_voter])
            return role.election_at_ms
        return min(role.election_at_ms, self.fetch_at_ms if self.fetch_at_ms > self.now_ms else NEVER_MS)

    def _poll_election(self, role: Election) -> float:
        if role.ends_at_ms <= self.now_ms or not self.is_voter:
            self._lost_election(role)
            return self.now_ms
        for voter in self.voters:
            if voter.node_id in self.others and voter.node_id not in role.granted | role.rejected:
                request = messages.vote_request(
                    self.cluster_id,
                    self.node,
                    voter,
                    self.epoch,
                    self.log.end,
                    pre_vote=isinstance(role, Prospective),
                )
                self.ask(voter.node_id, request)
        return role.ends_at_ms

    def _lost_election(self, role: Election) -> None:
        leader_id = self.state.leader_id
        if isinstance(role, Prospective) and leader_id not in (NOBODY, self.node.node_id):
            # Other voters still have contact with the leader. Try to fetch from it again.
            self._become_follower(leader_id)
        else:
            self._become_unattached()

    def _poll_follower(self, role: Follower) -> float:
        if role.fetch_by_ms <= self.now_ms:
            if self.is_voter:
                self.stand_for_election()
            else:
                self._become_unattached()
            return self.now_ms
        if self.fetch_at_ms <= self.now_ms:
            fetching.fetch_from(self, role.leader_id)
            return role.fetch_by_ms
        return min(role.fetch_by_ms, self.fetch_at_ms)

    def _poll_leader(self, role: Leader) -> float:
        now_ms = self.now_ms
        if role.check_quorum_at_ms <= now_ms and self.others:
            # A majority may already have another leader.
            logger.info("node %d resigns: it did not hear from a majority of the voters", self.node.node_id)
            self.resign()
            return now_ms
        if role.begin_at_ms <= now_ms:
            role.begin_at_ms = now_ms + self.settings.fetch_timeout_ms / 2
            self._announce(role)
            role.forget_silent_observers(self.voters, now_ms)
        fetching.answer_waiting(self, role)
        waiting = min((fetch.until_ms for fetch in role.waiting), default=NEVER_MS)
        return min(role.check_quorum_at_ms if self.others else NEVER_MS, role.begin_at_ms, waiting)

    def _announce(self, role: Leader) -> None:
        """Announce the leader to voters that do not fetch."""
        own = self.voters.get(self.node.node_id)
        for voter in self.voters:
            if voter.node_id not in self.others:
                continue
            found = role.progress_of_voter(self.voters, voter.node_id)
            if found is None or self.now_ms - found[1].last_fetch_ms > self.settings.fetch_timeout_ms / 2:
                request = messages.begin_request(
                    self.cluster_id, self.node.node_id, self.epoch, voter, own.endpoints if own else ()
                )
                self.ask(voter.node_id, request)

    def _poll_resigned(self, role: Resigned) -> float:
        if role.ends_at_ms <= self.now_ms:
            self._become_unattached()
            return self.now_ms
        own = self.voters.get(self.node.node_id)
        keys = [voter.key for each in role.successors if (voter := self.voters.get(each)) is not None]
        for node_id in role.successors:
            if node_id not in role.told:
                request = messages.end_request(
                    self.cluster_id, self.node.node_id, self.epoch, keys, own.endpoints if own else ()
                )
                self.ask(node_id, request)
        return role.ends_at_ms

    # -- messages ----------------------------------------------------------------------------------------------

    def ask(self, node_id: int, request: Message) -> None:
        """Send a request; only one of each kind to a node at a time."""
        key = (node_id, type(request))
        if key not in self._in_flight:
            self._in_flight[key] = (request, self.now_ms + self.settings.request_timeout_ms)
            self.context.send(node_id, request)

    def is_asking(self, node_id: int, kind: type[Message]) -> bool:
        return (node_id, kind) in self._in_flight

    def received(self, node_id: int, request: Message, response: Any) -> None:
        """Handle the response to a request; None if there will be none."""
        key = (node_id, type(request))
        if key not in self._in_flight or self._in_flight[key][0] is not request:
            return  # too late: the request has timed out
        if response is None:
            # Do not retry at once: the node may be down. The entry blocks further requests during the backoff.
            self._in_flight[key] = (request, self.now_ms + self.settings.retry_backoff_ms)
            if isinstance(request, (FetchRequest, FetchSnapshotRequest)):
                del self._in_flight[key]
                self.fetch_at_ms = self.now_ms + self.settings.retry_backoff_ms
            return
        del self._in_flight[key]
        partition = None if response.error_code else partition_of(response)
        if partition is None:
            self.fetch_at_ms = self.now_ms + self.settings.retry_backoff_ms
            return
        leader_id, epoch = leader_of(partition)
        if epoch > self.epoch or (epoch == self.epoch and leader_id != NOBODY):
            self.learn(epoch, leader_id)
        if isinstance(request, VoteRequest):
            self._vote_received(node_id, request, partition)
        elif isinstance(request, FetchRequest):
            fetching.fetched(self, node_id, request, partition)
        elif isinstance(request, FetchSnapshotRequest):
            fetching.snapshot_fetched(self, node_id, request, partition)
        elif isinstance(request, EndQuorumEpochRequest) and isinstance(self.role, Resigned):
            self.role.told.add(node_id)

    def handle(self, request: Message, answer: Answer) -> None:
        """Answer the request of another node, now or later. The response has the address of the leader."""

        def answer_with_leader(response: Message) -> None:
            partition = partition_of(response)
            leader = None if partition is None else self.voters.get(leader_of(partition)[0])
            if leader is not None:
                messages.add_leader_endpoint(response, leader)
            answer(response)

        self._handle(request, answer_with_leader)

    def _handle(self, request: Message, answer: Answer) -> None:
        refused = getattr(request, "cluster_id", None) not in (None, self.cluster_id)
        partition = partition_of(request)
        if refused or partition is None:
            response: Any = messages.RESPONSES[type(request)]()
            response.error_code = InconsistentClusterId.code if refused else InvalidRequest.code
            answer(response)
        elif isinstance(request, VoteRequest):
            answer(self._vote(request, partition))
        elif isinstance(request, BeginQuorumEpochRequest):
            answer(self._begin(request, partition))
        elif isinstance(request, EndQuorumEpochRequest):
            answer(self._end(partition))
        elif isinstance(request, FetchRequest):
            fetching.serve_fetch(self, request, answer)
        else:
            assert isinstance(request, FetchSnapshotRequest)
            answer(fetching.serve_snapshot(self, request, partition))

    def _known(self) -> ElectionState:
        """The known leader and epoch, for responses."""
        return self.state._replace(leader_id=self.leader_id)

    @property
    def known(self) -> ElectionState:
        return self._known()

    def refused_fetch(self, error: int) -> Message:
        return messages.fetch_response(self.known, error, log_start_offset=self.log.start_offset)

    def _is_for_this_node(self, node_id: int, directory_id: bytes) -> bool:
        """Whether a request is for this voter. Requests of old versions do not contain the receiver."""
        return node_id == -1 or (node_id == self.node.node_id and directory_id in (ZERO_UUID, self.node.directory_id))

    # -- elections ---------------------------------------------------------------------------------------------

    def _vote(self, request: VoteRequest, asked: Any) -> Message:
        # A candidate has raised its epoch, so its log ends in an earlier one.
        last_epoch_max = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= last_epoch_max:
            return messages.vote_response(self._known(), error=InvalidRequest.code)
        if asked.replica_epoch < self.epoch:
            return messages.vote_response(self._known(), error=FencedLeaderEpoch.code)
        if asked.replica_id < 0:
            return messages.vote_response(self._known(), error=InvalidRequest.code)
        if asked.replica_epoch > self.epoch:
            self.learn(asked.replica_epoch, NOBODY)
        if not self._is_for_this_node(request.voter_id, asked.voter_directory_id):
            return messages.vote_response(self._known(), error=InvalidVoterKey.code)
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        is_up_to_date = (asked.last_offset_epoch, asked.last_offset) >= (self.log.last_epoch, self.log.end_offset)
        granted = is_up_to_date and (
            self._would_vote() if asked.pre_vote else self._may_vote(candidate, asked.replica_epoch)
        )
        if granted and not asked.pre_vote:
            self._remember(asked.replica_epoch, voted=candidate)
            self._become_unattached()
        return messages.vote_response(self._known(), granted=granted)

    def _would_vote(self) -> bool:
        """A pre-vote promises nothing. A follower that has contact with its leader refuses it."""
        if isinstance(self.role, Follower):
            return not self.role.has_fetched
        return not isinstance(self.role, Leader)

    def _may_vote(self, candidate: ReplicaKey, epoch: int) -> bool:
        assert epoch == self.epoch
        if isinstance(self.role, (Leader, Follower, Resigned, Candidate)) or self.state.leader_id != NOBODY:
            return False
        voted = self.state.voted
        # With kraft.version 0, the state file does not store the directory of the vote.
        return voted is None or candidate == voted or (voted.directory_id == ZERO_UUID and voted[0] == candidate[0])

    def _vote_received(self, node_id: int, request: VoteRequest, partition: Any) -> None:
        role = self.role
        asked = partition_of(request)
        if (
            not isinstance(role, Election)
            or asked.replica_epoch != self.epoch
            or asked.pre_vote != isinstance(role, Prospective)
        ):
            return
        (role.granted if partition.vote_granted else role.rejected).add(node_id)
        self._count_votes()

    def _count_votes(self) -> None:
        role, voters = self.role, self.voters
        assert isinstance(role, Election)
        if len(role.granted & voters.ids) >= voters.majority:
            if isinstance(role, Prospective):
                self._become_candidate()
            else:
                self._become_leader(role.granted)
        elif len(voters) - len(role.rejected & voters.ids) < voters.majority and role.rejected:
            if isinstance(role, Prospective):
                self._lost_election(role)
            else:
                # This election is lost. Wait a random time, so that two candidates do not collide again.
                backoff_ms = self.context.randomness.randbelow(max(self.settings.election_timeout_ms, 1))
                role.ends_at_ms = min(role.ends_at_ms, self.now_ms + backoff_ms)

    def _begin(self, request: BeginQuorumEpochRequest, asked: Any) -> Message:
        if asked.leader_epoch < self.epoch:
            return messages.begin_response(self._known(), FencedLeaderEpoch.code)
        if asked.leader_id < 0:
            return messages.begin_response(self._known(), InvalidRequest.code)
        if asked.leader_epoch == self.epoch and self.state.leader_id not in (NOBODY, asked.leader_id):
            return messages.begin_response(self._known(), InvalidRequest.code)
        self.learn(asked.leader_epoch, asked.leader_id)
        is_for_this_node = self._is_for_this_node(request.voter_id, asked.voter_directory_id)
        return messages.begin_response(self._known(), NONE if is_for_this_node else InvalidVoterKey.code)

    def _end(self, asked: Any) -> Message:
        if asked.leader_epoch < self.epoch:
            return messages.end_response(self._known(), FencedLeaderEpoch.code)
        if asked.leader_id < 0:
            return messages.end_response(self._known(), InvalidRequest.code)
        self.learn(asked.leader_epoch, asked.leader_id)
        known = self._known()
        if isinstance(self.role, Follower) and self.is_voter:
            # The first candidate starts an election at once, the others later if there is no leader by then.
            named = [each.candidate_id for each in asked.preferred_candidates] or asked.preferred_successors
            place = named.index(self.node.node_id) if self.node.node_id in named else len(named)
            step_ms = self.settings.election_timeout_ms / 4
            self._enter(Unattached(self.now_ms + place * step_ms + self.context.randomness.randbelow(10) * bool(place)))
        return messages.end_response(known)

    # -- the leader's log --------------------------------------------------------------------------------------

    def write(self, batches: Sequence[bytearray]) -> int:
        """Append batches as the leader; returns the end offset. They are committed once the high watermark reaches
        it."""
        leader = self.leading
        assert leader is not None and leader.epoch == self.epoch
        offset = self.log.end_offset
        self.log.append_as_leader(batches, leader.epoch)
        control_records.follow(self.log, self.history, offset)
        self.maybe_commit(leader)
        fetching.answer_waiting(self, leader)
        return self.log.end_offset

    def maybe_commit(self, leader: Leader) -> bool:
        """Advance the high watermark if a majority has more records."""
        offset = leader.committed_offset(self.voters, self.log.end_offset)
        if offset <= self.log.high_watermark:
            return False
        self.log.update_high_watermark(offset)
        if not self.is_voter and self.history.voters_offset < offset:
            self.resign()  # the change that removes its vote is committed
        return True

    def voter_fetched(self, leader: Leader) -> None:
        leader.check_quorum_at_ms = self._check_quorum_at_ms()

    def check_leads(self, epoch: int) -> int:
        """The error code for a request that only the leader of `epoch` can answer."""
        if self.leading is None:
            if epoch > self.epoch:
                return UnknownLeaderEpoch.code
            return FencedLeaderEpoch.code if 0 <= epoch < self.epoch else NotLeaderOrFollower.code
        if 0 <= epoch < self.epoch:
            return FencedLeaderEpoch.code
        return UnknownLeaderEpoch.code if epoch > self.epoch else NONE
