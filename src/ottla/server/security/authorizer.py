"""Who may do what: the rules of Kafka's StandardAuthorizer over the ACLs in the metadata.

A super user may do everything. Otherwise a matching DENY beats any ALLOW; without either, the answer is "no" if the
resource has any ACL at all, and `allow.everyone.if.no.acl.found` if it has none. Decisions are cached until an
ACL changes, so a check on the data path costs one or two look-ups.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.config import Config, ConfigError
from ottla.enums import SUPPORTED_OPERATIONS, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.metadata.acls import WILDCARD
from ottla.metadata.image import CLUSTER_NAME, Acl, MetadataImage
from ottla.server.security.loglimit import RateLimitedLog
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock

# An ALLOW for one of these allows the other as well; a DENY never does.
_IMPLY_DESCRIBE = frozenset(
    {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
_IMPLY_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})

_EVERYBODY = "User:*"

DECISIONS_MAX = 65_536
DECISION_CHARACTERS_MAX = 8 << 20
"""Limits on the cached decisions and on the characters in their names. The names come from clients, so their memory
must be bounded."""

_SHOWN_NAME_MAX = 249
"""The log shows at most this much of a denied name; some resources allow names of 32 KB."""

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizer_from(config: Config, image: MetadataImage, clock: Clock) -> Authorizer | None:
    """The configured authorizer, if any."""
    name: str = config["authorizer.class.name"]
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(f"authorizer.class.name: there is no '{name}' here; use {STANDARD_AUTHORIZER} or nothing")
    everyone = str(config.get("allow.everyone.if.no.acl.found", "false")).strip().lower() == "true"
    return Authorizer(image, super_users(str(config.get("super.users", "") or "")), everyone, clock)


def super_users(text: str) -> frozenset[str]:
    """`super.users`: principals separated by semicolons, because names of certificates have commas."""
    users = set()
    for user in filter(None, (part.strip() for part in text.split(";"))):
        if ":" not in user:
            raise ConfigError(f"super.users: '{user}' is not a principal (User:name; several with ';' between them)")
        users.add(user)
    return frozenset(users)


class Authorizer:
    """Makes the decisions; one per broker."""

    def __init__(
        self, image: MetadataImage, superusers: Iterable[str], allow_if_no_acl: bool, clock: Clock | None = None
    ) -> None:
        self._image = image
        self.super_users = frozenset(superusers)
        self.allow_if_no_acl = allow_if_no_acl
        self._audit = RateLimitedLog(logging.getLogger("ottla.authorizer"), clock)
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}
        self.decision_characters = 0
        """The characters of the names in `_decisions`."""
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        self._prefix_lengths: dict[int, list[int]] = {}
        self.reload()

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Follow the metadata log: a changed ACL is in force when the answer that confirms it is sent."""
        kinds = (stored.AccessControlEntryRecord, stored.RemoveAccessControlEntryRecord)
        if any(isinstance(record, kinds) for record in records):
            self.reload()

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.decision_characters = 0

    def reload(self) -> None:
        self._forget_decisions()
        self._literal, self._prefixed, self._prefix_lengths = {}, {}, {}
        for acl in self._image.acls.values():
            index = self._prefixed if acl.pattern_type == PatternType.PREFIXED else self._literal
            index.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        for kind, prefix in self._prefixed:
            lengths = self._prefix_lengths.setdefault(kind, [])
            if len(prefix) not in lengths:
                lengths.append(len(prefix))

    def allows(
        self, principal: str, host: str, operation: int, kind: int, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """Whether `principal`, coming from the address `host`, may do `operation` with a resource."""
        if principal in self.super_users:
            return True
        key = (principal, host, operation, kind, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= DECISIONS_MAX or self.decision_characters >= DECISION_CHARACTERS_MAX:
                self._forget_decisions()
            self.decision_characters += len(principal) + len(name)
            allowed = self._decisions[key] = self._decide(*key)
        if not allowed and audit:
            self._audit.info(
                principal,
                "%s is denied %s on %s:%s from %s",
                principal,
                AclOperation(operation).name,
                _shown(ResourceType(kind)),
                name if len(name) <= _SHOWN_NAME_MAX else f"{name[:_SHOWN_NAME_MAX]}…",
                host,
            )
        return allowed

    def _decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        found = allowed = False
        for acl in self._applying(kind, name):
            found = True
            if acl.principal not in (principal, _EVERYBODY) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission_type == AclPermissionType.DENY:
                if acl.operation in (AclOperation.ALL, operation):
                    return False
            elif not allowed:
                allowed = acl.operation == AclOperation.ALL or _implies(acl.operation, operation)
        return allowed or (self.allow_if_no_acl and not found)

    def _applying(self, kind: int, name: str) -> Iterable[Acl]:
        """The ACLs whose pattern matches a resource."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())

    def allows_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether `operation` is allowed on any resource of this kind, known or not.

        That is the case if an ALLOW pattern is not covered by a DENY: a DENY of everything, of the same literal, or
        of a prefix of it.
        """
        if principal in self.super_users:
            return True
        allows: list[Acl] = []
        deny_literals: set[str] = set()
        deny_prefixes: set[str] = set()
        for acl in self._image.acls.values():
            if (
                acl.resource_type != kind
                or acl.principal not in (principal, _EVERYBODY)
                or acl.host not in (host, WILDCARD)
                or acl.operation not in (AclOperation.ALL, operation)
            ):
                continue
            if acl.permission_type == AclPermissionType.ALLOW:
                allows.append(acl)
            elif acl.pattern_type == PatternType.LITERAL:
                deny_literals.add(acl.resource_name)
            else:
                deny_prefixes.add(acl.resource_name)
        if WILDCARD in deny_literals:
            return False
        if self.allow_if_no_acl:
            return True
        return any(not _covered(acl, deny_literals, deny_prefixes) for acl in allows)

    def operations(self, principal: str, host: str, kind: int, name: str) -> int:
        """The allowed operations as a bit field."""
        field = 0
        for operation in SUPPORTED_OPERATIONS[kind]:
            if self.allows(principal, host, operation, kind, name, audit=False):
                field |= 1 << operation
        return field


def _shown(kind: ResourceType) -> str:
    """As in Kafka's log: `TransactionalId`."""
    return kind.name.title().replace("_", "")


def _implies(granted: int, wanted: int) -> bool:
    if wanted == AclOperation.DESCRIBE:
        return granted in _IMPLY_DESCRIBE
    if wanted == AclOperation.DESCRIBE_CONFIGS:
        return granted in _IMPLY_DESCRIBE_CONFIGS
    return granted == wanted


def _covered(acl: Acl, literals: set[str], prefixes: set[str]) -> bool:
    if acl.pattern_type == PatternType.LITERAL:
        if acl.resource_name == WILDCARD:
            return False
        if acl.resource_name in literals:
            return True
    return any(acl.resource_name.startswith(prefix) for prefix in prefixes)
