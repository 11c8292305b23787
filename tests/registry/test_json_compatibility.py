"""JSON Schema: every rule, in both directions, and the LENIENT policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import Source
from ottla.registry.json_schema.schema import JsonSchema

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
CLOSED: dict[str, Any] = {"additionalProperties": False}
MODERN: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def obj(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", **({} if properties is None else {"properties": properties}), **more}


def arr(**more: Any) -> dict[str, Any]:
    return {"type": "array", **more}


A = {"a": STRING}
AB = {"a": STRING, "b": INTEGER}
AB_DEFAULT = {"a": STRING, "b": {**INTEGER, "default": 1}}
CHANGED = ["TYPE_CHANGED"]
ADDED_TO_OPEN = ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]
REMOVED_FROM_CLOSED = ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]
SUBSCHEMAS = ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]


def limits(keyword: str, name: str, low: int, high: int, upper: bool, **base: Any) -> list[tuple[Any, ...]]:
    """A limit is added, removed, raised and lowered. An upper limit may be raised, a lower one may be lowered."""
    with_low, with_high = {**base, keyword: low}, {**base, keyword: high}
    wide, narrow = (with_high, with_low) if upper else (with_low, with_high)
    word = "DECREASED" if upper else "INCREASED"
    return [
        (f"{keyword} widened", narrow, wide, [], [f"{name}_{word}"]),
        (f"{keyword} narrowed", wide, narrow, [f"{name}_{word}"], []),
        (f"{keyword} added", base, wide, [f"{name}_ADDED"], []),
        (f"{keyword} removed", wide, base, [], [f"{name}_ADDED"]),
    ]


# The change, the old schema, the new one, and the findings of BACKWARD and FORWARD.
ROWS: list[tuple[Any, ...]] = [
    ("nothing", obj(AB), obj(AB), [], []),
    ("optional property added to open", obj(A), obj(AB), ADDED_TO_OPEN, []),
    ("optional property added to closed", obj(A, **CLOSED), obj(AB, **CLOSED), [], REMOVED_FROM_CLOSED),
    ("optional property added that fits", obj(A, additionalProperties=NUMBER), obj(AB, additionalProperties=NUMBER),
     ["TYPE_NARROWED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"], []),
    ("optional property added, equal to the others", obj(A, additionalProperties=INTEGER),
     obj(AB, additionalProperties=INTEGER), [], []),
    ("property added that does not fit", obj(A, additionalProperties=STRING), obj(AB, additionalProperties=STRING),
     ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
     ["TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    ("property added that fits a pattern", obj(A, patternProperties={"^b": INTEGER}, **CLOSED),
     obj(AB, patternProperties={"^b": INTEGER}, **CLOSED), [], []),
    ("property with empty schema added to open", obj(A), obj({**A, "b": {}}), [], []),
    ("required property added to open", obj(A), obj(AB, required=["b"]),
     ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"], []),
    ("required property added to closed", obj(A, **CLOSED), obj(AB, required=["b"], **CLOSED),
     ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"], REMOVED_FROM_CLOSED),
    ("required property with default added to closed", obj(A, **CLOSED), obj(AB_DEFAULT, required=["b"], **CLOSED), [],
     REMOVED_FROM_CLOSED),
    ("property removed from open", obj(AB), obj(A), [], ADDED_TO_OPEN),
    ("property removed from closed", obj(AB, **CLOSED), obj(A, **CLOSED), REMOVED_FROM_CLOSED, []),
    ("property that nothing fits removed from closed", obj({"a": STRING, "b": False}, **CLOSED), obj(A, **CLOSED), [],
     []),
    ("property made required", obj(A), obj(A, required=["a"]), ["REQUIRED_ATTRIBUTE_ADDED"], []),
    ("property with default made required", obj(AB_DEFAULT), obj(AB_DEFAULT, required=["b"]), [], []),
    ("property made optional", obj(A, required=["a"]), obj(A), [], ["REQUIRED_ATTRIBUTE_ADDED"]),
    ("type changed", STRING, INTEGER, CHANGED, CHANGED),
    ("type of a property changed", obj(A), obj({"a": INTEGER}), CHANGED, CHANGED),
    ("integer to number", INTEGER, NUMBER, [], ["TYPE_NARROWED"]),
    ("type to type or null", STRING, {"type": ["string", "null"]}, [], CHANGED),
    ("types extended", {"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, [],
     ["SUM_TYPE_NARROWED"]),
    ("oneOf extended", {"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER, {"type": "null"}]}, [],
     ["SUM_TYPE_NARROWED"]),
    ("anyOf extended", {"anyOf": [STRING]}, {"anyOf": [STRING, INTEGER]}, [], ["SUM_TYPE_NARROWED"]),
    ("allOf extended", {"allOf": [obj(A)]}, {"allOf": [obj(A), obj({"b": {}})]}, ["PRODUCT_TYPE_EXTENDED"], []),
    ("oneOf to anyOf", {"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, [], ["COMBINED_TYPE_CHANGED"]),
    ("allOf to anyOf", {"allOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, [], ["COMBINED_TYPE_CHANGED"]),
    ("allOf of one to oneOf", {"allOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, [],
     ["COMBINED_TYPE_CHANGED"]),
    ("member of oneOf changed", {"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, {"type": "boolean"}]}, SUBSCHEMAS,
     SUBSCHEMAS),
    ("members of oneOf reordered", {"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, [], []),
    ("enum extended", {"enum": ["a"]}, {"enum": ["a", "b"]}, [], ["ENUM_ARRAY_NARROWED"]),
    ("enum changed", {"enum": ["a"]}, {"enum": ["b"]}, ["ENUM_ARRAY_CHANGED"], ["ENUM_ARRAY_CHANGED"]),
    ("enum of true to one of 1", {"enum": [True]}, {"enum": [1]}, ["ENUM_ARRAY_CHANGED"], ["ENUM_ARRAY_CHANGED"]),
    ("enum beside a type narrowed", {**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["a"]}, SUBSCHEMAS, []),
    ("const changed", {"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED"], ["ENUM_ARRAY_CHANGED"]),
    ("not extended", {"not": STRING}, {"not": {"type": ["string", "integer"]}}, ["NOT_TYPE_EXTENDED"], []),
    ("not of true, then of false", {"not": True}, {"not": False}, [], ["NOT_TYPE_EXTENDED"]),
    ("not of a boolean beside a limit", {"not": False, "maxLength": 5}, {"not": True}, CHANGED, CHANGED),
    ("additional properties closed", obj(), obj(**CLOSED), ["ADDITIONAL_PROPERTIES_REMOVED"], []),
    ("additional properties to a schema", obj(), obj(additionalProperties=STRING), ["ADDITIONAL_PROPERTIES_NARROWED"],
     []),
    *limits("maxLength", "MAX_LENGTH", 5, 9, True, type="string"),
    *limits("minLength", "MIN_LENGTH", 5, 9, False, type="string"),
    *limits("maximum", "MAXIMUM", 5, 9, True, type="number"),
    *limits("minimum", "MINIMUM", 5, 9, False, type="number"),
    *limits("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", 5, 9, True, type="number"),
    *limits("exclusiveMinimum", "EXCLUSIVE_MINIMUM", 5, 9, False, type="number"),
    *limits("maxItems", "MAX_ITEMS", 5, 9, True, type="array"),
    *limits("minItems", "MIN_ITEMS", 5, 9, False, type="array"),
    *limits("maxProperties", "MAX_PROPERTIES", 5, 9, True, type="object"),
    *limits("minProperties", "MIN_PROPERTIES", 5, 9, False, type="object"),
    ("pattern added", STRING, {**STRING, "pattern": "^a"}, ["PATTERN_ADDED"], []),
    ("pattern changed", {**STRING, "pattern": "^b"}, {**STRING, "pattern": "^a"}, ["PATTERN_CHANGED"],
     ["PATTERN_CHANGED"]),
    ("multipleOf added", NUMBER, {**NUMBER, "multipleOf": 5}, ["MULTIPLE_OF_ADDED"], []),
    ("multipleOf reduced", {**NUMBER, "multipleOf": 10}, {**NUMBER, "multipleOf": 5}, [], ["MULTIPLE_OF_EXPANDED"]),
    ("multipleOf changed", {**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}, ["MULTIPLE_OF_CHANGED"],
     ["MULTIPLE_OF_CHANGED"]),
    ("multipleOf written differently", {**NUMBER, "multipleOf": 0.5}, {**NUMBER, "multipleOf": 0.50}, [], []),
    ("uniqueItems added", arr(), arr(uniqueItems=True), ["UNIQUE_ITEMS_ADDED"], []),
    ("items added", arr(), arr(items=STRING), ["SCHEMA_ADDED"], []),
    ("items changed", arr(items=STRING), arr(items=INTEGER), CHANGED, CHANGED),
    ("item of an open tuple added", arr(items=[STRING]), arr(items=[STRING, INTEGER]),
     ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"], []),
    ("item of a closed tuple added", arr(items=[STRING], additionalItems=False),
     arr(items=[STRING, INTEGER], additionalItems=False), [], ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    ("item of a partially open tuple added", arr(items=[STRING], additionalItems=INTEGER),
     arr(items=[STRING, INTEGER], additionalItems=INTEGER), [], []),
    ("additional items closed", arr(items=[STRING]), arr(items=[STRING], additionalItems=False),
     ["ADDITIONAL_ITEMS_REMOVED"], []),
    ("additional items closed beside one schema for all", arr(items=STRING), arr(items=STRING, additionalItems=False),
     [], []),
    ("dependency added", obj(A), obj(A, dependencies={"a": ["b"]}), ["DEPENDENCY_ARRAY_ADDED"], []),
    ("dependency extended", obj(A, dependencies={"a": ["b"]}), obj(A, dependencies={"a": ["b", "c"]}),
     ["DEPENDENCY_ARRAY_EXTENDED"], []),
    ("schema dependency added", obj(A), obj(A, dependencies={"a": obj()}), ["DEPENDENCY_SCHEMA_ADDED"], []),
    ("title, description, default", obj(A, title="x"), obj(A, description="y", default={}), [], []),
    ("moved to a definition", obj(A), {**obj({"a": {"$ref": "#/definitions/s"}}), "definitions": {"s": STRING}}, [],
     []),
    ("to anything", STRING, {}, [], CHANGED),
    ("to true", obj(A), obj({"a": True}), [], CHANGED),
    ("from nothing", obj({"a": False}), obj(A), [], CHANGED),
    ("if and then added", obj(A), {**obj(A), "if": obj(), "then": obj()}, CHANGED, []),
    ("then changed, which is not compared", {**obj(A), "if": obj(), "then": obj()},
     {**obj(A), "if": obj(), "then": STRING}, [], []),
    ("modern: unevaluatedProperties closed", {**MODERN, **obj(A)},
     {**MODERN, **obj(A, unevaluatedProperties=False)}, ["UNEVALUATED_PROPERTIES_REMOVED"], []),
    ("modern: property added where none is left over", {**MODERN, **obj(A, unevaluatedProperties=False)},
     {**MODERN, **obj(AB, unevaluatedProperties=False)}, [], REMOVED_FROM_CLOSED),
    ("modern: prefixItems added to open", {**MODERN, **arr(prefixItems=[STRING])},
     {**MODERN, **arr(prefixItems=[STRING, INTEGER])}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"], []),
    ("modern: items closed", {**MODERN, **arr(prefixItems=[STRING])},
     {**MODERN, **arr(prefixItems=[STRING], items=False)}, ["ADDITIONAL_ITEMS_REMOVED"], []),
    ("modern: dependentRequired added", {**MODERN, **obj(A)}, {**MODERN, **obj(A, dependentRequired={"a": ["b"]})},
     ["DEPENDENCY_ARRAY_ADDED"], []),
    ("modern: beside a $ref", {**MODERN, "$ref": "#/$defs/s", "$defs": {"s": STRING}},
     {**MODERN, "$ref": "#/$defs/s", "maxLength": 3, "$defs": {"s": STRING}}, ["TYPE_CHANGED"], []),
]  # fmt: skip


def parse(value: Any) -> JsonSchema:
    schema = JsonSchema.parse(Source(json.dumps(value), new=True))
    schema.check(True)
    return schema


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rules(old: Any, new: Any, backward: list[str], forward: list[str]) -> None:
    assert [found.type for found in parse(new).cannot_read(parse(old), False)] == backward
    assert [found.type for found in parse(old).cannot_read(parse(new), False)] == forward


LENIENT = [
    (obj(A), obj(AB)),
    (obj(A), obj(AB_DEFAULT, required=["b"])),
    (obj(AB, **CLOSED), obj(A, **CLOSED)),
    (obj(), obj(**CLOSED)),
    (obj(), obj(additionalProperties=STRING)),
]


@pytest.mark.parametrize(("old", "new"), LENIENT)
def test_the_lenient_policy_accepts_more(old: Any, new: Any) -> None:
    assert parse(new).cannot_read(parse(old), lenient=False) != []
    assert parse(new).cannot_read(parse(old), lenient=True) == []


def test_messages_are_confluents() -> None:
    old, new = parse(obj({"a": obj({"b": STRING})})), parse(obj({"a": obj({"b": {**INTEGER, "maximum": 3}})}))
    assert [found.render("new", "old") for found in new.cannot_read(old, False)] == [
        '{errorType:"TYPE_CHANGED", description:"A type at path \'#/properties/a/properties/b\' is different between'
        " the new schema and the old schema'}"
    ]


def tree(leaf: dict[str, Any]) -> dict[str, Any]:
    return {
        "definitions": {"node": obj({"value": leaf, "left": {"$ref": "#/definitions/node"}}, **CLOSED)},
        "$ref": "#/definitions/node",
    }


def test_extremely_large_numbers_are_compared() -> None:
    huge, small = (f'{{"type":"number","multipleOf":{number}}}' for number in ("1e999999", "0.7"))
    old, new = JsonSchema.parse(Source(huge)), JsonSchema.parse(Source(small))
    assert [found.type for found in new.cannot_read(old, False)] == ["MULTIPLE_OF_CHANGED"]


def test_recursive_schemas_end() -> None:
    assert parse(tree(NUMBER)).cannot_read(parse(tree(INTEGER)), False) == []
    found = parse(tree(STRING)).cannot_read(parse(tree(INTEGER)), False)
    assert ("TYPE_CHANGED", "#/properties/value") in [(one.type, one.path) for one in found]


def tangle(count: int, leaf: dict[str, Any]) -> dict[str, Any]:
    """Definitions, each of which refers to all others through a union."""
    names = [f"d{number}" for number in range(count)]
    definitions = {
        name: obj({"x": {"oneOf": [leaf, *({"$ref": f"#/definitions/{other}"} for other in names)]}, name: STRING})
        for name in names
    }
    return {"definitions": definitions, "oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}


def test_references_to_equal_definitions_are_separate_members() -> None:
    def union(first: dict[str, Any]) -> dict[str, Any]:
        definitions = {"first": obj({"id": first}), "second": obj({"id": STRING})}
        return {"definitions": definitions, "oneOf": [{"$ref": f"#/definitions/{name}"} for name in definitions]}

    found = parse(union(NUMBER)).cannot_read(parse(union(STRING)), False)
    assert [one.type for one in found] == SUBSCHEMAS


def test_the_comparison_of_circular_references_ends() -> None:
    assert parse(tangle(12, STRING)).cannot_read(parse(tangle(12, STRING)), False) == []
    assert parse(tangle(12, STRING)).cannot_read(parse(tangle(12, INTEGER)), False) != []


def test_too_many_circular_references_are_refused() -> None:
    old, new = parse(tangle(90, STRING)), parse(tangle(90, INTEGER))
    with pytest.raises(InvalidSchema, match="too complex to compare"):
        new.cannot_read(old, False)
