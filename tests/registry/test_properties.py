"""Rules for every schema: it reads itself, an optional field breaks nothing, and transitive levels imply plain ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.registry.avro.schema import AvroSchema
from ottla.registry.catalog import Catalog
from ottla.registry.compatibility import Candidate, find_problems
from ottla.registry.entities import SchemaEntry
from ottla.registry.formats import ParsedSchema, Source, parse
from ottla.registry.json_schema.schema import JsonSchema
from ottla.registry.protobuf.schema import ProtobufSchema
from ottla.registry.state import State

NAMES = st.sampled_from([f"f{number}" for number in range(6)])


def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(items)


avro_types = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(st.sampled_from(["null", "int", "string", "bytes"]), min_size=1, unique=True),
    ),
    max_leaves=4,
)
avro_fields = st.lists(st.tuples(NAMES, avro_types), max_size=5).map(unique)


def avro(fields: dict[str, Any], **defaults: Any) -> str:
    made = [{"name": name, "type": type_} for name, type_ in fields.items()]
    made += [{"name": name, "type": "int", "default": value} for name, value in defaults.items()]
    return json.dumps({"type": "record", "name": "R", "fields": made})


json_types = st.recursive(
    st.one_of(
        st.sampled_from([{"type": name} for name in ("string", "integer", "number", "boolean", "null")]),
        st.lists(st.sampled_from(["a", "b", 1, None]), min_size=1, unique=True).map(lambda values: {"enum": values}),
        st.integers(0, 9).map(lambda limit: {"type": "string", "maxLength": limit}),
        st.just({}),
    ),
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=3).map(lambda properties: {"type": "object", "properties": properties}),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"oneOf": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"allOf": parts}),
        inner.map(lambda forbidden: {"not": forbidden}),
    ),
    max_leaves=6,
)
json_objects = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(NAMES, json_types, max_size=4),
        "required": st.lists(NAMES, unique=True, max_size=3),
        "additionalProperties": st.booleans() | json_types,
    }
).map(lambda parts: {"type": "object", **parts})

proto_fields = st.lists(
    st.tuples(
        st.integers(1, 9), st.sampled_from(["int32", "string", "M", "E", "double", "map<string, M>", "repeated M"])
    ),
    max_size=6,
).map(unique)


def proto(fields: dict[Any, str], extra: str = "") -> str:
    lines = "".join(f"{type_} f{tag} = {tag};" for tag, type_ in fields.items())
    return f'syntax = "proto3"; message M {{ {lines} {extra} }} enum E {{ Z = 0; }}'


@given(avro_fields)
def test_avro_is_compatible_with_itself(fields: dict[str, Any]) -> None:
    schema = AvroSchema.parse(Source(avro(fields), new=True))
    again = AvroSchema.parse(Source(schema.canonical(), new=True))
    assert again.canonical() == schema.canonical()
    assert schema.cannot_read(again, False) == [] == again.cannot_read(schema, False)
    normal = schema.normalized()
    assert normal.normalized().canonical() == normal.canonical()
    assert normal.cannot_read(schema, False) == []


@given(avro_fields)
def test_avro_with_an_added_default_field_is_compatible_both_ways(fields: dict[str, Any]) -> None:
    old = AvroSchema.parse(Source(avro(fields), new=True))
    new = AvroSchema.parse(Source(avro(fields, extra=1), new=True))
    assert new.cannot_read(old, False) == [] == old.cannot_read(new, False)


@given(json_types | json_objects)
def test_json_schema_is_compatible_with_itself(value: Any) -> None:
    schema = JsonSchema.parse(Source(json.dumps(value), new=True))
    schema.check(True)
    again = JsonSchema.parse(Source(schema.canonical()))
    assert again.canonical() == schema.canonical()
    assert schema.cannot_read(again, False) == []
    assert schema.normalized().cannot_read(schema, False) == []
    assert schema.cannot_read(schema, lenient=True) == []


@given(json_objects, json_types)
def test_json_schema_with_an_added_optional_property_reads_the_closed_one(value: Any, added: Any) -> None:
    closed = {**value, "additionalProperties": False}
    wider = {**closed, "properties": {**value["properties"], "extra": added}}
    old, new = (JsonSchema.parse(Source(json.dumps(one), new=True)) for one in (closed, wider))
    assert new.cannot_read(old, False) == []


@given(json_types, json_types)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_lenient_never_refuses_what_strict_accepts(one: Any, other: Any) -> None:
    old, new = (JsonSchema.parse(Source(json.dumps(value), new=True)) for value in (one, other))
    if not new.cannot_read(old, lenient=False):
        assert new.cannot_read(old, lenient=True) == []


@given(proto_fields)
def test_protobuf_is_compatible_with_itself(fields: dict[Any, str]) -> None:
    schema = ProtobufSchema.parse(Source(proto(fields), new=True))
    schema.check(True)
    again = ProtobufSchema.parse(Source(schema.canonical()))
    assert again.canonical() == schema.canonical()
    assert schema.cannot_read(again, False) == []
    described = ProtobufSchema.parse(Source(schema.formatted("serialized")))
    assert described.canonical() == schema.canonical()
    normal = schema.normalized()
    assert normal.normalized().canonical() == normal.canonical() and normal.cannot_read(schema, False) == []


@given(proto_fields)
def test_protobuf_with_an_added_field_is_compatible_both_ways(fields: dict[Any, str]) -> None:
    old = ProtobufSchema.parse(Source(proto(fields), new=True))
    new = ProtobufSchema.parse(Source(proto(fields, "string extra = 77;"), new=True))
    assert new.cannot_read(old, False) == [] == old.cannot_read(new, False)


def problems(level: str, new: str, previous: list[str]) -> list[str]:
    entries = [SchemaEntry("s", number, number, "AVRO", text) for number, text in enumerate(previous, 1)]
    schema: ParsedSchema = parse("AVRO", Source(new, new=True))
    candidate = Candidate(SchemaEntry("s", 99, 99, "AVRO", new), schema)
    return find_problems(Catalog(State()), {"compatibilityLevel": level}, candidate, entries)


@given(avro_fields, st.lists(avro_fields, max_size=3))
def test_transitive_levels_imply_the_plain_ones_and_full_both(fields: Any, earlier: list[Any]) -> None:
    new, previous = avro(fields), [avro(one) for one in earlier]
    accepted = {
        level: not problems(level, new, previous)
        for level in (
            "NONE",
            "BACKWARD",
            "FORWARD",
            "FULL",
            "BACKWARD_TRANSITIVE",
            "FORWARD_TRANSITIVE",
            "FULL_TRANSITIVE",
        )
    }
    assert accepted["NONE"]
    for level in ("BACKWARD", "FORWARD", "FULL"):
        assert accepted[level] or not accepted[f"{level}_TRANSITIVE"]
    assert accepted["FULL"] == (accepted["BACKWARD"] and accepted["FORWARD"])
    assert accepted["FULL_TRANSITIVE"] == (accepted["BACKWARD_TRANSITIVE"] and accepted["FORWARD_TRANSITIVE"])
