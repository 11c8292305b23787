"""The permissions that requests need: a handler declares them, and the authorizer's guards check them before it runs.

A broker without an authorizer ignores this. If these classes are not enough, a special guard runs before the handler
(`GuardedBy`), or the handler calls `ctx.may` (`ChecksItself`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.enums import AclOperation, ResourceType


class OnCluster(NamedTuple):
    """An operation on the cluster. `instead` is another operation that is sufficient."""

    operation: AclOperation
    instead: AclOperation | None = None

    def __str__(self) -> str:
        names = [each.name for each in (self.operation, self.instead) if each is not None]
        return f"{' or '.join(names)} on the cluster"


class OnGroup(NamedTuple):
    """An operation on the group in the request's `group_id`."""

    operation: AclOperation

    def __str__(self) -> str:
        return f"{self.operation.name} on the group"


class OnTransactionalId(NamedTuple):
    """An operation on the transactional id in the request's `transactional_id`, if it has one."""

    operation: AclOperation

    def __str__(self) -> str:
        return f"{self.operation.name} on the transactional id"


class OnEach(NamedTuple):
    """An operation on each topic, group … of a list: denied items get an error in the answer, the rest is served."""

    operation: AclOperation
    resource: ResourceType
    items: str
    """The field of the request that has the list."""
    answers: str = ""
    """The field of the response, if it has another name."""
    name: str = "name"
    """The field with the name of an item; empty if the items are names."""
    by_id: bool = False
    """Whether items may have a topic id instead of a name."""

    def __str__(self) -> str:
        return f"{self.operation.name} on each {self.resource.name.lower().replace('_', ' ')}"


class GuardedBy(NamedTuple):
    """`module.function` in `server/security/guards`, which runs before the handler."""

    function: str
    summary: str

    def __str__(self) -> str:
        return self.summary


class ChecksItself(NamedTuple):
    """The handler calls `ctx.may`, because it knows more than the request shows."""

    summary: str

    def __str__(self) -> str:
        return self.summary


class OpenToAll(NamedTuple):
    """Everyone may use it."""

    reason: str

    def __str__(self) -> str:
        return f"none: {self.reason}"


Permission: TypeAlias = OnCluster | OnGroup | OnTransactionalId | OnEach | GuardedBy | ChecksItself | OpenToAll
