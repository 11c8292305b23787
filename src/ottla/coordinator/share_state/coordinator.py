"""The share coordinator: all shards of this broker, found by share partition (Kafka: ShareCoordinatorService)."""

from __future__ import annotations

from ottla.clock import Clock, Timer
from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.share_state.settings import ShareStateSettings
from ottla.coordinator.share_state.shard import ShareStateShard


class ShareCoordinator(CoordinatorRuntime[ShareStateShard]):
    """The state of share partitions in the partitions of `__share_group_state` that this broker leads."""

    __slots__ = ("_clock", "_timer", "settings")

    def __init__(self, settings: ShareStateSettings, clock: Clock, timer: Timer, loader: Loader) -> None:
        super().__init__(loader, settings.partitions)
        self.settings = settings
        self._clock = clock
        self._timer = timer

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> None:
        self._is_running = False
        self.resign_all()

    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> ShareStateShard:
        return ShareStateShard(partition, writer, self.settings, self._clock, self._timer)
