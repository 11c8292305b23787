"""A leader with followers: their progress, the committed offset, and the ISR.

The path of an append: the leader's log grows. A follower fetches from the end of its own log, appends, and confirms
this with the offset of its next fetch. When the whole ISR is past an offset, it is committed, and the high watermark
advances. The next fetch responses carry it to the followers.

A leader cannot change the ISR itself: it proposes a change, and the controller decides (KIP-497). Until then, both a
joining and a leaving replica hold back the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Protocol

from ottla.errors import KafkaError, NotEnoughReplicas, NotLeaderOrFollower, UnknownLeaderEpoch
from ottla.metadata.image import MetadataImage, PartitionState

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.log.log import Log

Committed = Callable[[KafkaError | None], object]


class ReplicaWatcher(Protocol):
    """A follower's fetch that waits for the log to grow, or for the high watermark to move."""

    def grown(self, leadership: Leadership) -> None: ...


class Throttle(Protocol):
    """A limit on the traffic to replicas that catch up (KIP-73)."""

    @property
    def is_exceeded(self) -> bool: ...

    def concerns(self, topic: str, index: int) -> bool: ...

    def record(self, byte_count: int) -> None: ...


class ReplicationContext(Protocol):
    """The broker's services for a leader."""

    image: MetadataImage
    clock: Clock
    kept_out: Collection[tuple[str, int, int]]
    """(topic, partition, broker) of replicas that must stay out of the ISR."""
    throttle: Throttle

    @property
    def lag_max_ms(self) -> int: ...

    def min_isr(self, topic: str) -> int:
        """The setting, which may exceed the number of replicas."""
        ...

    def propose(self, leadership: Leadership, isr: list[int]) -> None:
        """Ask the controller to change the ISR."""
        ...


class Follower:
    """A follower, known from its fetches."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetch_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: float) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.caught_up_ms = caught_up_ms
        """When it last had all of the leader's records."""
        self.fetch_ms = 0.0
        self.leader_end_at_fetch = -1
        self.broker_epoch = -1

    def fetched(self, offset: int, log_start_offset: int, leader_end: int, now_ms: float, broker_epoch: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            # It now has everything up to its last fetch. Under constant writes it never reaches the leader's current
            # end.
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms
        self.broker_epoch = broker_epoch


class Leadership:
    """One partition's leader, for one leader epoch."""

    __slots__ = (
        "_context",
        "_on_advance",
        "_order",
        "_trimming",
        "_waiting",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "leader_epoch",
        "log",
        "proposed",
        "proposed_epoch",
        "replica_watchers",
        "state",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        state: PartitionState,
        log: Log,
        broker_id: int,
        context: ReplicationContext,
        on_advance: Callable[[], None],
    ) -> None:
        self.topic = topic
        self.state = state
        self.log = log
        self.broker_id = broker_id
        self._context = context
        self._on_advance = on_advance
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        # Assigned even if nothing is written in this epoch: followers with newer epochs need it to find where they
        # diverge.
        if state.leader_epoch > log.epochs.latest:
            log.epochs.assign(state.leader_epoch, log.log_end_offset)
        self.followers: dict[int, Follower] = {}
        self.proposed: list[int] | None = None
        """The ISR proposed to the controller."""
        self.proposed_epoch = -1
        self.replica_watchers: set[ReplicaWatcher] = set()
        self._waiting: list[tuple[int, int, Committed]] = []
        self._order = count()
        self._trimming: list[tuple[int, Committed]] = []
        self._follow_assignment()

    def __repr__(self) -> str:
        return f"Leadership({self.topic}-{self.state.index}, epoch {self.leader_epoch}, isr {self.state.isr})"

    # -- metadata ----------------------------------------------------------------------------------------------

    def _follow_assignment(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        replicas = [replica for replica in self.state.replicas if replica != self.broker_id]
        for replica in replicas:
            if replica not in self.followers:
                # An in-sync replica gets the full lag time to fetch. Any other must catch up first.
                self.followers[replica] = Follower(replica, now_ms if replica in self.state.isr else float("-inf"))
        for replica in set(self.followers).difference(replicas):
            del self.followers[replica]

    def metadata_changed(self) -> None:
        """The controller changed the replicas or the ISR within this leader epoch."""
        self._follow_assignment()
        if self.proposed is not None and self.state.partition_epoch > self.proposed_epoch:
            self.proposed = None
        self.advance()

    def resign(self) -> None:
        """Another broker leads now, or none: requests that wait for a commit fail."""
        waiting, self._waiting = self._waiting, []
        for _, _, committed in waiting:
            committed(NotLeaderOrFollower())
        trimming, self._trimming = self._trimming, []
        for _, trimmed in trimming:
            trimmed(NotLeaderOrFollower())
        for watcher in tuple(self.replica_watchers):
            watcher.grown(self)

    # -- committed offsets -------------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        return min(self._context.min_isr(self.topic), len(self.state.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.min_isr

    def check_enough_replicas(self) -> None:
        """Refuse an append with acks=all if the ISR is too small."""
        if self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"The size of the current ISR {self.state.isr} is insufficient to satisfy the min.isr requirement of "
                f"{self._context.min_isr(self.topic)} for partition {self.topic}-{self.state.index}"
            )

    def grown(self) -> None:
        """The leader appended something."""
        self.advance()
        for watcher in tuple(self.replica_watchers):
            watcher.grown(self)

    def advance(self) -> None:
        """Move the high watermark to the least end offset of the ISR and of the replicas that are about to join it."""
        if self.is_under_min_isr:
            return  # a replica that left the ISR may be elected from the ELR, so it must have all committed records
        log = self.log
        target = log.log_end_offset
        isr, proposed = self.state.isr, self.proposed
        now_ms = self._context.clock.monotonic_ms()
        for follower in self.followers.values():
            if follower.log_end_offset < target and (
                follower.broker_id in isr
                or (proposed is not None and follower.broker_id in proposed)
                or (self._is_caught_up(follower, now_ms) and self._may_join(follower))
            ):
                target = follower.log_end_offset
        if target <= log.high_watermark:
            return
        log.update_high_watermark(target)
        waiting = self._waiting
        while waiting and waiting[0][0] < target:
            heappop(waiting)[2](None)
        self._on_advance()
        for watcher in tuple(self.replica_watchers):
            watcher.grown(self)

    def when_committed(self, offset: int, committed: Committed) -> None:
        """Call back when `offset` is below the high watermark, or when this leader can no longer commit it."""
        if offset < self.log.high_watermark:
            committed(None)
        else:
            heappush(self._waiting, (offset, next(self._order), committed))

    @property
    def low_watermark(self) -> int:
        """The least start offset among the live replicas."""
        starts = [
            follower.log_start_offset
            for follower in self.followers.values()
            if follower.broker_id in self._context.image.brokers
            and not self._context.image.brokers[follower.broker_id].fenced
        ]
        return min([self.log.log_start_offset, *starts])

    def when_trimmed(self, offset: int, trimmed: Committed) -> None:
        """Call back when the log starts at `offset` or later on every live replica (KIP-107)."""
        if self.low_watermark >= offset:
            trimmed(None)
            return
        self._trimming.append((offset, trimmed))
        for watcher in tuple(self.replica_watchers):
            watcher.grown(self)  # the response carries the log start offset to the follower

    def _check_trimmed(self) -> None:
        low = self.low_watermark
        done = [trimmed for offset, trimmed in self._trimming if offset <= low]
        self._trimming = [item for item in self._trimming if item[0] > low]
        for trimmed in done:
            trimmed(None)

    @property
    def throttle(self) -> Throttle | None:
        """The limit on outgoing replication traffic, if this replica is throttled."""
        throttle = self._context.throttle
        return throttle if throttle.concerns(self.topic, self.state.index) else None

    # -- followers ---------------------------------------------------------------------------------------------

    def check_follower(self, replica_id: int, broker_epoch: int, has_epoch: bool) -> Follower:
        """The follower that fetches. Refuses other brokers, and an epoch from before its last restart (KIP-903)."""
        follower = self.followers.get(replica_id)
        if follower is None:
            # With a valid epoch, the replica may be new, and the leader may not know it yet.
            raise UnknownLeaderEpoch() if has_epoch else NotLeaderOrFollower()
        known = self._context.image.brokers.get(replica_id)
        if broker_epoch != -1 and known is not None and known.epoch > broker_epoch:
            raise NotLeaderOrFollower()
        return follower

    def follower_fetched(self, follower: Follower, offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """A fetch from `offset` shows that the follower has everything below."""
        before = follower.log_end_offset
        now_ms = self._context.clock.monotonic_ms()
        follower.fetched(offset, log_start_offset, self.log.log_end_offset, now_ms, broker_epoch)
        if follower.broker_id not in self.state.isr:
            self._maybe_grow_isr(follower)
        if offset != before:
            self.advance()
        if self._trimming:
            self._check_trimmed()

    def _maybe_grow_isr(self, follower: Follower) -> None:
        if (
            self.proposed is None
            and follower.log_end_offset >= self.log.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
            and self._may_join(follower)
        ):
            self._propose([*self.state.isr, follower.broker_id])

    def _may_join(self, follower: Follower) -> bool:
        image = self._context.image
        known = image.brokers.get(follower.broker_id)
        return (
            known is not None
            and image.is_active(follower.broker_id)
            and (self.topic, self.state.index, follower.broker_id) not in self._context.kept_out
            and follower.broker_epoch in (-1, known.epoch)
            and follower.log_end_offset >= 0
        )

    def _is_caught_up(self, follower: Follower, now_ms: float) -> bool:
        return (
            follower.log_end_offset == self.log.log_end_offset
            or now_ms - follower.caught_up_ms <= self._context.lag_max_ms
        )

    def lagging(self) -> list[int]:
        """The replicas of the ISR that have not caught up for longer than `replica.lag.time.max.ms`."""
        now_ms = self._context.clock.monotonic_ms()
        return [
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id in self.state.isr and not self._is_caught_up(follower, now_ms)
        ]

    def maybe_shrink_isr(self) -> None:
        if self.proposed is None:
            lagging = self.lagging()
            if lagging:
                self.drop(lagging)

    def drop(self, replicas: Iterable[int]) -> None:
        """Propose an ISR without these replicas."""
        gone = set(replicas)
        self._propose([replica for replica in self.state.isr if replica not in gone])

    def _propose(self, replicas: Iterable[int]) -> None:
        isr = sorted(replicas)  # Kafka's leaders keep a set
        self.proposed = isr
        self.proposed_epoch = self.state.partition_epoch
        self._context.propose(self, isr)

    def settled(self, partition_epoch: int) -> None:
        """The controller accepted the proposal, perhaps without a change."""
        if partition_epoch <= self.proposed_epoch:
            self.proposed = None
        self.advance()

    def refused(self) -> None:
        """The controller refused the proposal. The partition is unchanged."""
        self.proposed = None
