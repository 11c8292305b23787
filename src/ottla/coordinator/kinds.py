"""Groups that are neither classic nor consumer groups: what a shard needs of them, and where their code is.

A kind of groups is one row in `KINDS`. Its package is imported when the first such group is met, in a request or in
the log, and has three names: `Protocol` (made once a shard), `KEY_TYPES` (its records by type number) and `REPLAY`
(what each record does, by the class of its key).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.records import CoordinatorRecord
    from ottla.coordinator.replies import Result


class Kind(NamedTuple):
    package: str
    record_types: tuple[int, ...]

    def load(self) -> Any:
        return import_module(self.package)


KINDS: Mapping[str, Kind] = {
    "streams": Kind("ottla.coordinator.streams", (17, 19, 20, 21, 22, 23)),
}
"""By `OtherGroup.type_name`."""

BY_RECORD_TYPE: Mapping[int, Kind] = {number: kind for kind in KINDS.values() for number in kind.record_types}


class OtherGroup:
    """A group of a further kind."""

    __slots__ = ("group_id", "members", "needs_refresh")

    type_name: ClassVar[str]
    protocol_type: ClassVar[str]
    becomes_classic: ClassVar[bool]
    """Whether a classic member may have the group's name once it is empty."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.members: dict[str, Any] = {}
        self.needs_refresh = True
        """In memory only: a topic that the group depends on may have changed."""

    def copy(self) -> OtherGroup:
        """As it is now, for those who may not see what comes next."""
        other = copy(self)
        for cls in type(self).__mro__:
            for name in getattr(cls, "__slots__", ()):
                value = getattr(self, name)
                if isinstance(value, dict):
                    setattr(other, name, dict(value))
        return other

    # -- questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups says it."""

    @property
    def state_filter_name(self) -> str:
        """As who lists groups by state has to write it, in lower case."""
        return self.state_name.lower()

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its offsets in a topic are in use."""

    @abstractmethod
    def depends_on(self, topic: str) -> bool:
        """Whether the group looks again when this topic changes."""

    # -- who may

    @abstractmethod
    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> Callable[[str, bytes, int], None] | None:
        """Raise if the sender may not commit; what is returned is called for each partition, and may raise too."""

    @abstractmethod
    def validate_fetch(self, member_id: str | None, epoch: int) -> None: ...

    def validate_offset_delete(self) -> None:
        """Always allowed; subscribed topics are refused one by one."""

    @abstractmethod
    def validate_delete(self) -> None: ...

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    # -- records

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """Everything that the log holds of the group, in the order that replay expects."""


class OtherProtocol:
    """The requests of a kind of groups in one shard, with the timers of their members."""

    __slots__ = ()

    @abstractmethod
    def on_loaded(self, group: Any) -> None:
        """The group was read from the log: sessions begin."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """No timer is left."""

    @abstractmethod
    def on_removed(self, group_id: str) -> None:
        """The group is gone, or is about to go: nobody waits for anything of it any more."""

    @abstractmethod
    def fence(self, group: Any, member_id: str) -> Result:
        """A member goes."""

    @abstractmethod
    def bump(self, group: Any) -> Result:
        """The group is to be assigned anew, though nothing has changed."""
