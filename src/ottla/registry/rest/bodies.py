"""JSON bodies: schemas in requests and in answers."""

from __future__ import annotations

import re
from typing import Any

from .. import errors, names
from ..entities import AVRO, PROTOBUF, Reference, SchemaEntry, check_rule_set, clean_metadata, clean_rule_set
from .http import Call, without_empty

# The fields of answers without a subject, in Confluent's order.
REGISTERED_FIELDS = ("id", "version", "guid", "schemaType", "references", "metadata", "ruleSet", "schema", "ts")
BY_ID_FIELDS = (
    "subject", "version", "guid", "schemaType", "schema", "references", "metadata", "ruleSet", "maxId", "ts", "deleted",
)  # fmt: skip
# No .proto file looks like this.
_BASE64 = re.compile(r"\s*[A-Za-z0-9+/]+=*\s*")


def read_schema(call: Call, subject: str) -> SchemaEntry:
    """The schema of a request. A missing id is -1, a missing version 0."""
    body = call.object()
    text = body.get("schema")
    schema_type = body.get("schemaType") or AVRO
    if not isinstance(text, (str, type(None))) or not isinstance(schema_type, str):
        raise errors.bad_request("schema and schemaType are strings")
    try:
        references = tuple(_reference(one) for one in body.get("references") or ())
        metadata = clean_metadata(body.get("metadata"))
        rule_set = clean_rule_set(body.get("ruleSet"))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise errors.bad_request(f"The request body has the wrong shape: {error}") from error
    check_rule_set(rule_set)
    id_, version = _whole(body, "id", -1), _whole(body, "version", 0)
    return SchemaEntry(subject, version, id_, schema_type.upper(), text or "", references, metadata, rule_set)


def _reference(value: Any) -> Reference:
    if not isinstance(value, dict):
        raise ValueError("a reference is not an object")
    name, subject, version = value.get("name"), value.get("subject"), value.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
        raise errors.invalid_schema(f"Invalid reference: {value}")
    return Reference(name, subject, version)


def _whole(body: dict[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 2**31 - 1:
        raise errors.bad_request(f"{name} is not a number of a version or schema")
    return value


def describe(call: Call, entry: SchemaEntry) -> dict[str, Any]:
    """A version of a subject for an answer, in the requested format."""
    return without_empty(
        {
            "subject": entry.subject,
            "version": entry.version,
            "id": entry.id,
            "guid": entry.guid,
            "schemaType": entry.schema_type,
            "references": references_of(call, entry),
            "metadata": entry.metadata,
            "ruleSet": entry.rule_set,
            "schema": call.catalog.formatted(entry, call.text("format")),
            "ts": entry.timestamp,
            "deleted": entry.deleted,
        }
    )


def references_of(call: Call, entry: SchemaEntry) -> list[dict[str, Any]]:
    """The references as stored, or with their context if the request asks for it."""
    references = entry.references
    if call.text("referenceFormat") == "qualified" and names.context_of(entry.subject) != names.DEFAULT_CONTEXT:
        references = tuple(one._replace(subject=names.beside(entry.subject, one.subject)) for one in references)
    return [one.to_json() for one in references]


def registered(call: Call, entry: SchemaEntry) -> dict[str, Any]:
    """The answer to a registration.

    A Protobuf file that was sent as a descriptor is returned as one. Confluent's registry returns the text. The Python
    client would keep that text for its deserializers, which only read descriptors.
    """
    body = describe(call, entry)
    if entry.schema_type == PROTOBUF and _BASE64.fullmatch(call.object().get("schema") or "."):
        body["schema"] = call.catalog.formatted(entry, "serialized")
    return {name: body[name] for name in REGISTERED_FIELDS if name in body}
