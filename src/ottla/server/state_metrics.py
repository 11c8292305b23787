"""Metrics from a broker's current state: sizes, offsets, leaders, in-sync replicas, groups, lag, coordinators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.history import GENERATION
from ottla.lazy_imports import lazy
from ottla.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from prometheus_client import core as prometheus_core

    from ottla.coordinator.runtime.runtime import CoordinatorRuntime
    from ottla.server.broker import Broker
else:
    prometheus_core = lazy("prometheus_client.core")

HighWatermarks = Mapping[tuple[str, int], int]

_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("group", "topic", "partition")


class BrokerState:
    """A Prometheus collector. Everything is read when the page is scraped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.elsewhere: HighWatermarks = {}
        """High watermarks of partitions that other brokers lead."""

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        broker = self._broker
        identity = {"node_id": str(broker.node_id), "cluster_id": broker.cluster_id}
        yield prometheus_core.InfoMetricFamily("ottla_broker", "The broker.", identity)
        yield prometheus_core.GaugeMetricFamily("ottla_connections", "Open connections.", len(broker.connections))
        yield prometheus_core.GaugeMetricFamily("ottla_topics", "Topics.", len(broker.metadata.topics))
        yield from self._logs()
        yield from self._leadership()
        yield from self._groups()
        yield from self._offsets()
        yield from self._share_groups()
        yield from self._coordinators()

    def _logs(self) -> Iterator[Any]:
        size = prometheus_core.GaugeMetricFamily("ottla_log_bytes", "Bytes in a partition's log.", labels=_PARTITION)
        start = prometheus_core.GaugeMetricFamily(
            "ottla_log_start_offset", "First offset of a partition.", labels=_PARTITION
        )
        end = prometheus_core.GaugeMetricFamily(
            "ottla_log_end_offset", "Next offset of a partition.", labels=_PARTITION
        )
        high_watermark = prometheus_core.GaugeMetricFamily(
            "ottla_high_watermark", "Consumers read below this offset of a partition.", labels=_PARTITION
        )
        # Partitions that have not been used since the start are not opened for this.
        for partition in self._broker.replicas:
            key = (partition.topic, str(partition.index))
            size.add_metric(key, partition.log.size_bytes)
            start.add_metric(key, partition.log.log_start_offset)
            end.add_metric(key, partition.log.log_end_offset)
            high_watermark.add_metric(key, partition.high_watermark)
        yield from (size, start, end, high_watermark)

    def _leadership(self) -> Iterator[Any]:
        """For the partitions that this broker leads, so that a sum over all brokers counts each partition once."""
        in_sync = prometheus_core.GaugeMetricFamily(
            "ottla_isr_size", "In-sync replicas of a partition that this broker leads.", labels=_PARTITION
        )
        led = under_replicated = without_leader = 0
        for topic in self._broker.metadata.topics.values():
            for index, state in topic.partitions.items():
                without_leader += state.leader == NO_LEADER
                if state.leader == self._broker.node_id:
                    led += 1
                    under_replicated += len(state.isr) < len(state.replicas)
                    in_sync.add_metric((topic.name, str(index)), len(state.isr))
        yield prometheus_core.GaugeMetricFamily("ottla_leaders", "Partitions that this broker leads.", led)
        yield prometheus_core.GaugeMetricFamily(
            "ottla_under_replicated_partitions",
            "Partitions that this broker leads and that have fewer in-sync replicas than replicas.",
            under_replicated,
        )
        yield prometheus_core.GaugeMetricFamily(
            "ottla_partitions_without_leader", "Partitions of the cluster without a leader.", without_leader
        )
        yield in_sync

    def _groups(self) -> Iterator[Any]:
        """Groups of all kinds: classic, consumer, share and streams."""
        labels = ("group", "type")
        members = prometheus_core.GaugeMetricFamily("ottla_group_members", "Members of a group.", labels=labels)
        generation = prometheus_core.GaugeMetricFamily(
            "ottla_group_generation",
            "Generation (classic) or epoch of a group; each rebalance raises it.",
            labels=labels,
        )
        by_state = prometheus_core.GaugeMetricFamily(
            "ottla_groups_by_state", "Groups that this broker coordinates, by kind and state.", labels=("type", "state")
        )
        states: Counter[tuple[str, str]] = Counter()
        rebalances = 0
        for shard in self._broker.groups.shards():
            rebalances += shard.history.count(GENERATION)
            for group_id, group in shard.groups.items():
                key = (group_id, group.type_name.lower())
                members.add_metric(key, len(group.members))
                generation.add_metric(key, group.generation_or_epoch)
                states[group.type_name.lower(), group.state_name] += 1
        for state, count in states.items():
            by_state.add_metric(state, count)
        yield prometheus_core.GaugeMetricFamily("ottla_groups", "Groups that this broker coordinates.", states.total())
        yield prometheus_core.CounterMetricFamily(
            "ottla_rebalances", "Generations and epochs that groups have started on this broker.", rebalances
        )
        yield from (by_state, members, generation)

    def _offsets(self) -> Iterator[Any]:
        lag = prometheus_core.GaugeMetricFamily(
            "ottla_group_lag", "Records that a group has not read, by partition.", labels=_GROUP_PARTITION
        )
        for shard in self._broker.groups.shards():
            for group_id, topics in shard.offsets.groups.items():
                for topic, committed in topics.items():
                    for index, position in committed.items():
                        partition = self._broker.replicas.get(topic, index)
                        high_watermark = (
                            partition.high_watermark if partition is not None else self.elsewhere.get((topic, index))
                        )
                        if high_watermark is not None:
                            behind = max(0, high_watermark - position[1].offset)
                            lag.add_metric((group_id, topic, str(index)), behind)
        yield lag

    def _share_groups(self) -> Iterator[Any]:
        """For the partitions that this broker leads: their readers are known here, wherever the group is
        coordinated.
        """
        share = self._broker.coordinators.share_in_use
        held = prometheus_core.GaugeMetricFamily(
            "ottla_share_acquired", "Records that members of a share group have acquired.", labels=_GROUP_PARTITION
        )
        lag = prometheus_core.GaugeMetricFamily(
            "ottla_share_lag", "Records that a share group has not finished.", labels=_GROUP_PARTITION
        )
        for group_id, reader in () if share is None else share.readers():
            partition, in_flight = reader.partition, reader.share.in_flight
            key = (group_id, partition.topic, str(partition.index))
            held.add_metric(key, in_flight.acquired_count)
            lag.add_metric(key, max(0, partition.high_watermark - in_flight.start - in_flight.done_count))
        sessions = 0 if share is None else len(share.sessions)
        yield prometheus_core.GaugeMetricFamily(
            "ottla_share_sessions", "Sessions of members of share groups.", sessions
        )
        yield from (held, lag)

    def _coordinators(self) -> Iterator[Any]:
        loaded = prometheus_core.GaugeMetricFamily(
            "ottla_coordinator_partitions", "Partitions that a coordinator serves.", labels=("coordinator",)
        )
        loading = prometheus_core.GaugeMetricFamily(
            "ottla_coordinator_loading", "Partitions that a coordinator is loading.", labels=("coordinator",)
        )
        coordinators = self._broker.coordinators
        share = coordinators.share_in_use
        runtimes: dict[str, CoordinatorRuntime[Any] | None] = {
            "group": coordinators.groups.host.in_use,
            "transaction": coordinators.transactions.host.in_use,
            "share": None if share is None else share.states.host.in_use,
        }
        for name, runtime in runtimes.items():
            loaded.add_metric((name,), 0 if runtime is None else len(runtime.shards()))
            loading.add_metric((name,), 0 if runtime is None else runtime.loading_count)
        yield from (loaded, loading)
