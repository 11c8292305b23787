"""All shards of one coordinator on this broker (Kafka: CoordinatorRuntime).

A shard is created when the broker becomes the leader of a partition of the coordinator's topic. Until its log is
loaded, requests for this partition get COORDINATOR_LOAD_IN_PROGRESS; requests for other partitions are served.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.loader import Load, Loader
from ottla.coordinator.runtime.shard import CoordinatorShard
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError, NotCoordinator
from ottla.metadata.topics import internal_partition
from ottla.records.batch import Batch

logger = logging.getLogger(__name__)

ShardT = TypeVar("ShardT", bound=CoordinatorShard)


def _steps(shard: CoordinatorShard, batches: Iterable[Batch]) -> Iterator[int]:
    yield from shard.loading(batches)
    yield from shard.on_loaded()


class _Loading(Generic[ShardT]):
    """A shard that is loading, and the jobs to run on it afterwards."""

    __slots__ = ("afterwards", "load", "shard")

    def __init__(self, shard: ShardT, load: Load) -> None:
        self.shard = shard
        self.load = load
        self.afterwards: list[Callable[[ShardT], None]] = []


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of a coordinator that this broker leads, found by the keys that they hold."""

    __slots__ = ("_is_running", "_loader", "_loading", "_shards", "partition_count")

    def __init__(self, loader: Loader, partition_count: int) -> None:
        self._loader = loader
        self.partition_count = partition_count
        """The number of partitions of the coordinator's topic."""
        self._shards: dict[int, ShardT] = {}
        self._loading: dict[int, _Loading[ShardT]] = {}
        self._is_running = False

    @abstractmethod
    def start(self) -> None:
        """Start to serve requests, and start the timers."""

    @abstractmethod
    def stop(self) -> None:
        """Answer all waiting requests and cancel all timers."""

    @abstractmethod
    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> ShardT:
        """A shard without any state."""

    # -- leading

    def lead(self, partition: int, writer: PartitionWriter, batches: Iterable[Batch], leader_epoch: int = 0) -> ShardT:
        """This broker now leads a partition: load its log, then serve it."""
        self.resign(partition)
        shard = self.new_shard(partition, writer, leader_epoch)
        load = Load(
            f"partition {partition} of the {shard.LOG_NAME}",
            _steps(shard, batches),
            lambda error: self._loaded(loading, error),
        )
        loading = self._loading[partition] = _Loading(shard, load)
        self._loader.start(load)
        return shard

    def _loaded(self, loading: _Loading[ShardT], error: Exception | None) -> None:
        shard = loading.shard
        del self._loading[shard.partition]
        if error is not None:
            shard.on_unloaded()
            return
        self._shards[shard.partition] = shard
        for job in loading.afterwards:
            try:
                job(shard)
            except KafkaError as error:
                logger.warning("partition %d of the %s: %s", shard.partition, shard.LOG_NAME, error)

    def leads(self, partition: int, leader_epoch: int) -> bool:
        """Whether the partition is served or loading. A leader that stays one in a new epoch does not reload."""
        return partition in self._shards or partition in self._loading

    def resign(self, partition: int) -> None:
        loading = self._loading.pop(partition, None)
        if loading is not None:
            loading.load.cancel()
            loading.shard.on_unloaded()
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.on_unloaded()

    def resign_all(self) -> None:
        for partition in [*self._shards, *self._loading]:
            self.resign(partition)

    # -- shards

    def partition_for(self, key: str) -> int:
        return internal_partition(key, self.partition_count)

    def shard_for(self, key: str) -> ShardT:
        """The shard for `key`. Raises the error for the client if this broker does not serve it (yet)."""
        partition = internal_partition(key, self.partition_count)
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if not self._is_running:
            raise CoordinatorNotAvailable
        if partition in self._loading:
            raise CoordinatorLoadInProgress
        raise NotCoordinator

    def shard(self, partition: int) -> ShardT | None:
        """The shard of a partition; None while it is loading, or if another broker leads it."""
        return self._shards.get(partition)

    def keeps(self, shard: ShardT) -> bool:
        """Whether the shard is still the current one of its partition, loaded or not."""
        loading = self._loading.get(shard.partition)
        return shard is (self._shards.get(shard.partition) if loading is None else loading.shard)

    def shards(self) -> list[ShardT]:
        """The loaded shards."""
        return list(self._shards.values())

    def on_every_shard(self, job: Callable[[ShardT], None]) -> None:
        """Run a job on each shard: now, or as soon as it is loaded."""
        for shard in self.shards():
            job(shard)
        for loading in self._loading.values():
            loading.afterwards.append(job)

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    @property
    def loading_count(self) -> int:
        """The number of partitions that are loading."""
        return len(self._loading)
