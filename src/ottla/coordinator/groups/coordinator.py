"""The group coordinator: all shards of this broker, found by group id, and the sweep for expired offsets.

Requests arrive through `requests`, which chooses the shard and the protocol (Kafka: GroupCoordinatorService).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.clock import Clock, Timer, TimerHandle
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.runtime.interfaces import MetadataView, PartitionWriter
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """The groups of the partitions of `__consumer_offsets` that this broker leads."""

    __slots__ = ("_clock", "_image", "_random_uuid", "_sweep", "_timer", "settings")

    def __init__(
        self,
        image: MetadataView,
        settings: GroupSettings,
        clock: Clock,
        timer: Timer,
        random_uuid: Callable[[], bytes],
        loader: Loader,
    ) -> None:
        super().__init__(loader, settings.offsets_partitions)
        self._random_uuid = random_uuid
        self._image = image
        self.settings = settings
        self._clock = clock
        self._timer = timer
        self._sweep: TimerHandle | None = None

    # -- lifecycle

    def start(self) -> None:
        self._is_running = True
        self._schedule_sweep()

    def stop(self) -> None:
        """Answer all waiting requests and cancel all timers."""
        self._is_running = False
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.resign_all()

    def _schedule_sweep(self) -> None:
        self._sweep = self._timer.schedule(self.settings.offsets_check_interval_ms, self._expire)

    def _expire(self) -> None:
        for shard in self.shards():
            try:
                shard.expire()
            except KafkaError as error:
                logger.warning("expired offsets of partition %d stay for now: %s", shard.partition, error.message)
        self._schedule_sweep()

    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> GroupShard:
        return GroupShard(partition, writer, self._image, self.settings, self._clock, self._timer, self._random_uuid)

    # -- events from the cluster's metadata

    def on_topic_deleted(self, name: str, topic_id: bytes) -> None:
        self.on_topics_changed(deleted=[name])
        self.on_every_shard(lambda shard: shard.on_topic_id_deleted(topic_id))

    def on_topics_changed(
        self, *, created: Iterable[str] = (), changed: Iterable[str] = (), deleted: Iterable[str] = ()
    ) -> None:
        """Topics were created, extended, moved or deleted. Call this after the metadata has changed."""
        new, gone = list(created), list(deleted)
        names = [*new, *changed, *gone]

        def look_again(shard: GroupShard) -> None:
            shard.on_topics_changed(names, has_new=bool(new))
            if gone:
                shard.on_topics_deleted(gone)

        self.on_every_shard(look_again)
