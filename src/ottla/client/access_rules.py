"""ACLs as people write them: `alice read,describe topic:orders`, `deny bob write topic:*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.access import Acl
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType

CLUSTER_NAME: Final = "kafka-cluster"


def _words(kind: type[Any]) -> dict[str, Any]:
    return {each.name.lower().replace("_", "-"): each for each in kind if each.name not in ("UNKNOWN", "ANY")}


OPERATIONS: Final[Mapping[str, AclOperation]] = _words(AclOperation)
RESOURCES: Final[Mapping[str, ResourceType]] = _words(ResourceType)
GRAMMAR: Final = '"[deny] USER OPERATION[,…] RESOURCE[:NAME] [from HOST]", such as "alice read,describe topic:orders"'


def rule_text(acl: Acl) -> str:
    """A rule in the syntax of `parse_rules`."""
    deny = "deny " if acl.permission == AclPermissionType.DENY else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{deny}{acl.principal.removeprefix('User:')} {_word(acl.operation)} {resource_text(acl)}{host}"


def resource_text(acl: Acl) -> str:
    kind = _word(acl.resource_type)
    if acl.resource_type == ResourceType.CLUSTER:
        return kind
    return f"{kind}:{acl.resource_name}{'*' if acl.pattern_type == PatternType.PREFIXED else ''}"


def _word(value: AclOperation | ResourceType) -> str:
    return value.name.lower().replace("_", "-")


def parse_rules(text: str) -> list[Acl]:
    """Parse a line into rules, one per operation. Raises ValueError if the line is invalid.

    `[deny] USER OPERATION[,…] RESOURCE[:NAME] [from HOST]`. A name that ends in `*` is a prefix; `*` alone means all
    users or resources.
    """
    words = text.split()
    permission = AclPermissionType.ALLOW
    if words[:1] in (["allow"], ["deny"]):
        permission = AclPermissionType[words.pop(0).upper()]
    host = "*"
    if len(words) == 5 and words[3] == "from":
        host = words[4]
        del words[3:]
    if len(words) != 3:
        raise ValueError(f"{text!r} is not a rule: write {GRAMMAR}")
    who, operations, resource = words
    kind, name, pattern = parse_resource(resource)
    principal = principal_of(who)
    return [
        Acl(kind, name, pattern, principal, host, parse_operation(each), permission) for each in operations.split(",")
    ]


def principal_of(who: str) -> str:
    return who if ":" in who else f"User:{who}"


def parse_operation(word: str) -> AclOperation:
    operation = OPERATIONS.get(word.lower().replace("_", "-"))
    if operation is None:
        raise ValueError(f"there is no operation {word!r}; the operations are {', '.join(OPERATIONS)}")
    return operation


def parse_resource(text: str) -> tuple[ResourceType, str, PatternType]:
    word, _, name = text.partition(":")
    kind = RESOURCES.get(word.lower().replace("_", "-"))
    if kind is None:
        raise ValueError(f"there is no kind of resource {word!r}; the resources are {', '.join(RESOURCES)}")
    if kind == ResourceType.CLUSTER:
        return kind, name or CLUSTER_NAME, PatternType.LITERAL
    if not name:
        raise ValueError(f"{text!r} names no {word}: write {word}:NAME, or {word}:* for all")
    if name.endswith("*") and name != "*":
        return kind, name[:-1], PatternType.PREFIXED
    return kind, name, PatternType.LITERAL


def applies_to(acl: Acl, kind: ResourceType, name: str) -> bool:
    """Whether a rule matches this resource by its name, by a prefix, or with `*`."""
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)
