"""A Raft replica in the cluster: its messages go over the cluster's network, and it uses the cluster's clock.

Between nodes without a delay, messages are delivered immediately, one after the other, so a leader's writes are
committed before the call returns. Over slow, cut or paused links, messages go through the simulated network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.raft.quorum_state import QuorumStateFile
from ottla.raft.raft_log import RaftLog
from ottla.raft.replica import NEVER_MS, RaftContext, RaftReplica, RaftSettings
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer, TimerHandle
    from ottla.config import Config
    from ottla.log.files import Disk
    from ottla.log.log import Log
    from ottla.metadata.controller import Randomness
    from ottla.multibroker.network import Network


LATE_MS = 50
"""A timer that fires this late means that the process was busy or stopped."""


def raft_settings(config: Config) -> RaftSettings:
    return RaftSettings(
        election_timeout_ms=config["controller.quorum.election.timeout.ms"],
        fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
        request_timeout_ms=config["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
        fetch_max_wait_ms=min(500, config["controller.quorum.fetch.timeout.ms"] // 4),
        snapshot_bytes_max=config["controller.quorum.fetch.snapshot.max.bytes"],
    )


class RaftNetwork:
    """The nodes of the quorum, and the messages between nodes without a delay."""

    def __init__(self, network: Network, timer: Timer, clock: Clock) -> None:
        self.network = network
        self.timer = timer
        self.clock = clock
        self.nodes: dict[int, RaftNode] = {}
        self._queue: deque[Callable[[], None]] = deque()
        self._is_delivering = False

    def post(self, delivery: Callable[[], None]) -> None:
        self._queue.append(delivery)

    def deliver(self) -> None:
        """Deliver messages until none is left. A nested call leaves the remaining messages to the outer one."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._is_delivering = False


class RaftNode:
    """One replica, driven by messages and timers."""

    def __init__(
        self,
        raft_network: RaftNetwork,
        key: ReplicaKey,
        cluster_id: str,
        disk: Disk,
        log: Log,
        voters: VoterSet,
        settings: RaftSettings,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """`clock` is the clock of the node, which may be wrong."""
        self._links = raft_network
        self.node_id = key.node_id
        self.replica = RaftReplica(
            key,
            cluster_id,
            RaftLog(disk, log),
            QuorumStateFile(disk, log.folder),
            voters,
            settings,
            RaftContext(self._send, clock.monotonic_ms, clock.now_ms, randomness),
        )
        self.on_step: list[Callable[[], None]] = []
        """Called when something may have changed: the leader, the high watermark, the log."""
        self._timer: TimerHandle | None = None
        self._due_ms = NEVER_MS
        self.is_running = False

    def start(self) -> None:
        if self.is_running:
            return
        self.is_running = True
        self._links.nodes[self.node_id] = self
        self.replica.start()
        self.step()

    def stop(self) -> None:
        """Called when the node has stopped, for any reason."""
        self.is_running = False
        if self._links.nodes.get(self.node_id) is self:
            del self._links.nodes[self.node_id]
        if self._timer is not None:
            self._timer.cancel()

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do what is due, and report a possible change."""
        self._look()
        self._links.deliver()

    def _look(self) -> None:
        if not self.is_running or self._links.network.is_paused(self.node_id):
            return
        late_ms = self._links.clock.monotonic_ms() - self._due_ms
        if late_ms > LATE_MS:
            # The whole process was suspended, so the other nodes could not answer either.
            self.replica.postpone(late_ms)
        due_ms = self.replica.poll()
        if due_ms != self._due_ms or self._timer is None or not self._timer.pending:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ms = due_ms
            if due_ms != NEVER_MS:
                delay_ms = max(due_ms - self._links.clock.monotonic_ms(), 0.0)
                self._timer = self._links.timer.schedule(delay_ms, self.step)
        for listener in tuple(self.on_step):
            listener()

    def write(self, batches: Sequence[bytearray]) -> None:
        """Append as the leader; call `step` to have it replicated."""
        self.replica.write(batches)

    def resign(self) -> None:
        self.replica.resign()
        self.step()

    def stand_for_election(self) -> None:
        """Start an election without waiting for the timeout, unless a leader is known."""
        if self.is_running and self.replica.leader_id < 0 and self.replica.is_voter:
            self.replica.stand_for_election()
            self.step()

    # -- messages ----------------------------------------------------------------------------------------------

    def serve(self, request: Message) -> Reply[Message]:
        """Answer a request of another node, or of a client outside this process."""
        reply: Reply[Message] = Reply()
        self.replica.handle(request, reply.resolve)
        self.step()
        return reply

    def _send(self, target: int, request: Message) -> None:
        links = self._links
        peer = links.nodes.get(target)
        if peer is not None and links.network.is_direct(self.node_id, target):
            links.post(lambda: self._deliver(peer, request))
            return

        def serve() -> Any:
            current = links.nodes.get(target)
            return Reply() if current is None else current.serve(request)

        links.network.ask(self.node_id, target, serve, lambda response, _: self._received(target, request, response))

    def _deliver(self, peer: RaftNode, request: Message) -> None:
        if not peer.is_running:
            self._received(peer.node_id, request, None)
            return

        def answer(response: Message) -> None:
            links = self._links
            if links.network.is_direct(peer.node_id, self.node_id):
                links.post(lambda: self._received(peer.node_id, request, response))
            else:
                links.network.send(
                    peer.node_id,
                    self.node_id,
                    lambda: self._received(peer.node_id, request, response),
                    lambda: self._received(peer.node_id, request, None),
                )

        peer.replica.handle(request, answer)
        peer.step()

    def _received(self, node_id: int, request: Message, response: Any) -> None:
        if self.is_running:
            self.replica.received(node_id, request, response)
            self.step()
