"""Access to the share coordinators: this broker's own, for the partitions of `__share_group_state` that it leads,
and those of other brokers, over the requests between brokers (83 to 87).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.share_state.coordinator import ShareCoordinator
from ottla.coordinator.share_state.settings import ShareStateSettings
from ottla.coordinator.share_state.shard import ShareStateShard
from ottla.coordinator.share_state.state import ShareKey, ShareState, StateBatch
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.image import TopicState
from ottla.metadata.topics import SHARE_STATE_TOPIC
from ottla.server.coordinator_host import CoordinatorHost
from ottla.server.share import requests
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.services import CoordinatorServices

logger = logging.getLogger(__name__)

Outcome = Mapping[tuple[bytes, int], KafkaError | None]
CreateTopic = Callable[[Callable[[KafkaError | None], None]], None]
"""Creates the topic of share state; calls back when it can be used."""
Operation = Callable[[ShareStateShard], Result[Any]]

NOT_NOW = (CoordinatorNotAvailable, CoordinatorLoadInProgress, NotCoordinator)
"""Errors of a share coordinator that is not available now: the request is retried."""
RETRY_MS = 100
ATTEMPTS = 50
"""For requests that nothing else would repeat."""


class ShareStates:
    """The share coordinator of a broker, and access to those of others."""

    def __init__(self, services: CoordinatorServices, create_topic: CreateTopic) -> None:
        self._services = services
        self._create_topic = create_topic
        self.host: CoordinatorHost[ShareCoordinator] = CoordinatorHost(services, SHARE_STATE_TOPIC, self._make)
        self.metadata_changed = self.host.metadata_changed
        self.host.start()
        services.replicas.on_topic_removed.append(self._topic_removed)
        self._prune_interval_ms = services.config["share.coordinator.state.topic.prune.interval.ms"]
        self._timer = services.timer.schedule(self._prune_interval_ms, self._prune)

    @property
    def coordinator(self) -> ShareCoordinator:
        return self.host.coordinator

    def _make(self) -> ShareCoordinator:
        services = self._services
        settings = ShareStateSettings.from_config(services.config)
        return ShareCoordinator(settings, services.clock, services.timer, services.loader())

    def stop(self) -> None:
        self._timer.cancel()
        self.host.stop()

    def _topic_removed(self, topic: TopicState) -> None:
        if topic.name == SHARE_STATE_TOPIC:
            return  # the host resigns

        def forget(shard: ShareStateShard) -> None:
            try:
                shard.run(shard.topic_tombstones(topic.topic_id))
            except KafkaError as error:
                logger.warning("share state of the deleted topic %s is not removed: %s", topic.name, error)

        self.coordinator.on_every_shard(forget)

    def _prune(self) -> None:
        """Delete records that newer snapshots replace; take snapshots of states that keep old records alive."""
        self._timer = self._services.timer.schedule(self._prune_interval_ms, self._prune)
        for shard in self.coordinator.shards():
            try:
                partition = self._services.replicas.leader(SHARE_STATE_TOPIC, shard.partition)
                middle = (partition.log_start_offset + partition.high_watermark) // 2
                if shard.first_needed_offset() < middle and partition.high_watermark - middle > len(shard.states):
                    shard.run(shard.snapshot_older_than(middle))
                needed = min(shard.first_needed_offset(), partition.high_watermark)
                if needed > partition.log_start_offset:
                    partition.delete_records(needed)
            except KafkaError as error:
                logger.warning("partition %d of %s is not pruned: %s", shard.partition, SHARE_STATE_TOPIC, error)

    # -- requests

    def run(self, key: ShareKey, operation: Operation) -> Any:
        """Run an operation on the shard that keeps `key`, if it is here; a value, or a `Reply`."""
        if key.partition < 0:
            raise InvalidRequest("The partition id cannot be a negative number.")
        shard = self.coordinator.shard_for(str(key))
        return shard.run(operation(shard))

    def ask(
        self,
        key: ShareKey,
        operation: Operation,
        remote: Callable[[], Message],
        done: Callable[..., None],
        attempts: int = 1,
        again_for: tuple[type[KafkaError], ...] = NOT_NOW,
    ) -> None:
        """Run an operation here, or on the broker that coordinates `key`: `done(answer, error)`."""

        def answered(answer: Any, error: KafkaError | None) -> None:
            if attempts > 1 and isinstance(error, again_for):
                self._services.timer.schedule(
                    RETRY_MS, lambda: self.ask(key, operation, remote, done, attempts - 1, again_for)
                )
            else:
                done(answer, error)

        try:
            if SHARE_STATE_TOPIC not in self._services.metadata.topics:
                self._create_topic(lambda error: self._ask(key, operation, remote, answered, error))
            else:
                self._ask(key, operation, remote, answered, None)
        except KafkaError as error:
            answered(None, error)

    def _ask(
        self,
        key: ShareKey,
        operation: Operation,
        remote: Callable[[], Message],
        done: Callable[..., None],
        error: KafkaError | None,
    ) -> None:
        if error is not None:
            done(None, error)
            return
        leader = self._services.directory.coordinator_of(SHARE_STATE_TOPIC, str(key))
        if leader != self._services.node_id:
            self._services.channel.send(leader, remote()).listen(lambda reply: _tell(reply, done))
            return
        answer = self.run(key, operation)
        if isinstance(answer, Reply):
            _when_settled(answer, done)
        else:
            done(answer, None)

    # -- for group coordinators and partition leaders

    def initialize(
        self,
        group_id: str,
        state_epoch: int,
        offsets: Mapping[bytes, Mapping[int, int]],
        done: Callable[[Outcome], None],
    ) -> None:
        places = [(topic_id, index, offset) for topic_id, each in offsets.items() for index, offset in each.items()]
        gathering = _Gathering(len(places), done)
        for topic_id, index, offset in places:
            key = ShareKey(group_id, topic_id, index)

            def operation(shard: ShareStateShard, key: ShareKey = key, offset: int = offset) -> Result[None]:
                return shard.initialize(key, state_epoch, offset)

            self.ask(
                key,
                operation,
                lambda key=key, offset=offset: requests.initialize(key, state_epoch, offset),  # type: ignore[misc]
                gathering.one((topic_id, index)),
                ATTEMPTS,
                (*NOT_NOW, UnknownTopicOrPartition),  # the other broker may not know a new topic yet
            )

    def delete(
        self, group_id: str, partitions: Mapping[bytes, frozenset[int]], done: Callable[[Outcome], None]
    ) -> None:
        places = [(topic_id, index) for topic_id, indexes in partitions.items() for index in sorted(indexes)]
        gathering = _Gathering(len(places), done)
        for place in places:
            key = ShareKey(group_id, *place)

            def operation(shard: ShareStateShard, key: ShareKey = key) -> Result[None]:
                return shard.delete(key)

            self.ask(
                key,
                operation,
                lambda key=key: requests.delete(key),  # type: ignore[misc]
                _gone_is_deleted(gathering.one(place)),
                ATTEMPTS,
            )

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | None, KafkaError | None], None]
    ) -> None:
        self.ask(key, lambda shard: shard.read(key, leader_epoch), lambda: requests.read(key, leader_epoch), done)

    def summary(self, key: ShareKey, done: Callable[[ShareState | None, KafkaError | None], None]) -> None:
        """The start offset of a share partition, if it has state."""
        self.ask(key, lambda shard: shard.summary(key), lambda: requests.summary(key), done)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        done_count: int,
        batches: Sequence[StateBatch],
        done: Callable[..., None],
    ) -> None:
        arguments = (state_epoch, leader_epoch, start_offset, done_count, batches)
        self.ask(key, lambda shard: shard.write(key, *arguments), lambda: requests.write(key, *arguments), done)


class _Gathering:
    """Collects several answers."""

    def __init__(self, count: int, done: Callable[[Outcome], None]) -> None:
        self._left = count
        self._done = done
        self._outcome: dict[tuple[bytes, int], KafkaError | None] = {}
        if not count:
            done({})

    def one(self, place: tuple[bytes, int]) -> Callable[..., None]:
        def answered(answer: Any, error: KafkaError | None) -> None:
            self._outcome[place] = error
            self._left -= 1
            if not self._left:
                self._done(self._outcome)

        return answered


def _gone_is_deleted(done: Callable[..., None]) -> Callable[..., None]:
    """The state of a deleted topic was deleted with it."""
    return lambda answer, error: done(answer, None if isinstance(error, UnknownTopicOrPartition) else error)


def _when_settled(reply: Reply[Any], done: Callable[..., None]) -> None:
    def settled(reply: Reply[Any]) -> None:
        error = reply.error
        if error is not None and not isinstance(error, KafkaError):
            error = UnknownServerError()
        done(None if error is not None else reply.value, error)

    reply.when_done(settled)


def _tell(reply: Reply[Any], done: Callable[..., None]) -> None:
    if reply.error is not None:
        done(None, CoordinatorNotAvailable())
    else:
        requests.tell(reply.value, done)
