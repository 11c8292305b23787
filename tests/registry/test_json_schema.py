"""JSON Schema: which schemas are valid, references, and the text that is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import Source
from ottla.registry.json_schema.patterns import matches
from ottla.registry.json_schema.schema import JsonSchema


def parse(value: Any, references: tuple[tuple[str, str], ...] = ()) -> JsonSchema:
    text = value if isinstance(value, str) else json.dumps(value)
    schema = JsonSchema.parse(Source(text, resolved=references, new=True))
    schema.check(False)
    return schema


def test_the_text_keeps_its_order_and_its_numbers() -> None:
    given = '{ "type" : "number", "minimum": 1.50, "maximum": 1e2, "multipleOf": 1E-7, "x": 12345678901234567890 }'
    wanted = '{"type":"number","minimum":1.50,"maximum":1E+2,"multipleOf":1E-7,"x":12345678901234567890}'
    assert parse(given).canonical() == wanted
    assert parse('{"title":"é\\u00e9\\n\\"","type":"string"}').canonical() == '{"title":"éé\\n\\"","type":"string"}'


def test_normalizing_sorts_the_keys() -> None:
    one, other = (
        parse('{"type":"object","properties":{"b":{},"a":{}}}'),
        parse('{"properties":{"a":{},"b":{}},"type":"object"}'),
    )
    assert one.canonical() != other.canonical()
    assert one.normalized().canonical() == other.normalized().canonical()
    assert one.normalized().canonical() == '{"properties":{"a":{},"b":{}},"type":"object"}'


@pytest.mark.parametrize(
    "given", ["true", "false", "{}", '{"$schema":"http://json-schema.org/draft-04/schema#","id":"x"}']
)
def test_the_smallest_schemas_are_valid(given: str) -> None:
    assert parse(given).canonical() == given


DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_is_checked_with_its_own_rules(draft: str) -> None:
    parse({"$schema": draft, "type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}})
    with pytest.raises(InvalidSchema, match="properties/a/maxLength"):
        parse({"$schema": draft, "type": "object", "properties": {"a": {"type": "string", "maxLength": "x"}}})
    # exclusiveMaximum was a boolean in draft 4, and is a number since draft 6.
    value = {"$schema": draft, "type": "number", "maximum": 3, "exclusiveMaximum": True}
    if "draft-04" in draft:
        parse(value)
    else:
        with pytest.raises(InvalidSchema):
            parse(value)


INVALID = [
    ("", "not JSON"),
    ("[]", "expected an object or boolean at the root"),
    ('"x"', "expected an object or boolean at the root"),
    ({"type": "nonsense"}, "nonsense"),
    ({"type": ["string", "nonsense"]}, "nonsense"),
    ({"properties": []}, "properties"),
    ({"properties": {"a": 1}}, "properties/a"),
    ({"required": "a"}, "required"),
    ({"$ref": "#/definitions/none"}, "Unresolved $ref '#/definitions/none'"),
    ({"properties": {"a": {"$ref": "other.json"}}}, "Unresolved $ref 'other.json'"),
    ({"$ref": "https://example.com/x.json"}, "nothing is fetched over HTTP"),
    ({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}, "refers to itself"),
    ({"type": "string", "pattern": "("}, "is not a regular expression"),
    ({"type": "object", "patternProperties": {"[": {}}}, "is not a regular expression"),
    ('{"maximum": NaN}', "NaN is not a JSON number"),
    ('{"title": "\\uD800"}', "unpaired surrogate"),
]


@pytest.mark.parametrize(("given", "problem"), INVALID)
def test_invalid_schemas_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(given)
    assert problem in str(caught.value)


def test_reserved_names_are_refused() -> None:
    schema = JsonSchema.parse(Source('{"type":"object","properties":{"$$a":{}}}'))
    schema.check(fields_too=False)
    with pytest.raises(InvalidSchema, match=r"cannot start with \$\$"):
        schema.check(fields_too=True)


ADDRESS = '{"type":"object","properties":{"zip":{"type":"string"}},"definitions":{"n":{"type":"integer"}}}'
USES = [
    ({"properties": {"a": {"$ref": "address.json"}}}, "address.json"),
    ({"properties": {"a": {"$ref": "address.json#/definitions/n"}}}, "address.json"),
    ({"properties": {"a": {"$ref": "address.json#/$defs/n"}}}, "address.json"),
    ({"$id": "http://x.org/schemas/order.json", "properties": {"a": {"$ref": "address.json"}}}, "address.json"),
    ({"properties": {"a": {"$ref": "http://x.org/address.json"}}}, "http://x.org/address.json"),
    ({"$schema": DRAFTS[4], "properties": {"a": {"$ref": "./address.json"}}}, "address.json"),
]


@pytest.mark.parametrize(("value", "name"), USES)
def test_references(value: Any, name: str) -> None:
    schema = parse(value, ((name, ADDRESS),))
    changed = parse(value, ((name, ADDRESS.replace("string", "boolean").replace("integer", "boolean")),))
    assert schema.cannot_read(parse(value, ((name, ADDRESS),)), False) == []
    assert [found.type for found in schema.cannot_read(changed, False)] == ["TYPE_CHANGED"]


def test_ids_and_anchors_within_a_schema() -> None:
    value = {
        "$schema": DRAFTS[4],
        "$id": "http://x.org/root.json",
        "properties": {"a": {"$ref": "part.json"}, "b": {"$ref": "#named"}},
        "$defs": {"one": {"$id": "part.json", "type": "string"}, "two": {"$anchor": "named", "type": "integer"}},
    }
    assert [node.target.kind for node in parse(value).root.properties.values()] == ["string", "number"]


def test_patterns_with_exponential_cost_do_not_run() -> None:
    # A backtracking engine would need years for the first. The second requires such an engine, and is not run at all.
    assert not matches("^(a+)+$", "a" * 60 + "!")
    assert not matches("^(?=(a+)+$)b", "a" * 60 + "!")
    assert matches("^x-", "x-1") and not matches("^x-", "y")
    schema = parse({"type": "object", "patternProperties": {"^(?=(a+)+$)b": {"type": "string"}, "\\p{L}+": {}}})
    assert schema.cannot_read(schema, False) == []


def nested(depth: int) -> str:
    return '{"properties":{"a":' * depth + "{}" + "}}" * depth


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    schema = parse(nested(45))
    assert schema.cannot_read(parse(nested(45)), False) == []
    for depth in (60, 5_000, 200_000):
        with pytest.raises(InvalidSchema, match="nested deeper than 100 levels"):
            parse(nested(depth))
