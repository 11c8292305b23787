"""The stored parts of a schema: text, references, metadata, rules. Schemas with the same hash are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from . import errors

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
# The metadata property with the version of a schema, for users who want every registration to create a new version.
VERSION_PROPERTY = "confluent:version"
# The metadata property that lists reserved field names.
RESERVED_PROPERTY = "confluent:reserved"

MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
RULE_KINDS = ("TRANSFORM", "CONDITION")
MAX_RULE_NAME = 64
RULE_FIELDS = (
    "name",
    "doc",
    "kind",
    "mode",
    "type",
    "tags",
    "params",
    "expr",
    "onSuccess",
    "onFailure",
    "disabled",
)
RULE_DEFAULTS = {"kind": "TRANSFORM", "mode": "WRITEREAD"}
# Each list of a rule set, with its name in messages and the modes that its rules may have.
RULE_LISTS = {
    "migrationRules": ("Migration", MIGRATION_MODES),
    "domainRules": ("Domain", DOMAIN_MODES),
    "encodingRules": ("Encoding", DOMAIN_MODES),
}

Metadata = dict[str, Any]
RuleSet = dict[str, Any]


class Reference(NamedTuple):
    """A schema that another one uses. The text uses `name`; subject and version identify the schema."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(slots=True)
class SchemaEntry:
    """One version of one subject, stored or about to be stored."""

    subject: str
    version: int
    id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    deleted: bool = False
    # When its record was written, in ms; None if it is not stored yet.
    timestamp: int | None = None
    # Given for schemas that Confluent's registry stored encrypted; otherwise computed.
    md5: bytes = field(default=b"")

    def __post_init__(self) -> None:
        if not self.md5:
            self.md5 = schema_hash(self.text, self.references, self.metadata, self.rule_set)

    @property
    def guid(self) -> str:
        return str(UUID(bytes=self.md5))


def schema_hash(
    text: str, references: Iterable[Reference], metadata: Metadata | None, rule_set: RuleSet | None
) -> bytes:
    """The MD5 that identifies a schema in all contexts and registries. As a UUID it is the GUID."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)

    def update(*parts: Any) -> None:
        for part in parts:
            if isinstance(part, dict):
                for key, value in part.items():
                    update(key, value)
            elif isinstance(part, list):
                update(*part)
            elif part is not None:
                digest.update(str(part).encode("utf-8", "surrogatepass"))

    for reference in references:
        update(reference.name, reference.subject)
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\x01")
        update(metadata.get("tags"), metadata.get("properties"), metadata.get("sensitive"))
    if rule_set is not None:
        digest.update(b"\x01")
        for kind in RULE_LISTS:
            for rule in rule_set.get(kind) or ():
                update(*(rule.get(name) for name in RULE_FIELDS if name != "disabled"))
                if rule.get("disabled"):
                    digest.update(b"\x01")
        update(rule_set.get("enableAt"))
    return digest.digest()


def clean_metadata(value: Any) -> Metadata | None:
    """Metadata from JSON, in the order in which Confluent stores it. Raises ValueError for any other structure."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("metadata is not an object")
    cleaned: Metadata = {}
    if (tags := value.get("tags")) is not None:
        cleaned["tags"] = {key: sorted(set(map(str, tags[key]))) for key in sorted(tags)}
    if (properties := value.get("properties")) is not None:
        cleaned["properties"] = {key: str(properties[key]) for key in sorted(properties)}
    if (sensitive := value.get("sensitive")) is not None:
        cleaned["sensitive"] = sorted(set(map(str, sensitive)))
    return cleaned


def clean_rule_set(value: Any) -> RuleSet | None:
    """A rule set from JSON. Raises ValueError for any other structure."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("a rule set is not an object")
    cleaned: RuleSet = {}
    for kind in RULE_LISTS:
        if (rules := value.get(kind)) is not None:
            cleaned[kind] = [_clean_rule(rule) for rule in rules]
    if value.get("enableAt") is not None:
        cleaned["enableAt"] = str(value["enableAt"])
    return cleaned


def _clean_rule(rule: Any) -> dict[str, Any]:
    if not isinstance(rule, dict):
        raise ValueError("a rule is not an object")
    cleaned: dict[str, Any] = {}
    for name in RULE_FIELDS:
        value = rule.get(name) if rule.get(name) is not None else RULE_DEFAULTS.get(name)
        if name == "tags" and value is not None:
            cleaned[name] = sorted(set(map(str, value)))
        elif name == "params" and value is not None:
            cleaned[name] = {key: str(value[key]) for key in sorted(value)}
        elif name == "disabled":
            cleaned[name] = bool(value)
        elif value is not None:
            cleaned[name] = str(value)
    return cleaned


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Refuse a rule set with rules that no client could run."""
    seen: set[str] = set()
    for kind, (word, modes) in RULE_LISTS.items():
        for rule in (rule_set or {}).get(kind) or ():
            for part, known in (("kind", RULE_KINDS), ("mode", MIGRATION_MODES + DOMAIN_MODES)):
                if rule.get(part) not in known:
                    raise errors.bad_request(f"{rule.get(part)} is not the {part} of a rule: {', '.join(known)}")
            name = rule.get("name")
            if name in seen:
                raise errors.invalid_rule_set(f"Found rule with duplicate name '{name}'")
            _check_rule(rule)
            seen.add(name)
            if rule.get("mode") not in modes:
                listed = "UPGRADE, DOWNGRADE, UPDOWN" if modes is MIGRATION_MODES else "WRITE, READ, WRITEREAD"
                raise errors.invalid_rule_set(f"{word} rules can only be {listed}")


def _check_rule(rule: dict[str, Any]) -> None:
    name = rule.get("name")
    if name is None:
        raise errors.invalid_rule_set("Missing rule name")
    if not name:
        raise errors.invalid_rule_set("Empty rule name")
    if len(name) > MAX_RULE_NAME:
        raise errors.invalid_rule_set("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise errors.invalid_rule_set(f"Illegal initial character in rule name: {name}")
    if not all(char.isalnum() or char in "_-" for char in name):
        raise errors.invalid_rule_set(f"Illegal character in rule name: {name}")
    if rule.get("type") is None:
        raise errors.invalid_rule_set("Missing rule type")
    for action in (rule.get("onSuccess"), rule.get("onFailure")):
        if action and "," in action and rule.get("mode") not in (None, "WRITEREAD", "UPDOWN"):
            raise errors.invalid_rule_set("Multiple actions only valid with WRITEREAD and UPDOWN")


def merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Merge both; if both have a tag or a property, the new one wins."""
    if old is None or new is None:
        return new if old is None else old
    merged: dict[str, Any] = {}
    for name in ("tags", "properties"):
        if name in old or name in new:
            merged[name] = {**(old.get(name) or {}), **(new.get(name) or {})}
    if "sensitive" in old or "sensitive" in new:
        merged["sensitive"] = [*(old.get("sensitive") or []), *(new.get("sensitive") or [])]
    return clean_metadata(merged)


def merge_rule_sets(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Merge both; a new rule replaces an old one with the same name."""
    if old is None or new is None:
        return new if old is None else old
    merged: RuleSet = {}
    for kind in RULE_LISTS:
        if kind in old or kind in new:
            added = new.get(kind) or []
            names = {rule.get("name") for rule in added}
            merged[kind] = [rule for rule in old.get(kind) or [] if rule.get("name") not in names] + added
    if enable_at := new.get("enableAt") or old.get("enableAt"):
        merged["enableAt"] = enable_at
    return merged


def version_property(metadata: Metadata | None) -> str | None:
    return ((metadata or {}).get("properties") or {}).get(VERSION_PROPERTY)


def with_version_property(metadata: Metadata | None, version: int | None) -> Metadata:
    """The metadata with the version as a property, or without that property if `version` is None."""
    properties = dict((metadata or {}).get("properties") or {})
    properties.pop(VERSION_PROPERTY, None)
    if version is not None:
        properties[VERSION_PROPERTY] = str(version)
    return clean_metadata({**(metadata or {}), "properties": properties}) or {}
