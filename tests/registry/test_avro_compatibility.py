"""Avro: every rule, in both directions. Each row was checked against Apache Avro 1.12.1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.avro.schema import AvroSchema
from ottla.registry.formats import Source

INT, STRING = "int", "string"
MISSING = "READER_FIELD_MISSING_DEFAULT_VALUE"


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields], **more}


def field(name: str, type_: Any = INT, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": [*symbols], **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


A = field("a")
# The change, the old schema, the new one, and the findings of BACKWARD (new reads old) and FORWARD (old reads new).
ROWS: list[tuple[str, Any, Any, list[str], list[str]]] = [
    ("nothing", record(A), record(A), [], []),
    ("field with default added", record(A), record(A, field("b", default=1)), [], []),
    ("field without default added", record(A), record(A, field("b")), [MISSING], []),
    ("field with default removed", record(A, field("b", default=1)), record(A), [], []),
    ("field without default removed", record(A, field("b")), record(A), [], [MISSING]),
    ("field renamed", record(A), record(field("b")), [MISSING], [MISSING]),
    ("field renamed with alias", record(A), record(field("b", aliases=["a"])), [], [MISSING]),
    ("default changed", record(field("a", default=1)), record(field("a", default=2)), [], []),
    ("default removed", record(field("a", default=1)), record(A), [], []),
    ("fields reordered", record(A, field("b")), record(field("b"), A), [], []),
    ("doc changed", record(A, doc="x"), record(A, doc="y"), [], []),
    *(
        (f"{old} to {new}", old, new, [], ["TYPE_MISMATCH"])
        for old, new in (
            ("int", "long"),
            ("int", "float"),
            ("int", "double"),
            ("long", "float"),
            ("long", "double"),
            ("float", "double"),
        )
    ),
    ("string to bytes", "string", "bytes", [], []),
    ("bytes to string", "bytes", "string", [], []),
    ("int to string", "int", "string", ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
    ("boolean to int", "boolean", "int", ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
    ("null to int", "null", "int", ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
    ("array to map", array(INT), mapping(INT), ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
    ("items of an array widened", array(INT), array("long"), [], ["TYPE_MISMATCH"]),
    ("values of a map changed", mapping(INT), mapping(STRING), ["TYPE_MISMATCH"], ["TYPE_MISMATCH"]),
    ("type to union with it", INT, ["null", INT], [], ["TYPE_MISMATCH"]),
    ("type to union without it", INT, ["null", STRING], ["MISSING_UNION_BRANCH"], ["TYPE_MISMATCH"] * 2),
    ("union widened", ["null", INT], ["null", INT, STRING], [], ["MISSING_UNION_BRANCH"]),
    ("union narrowed", ["null", INT], ["null"], ["MISSING_UNION_BRANCH"], []),
    ("union to one of its types", ["null", INT], INT, ["TYPE_MISMATCH"], []),
    ("union reordered", ["null", INT], [INT, "null"], [], []),
    ("type in a union promoted", ["null", INT], ["null", "long"], [], ["MISSING_UNION_BRANCH"]),
    ("enum symbol added", enum("A"), enum("A", "B"), [], ["MISSING_ENUM_SYMBOLS"]),
    ("enum symbol added, old has a default", enum("A", default="A"), enum("A", "B"), [], []),
    ("enum symbol removed", enum("A", "B"), enum("A"), ["MISSING_ENUM_SYMBOLS"], []),
    ("enum symbol removed, new has a default", enum("A", "B"), enum("A", default="A"), [], []),
    ("enum symbols reordered", enum("A", "B"), enum("B", "A"), [], []),
    ("fixed size changed", fixed(4), fixed(8), ["FIXED_SIZE_MISMATCH"], ["FIXED_SIZE_MISMATCH"]),
    ("fixed renamed", fixed(4), fixed(4, name="G"), ["NAME_MISMATCH"], ["NAME_MISMATCH"]),
    ("record renamed", record(A), record(A, name="S"), ["NAME_MISMATCH"], ["NAME_MISMATCH"]),
    ("record renamed with alias", record(A), record(A, name="S", aliases=["R"]), [], ["NAME_MISMATCH"]),
    ("namespace changed", record(A, namespace="x"), record(A, namespace="y"), [], []),
    ("logical type added", INT, {"type": "int", "logicalType": "date"}, [], []),
    (
        "two changes at once",
        record(A, field("b", STRING)),
        record(field("a", "boolean"), field("c")),
        ["TYPE_MISMATCH", MISSING],
        ["TYPE_MISMATCH", MISSING],
    ),
]


def parse(value: Any) -> AvroSchema:
    return AvroSchema.parse(Source(json.dumps(value), new=True))


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rules(old: Any, new: Any, backward: list[str], forward: list[str]) -> None:
    assert [found.type for found in parse(new).cannot_read(parse(old), False)] == backward
    assert [found.type for found in parse(old).cannot_read(parse(new), False)] == forward


def test_messages_are_confluents() -> None:
    old = parse(record(field("a", record(field("x", enum("A", "B")), name="In"))))
    new = parse(record(field("b"), field("a", record(field("x", enum("A")), name="S"))))
    found = [one.render("new", "old") for one in new.cannot_read(old, False)]
    assert found == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/0' in the new"
        " schema has no default value and is missing in the old schema', additionalInfo:'b'}",
        "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/fields/1/type/name')',"
        " additionalInfo:'expected: In'}",
        "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[B]' at path"
        " '/fields/1/type/fields/0/type/symbols' in the old schema', additionalInfo:'[B]'}",
    ]


def test_recursive_schemas_end() -> None:
    old = parse(record(A, field("next", ["null", "R"], default=None)))
    new = parse(record(field("a", "long"), field("next", ["null", "R"], default=None)))
    assert new.cannot_read(old, False) == []
    assert [found.path for found in old.cannot_read(new, False)] == ["/fields/0/type"]


def test_a_field_that_matches_two_fields_of_the_writer_ends_the_comparison() -> None:
    old = parse(record(A, field("b")))
    new = parse(record(field("c"), field("b", aliases=["a"])))
    messages = [found.render("new", "old") for found in new.cannot_read(old, False)]
    assert messages == [
        "Unexpected exception during compatibility check: Reader record field b type:INT pos:1 matches multiple fields"
        ' in writer record schema {"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
        '{"name":"b","type":"int"}]}'
    ]


def test_an_alias_that_is_the_name_again_is_a_second_field_to_avro() -> None:
    schema = parse(record(field("a", aliases=["a"])))
    assert [found.type for found in schema.cannot_read(schema, False)] == [""]
