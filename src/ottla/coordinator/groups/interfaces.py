"""Kinds of groups beside classic and consumer ones: one row each, and code that is imported when one is first met.

A kind has groups (`OtherGroup`), the records that make them (see `records`), and a protocol: what its requests do,
how its records change a shard, and what time does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from ottla.errors import GroupIdNotFound, KafkaError, NonEmptyGroup

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.groups.records import CoordinatorRecord
    from ottla.coordinator.runtime.result import Result


class Kind(NamedTuple):
    record_types: range
    """Of the keys in the offsets log."""
    records: str
    """The module that registers them."""
    protocol: str
    """The module whose `protocol(shard)` makes the protocol."""


KINDS: Final[Mapping[str, Kind]] = {
    "share": Kind(range(10, 16), "ottla.coordinator.groups.share.records", "ottla.coordinator.groups.share.protocol"),
    "streams": Kind(
        range(17, 24), "ottla.coordinator.groups.streams.records", "ottla.coordinator.groups.streams.protocol"
    ),
}


class OtherProtocol(Protocol):
    """What a shard needs from the protocol of a kind."""

    def replay(self, key: Any, value: Any) -> None:
        """The only place where persisted state changes."""

    def on_loaded(self, group: Any) -> None:
        """The log is read: sessions begin."""

    def on_unloaded(self) -> None:
        """No timer is left."""

    def remove(self, group: Any, member_id: str) -> Result[None]:
        """A member goes, whether it wants to or not."""

    def forget(self, group_id: str) -> None:
        """A group is taken away with its members: none of its timers is left."""

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Created, grown, deleted or moved topics."""

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """What is kept of it goes."""


class OtherGroup:
    """A group of such a kind, as requests of the other kinds see it."""

    __slots__ = ("group_id",)

    type_name: ClassVar[str]
    protocol_type: ClassVar[str]
    expires: ClassVar[bool] = True
    """Whether it goes when it is empty and has no offsets."""
    becomes_classic: ClassVar[bool] = False
    """Whether it makes way for a classic group of its name when it is empty."""

    members: Mapping[str, Any]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    @abstractmethod
    def state_name(self) -> str: ...

    @property
    def state_filter_name(self) -> str:
        """As who lists groups by state has to write it, in lower case."""
        return self.state_name.lower()

    @abstractmethod
    def copy(self) -> OtherGroup:
        """As it is now, for those who may not see what comes next."""

    @abstractmethod
    def rebalanced(self) -> list[CoordinatorRecord]:
        """Records that make its members look for a new assignment."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]: ...

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> Callable[[str, bytes, int], None] | None:
        raise self._not_a_consumer_group()

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._not_a_consumer_group()

    def validate_offset_delete(self) -> None:
        raise self._not_a_consumer_group()

    def validate_delete(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup

    def before_deleted(self, shard: GroupShard, done: Callable[[KafkaError | None], None]) -> Result[None] | None:
        """What comes before its tombstones, if anything does; `done` is called after it."""
        return None

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int:
        return commit_timestamp_ms

    def _not_a_consumer_group(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.group_id} is not a consumer group.")


def kind_of_type(number: int) -> str | None:
    """The kind whose record type this is."""
    for name, kind in KINDS.items():
        if number in kind.record_types:
            return name
    return None


def new_protocol(kind: str, shard: GroupShard) -> OtherProtocol:
    made: OtherProtocol = import_module(KINDS[kind].protocol).protocol(shard)
    return made
