"""Inspects a consumer group without a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.embedded.group_waits import GroupWaits
from ottla.embedded.unknown_names import no_commits, unknown_topic
from ottla.errors import KafkaError
from ottla.metadata.topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.groups.interfaces import Group as CoordinatedGroup
    from ottla.embedded.broker import Embedded
    from ottla.server.broker import Broker as Server

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, with the partitions that are assigned to it."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        assigned = ", ".join(f"{topic}-{index}" for topic, index in self.assignment) or "nothing"
        return f"{self.client_id} ({self.member_id}): {assigned}"


class Group(GroupWaits):
    """A handle on a group by its id; the group does not need to exist."""

    def __init__(self, broker: Embedded, group_id: str) -> None:
        self._broker = broker
        self.group_id = group_id

    def __str__(self) -> str:
        return self.group_id

    def __repr__(self) -> str:
        return f"<group {self.group_id}>"

    @property
    def state(self) -> str:
        """Kafka's name of its state; `Dead` for a group that does not exist."""

        def look(server: Server) -> str:
            group = find_group(server, self.group_id)
            return "Dead" if group is None else group.state_name

        return self._broker.call(look)

    def members(self) -> list[Member]:
        return self._broker.call(lambda server: list(_members(server, self.group_id)))

    def committed(self) -> dict[TopicPartition, int]:
        """{(topic, partition): the next offset to read}, as committed."""
        return self._broker.call(lambda server: _committed(server, self.group_id))

    def lag(self, of: object = None) -> int:
        """How many records the group has not read, in partitions with a committed offset.

        NotFoundError if the group never committed. With `of`, a topic, every unread record of the topic counts: from
        the committed offset, or from the start of partitions without one.
        """
        if of is not None:
            return sum(self._broker.call(lambda server: _unread(server, self.group_id, str(of))).values())
        lags = self.lags()
        if not lags:
            raise no_commits(self.group_id, self._broker.groups())
        return sum(lags.values())

    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition with a committed offset."""

        def look(server: Server) -> dict[TopicPartition, int]:
            return {
                (topic, index): _unread_from(server, topic, index, offset)
                for (topic, index), offset in _committed(server, self.group_id).items()
                if topic in server.metadata.topics
            }

        return self._broker.call(look)

    def delete(self) -> None:
        """Delete the group, its offsets and its members (which join again)."""
        self._broker.call(lambda server: remove_group(server, self.group_id))


def shard_of(server: Server, group_id: str) -> GroupShard | None:
    """The shard that keeps a group; None while there is no offsets topic."""
    if GROUP_METADATA_TOPIC not in server.metadata.topics:
        return None
    try:
        return server.groups.shard_for(group_id)
    except KafkaError:
        return None


def find_group(server: Server, group_id: str) -> CoordinatedGroup | None:
    shard = shard_of(server, group_id)
    return None if shard is None else shard.groups.get(group_id)


def group_ids(server: Server) -> list[str]:
    return sorted(group_id for shard in server.groups.shards() for group_id in shard.groups)


def remove_group(server: Server, group_id: str) -> None:
    shard = shard_of(server, group_id)
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return
    records = [*shard.offsets.tombstones(group_id), *group.tombstones()]
    shard.protocol(group.type_name).forget(group)
    shard.run_all(records)
    shard.groups.pop(group_id, None)


def _members(server: Server, group_id: str) -> list[Member]:
    shard = shard_of(server, group_id)
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return []
    protocol = shard.protocol(group.type_name)
    return [
        Member(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            tuple(sorted(protocol.partitions_of(group, member))),
        )
        for member in group.members.values()
    ]


def _committed(server: Server, group_id: str) -> dict[TopicPartition, int]:
    shard = shard_of(server, group_id)
    if shard is None:
        return {}
    return {
        (topic, index): value.offset
        for topic, entries in sorted(shard.offsets.groups.get(group_id, {}).items())
        for index, (_, value) in sorted(entries.items())
    }


def _unread(server: Server, group_id: str, topic: str) -> dict[TopicPartition, int]:
    """The number of unread records per partition of a topic, for a group that starts at the beginning."""
    known = server.metadata.topics.get(topic)
    if known is None:
        raise unknown_topic(topic, set(server.metadata.topics) - INTERNAL_TOPICS)
    committed = _committed(server, group_id)
    return {
        (topic, index): _unread_from(server, topic, index, committed.get((topic, index))) for index in known.partitions
    }


def _unread_from(server: Server, topic: str, index: int, offset: int | None) -> int:
    partition = server.replicas.leader(topic, index)
    return max(partition.last_stable_offset - (partition.log_start_offset if offset is None else offset), 0)
