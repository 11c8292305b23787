"""Access control: ACLs, quotas and SCRAM users."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.client import access, admin
from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType, ScramMechanism

E = TypeVar("E", bound=IntEnum)

_IN_FILTERS_ONLY: Final = frozenset({"UNKNOWN", "ANY", "MATCH"})


def _names(kind: type[IntEnum]) -> list[str]:
    return [each.name for each in kind if each.name not in _IN_FILTERS_ONLY]


_ACL: Final = {
    "type": "object",
    "required": ["resource_type", "resource_name", "principal", "operation"],
    "properties": {
        "resource_type": {"enum": _names(ResourceType)},
        "resource_name": {"type": "string"},
        "pattern_type": {"enum": _names(PatternType), "default": "LITERAL"},
        "principal": {"type": "string", "description": "User:name"},
        "host": {"type": "string", "default": "*"},
        "operation": {"enum": _names(AclOperation)},
        "permission": {"enum": _names(AclPermissionType), "default": "ALLOW"},
    },
}


def _member(call: Call, name: str, kind: type[E], default: str | None = None) -> E:
    text = call.text(name, default)
    if text not in _names(kind):
        raise BadRequest(f"{name}={text!r} is not one of {', '.join(_names(kind))}")
    return kind[text]


def _acl(call: Call) -> access.Acl:
    principal = call.text("principal")
    if ":" not in principal:
        raise BadRequest(f"principal={principal!r} has no type: write User:{principal}")
    return access.Acl(
        _member(call, "resource_type", ResourceType),
        call.text("resource_name"),
        _member(call, "pattern_type", PatternType, "LITERAL"),
        principal,
        call.text("host", "*"),
        _member(call, "operation", AclOperation),
        _member(call, "permission", AclPermissionType, "ALLOW"),
    )


@operation("GET", "/acls")
async def list_acls(call: Call) -> Any:
    """All ACLs."""
    return [
        {
            "resource_type": each.resource_type.name,
            "resource_name": each.resource_name,
            "pattern_type": each.pattern_type.name,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation.name,
            "permission": each.permission.name,
        }
        for each in sorted(await access.list_acls(call.source.client))
    ]


@operation("POST", "/acls", body=_ACL)
async def create_acl(call: Call) -> Any:
    """Add an ACL."""
    await access.create_acl(call.source.client, _acl(call))
    return {}


@operation("POST", "/acls/delete", body=_ACL)
async def delete_acl(call: Call) -> Any:
    """Delete the ACL that has exactly these values."""
    if not await access.delete_acl(call.source.client, _acl(call)):
        raise NotFound("there is no such ACL")
    return {}


_ENTITY: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


@operation("GET", "/quotas")
async def list_quotas(call: Call) -> Any:
    """All quotas. A name of null means the default of its type."""
    return [
        {"entity": entity, "quotas": quotas} for entity, quotas in await admin.describe_quotas(call.source.client, None)
    ]


@operation(
    "POST",
    "/quotas",
    body={
        "type": "object",
        "required": ["entity", "quotas"],
        "properties": {
            "entity": _ENTITY,
            "quotas": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        },
    },
)
async def change_quotas(call: Call) -> Any:
    """Set quotas of a user, a client id or an address; null removes one."""
    entity, quotas = call.body.get("entity"), call.body.get("quotas")
    if (
        not isinstance(entity, dict)
        or not entity
        or not all(name is None or isinstance(name, str) for name in entity.values())
    ):
        raise BadRequest("""'entity' must name types, such as {"user": "alice"} or {"client-id": null}""")
    if not isinstance(quotas, dict) or not all(
        value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in quotas.values()
    ):
        raise BadRequest("""'quotas' must be numbers, such as {"producer_byte_rate": 1048576}, or null""")
    try:
        changes = {name: None if value is None else float(value) for name, value in quotas.items()}
    except OverflowError:
        raise BadRequest("a quota is too large") from None
    await admin.alter_quotas(call.source.client, entity, changes)
    return {}


@operation("GET", "/users")
async def list_users(call: Call) -> Any:
    """Users that log in with SCRAM."""
    found = await access.list_scram_users(call.source.client)
    return [
        {"user": user, "mechanisms": {each.name.replace("_", "-"): count for each, count in sorted(kinds.items())}}
        for user, kinds in sorted(found.items())
    ]


@operation(
    "POST",
    "/users",
    body={
        "type": "object",
        "required": ["user", "password"],
        "properties": {
            "user": {"type": "string", "minLength": 1},
            "password": {"type": "string", "minLength": 1},
            "mechanism": {"enum": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "default": "SCRAM-SHA-512"},
        },
    },
)
async def set_user(call: Call) -> Any:
    """Create a SCRAM user, or change its password."""
    mechanism = call.text("mechanism", "SCRAM-SHA-512")
    known = {each.name.replace("_", "-"): each for each in ScramMechanism if each.name != "UNKNOWN"}
    if mechanism not in known:
        raise BadRequest(f"mechanism={mechanism!r} is not one of {', '.join(known)}")
    user, password = call.text("user"), call.text("password")
    if not user or not password:
        raise BadRequest("'user' and 'password' must not be empty")
    await access.set_scram_password(call.source.client, user, known[mechanism], password)
    return {"user": user}


@operation("DELETE", "/users/{user}")
async def delete_user(call: Call) -> Any:
    """Delete a SCRAM user."""
    await access.delete_scram_user(call.source.client, call.path["user"])
    return {"user": call.path["user"]}
