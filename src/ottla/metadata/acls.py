"""Access control lists in the metadata: add, find and remove entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import InvalidRequest, KafkaError, UnknownServerError
from ottla.metadata.image import CLUSTER_NAME, Acl, MetadataImage
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

_ANY = 1
"""The same number in all enums of a filter."""

_RESOURCE_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_PATTERN_TYPES = frozenset(PatternType) - {PatternType.UNKNOWN}
_OPERATIONS = frozenset(AclOperation) - {AclOperation.UNKNOWN}
_PERMISSION_TYPES = frozenset(AclPermissionType) - {AclPermissionType.UNKNOWN}

WILDCARD = "*"


class AclFilter(NamedTuple):
    """Selects entries; None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def has_unknown_pattern(self) -> bool:
        return self.resource_type not in _RESOURCE_TYPES or self.pattern_type not in _PATTERN_TYPES

    @property
    def has_unknown_entry(self) -> bool:
        return self.operation not in _OPERATIONS or self.permission_type not in _PERMISSION_TYPES

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (_ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission_type in (_ANY, acl.permission_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH) and self.pattern_type != acl.pattern_type:
            return False
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        # MATCH selects the entries that apply to a resource with this name.
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)


def find_acls(image: MetadataImage, wanted: AclFilter) -> dict[tuple[int, str, int], list[Acl]]:
    """The matching entries by (resource type, name, pattern type)."""
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in image.acls.values():
        if wanted.matches(acl):
            found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return found


def create_acls(
    image: MetadataImage, wanted: Iterable[Acl], new_id: Callable[[], bytes]
) -> tuple[list[Message], list[KafkaError | None]]:
    """The records of the new entries, and one outcome for each requested entry."""
    existing = set(image.acls.values())
    records: list[Message] = []
    outcomes: list[KafkaError | None] = []
    for acl in wanted:
        try:
            _check(acl)
        except KafkaError as error:
            outcomes.append(error)
            continue
        if acl not in existing:
            existing.add(acl)
            records.append(stored.AccessControlEntryRecord(id=new_id(), **acl._asdict()))
        outcomes.append(None)
    return records, outcomes


def _check(acl: Acl) -> None:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise InvalidRequest("Invalid empty resource name")
    if (
        _ANY in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type)
        or acl.pattern_type == PatternType.MATCH
    ):
        # ANY and MATCH are valid only in filters; elsewhere Kafka fails with an internal error.
        raise UnknownServerError()
    if acl.resource_type not in _RESOURCE_TYPES:
        raise InvalidRequest("Invalid resourceType UNKNOWN")
    if acl.pattern_type not in _PATTERN_TYPES:
        raise InvalidRequest("Invalid patternType UNKNOWN")
    if acl.operation not in _OPERATIONS:
        raise InvalidRequest("Invalid operation UNKNOWN")
    if acl.permission_type not in _PERMISSION_TYPES:
        raise InvalidRequest("Invalid permissionType UNKNOWN")
    if ":" not in acl.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )


def delete_acls(
    image: MetadataImage, filters: Sequence[AclFilter]
) -> tuple[list[Message], list[list[Acl] | KafkaError]]:
    """The records, and for each filter the entries that it removes; two filters may match the same entry."""
    doomed: dict[bytes, None] = {}
    outcomes: list[list[Acl] | KafkaError] = []
    for wanted in filters:
        if wanted.has_unknown_pattern:
            outcomes.append(InvalidRequest("Unknown patternFilter."))
        elif wanted.has_unknown_entry:
            outcomes.append(InvalidRequest("Unknown entryFilter."))
        else:
            matching = [(acl_id, acl) for acl_id, acl in image.acls.items() if wanted.matches(acl)]
            doomed.update(dict.fromkeys(acl_id for acl_id, _ in matching))
            outcomes.append([acl for _, acl in matching])
    return [stored.RemoveAccessControlEntryRecord(id=acl_id) for acl_id in doomed], outcomes
