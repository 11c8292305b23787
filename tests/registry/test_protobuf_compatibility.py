"""Protobuf: every rule, in both directions."""

from __future__ import annotations

import pytest

from ottla.registry.entities import Reference
from ottla.registry.formats import Source
from ottla.registry.protobuf.schema import ProtobufSchema

SCALAR = ["FIELD_SCALAR_KIND_CHANGED"]
KIND = ["FIELD_KIND_CHANGED"]
NAMED = ["FIELD_NAMED_TYPE_CHANGED"]
LABEL = ["FIELD_NUMERIC_LABEL_CHANGED"]


def message(body: str, rest: str = "") -> str:
    return f'syntax = "proto3"; message M {{ {body} }} {rest}'


def proto2(body: str) -> str:
    return f'syntax = "proto2"; message M {{ {body} }}'


def types(old: str, new: str) -> tuple[str, str]:
    return message(f"{old} a = 1;", "enum E { Z = 0; } message N {}"), message(
        f"{new} a = 1;", "enum E { Z = 0; } message N {}"
    )


# The change, the old file, the new one, and the findings of BACKWARD and FORWARD.
ROWS: list[tuple[str, str, str, list[str], list[str]]] = [
    ("nothing", message("int32 a = 1;"), message("int32 a = 1;"), [], []),
    ("field added", message("int32 a = 1;"), message("int32 a = 1; string b = 2;"), [], []),
    ("field renamed", message("int32 a = 1;"), message("int32 b = 1;"), [], []),
    ("field renumbered", message("int32 a = 1;"), message("int32 a = 2;"), [], []),
    ("reserved, comment and option", message("int32 a = 1;"),
     message("reserved 5; /* x */ int32 a = 1 [deprecated = true];"), [], []),
    *(
        (f"{old} to {new}", *types(old, new), [], [])
        for old, new in (
            ("int32", "int64"), ("uint32", "bool"), ("int32", "E"), ("sint32", "sint64"), ("string", "bytes"),
            ("fixed32", "sfixed32"), ("fixed64", "sfixed64"),
        )
    ),
    *(
        (f"{old} to {new}", *types(old, new), SCALAR, SCALAR)
        for old, new in (
            ("int32", "sint32"), ("int32", "string"), ("int32", "fixed32"), ("float", "double"), ("fixed32", "fixed64"),
            ("E", "string"),
        )
    ),
    ("scalar to message", *types("int32", "N"), KIND, KIND),
    ("scalar to map", *types("int32", "map<string, string>"), KIND, KIND),
    ("message to map", *types("N", "map<string, string>"), KIND, KIND),
    ("key of a map", *types("map<int32, string>", "map<string, string>"), SCALAR, SCALAR),
    ("value of a map", *types("map<string, int32>", "map<string, N>"), KIND, KIND),
    ("message of another name", message("N a = 1;", "message N {} message O {}"),
     message("O a = 1;", "message N {} message O {}"), NAMED, NAMED),
    ("package", "package a; message M {}", "package b; message M {}", ["PACKAGE_CHANGED"], ["PACKAGE_CHANGED"]),
    ("message added", message(""), message("", "message N {}"), [], ["MESSAGE_REMOVED"]),
    ("nested message added", message(""), message("message N {}"), [], ["MESSAGE_REMOVED"]),
    ("messages reordered", message("", "message N {}"), 'syntax = "proto3"; message N {} message M {}', [], []),
    ("enum added", message(""), message("", "enum E { Z = 0; }"), [], []),
    ("enum constant added and renamed", message("", "enum E { Z = 0; }"), message("", "enum E { Y = 0; X = 1; }"), [],
     []),
    ("field added to a oneof", message("oneof o { int32 a = 1; }"), message("oneof o { int32 a = 1; int32 b = 2; }"),
     [], ["ONEOF_FIELD_REMOVED"]),
    ("one field into a new oneof", message("int32 a = 1;"), message("oneof o { int32 a = 1; }"), [], []),
    ("two fields into a new oneof", message("int32 a = 1; int32 b = 2;"),
     message("oneof o { int32 a = 1; int32 b = 2; }"), ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"], []),
    ("a field into an existing oneof", message("int32 a = 1; oneof o { int32 b = 2; }"),
     message("oneof o { int32 b = 2; int32 a = 1; }"), ["FIELD_MOVED_TO_EXISTING_ONEOF"], []),
    ("oneof removed with all its fields", message("oneof o { int32 a = 1; }"), message(""), [], []),
    ("oneof renamed", message("oneof o { int32 a = 1; }"), message("oneof p { int32 a = 1; }"), [], []),
    ("type of a field in a oneof", message("oneof o { int32 a = 1; }"), message("oneof o { string a = 1; }"), SCALAR,
     SCALAR),
    ("label of a number", proto2("optional int32 a = 1;"), proto2("repeated int32 a = 1;"), LABEL, LABEL),
    ("label of a string", proto2("optional string a = 1;"), proto2("repeated string a = 1;"), [], []),
    ("plain to repeated", message("int32 a = 1;"), message("repeated int32 a = 1;"), [], []),
    ("required field added", proto2(""), proto2("required int32 a = 1;"), ["REQUIRED_FIELD_ADDED"],
     ["REQUIRED_FIELD_REMOVED"]),
    ("recursive message", message("M m = 1; int32 a = 2;"), message("M m = 1; string a = 2;"), SCALAR, SCALAR),
]  # fmt: skip


def parse(text: str, **files: str) -> ProtobufSchema:
    """Parses a file and its imports, as name.proto=text; a number after the name is the version."""
    references, resolved = [], []
    for key, content in files.items():
        name, _, version = key.partition("_")
        references.append(Reference(f"{name}.proto", name, int(version or 1)))
        resolved.append((f"{name}.proto", content))
    schema = ProtobufSchema.parse(Source(text, tuple(references), tuple(resolved), new=True))
    schema.check(True)
    return schema


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rules(old: str, new: str, backward: list[str], forward: list[str]) -> None:
    assert [found.type for found in parse(new).cannot_read(parse(old), False)] == backward
    assert [found.type for found in parse(old).cannot_read(parse(new), False)] == forward


def test_messages_are_confluents() -> None:
    old, new = parse(message("message N { int32 a = 1; }")), parse(message("message N { string a = 1; }"))
    assert [found.render("new", "old") for found in new.cannot_read(old, False)] == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/N/1\' in the new'
        ' schema does not match its kind in the old schema"}'
    ]


USING = 'syntax = "proto3"; package p; import "common.proto"; message M { q.C c = 1; }'
COMMON = 'syntax = "proto3"; package q; message C { int32 a = 1; }'


def test_an_import_is_compared_when_its_version_changed() -> None:
    old = parse(USING, common_1=COMMON)
    assert parse(USING, common_2=COMMON).cannot_read(old, False) == []
    changed = parse(USING, common_2=COMMON.replace("int32", "string"))
    assert [(found.type, found.path) for found in changed.cannot_read(old, False)] == [
        ("FIELD_SCALAR_KIND_CHANGED", "#/C/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "#/M/1"),
    ]


def test_a_message_that_moves_to_an_import_is_removed() -> None:
    old = parse('syntax = "proto3"; package p; message M { C c = 1; } message C { int32 a = 1; }')
    found = parse(USING, common=COMMON).cannot_read(old, False)
    assert [one.type for one in found] == ["MESSAGE_REMOVED"]
