"""Associations: which subject a topic uses for its keys or values. Serializers look them up before the first record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from .. import errors
from ..records import Record, association_record
from ..state import State
from . import Outcome

ANY_NAMESPACE = "-"
KINDS = ("key", "value")
LIFECYCLES = ("WEAK", "STRONG")
SHOWN = (
    "subject", "guid", "resourceName", "resourceNamespace", "resourceId", "resourceType", "associationType",
    "lifecycle", "frozen", "createTs", "updateTs",
)  # fmt: skip

Association = dict[str, Any]


def select(state: State, wanted: dict[str, str], kinds: list[str]) -> list[Association]:
    """The associations with all the wanted properties, in a fixed order."""
    found = [value for _, value in sorted(state.associations.items())]
    return [
        {name: value[name] for name in SHOWN if value.get(name) is not None}
        for value in found
        if all(value.get(name) == text for name, text in wanted.items())
        and (not kinds or value.get("associationType") in kinds)
    ]


def update(state: State, request: dict[str, Any], create: bool) -> Outcome[Association]:
    """Create associations of a resource, or change existing ones if `create` is false."""
    resource = {name: _required(request, name) for name in ("resourceName", "resourceNamespace", "resourceId")}
    resource["resourceType"] = request.get("resourceType") or "topic"
    wanted = request.get("associations")
    if not isinstance(wanted, list) or not wanted:
        raise errors.invalid_association("associations", "null or empty")
    records: list[Record] = []
    answers = []
    for one in wanted:
        value = _association(state, resource, one, create)
        key = tuple(
            str(value[name]) for name in ("resourceName", "resourceNamespace", "resourceType", "associationType")
        )
        for old_key, old in state.associations.items():
            if old_key[:4] == key and old.get("subject") != value["subject"]:
                records.append(association_record(old_key, None))
        records.append(association_record((*key, value["subject"]), value))
        answers.append({name: value[name] for name in ("subject", "associationType", "lifecycle", "frozen")})
    return Outcome({**resource, "associations": answers}, records)


def _association(state: State, resource: dict[str, Any], one: Any, create: bool) -> Association:
    if not isinstance(one, dict):
        raise errors.invalid_association("associations", "not an object")
    kind = one.get("associationType") or "value"
    if kind not in KINDS:
        raise errors.invalid_association("associationType", f"'{kind}' is not one of key, value")
    subject = _required(one, "subject")
    lifecycle = str(one.get("lifecycle") or "WEAK").upper()
    if lifecycle not in LIFECYCLES:
        raise errors.invalid_association("lifecycle", f"'{lifecycle}' is not one of WEAK, STRONG")
    if not state.has_subject(subject, deleted=False):
        raise errors.no_active_version(subject)
    for old in state.associations.values():
        same_resource = old.get("resourceId") == resource["resourceId"] and old.get("associationType") == kind
        if same_resource and create and old.get("subject") != subject:
            raise errors.association_exists_for_resource(kind, resource["resourceName"])
        if same_resource and old.get("frozen") and old.get("subject") != subject:
            raise errors.association_frozen(kind, subject)
        if not same_resource and old.get("subject") == subject and "STRONG" in (lifecycle, old.get("lifecycle")):
            raise errors.strong_association_exists(subject)
    digest = hashlib.md5("\0".join((resource["resourceId"], kind, subject)).encode(), usedforsecurity=False).digest()
    return {
        **resource,
        "guid": str(UUID(bytes=digest)),
        "associationType": kind,
        "subject": subject,
        "lifecycle": lifecycle,
        "frozen": bool(one.get("frozen")),
    }


def remove(state: State, resource_id: str, kinds: list[str]) -> Outcome[None]:
    """Remove the associations of a resource."""
    found = _of_resource(state, resource_id, kinds)
    keys = [key for key, _ in found]
    if not keys:
        raise errors.association_not_found(resource_id)
    for _, value in found:
        if value.get("frozen"):
            raise errors.association_frozen(value["associationType"], value["subject"])
    return Outcome(None, [association_record(key, None) for key in keys])


def _of_resource(state: State, resource_id: str, kinds: Iterable[str]) -> list[tuple[tuple[str, ...], Association]]:
    wanted = set(kinds) or set(KINDS)
    return [
        (key, value)
        for key, value in state.associations.items()
        if value.get("resourceId") == resource_id and value.get("associationType") in wanted
    ]


def _required(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text:
        raise errors.invalid_association(name, "null or empty")
    return text
