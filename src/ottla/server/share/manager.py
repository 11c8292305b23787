"""Share groups on this broker: the partitions that they read here, their sessions, and their state."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.answers import finished
from ottla.coordinator.share_state.state import NO_OFFSET, ShareKey, ShareState, StateBatch
from ottla.enums import ConfigResourceType
from ottla.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.image import NO_LEADER, TopicState
from ottla.replication.partition import Partition
from ottla.server.peers import Unreachable
from ottla.server.share import requests
from ottla.server.share.inflight import InFlight
from ottla.server.share.partition import Done, Limits, SharePartition
from ottla.server.share.sessions import ShareSession, ShareSessions
from ottla.server.share.state import NOT_NOW, ShareStates

if TYPE_CHECKING:
    from ottla.config.resources import GroupConfig
    from ottla.server.services import CoordinatorServices

logger = logging.getLogger(__name__)

_AS_THEY_ARE = (GroupIdNotFound, UnknownTopicOrPartition, FencedStateEpoch, *NOT_NOW)


_FENCED = (FencedStateEpoch, FencedLeaderEpoch, GroupIdNotFound, UnknownTopicOrPartition, NotLeaderOrFollower)


def for_clients(error: KafkaError) -> KafkaError:
    """An error of the share coordinator, converted for members."""
    if isinstance(error, FencedLeaderEpoch):
        return NotLeaderOrFollower()
    if isinstance(error, NOT_NOW):
        return CoordinatorNotAvailable()
    return error if isinstance(error, _AS_THEY_ARE) else UnknownServerError()


class Waiter(Protocol):
    def freed(self) -> None:
        """Records are available again."""


class Settings(NamedTuple):
    """The settings of one group."""

    limits: Limits
    committed_only: bool
    offset_reset: str
    renews: bool


class Reader:
    """A partition as one group reads it."""

    __slots__ = ("_key", "_states", "leader_epoch", "partition", "share", "state_epoch", "waiters")

    share: SharePartition

    def __init__(self, key: ShareKey, states: ShareStates, partition: Partition, state_epoch: int) -> None:
        self._key = key
        self._states = states
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = state_epoch
        self.waiters: set[Waiter] = set()

    def write(self, start_offset: int, done_count: int, batches: Sequence[StateBatch], done: Done) -> None:
        self._states.write(
            self._key,
            self.state_epoch,
            self.leader_epoch,
            start_offset,
            done_count,
            batches,
            lambda _, error: done(error),
        )

    def wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.freed()


class ShareGroups:
    """Created with the first request about share groups."""

    def __init__(self, services: CoordinatorServices, states: ShareStates) -> None:
        self._services = services
        self.states = states
        self.sessions = ShareSessions(services.config["group.share.max.share.sessions"])
        self.sessions.on_group_gone = self._group_gone
        self._readers: dict[ShareKey, Reader] = {}
        self._settings: dict[str, Settings] = {}
        self._settings_of: tuple[int, object] = (-1, None)
        services.replicas.on_topic_removed.append(self._topic_removed)

    def stop(self) -> None:
        for key in list(self._readers):
            self._drop(key)
        self.states.stop()

    # -- settings

    def settings(self, group_id: str) -> Settings:
        version, config = self._settings_of
        if version != self._services.metadata.version or config is not self._services.config:
            self._settings.clear()
            self._settings_of = (self._services.metadata.version, self._services.config)
        found = self._settings.get(group_id)
        if found is None:
            overrides = self._services.metadata.configs.get((ConfigResourceType.GROUP, group_id), {})
            found = self._settings[group_id] = _settings(self._services.config.group(overrides))
        return found

    async def end_offset(self, topic: str, index: int) -> int | None:
        """The end of the readable part of a partition; None if its leader cannot be reached."""
        leader = self._services.directory.leader_of((topic, index))
        if leader is None or leader[0] == NO_LEADER:
            return None
        if leader[0] == self._services.node_id:
            try:
                return self._services.replicas.leader(topic, index).high_watermark
            except KafkaError:
                return None
        try:
            response = await self._services.channel.send(leader[0], requests.list_offset(topic, index))
        except (KafkaError, Unreachable):
            return None
        return requests.listed_offset(response)

    # -- partitions

    def readers(self) -> list[tuple[str, Reader]]:
        """The partitions that are read here, with their groups."""
        return [(key.group_id, reader) for key, reader in self._readers.items()]

    def reader(self, group_id: str, topic_id: bytes, index: int) -> Reader | None:
        """An existing reader of a group."""
        return self._readers.get(ShareKey(group_id, topic_id, index))

    def open(
        self, group_id: str, partition: Partition, done: Callable[[Reader | None, KafkaError | None], None]
    ) -> None:
        """The reader of a partition; its state is loaded when it is first read, or after a change of the leader."""
        key = ShareKey(group_id, partition.topic_id, partition.index)
        known = self._readers.get(key)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                done(known, None)
                return
            self._drop(key)

        def loaded(state: ShareState | None, error: KafkaError | None) -> None:
            if state is None:
                assert error is not None
                logger.warning("share partition %s cannot be read: %s", key, error)
                done(None, for_clients(error))
            else:
                done(self._readers.get(key) or self._made(key, partition, state), None)

        self.states.read(key, partition.leader_epoch, loaded)

    def _made(self, key: ShareKey, partition: Partition, state: ShareState) -> Reader:
        reader = Reader(key, self.states, partition, state.state_epoch)
        start = state.start_offset
        if start == NO_OFFSET:
            start = self._first_offset(key.group_id, partition)
        reader.share = SharePartition(
            InFlight(start, state.batches),
            lambda: self.settings(key.group_id).limits,
            reader,
            self._services.timer,
        )
        reader.share.on_free = reader.wake
        self._readers[key] = reader
        return reader

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        """Where a group starts that has never read this partition."""
        reset = self.settings(group_id).offset_reset
        if reset == "earliest":
            return partition.log_start_offset
        if reset.startswith("by_duration:"):
            at_ms = self._services.clock.now_ms() - duration_ms(reset.partition(":")[2])
            found = finished(partition.offset_for_time(at_ms))
            if found is not None and found.offset < partition.high_watermark:
                return found.offset
        return partition.high_watermark

    def _drop(self, key: ShareKey) -> None:
        reader = self._readers.pop(key, None)
        if reader is not None:
            reader.share.close()
            reader.wake()

    def failed(self, key: ShareKey, error: KafkaError) -> None:
        """A change could not be stored. A reader that may no longer store it starts again."""
        if isinstance(error, _FENCED):
            self._drop(key)

    def _group_gone(self, group_id: str) -> None:
        for key in [key for key in self._readers if key.group_id == group_id]:
            self._drop(key)

    def _topic_removed(self, topic: TopicState) -> None:
        for key in [key for key in self._readers if key.topic_id == topic.topic_id]:
            self._drop(key)

    # -- sessions

    def release(self, session: ShareSession, done: Callable[[], None]) -> None:
        """A session ends: its member's records are available for others."""
        group_id, member_id = session.key
        readers = [
            (ShareKey(group_id, *place), reader)
            for place in session.places
            if (reader := self.reader(group_id, *place)) is not None
        ]
        left = len(readers) + 1

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.sessions.end(session)
                done()

        for key, reader in readers:

            def released(error: KafkaError | None, key: ShareKey = key) -> None:
                if error is not None:
                    self.failed(key, error)
                one_done()

            reader.share.release(member_id, released)
        one_done()

    def connection_closed(self, connection: Any) -> None:
        sessions = self.sessions.of_connection(connection)
        left = len(sessions) + 1

        def released() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.sessions.connection_closed(connection)

        for session in sessions:
            self.release(session, released)
        released()


def _settings(config: GroupConfig) -> Settings:
    return Settings(
        Limits(
            config["share.record.lock.duration.ms"],
            config["share.delivery.count.limit"],
            config["share.partition.max.record.locks"],
        ),
        config["share.isolation.level"] == "read_committed",
        config["share.auto.offset.reset"],
        config["share.renew.acknowledge.enable"],
    )


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration such as `PT1H30M` (checked when it was set)."""
    units = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000}
    found = re.findall(r"(\d+(?:[.,]\d*)?)([DHMS])", text.upper())
    return int(sum(float(number.replace(",", ".")) * units[unit] for number, unit in found))
