"""/schemas: by id, by GUID, or all of them."""

from __future__ import annotations

from typing import Any

from .. import errors, names
from ..entities import SchemaEntry
from ..formats import SCHEMA_TYPES
from ..operations import Outcome
from ..operations.lookup import by_guid, by_id, versions_with_id
from .bodies import BY_ID_FIELDS, describe
from .http import Call, without_empty

# The limit on schemas per answer, and the default if the request contains no limit.
MAX_LISTED = 1000


def _found(call: Call) -> SchemaEntry:
    entry = by_id(call.state, call.id, call.aliased(call.text("subject")))
    if entry is None:
        raise errors.schema_not_found(call.id)
    return entry


def get_by_id(call: Call) -> Outcome[Any]:
    entry = _found(call)
    body = describe(call, entry)
    if not call.text("subject"):
        del body["subject"], body["version"]
    if call.flag("fetchMaxId"):
        body["maxId"] = call.state.contexts[names.context_of(entry.subject)].max_id
    return Outcome({name: body[name] for name in BY_ID_FIELDS if name in body})


def get_text_by_id(call: Call) -> Outcome[Any]:
    return Outcome(call.catalog.formatted(_found(call), call.text("format")))


def get_subjects(call: Call) -> Outcome[Any]:
    return Outcome(call.page(list(dict.fromkeys(entry.subject for entry in _versions(call)))))


def get_versions(call: Call) -> Outcome[Any]:
    return Outcome(call.page([{"subject": entry.subject, "version": entry.version} for entry in _versions(call)]))


def _versions(call: Call) -> list[SchemaEntry]:
    found = versions_with_id(call.state, call.id, call.aliased(call.text("subject")), call.flag("deleted"))
    if found is None:
        raise errors.schema_not_found()
    return found


def get_by_guid(call: Call) -> Outcome[Any]:
    ids = by_guid(call.state, call.params["guid"])
    entry = call.state.by_id(ids[0]) if ids else None
    if entry is None:
        raise errors.schema_not_found(call.params["guid"])
    body = describe(call, entry)
    del body["subject"], body["version"]
    return Outcome({name: body[name] for name in BY_ID_FIELDS if name in body})


def get_ids_by_guid(call: Call) -> Outcome[Any]:
    return Outcome([{"context": one.context, "id": one.id} for one in sorted(by_guid(call.state, call.params["guid"]))])


def get_types(call: Call) -> Outcome[Any]:
    return Outcome(list(SCHEMA_TYPES))


def list_schemas(call: Call) -> Outcome[Any]:
    deleted = call.flag("deleted")
    entries: list[SchemaEntry] = []
    # Without a prefix, only the default context is searched, unlike in /subjects.
    for subject in call.state.with_prefix(call.text("subjectPrefix")):
        versions = call.state.versions(subject, deleted)
        entries += versions[-1:] if call.flag("latestOnly") else versions
    if rule_type := call.text("ruleType"):
        entries = [entry for entry in entries if _has_rule(entry, rule_type)]
    aliases = _aliases(call) if call.flag("aliases") else {}
    return Outcome(
        [
            without_empty({**describe(call, entry), "aliases": aliases.get(entry.subject)})
            for entry in call.page(entries, MAX_LISTED)
        ]
    )


def _has_rule(entry: SchemaEntry, rule_type: str) -> bool:
    lists = (rules for rules in (entry.rule_set or {}).values() if isinstance(rules, list))
    return any(rule.get("type") == rule_type for rules in lists for rule in rules)


def _aliases(call: Call) -> dict[str, list[str]]:
    """For each subject, its aliases: the subjects whose config refers to it."""
    found: dict[str, list[str]] = {}
    for subject, config in call.state.configs.items():
        if subject is not None and config.get("alias"):
            found.setdefault(names.beside(subject, config["alias"]), []).append(subject)
    return found
