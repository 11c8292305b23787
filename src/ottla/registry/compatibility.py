"""Compatibility levels: which versions a new schema is compared with, in which direction, and what is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .catalog import Catalog, invalid
from .entities import RESERVED_PROPERTY, SchemaEntry
from .errors import InvalidSchema
from .formats import ParsedSchema
from .records import Config

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
POLICIES = ("STRICT", "LENIENT", "LOGICAL")
DIFFERENT_TYPE = "Incompatible because of different schema type"
# Messages show at most this many characters of an old schema.
MAX_SHOWN = 10 * 1024


class Candidate(NamedTuple):
    """A schema that is about to be registered: its stored form and its parsed form."""

    entry: SchemaEntry
    schema: ParsedSchema


def level_of(name: str) -> str | None:
    """A level by its name in any case; None if the name is unknown."""
    return name.upper() if name.upper() in LEVELS else None


def find_problems(catalog: Catalog, config: Config, candidate: Candidate, previous: list[SchemaEntry]) -> list[str]:
    """Why a schema may not follow the previous versions (oldest first), as messages; empty if it may."""
    problems: list[str] = []
    fields_too = bool(config.get("validateFields"))
    if fields_too:
        problems += _reserved_names(catalog, candidate, previous)
    group = config.get("compatibilityGroup")
    if group is not None:
        wanted = _property(candidate.entry, group)
        previous = [entry for entry in previous if _property(entry, group) == wanted]
    level = config["compatibilityLevel"]
    lenient = config.get("compatibilityPolicy") == "LENIENT"
    problems += _compare(catalog, level, lenient, candidate, previous)
    if problems:
        problems.append(f"{{validateFields: '{str(fields_too).lower()}', compatibility: '{level}'}}")
    return problems


def _compare(
    catalog: Catalog, level: str, lenient: bool, candidate: Candidate, previous: list[SchemaEntry]
) -> list[str]:
    if level == "NONE":
        return []
    newest_first = list(reversed(previous))
    compared: Iterable[SchemaEntry] = newest_first if level.endswith("_TRANSITIVE") else newest_first[:1]
    direction = DIRECTIONS[level.removesuffix("_TRANSITIVE")]
    for entry in compared:
        if entry.schema_type != candidate.schema.schema_type:
            return [DIFFERENT_TYPE]
        try:
            messages = direction(candidate.schema, catalog.parsed(entry), lenient)
        except InvalidSchema as error:
            raise invalid(candidate.schema.schema_type, error) from error
        if messages:
            return [*messages, f"{{oldSchemaVersion: {entry.version}}}", _shown(entry.text)]
    return []


def _backward(new: ParsedSchema, old: ParsedSchema, lenient: bool) -> list[str]:
    return [found.render("new", "old") for found in new.cannot_read(old, lenient)]


def _forward(new: ParsedSchema, old: ParsedSchema, lenient: bool) -> list[str]:
    return [found.render("old", "new") for found in old.cannot_read(new, lenient)]


def _full(new: ParsedSchema, old: ParsedSchema, lenient: bool) -> list[str]:
    return _forward(new, old, lenient) + _backward(new, old, lenient)


DIRECTIONS: dict[str, Callable[[ParsedSchema, ParsedSchema, bool], list[str]]] = {
    "BACKWARD": _backward,
    "FORWARD": _forward,
    "FULL": _full,
}


def _shown(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:MAX_SHOWN]}...'}}"


def _property(entry: SchemaEntry, name: str) -> str | None:
    return ((entry.metadata or {}).get("properties") or {}).get(name)


def _reserved_names(catalog: Catalog, candidate: Candidate, previous: list[SchemaEntry]) -> list[str]:
    """Check that names that the last version reserved stay reserved, and that no field uses a reserved name."""
    problems = []
    reserved = _names(candidate.entry)
    if previous:
        problems += [
            f"The new schema has reserved field {name} removed from its metadata which is present in the old schema's"
            " metadata."
            for name in sorted(_names(previous[-1]) - reserved)
        ]
    problems += [
        f"The new schema has field that conflicts with the reserved field {name}."
        for name in sorted(reserved)
        if candidate.schema.has_field(name)
    ]
    return problems


def _names(entry: SchemaEntry) -> set[str]:
    listed = _property(entry, RESERVED_PROPERTY) or ""
    return {name.strip() for name in listed.split(",") if name.strip()}
