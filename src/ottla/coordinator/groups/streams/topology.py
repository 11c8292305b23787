"""The topology as its members describe it, and its configuration in this cluster.

A subtopology reads source topics and repartition topics, and writes repartition topics that others read. State stores
are backed by changelog topics. A repartition topic has the requested number of partitions, or as many as the largest
input topic of the subtopologies that write to it; copartitioned topics all have the same number. Changelogs have one
partition for each task. The broker creates missing internal topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.coordinator.runtime.interfaces import MetadataView
from ottla.errors import StreamsInvalidTopology, UnknownServerError
from ottla.metadata.topics import java_hash
from ottla.wire.stored.streams_groups import StreamsGroupTopologyValue

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo

STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5

NAMED_MAX = 3
"""The maximum number of missing topics that a message names."""


class Topology:
    """A topology, from its record."""

    __slots__ = ("epoch", "required", "sources", "stored", "subtopologies")

    def __init__(self, stored: StreamsGroupTopologyValue) -> None:
        self.stored = stored
        self.epoch = stored.epoch
        self.subtopologies: dict[str, Subtopology] = {each.subtopology_id: each for each in stored.subtopologies}
        self.sources: dict[str, str] = {}
        """The subtopology that reads a topic."""
        required: set[str] = set()
        for name, subtopology in self.subtopologies.items():
            self.sources.update(dict.fromkeys(read_topics(subtopology), name))
            required.update(topic.name for topic in subtopology.state_changelog_topics)
        self.required = frozenset(required.union(self.sources))

    def is_like(self, other: Topology) -> bool:
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    @classmethod
    def from_request(cls, topology: Any) -> Topology:
        ids = [each.subtopology_id for each in topology.subtopologies]
        if len(ids) != len(set(ids)) or topology.epoch < 0:
            raise UnknownServerError
        return cls(
            StreamsGroupTopologyValue(
                epoch=topology.epoch,
                subtopologies=[
                    Subtopology(
                        subtopology_id=each.subtopology_id,
                        source_topics=each.source_topics,
                        source_topic_regex=each.source_topic_regex,
                        state_changelog_topics=[_stored_topic(topic) for topic in each.state_changelog_topics],
                        repartition_sink_topics=each.repartition_sink_topics,
                        repartition_source_topics=[_stored_topic(topic) for topic in each.repartition_source_topics],
                        copartition_groups=[
                            StreamsGroupTopologyValue.CopartitionGroup(
                                source_topics=group.source_topics,
                                source_topic_regex=group.source_topic_regex,
                                repartition_source_topics=group.repartition_source_topics,
                            )
                            for group in each.copartition_groups
                        ],
                    )
                    for each in topology.subtopologies
                ],
            )
        )


def _stored_topic(topic: Any) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[
            StreamsGroupTopologyValue.TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs
        ],
    )


def read_topics(subtopology: Subtopology) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


class InternalTopic(NamedTuple):
    """The required form of a repartition or changelog topic."""

    name: str
    partitions: int
    replication_factor: int
    """0 means the broker's default."""
    configs: dict[str, str]


class ConfiguredSubtopology(NamedTuple):
    task_count: int
    source_topics: frozenset[str]
    sink_topics: frozenset[str]
    repartition_topics: dict[str, InternalTopic]
    changelog_topics: dict[str, InternalTopic]


class Problem(NamedTuple):
    """Why nothing can be assigned yet, for the status in heartbeat responses."""

    status: int
    detail: str


class ConfiguredTopology(NamedTuple):
    epoch: int
    subtopologies: dict[str, ConfiguredSubtopology] | None = None
    """In the order of their names; None if even the number of tasks is unknown."""
    missing: Mapping[str, InternalTopic] = {}
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Unfit(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


def configure(topology: Topology, image: MetadataView) -> ConfiguredTopology:
    """Configure the topology for this cluster's topics. Raises only if the topology itself is invalid."""
    subtopologies = topology.subtopologies
    together = [group for each in subtopologies.values() for group in _read_together(each)]
    try:
        absent = sorted(
            {name for each in subtopologies.values() for name in each.source_topics if image.topic(name) is None}
        )
        if absent:
            raise _Unfit(MISSING_SOURCE_TOPICS, f"Source topics {_named(absent)} are missing.")
        counts = _Counts(image)
        counts.decide(topology, together)
        configured = {name: _configured(subtopologies[name], counts) for name in sorted(subtopologies)}
        missing = _missing(configured, topology, image)
    except _Unfit as unfit:
        return ConfiguredTopology(topology.epoch, problem=unfit.problem)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_named(_java_order(missing))}"
        problem = Problem(MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


def _read_together(subtopology: Subtopology) -> list[frozenset[str]]:
    """The groups of copartitioned topics, which are stored as positions."""
    groups = []
    for group in subtopology.copartition_groups:
        if min((*group.source_topics, *group.repartition_source_topics), default=0) < 0:
            raise UnknownServerError
        try:
            sources = [subtopology.source_topics[index] for index in group.source_topics]
            repartition = [subtopology.repartition_source_topics[index] for index in group.repartition_source_topics]
        except IndexError:
            raise UnknownServerError from None
        groups.append(frozenset((*sources, *(topic.name for topic in repartition))))
    return groups


class _Counts:
    """The current or future number of partitions of topics."""

    __slots__ = ("_image", "decided")

    def __init__(self, image: MetadataView) -> None:
        self._image = image
        self.decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        topic = self._image.topic(name)
        if topic is not None:
            return topic.partition_count
        if name not in self.decided:
            raise UnknownServerError
        return self.decided[name]

    def decide(self, topology: Topology, together: Iterable[frozenset[str]]) -> None:
        subtopologies = topology.subtopologies.values()
        self.decided.update(self._repartition_counts(subtopologies))
        repartition = [topic for each in subtopologies for topic in each.repartition_source_topics]
        fixed = {topic.name for topic in repartition if topic.partitions != 0}
        flexible = {topic.name for topic in repartition if topic.partitions == 0}
        for group in together:
            self._enforce(group, fixed, flexible)
        for each in subtopologies:
            read = read_topics(each)
            if not read:
                raise StreamsInvalidTopology(f"No source topics found for subtopology {each.subtopology_id}")
            count = max(map(self.of, read))
            self.decided.update(dict.fromkeys((topic.name for topic in each.state_changelog_topics), count))

    def _repartition_counts(self, subtopologies: Iterable[Subtopology]) -> dict[str, int]:
        counts = {
            topic.name: topic.partitions
            for each in subtopologies
            for topic in each.repartition_source_topics
            if topic.partitions != 0
        }
        is_open = True
        while is_open:
            is_open = has_moved = False
            for each in subtopologies:
                for name in each.repartition_sink_topics:
                    if name in counts:
                        continue
                    read = [counts[topic.name] for topic in each.repartition_source_topics if topic.name in counts]
                    read += map(self.of, each.source_topics)
                    if read:
                        counts[name] = max(read)
                        has_moved = True
                    else:
                        is_open = True
            if is_open and not has_moved:
                raise StreamsInvalidTopology(
                    "Failed to compute number of partitions for all repartition topics. "
                    "There may be loops in the topology that cannot be resolved."
                )
        if any(topic.name not in counts for each in subtopologies for topic in each.repartition_source_topics):
            raise StreamsInvalidTopology(
                "Failed to compute number of partitions for all repartition topics, because "
                "a repartition source topic is never used as a sink topic."
            )
        return counts

    def _enforce(self, group: frozenset[str], fixed: set[str], flexible: set[str]) -> None:
        """Give copartitioned topics the same number of partitions, or raise."""
        if not group:
            return
        repartition = {name: self.of(name) for name in sorted(group) if name in fixed or name in flexible}
        others = {name: self.of(name) for name in sorted(group) if name not in repartition}
        if others:
            count = _same(others, others)
        elif fixed:
            # Like Kafka, use the fixed topics of the whole topology, not only of this group.
            count = _same({name: self.of(name) for name in sorted(fixed)}, repartition)
        else:
            count = max(repartition.values())
            if count == 0:
                raise StreamsInvalidTopology(
                    "All topics in the copartition group had undefined partition number: "
                    f"[{', '.join(_java_order(repartition))}]"
                )
        for name, own in repartition.items():
            if name in fixed and own != count:
                raise _Unfit(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{own}] of repartition topic [{name}] "
                    f"doesn't match number of partitions [{count}] of the source topic.",
                )
            self.decided[name] = count


def _same(counts: Mapping[str, int], shown: Mapping[str, int]) -> int:
    first = next(iter(counts.values()))
    if any(count != first for count in counts.values()):
        named = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise _Unfit(
            INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{named}}}]",
        )
    return first


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    def internal(topic: TopicInfo) -> InternalTopic:
        partitions = topic.partitions or counts.decided[topic.name]
        if partitions < 1:
            raise UnknownServerError
        configs = {config.key: config.value for config in topic.topic_configs}
        return InternalTopic(topic.name, partitions, topic.replication_factor, configs)

    return ConfiguredSubtopology(
        max(map(counts.of, read_topics(subtopology))),
        frozenset(subtopology.source_topics),
        frozenset(subtopology.repartition_sink_topics),
        {topic.name: internal(topic) for topic in subtopology.repartition_source_topics},
        {topic.name: internal(topic) for topic in subtopology.state_changelog_topics},
    )


def _missing(
    configured: Mapping[str, ConfiguredSubtopology], topology: Topology, image: MetadataView
) -> dict[str, InternalTopic]:
    """The internal topics that do not exist; those that exist must have the right number of partitions."""
    wanted: dict[str, InternalTopic] = {}
    for each in configured.values():
        wanted.update(each.repartition_topics)
        wanted.update(each.changelog_topics)
    for name in _java_order(topology.required):
        topic = image.topic(name)
        expected = None if topic is None else wanted.pop(name, None)
        if topic is not None and expected is not None and topic.partition_count != expected.partitions:
            raise _Unfit(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected.partitions}, found {topic.partition_count}",
            )
    return wanted


def _named(names: Iterable[str]) -> str:
    known = list(names)
    more = len(known) - NAMED_MAX
    return ", ".join(known[:NAMED_MAX]) + (f" and {more} additional topics" if more > 0 else "")


def _java_order(names: Iterable[str]) -> list[str]:
    """The order of keys in Java's hash map: messages name the first few of them."""
    known = list(names)
    buckets = 16
    while len(known) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        hashed = java_hash(name) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & (buckets - 1)

    return sorted(known, key=bucket)


def topics_of_tasks(
    tasks: Mapping[str, Iterable[int]],
    configured: Mapping[str, ConfiguredSubtopology],
    image: MetadataView,
    make: Callable[..., Any],
) -> list[Any]:
    """The input partitions of tasks, as `make(topic=…, partitions=…)`."""
    found = []
    for name, indexes in tasks.items():
        subtopology = configured[name]
        for topic_name in _java_order({*subtopology.source_topics, *subtopology.repartition_topics}):
            topic = image.topic(topic_name)
            if topic is None:
                raise UnknownServerError
            # If a topic has fewer partitions than tasks, Kafka names the first tasks.
            found.append(make(topic=topic_name, partitions=sorted(indexes)[: topic.partition_count]))
    return found
