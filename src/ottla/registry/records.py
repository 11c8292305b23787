"""The records of a `_schemas` topic, as Confluent's registry writes them: keys and values in compact JSON.

Compaction compares keys byte by byte, so the order of a key's fields is part of the format. An unreadable record raises
CorruptRecord; the reader of the topic reports it and continues.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from .entities import AVRO, Reference, SchemaEntry, clean_metadata, clean_rule_set

TENANT = "default"
# The fields of a CONFIG value, in order. All except the last four are plain values.
CONFIG_FIELDS = (
    "alias", "aliasForDeks", "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibilityLevel",
    "compatibilityPolicy", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet",
    "overrideRuleSet",
)  # fmt: skip
ASSOCIATION_KEY = ("resourceName", "resourceNamespace", "resourceType", "associationType", "subject")
ASSOCIATION_VALUE = (
    "guid", "resourceName", "resourceNamespace", "resourceId", "resourceType", "associationType", "subject",
    "lifecycle", "frozen", "createTs",
)  # fmt: skip

Config = dict[str, Any]


class Record(NamedTuple):
    """A record to write: key and value as bytes, None for a tombstone."""

    key: bytes
    value: bytes | None


class StoredRecord(NamedTuple):
    """A record in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class CorruptRecord(Exception):
    """The record was not written by a registry, or by a later version of one."""


# The decoded contents of a record.


@dataclass(frozen=True, slots=True)
class SchemaPut:
    entry: SchemaEntry


@dataclass(frozen=True, slots=True)
class SchemaRemoved:
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """`subject` is None for the global config; `config` is None if it was removed."""

    subject: str | None
    config: Config | None


@dataclass(frozen=True, slots=True)
class ModeSet:
    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """Soft deletes all versions up to this one."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """Drops soft-deleted versions, because the subject (None: every subject) now accepts imports."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class ContextSet:
    context: str
    exists: bool


@dataclass(frozen=True, slots=True)
class AssociationSet:
    key: tuple[str, ...]
    value: dict[str, Any] | None


class Noop(NamedTuple):
    """Written to find the end of the log."""


Event = (
    SchemaPut
    | SchemaRemoved
    | ConfigSet
    | ModeSet
    | SubjectDeleted
    | SubjectCleared
    | ContextSet
    | AssociationSet
    | Noop
)


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _settings_key(keytype: str, subject: str | None) -> bytes:
    named = {} if subject is None else {"subject": subject}
    return _bytes({"keytype": keytype, **named, "magic": 0})


def schema_key(subject: str, version: int) -> bytes:
    return _bytes({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def schema_record(entry: SchemaEntry) -> Record:
    value: dict[str, Any] = {"subject": entry.subject, "version": entry.version, "id": entry.id}
    value["schemaType"] = entry.schema_type
    if entry.references:
        value["references"] = [reference.to_json() for reference in entry.references]
    if entry.metadata is not None:
        value["metadata"] = entry.metadata
    if entry.rule_set is not None:
        value["ruleSet"] = entry.rule_set
    value["schema"] = entry.text
    value["deleted"] = entry.deleted
    return Record(schema_key(entry.subject, entry.version), _bytes(value))


def schema_tombstone(subject: str, version: int) -> Record:
    return Record(schema_key(subject, version), None)


def config_record(subject: str | None, config: Config | None) -> Record:
    key = _settings_key("CONFIG", subject)
    if config is None:
        return Record(key, None)
    named = {} if subject is None else {"subject": subject}
    return Record(
        key, _bytes({**named, **{name: config[name] for name in CONFIG_FIELDS if config.get(name) is not None}})
    )


def mode_record(subject: str | None, mode: str | None) -> Record:
    named = {} if subject is None else {"subject": subject}
    return Record(_settings_key("MODE", subject), None if mode is None else _bytes({**named, "mode": mode}))


def delete_subject_record(subject: str, version: int) -> Record:
    return Record(_settings_key("DELETE_SUBJECT", subject), _bytes({"subject": subject, "version": version}))


def clear_subject_record(subject: str | None) -> Record:
    named = {} if subject is None else {"subject": subject}
    return Record(_settings_key("CLEAR_SUBJECT", subject), _bytes(named))


def context_record(context: str, exists: bool = True) -> Record:
    value = {"tenant": TENANT, "context": context}
    return Record(_bytes({"keytype": "CONTEXT", **value, "magic": 0}), _bytes(value) if exists else None)


def association_record(key: tuple[str, ...], value: dict[str, Any] | None) -> Record:
    named = dict(zip(ASSOCIATION_KEY, key, strict=True))
    written = None
    if value is not None:
        kept = {name: value[name] for name in ASSOCIATION_VALUE if value.get(name) is not None}
        written = _bytes({"guid": kept.pop("guid", ""), "tenant": TENANT, **kept})
    return Record(_bytes({"keytype": "ASSOC", "tenant": TENANT, **named, "magic": 0}), written)


def read_record(record: StoredRecord) -> Event:
    """Decode a record. Karapace writes an empty value where Confluent writes none; both are tombstones."""
    key = _object(record.key, "key")
    value = _object(record.value, "value") if record.value else None
    keytype = key.get("keytype")
    try:
        if keytype == "SCHEMA":
            return _read_schema(key, value, record.timestamp)
        if keytype == "CONFIG":
            return ConfigSet(_subject(key), None if value is None else read_config(value))
        if keytype == "MODE":
            return ModeSet(_subject(key), None if value is None else _text(value, "mode"))
        if keytype == "DELETE_SUBJECT":
            # A record without a value was deleted; by then the SCHEMA records contain its effect.
            return Noop() if value is None else SubjectDeleted(_text(value, "subject"), _whole(value, "version"))
        if keytype == "CLEAR_SUBJECT":
            return Noop() if value is None else SubjectCleared(_subject(key))
        if keytype == "CONTEXT":
            return ContextSet(_text(key, "context"), value is not None)
        if keytype == "ASSOC":
            return AssociationSet(tuple(str(key.get(name, "")) for name in ASSOCIATION_KEY), value)
        if keytype == "NOOP":
            return Noop()
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise CorruptRecord(f"a {keytype} record that cannot be read: {error!r}") from error
    raise CorruptRecord(f"an unknown kind of record: {keytype!r}")


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if not data:
        raise CorruptRecord(f"a record without a {what}")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"a {what} that is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptRecord(f"a {what} that is not a JSON object")
    return value


def _read_schema(key: dict[str, Any], value: dict[str, Any] | None, timestamp: int) -> Event:
    subject, version = _text(key, "subject"), _whole(key, "version")
    if value is None:
        return SchemaRemoved(subject, version)
    references = tuple(
        Reference(_text(one, "name"), _text(one, "subject"), _whole(one, "version"))
        for one in value.get("references") or ()
    )
    deleted = value.get("deleted", False)
    if not isinstance(deleted, bool):
        raise ValueError(f"deleted is {deleted!r}")
    entry = SchemaEntry(
        subject,
        version,
        _whole(value, "id"),
        value.get("schemaType") or AVRO,
        _text(value, "schema"),
        references,
        clean_metadata(value.get("metadata")),
        clean_rule_set(value.get("ruleSet")),
        deleted,
        timestamp,
        base64.b64decode(value["md5"]) if value.get("md5") else b"",
    )
    return SchemaPut(entry)


def read_config(value: dict[str, Any]) -> Config:
    """A config with the fields that this registry knows."""
    config: Config = {}
    for name in CONFIG_FIELDS:
        given = value.get(name)
        if given is None:
            continue
        if name.endswith("Metadata"):
            config[name] = clean_metadata(given)
        elif name.endswith("RuleSet"):
            config[name] = clean_rule_set(given)
        elif name in ("normalize", "validateFields", "validateNewSchemas", "validateRules"):
            if not isinstance(given, bool):
                raise ValueError(f"{name} is {given!r}")
            config[name] = given
        else:
            config[name] = _text(value, name)
    return config


def _subject(key: dict[str, Any]) -> str | None:
    subject = key.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise ValueError(f"subject is {subject!r}")
    return subject


def _text(value: dict[str, Any], name: str) -> str:
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}")
    return text


def _whole(value: dict[str, Any], name: str) -> int:
    number = value[name]
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} is {number!r}")
    return number
