"""The interface of each kind of group: `Group`, `GroupProtocol`, and the table of kinds.

Each kind is a package with the same modules: `group` (the state of one group), `protocol` (handles requests, records
and timeouts for the groups of a shard), `records` (the log format) and `description` (answers for admin clients). A
package is imported with the first group or record of its kind in a shard. `modern` has the common parts of consumer,
share and streams groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from ottla.coordinator.runtime.result import Result
from ottla.errors import GroupIdNotFound, InconsistentGroupProtocol, KafkaError, NonEmptyGroup, UnknownMemberId
from ottla.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.groups.records import CoordinatorRecord
    from ottla.coordinator.runtime.interfaces import Client

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""

CheckPartition = Callable[[str, bytes, int], None]
"""Raises if this offset must not be committed: topic, topic id, partition."""

SHARE_MEMBER_ID_MAX: Final = 36
"""The length of a UUID in Java's text format. Kafka refuses longer ids, but only in requests of share groups."""

RECORD_TYPES: Final[Mapping[str, frozenset[int]]] = {
    "classic": frozenset({2}),
    "consumer": frozenset({3, 4, 5, 6, 7, 8, 16}),
    "share": frozenset(range(10, 16)),
    "streams": frozenset(range(17, 24)),
}
"""The kinds of groups, by the name of their package, and the types of their records in `__consumer_offsets`."""


class Group(ABC):
    """The state of one group (Kafka: Group)."""

    __slots__ = ("group_id",)

    type_name: ClassVar[str]
    """The kind, as ListGroups shows it."""
    expires: ClassVar[bool] = True
    """Whether it is removed when it is empty and has no offsets."""
    becomes_classic: ClassVar[bool] = False
    """Whether a classic group with the same id may replace it when it is empty."""

    protocol_type: str | None
    members: Mapping[str, Any]
    group_id: str

    @property
    @abstractmethod
    def is_empty(self) -> bool: ...

    @property
    def is_simple(self) -> bool:
        """Whether it only holds offsets that were committed without membership. It can become any kind."""
        return False

    @property
    def can_become_classic(self) -> bool:
        return self.becomes_classic and self.is_empty

    @property
    @abstractmethod
    def state_name(self) -> str: ...

    @property
    @abstractmethod
    def generation_or_epoch(self) -> int:
        """The number that each rebalance increases: the generation of a classic group, the epoch of other groups."""

    @property
    def state_filter_name(self) -> str:
        """The state's name in the filter of ListGroups, in lower case."""
        return self.state_name.lower()

    @abstractmethod
    def as_committed(self, *, has_offsets: bool) -> Group | None:
        """The group for reads until the record that is about to be replayed is committed."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """Tombstones for all records of the group, except its offsets."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    # -- validation of offsets and deletion

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Raise if the sender may not commit; return a check for each partition if one is needed."""
        raise self._not_a_consumer_group()

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._not_a_consumer_group()

    def validate_offset_delete(self) -> None:
        raise self._not_a_consumer_group()

    def validate_delete(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup

    def before_deleted(self, shard: GroupShard, done: Callable[[KafkaError | None], None]) -> Result[None] | None:
        """Work to do before the tombstones are written, if any; calls `done` when it is finished."""
        return None

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which an offset ages; None if it does not."""
        return commit_timestamp_ms

    def _not_a_consumer_group(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.group_id} is not a consumer group.")


GroupT = TypeVar("GroupT", bound=Group)


class GroupProtocol(ABC, Generic[GroupT]):
    """Handles requests, records and timeouts for the groups of one kind in one shard."""

    __slots__ = ("_shard",)

    group_type: type[GroupT]

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    # -- groups of this kind

    def find(self, group_id: str) -> GroupT | None:
        """The group with this id, if it is of this kind."""
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, self.group_type) else None

    def groups(self) -> list[GroupT]:
        return [group for group in self._shard.groups.values() if isinstance(group, self.group_type)]

    def require(self, group: Group | None, group_id: str) -> GroupT:
        """The group if it is of this kind; otherwise the error that the client should see."""
        if isinstance(group, self.group_type):
            return group
        reason = "not found" if group is None else f"is not a {self.group_type.type_name} group"
        raise GroupIdNotFound(f"Group {group_id} {reason}.")

    # -- records

    @abstractmethod
    def replay(self, key: Any, value: Any) -> None:
        """The only place where persisted state changes. A value of None is a tombstone."""

    # -- lifecycle of the shard

    @abstractmethod
    def on_loaded(self, group: GroupT) -> None:
        """The log is loaded: start the sessions."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """The shard is unloaded: answer waiting members and cancel all timers."""

    @abstractmethod
    def forget(self, group: GroupT) -> None:
        """The group is removed with its members: answer waiting members and cancel all timers."""

    @abstractmethod
    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Topics were created, extended, moved or deleted."""

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """Remove the groups' state of a topic."""

    # -- actions of tests and operators

    @abstractmethod
    def remove(self, group: GroupT, member_id: str) -> Result[Any]:
        """Force a member out of the group."""

    @abstractmethod
    def rebalance(self, group: GroupT) -> Result[None]:
        """Force a rebalance although nothing has changed."""

    @abstractmethod
    def partitions_of(self, group: GroupT, member: Any) -> Iterable[tuple[str, int]]:
        """The partitions that a member reads: (topic, partition)."""

    # -- requests of the classic protocol: by default a group of this kind has no such members

    def classic_join(self, group: GroupT, request: JoinGroupRequest, client: Client) -> Result[JoinGroupResponse]:
        if group.can_become_classic:
            return self._shard.classic.join(request, client)
        return Result((), join_error(InconsistentGroupProtocol.code, NO_MEMBER, client.version))

    def classic_sync(self, group: GroupT, request: SyncGroupRequest, client: Client) -> Result[SyncGroupResponse]:
        return self._shard.classic.sync(request, client)

    def classic_heartbeat(self, group: GroupT, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        raise UnknownMemberId

    def classic_leave(self, group: GroupT, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        return Result((), unknown_members(request))


def join_error(error_code: int, member_id: str, version: int) -> JoinGroupResponse:
    """An error response. Only v7 and later allow a null protocol name."""
    return JoinGroupResponse(
        error_code=error_code,
        generation_id=NO_GENERATION,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def unknown_members(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The response if none of the members is in the group."""
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=UnknownMemberId.code,
            )
            for member in request.members
        ]
    )


def kind_of_type(number: int) -> str | None:
    """The kind that uses this record type."""
    return next((kind for kind, types in RECORD_TYPES.items() if number in types), None)


def import_records(kind: str) -> None:
    """Register the record types of a kind in `records`."""
    import_module(f"{__package__}.{kind}.records")


def new_protocol(kind: str, shard: GroupShard) -> GroupProtocol[Any]:
    made: GroupProtocol[Any] = import_module(f"{__package__}.{kind}.protocol").PROTOCOL(shard)
    return made
