"""Only a metadata quorum, from one seed: replicas, disks, messages, time. Each step is checked against Raft's
guarantees.

Messages are late, lost or repeated, nodes lose power and unsynced data, the network is partitioned. In the end all
faults are gone, and the quorum has to agree.
"""

import heapq
import random
from collections.abc import Callable
from typing import Any

from ottla.enums import ControlRecordType
from ottla.errors import KafkaStorageError
from ottla.log.loader import open_log
from ottla.log.options import LogConfig
from ottla.raft.messages import TOPIC, partition_of
from ottla.raft.quorum_state import QuorumStateFile
from ottla.raft.raft_log import OffsetAndEpoch, RaftLog
from ottla.raft.replica import RaftContext, RaftReplica, RaftSettings
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.records.batch import Record, batches, build_batch, control_batch
from ottla.wire.messages import VoteRequest
from ottla.wire.schema import Message
from ottla.wire.stored import control
from support.simulating.disk import SimDisk

FOLDER = f"{TOPIC}-0"
LOG_CONFIG = LogConfig(delete=False, retention_ms=-1, refuse_damage=True, segment_bytes=4096)
STEPS = 900
SETTLE_MS = 40_000.0


class Violation(AssertionError):
    """A guarantee of Raft was broken."""


class SimTime:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.ms)

    def monotonic_ms(self) -> float:
        return self.ms


class SimRandomness:
    def __init__(self, source: random.Random) -> None:
        self.source = source

    def randbelow(self, limit: int) -> int:
        return self.source.randrange(limit)


class SimNode:
    """One replica, its disk, and a state machine that keeps all committed entries."""

    def __init__(self, world: "QuorumWorld", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.key = ReplicaKey(node_id, bytes([node_id]) * 16)
        self.disk = SimDisk(world.time)
        self.replica: RaftReplica | None = None
        self.applied: dict[int, bytes] = {}
        self.applied_to = 0
        self.loaded = 0
        self.checked_to = 0
        self.committed_to = 0
        self.new: dict[int, bytes] = {}
        """Entries applied since the last check."""
        self.led_epoch = -1
        self.wake_at_ms = float("inf")
        self.life = 0

    def start(self) -> None:
        log = open_log(self.disk, TOPIC, 0, LOG_CONFIG, self.world.time)
        self.replica = RaftReplica(
            self.key,
            "sim",
            RaftLog(self.disk, log),
            QuorumStateFile(self.disk, FOLDER),
            self.world.voters,
            self.world.settings,
            RaftContext(
                lambda target, request: self.world.send(self, target, request),
                self.world.time.monotonic_ms,
                self.world.time.now_ms,
                SimRandomness(self.world.chance),
            ),
        )
        self.life += 1
        self.applied_to = self.checked_to = self.committed_to = self.loaded = 0
        self.applied = {}
        self.led_epoch = -1
        self.wake_at_ms = float("inf")
        self.replica.start()
        self.replica.poll()

    def crash(self) -> None:
        self.replica = None
        self.disk = (
            self.disk.after_power_loss(self.world.chance)
            if self.world.chance.random() < 0.7
            else (self.disk.after_kill())
        )

    # -- the state machine

    def follow(self) -> None:
        replica = self.replica
        if replica is None:
            return
        log = replica.log
        if self.applied_to < log.start_offset or replica.snapshots_loaded != self.loaded:
            self.loaded = replica.snapshots_loaded
            latest = log.snapshots.latest
            if latest is not None and latest.offset > self.applied_to:
                self.applied = self.new = state_of(log.snapshots.read(latest))
                self.applied_to = latest.offset
        for batch in log.committed(self.applied_to):
            if not batch.is_control:
                for record in batch.records():
                    assert record.value is not None
                    self.applied[record.offset] = self.new[record.offset] = bytes(record.value)
            self.applied_to = batch.next_offset

    def take_snapshot(self) -> None:
        """Take a snapshot of all applied entries, and drop those entries."""
        assert self.replica is not None
        log = self.replica.log
        if self.applied_to <= log.start_offset or self.applied_to != log.high_watermark:
            return
        snapshot = OffsetAndEpoch(self.applied_to, log.log.epochs.epoch_for_offset(self.applied_to - 1))
        if snapshot.epoch >= 0 and snapshot != log.snapshots.latest:
            log.snapshots.store(snapshot, snapshot_of(self.applied))
            log.clean()


def snapshot_of(state: dict[int, bytes]) -> bytes:
    content = control_batch(
        ControlRecordType.SNAPSHOT_HEADER, control.SnapshotHeaderRecord().encode(0), 0, leader_epoch=0
    )
    if state:
        content += build_batch(
            [Record(1 + n, 0, str(offset).encode(), value) for n, (offset, value) in enumerate(sorted(state.items()))],
            1,
        )
    footer = control.SnapshotFooterRecord().encode(0)
    return bytes(content + control_batch(ControlRecordType.SNAPSHOT_FOOTER, footer, 0, base_offset=1 + len(state)))


def state_of(content: bytes) -> dict[int, bytes]:
    found = {}
    for batch in batches(content):
        if not batch.is_control:
            for record in batch.records():
                assert record.key is not None and record.value is not None
                found[int(record.key)] = bytes(record.value)
    return found


class QuorumWorld:
    """Nodes 1 to N vote; the others observe."""

    def __init__(self, seed: int, *, voters: int | None = None, observers: int | None = None) -> None:
        self.chance = random.Random(seed)
        self.time = SimTime()
        count = voters or self.chance.choice((1, 3, 3, 3, 5))
        extra = observers if observers is not None else self.chance.choice((0, 1, 2))
        self.voters = VoterSet(Voter(node) for node in range(1, count + 1))
        self.settings = RaftSettings(snapshot_bytes_max=self.chance.choice((256, 1 << 20)))
        self.nodes = {node: SimNode(self, node) for node in range(1, count + extra + 1)}
        self.over_the_wire = seed % 10 == 0
        self.trouble = True
        self.loss = self.chance.choice((0.0, 0.02, 0.2))
        self.repeat = self.chance.choice((0.0, 0.05))
        self.delay_ms = self.chance.choice((1.0, 30.0, 700.0))
        self.cut: set[frozenset[int]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.trace: list[str] = []
        # What was seen, to check the guarantees.
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.promised: list[tuple[int, int, int, bytes]] = []

    # -- the network

    def at(self, delay_ms: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.time.ms + delay_ms, self._number, event))

    def send(self, source: SimNode, target_id: int, request: Message) -> None:
        target, life = self.nodes[target_id], source.life

        def lost() -> None:
            if source.life == life and source.replica is not None:
                source.replica.received(target_id, request, None)

        def answered(response: Message) -> None:
            if self.over_the_wire:
                response = type(response).decode(response.encode(response.MAX_VERSION), response.MAX_VERSION)

            def arrive() -> None:
                if source.life == life and source.replica is not None and not self._is_cut(target_id, source.node_id):
                    self.trace.append(f"{target_id}>{source.node_id} {type(response).__name__}")
                    source.replica.received(target_id, request, response)
                    self.step(source)

            self._deliver(arrive)

        def arrive() -> None:
            if target.replica is None or self._is_cut(source.node_id, target_id):
                self.at(5.0, lost)
                return
            asked = request
            if self.over_the_wire:
                asked = type(request).decode(request.encode(request.MAX_VERSION), request.MAX_VERSION)
            self.trace.append(f"{source.node_id}>{target_id} {type(request).__name__}")
            target.replica.handle(asked, lambda response: self._given(target, asked, response, answered))
            self.step(target)

        self._deliver(arrive)

    def _given(self, node: SimNode, request: Message, response: Message, answered: Callable[[Message], None]) -> None:
        if isinstance(request, VoteRequest):
            asked, given = partition_of(request), partition_of(response)
            if given.vote_granted and not asked.pre_vote:
                vote = self.votes.setdefault((node.node_id, asked.replica_epoch), asked.replica_id)
                if vote != asked.replica_id:
                    raise Violation(f"node {node.node_id} voted twice in epoch {asked.replica_epoch}")
        answered(response)

    def _deliver(self, arrive: Callable[[], None]) -> None:
        if self.trouble and self.chance.random() < self.loss:
            return
        copies = 2 if self.trouble and self.chance.random() < self.repeat else 1
        for _ in range(copies):
            self.at(self.chance.random() * (self.delay_ms if self.trouble else 2.0), arrive)

    def _is_cut(self, a: int, b: int) -> bool:
        return frozenset((a, b)) in self.cut

    # -- steps

    def step(self, node: SimNode) -> None:
        """Let a node do its next step, then check it."""
        replica = node.replica
        if replica is None:
            return
        due_ms, life = replica.poll(), node.life
        if due_ms < node.wake_at_ms:
            node.wake_at_ms = due_ms
            self.at(max(due_ms - self.time.ms, 0.0) + 0.01, lambda: self._wake(node, life, due_ms))
        node.follow()
        self.check(node)

    def _wake(self, node: SimNode, life: int, due_ms: float) -> None:
        if node.life == life and node.replica is not None and node.wake_at_ms == due_ms:
            node.wake_at_ms = float("inf")
            self.step(node)

    def run(self) -> "QuorumWorld":
        for node in self.nodes.values():
            self._start(node)
        for _ in range(STEPS):
            self._advance()
            self._make_trouble()
        self._settle()
        return self

    def _advance(self) -> None:
        if self._events:
            when, _, event = heapq.heappop(self._events)
            self.time.ms = max(self.time.ms, when)
            event()

    def _start(self, node: SimNode) -> None:
        node.start()
        self.trace.append(f"start {node.node_id}")
        self.step(node)

    def _make_trouble(self) -> None:
        dice = self.chance.random()
        node = self.chance.choice(list(self.nodes.values()))
        if dice < 0.25:
            self._append()
        elif dice < 0.26:
            if node.replica is None:
                self._start(node)
            else:
                self.trace.append(f"crash {node.node_id}")
                node.crash()
                down = self.chance.random() * 5000
                self.at(down, lambda: self._start(node) if node.replica is None else None)
        elif dice < 0.265:
            ids = list(self.nodes)
            self.chance.shuffle(ids)
            side = ids[: self.chance.randrange(len(ids) + 1)]
            self.cut = {frozenset((a, b)) for a in side for b in ids if b not in side}
            self.at(self.chance.random() * 8000, self.cut.clear)
        elif dice < 0.275 and node.replica is not None:
            node.take_snapshot()
            self.step(node)
        elif dice < 0.277 and node.replica is not None:
            node.replica.resign()
            self.step(node)

    def _append(self) -> None:
        """A client writes to a node that believes it leads; the write counts when the high watermark is past it."""
        leaders = [n for n in self.nodes.values() if n.replica is not None and n.replica.leading is not None]
        if leaders:
            node = self.chance.choice(leaders)
            replica = node.replica
            assert replica is not None
            value = f"{len(self.promised)} of {node.node_id}".encode()
            offset = replica.log.end_offset
            self.promised.append((node.node_id, replica.epoch, offset, value))
            replica.write([build_batch([Record(0, self.time.now_ms(), None, value)])])
            self.step(node)

    def _settle(self) -> None:
        self.trouble = False
        self.cut.clear()
        for node in self.nodes.values():
            if node.replica is None:
                self._start(node)
        until = self.time.ms + SETTLE_MS
        appended = False
        while self.time.ms < until and self._events:
            self._advance()
            leaders = [n for n in self.nodes.values() if n.replica is not None and n.replica.leading is not None]
            if not appended and self.time.ms > until - SETTLE_MS + 10_000.0 and len(leaders) == 1:
                self._append()
                appended = True
            if appended and self._agree():
                return
        raise Violation("the quorum did not come to agree after all troubles were over")

    def _agree(self) -> bool:
        ends = {n.replica.log.end_offset for n in self.nodes.values() if n.replica is not None}
        return len(ends) == 1 and all(node.applied_to in ends for node in self.nodes.values())

    # -- promises

    def check(self, node: SimNode) -> None:
        replica = node.replica
        assert replica is not None
        self._check_leader(node, replica)
        self._check_log(node, replica)
        self._check_committed(node, replica)

    def _check_leader(self, node: SimNode, replica: RaftReplica) -> None:
        if replica.leading is None:
            return
        known = self.leaders.setdefault(replica.epoch, node.node_id)
        if known != node.node_id:
            raise Violation(f"election safety: nodes {known} and {node.node_id} lead epoch {replica.epoch}")
        if node.led_epoch != replica.epoch:
            node.led_epoch = replica.epoch
            for offset, (epoch, _) in self.committed.items():
                if offset >= replica.log.start_offset and (
                    offset >= replica.log.end_offset or replica.log.log.epochs.epoch_for_offset(offset) != epoch
                ):
                    raise Violation(f"leader completeness: the leader of {replica.epoch} lacks offset {offset}")

    def _check_log(self, node: SimNode, replica: RaftReplica) -> None:
        """Each entry is the same on all nodes, and so is the one before it. By induction, all earlier entries match."""
        log = replica.log
        if log.log.truncations:
            log.log.truncations = 0
            node.checked_to = 0
        if log.end_offset <= node.checked_to:
            return
        begin = max(log.start_offset, node.checked_to - 1)
        previous = -1
        for batch in log.log.batches(begin):
            if previous >= 0:
                entry = (bytes(batch.view()), previous)
                if self.entries.setdefault((batch.base_offset, batch.leader_epoch), entry) != entry:
                    raise Violation(f"log matching: offset {batch.base_offset} of node {node.node_id} differs")
            previous = batch.leader_epoch
        node.checked_to = log.end_offset

    def _check_committed(self, node: SimNode, replica: RaftReplica) -> None:
        log = replica.log
        if log.high_watermark > node.committed_to:
            for batch in log.log.batches(max(node.committed_to, log.start_offset), log.high_watermark):
                entry = (batch.leader_epoch, bytes(batch.view()))
                if self.committed.setdefault(batch.base_offset, entry) != entry:
                    raise Violation(
                        f"state machine safety: node {node.node_id} commits another offset {batch.base_offset}"
                    )
            node.committed_to = log.high_watermark
        for offset, value in node.new.items():
            if self.acknowledged.setdefault(offset, value) != value:
                raise Violation(f"state machine safety: node {node.node_id} applied another value at {offset}")
        node.new = {}


def run_quorum_seed(seed: int, **options: Any) -> QuorumWorld:
    """Raises Violation, with the seed, if a guarantee was broken."""
    world = QuorumWorld(seed, **options)
    try:
        return world.run()
    except (Violation, AssertionError, KafkaStorageError) as error:
        raise Violation(f"seed {seed}: {error}") from error
