"""Damaged schemas always get an answer and never cause a crash, and an accepted schema can be read again."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\s+|.', re.DOTALL)
SEEDS = {
    "AVRO": [
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":["null","int"],"default":null},'
        '{"name":"r","type":{"type":"array","items":"R"}},{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}}]}',
        '{"type":"map","values":{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":2}}',
    ],
    "JSON": [
        '{"type":"object","properties":{"a":{"$ref":"#/definitions/d"},"b":{"oneOf":[{"type":"string"},{"enum":[1]}]}},'
        '"required":["a"],"additionalProperties":false,"definitions":{"d":{"type":["string","null"],"maxLength":3}}}',
        '{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"not":{}},true],"items":false}',
    ],
    "PROTOBUF": [
        'syntax = "proto3"; package p; import "google/protobuf/any.proto"; message M { map<string, M> a = 1; oneof o '
        "{ int32 b = 2; google.protobuf.Any c = 3; } reserved 5 to 9; enum E { Z = 0; } optional E e = 10; }",
        'message M { required group G = 1 { optional string a = 2 [default = "x"]; } extensions 100 to max; }',
    ],
}
WORDS = {
    "AVRO": [
        '"type"',
        '"record"',
        "null",
        "1e999",
        "-1",
        "[]",
        "{}",
        '"name"',
        '"\\ud800"',
        '"fields"',
        '"int"',
        "true",
        '"default"',
        '"a.b"',
        '""',
        '"aliases"',
    ],
    "JSON": [
        '"$ref"',
        '"#"',
        '"#/properties/a"',
        "null",
        "1e999",
        "[]",
        "{}",
        "true",
        '"type"',
        '"$id"',
        '"items"',
        '"enum"',
        '"not"',
        '"$anchor"',
        "0",
        '"["',
    ],
    "PROTOBUF": [
        "message",
        "M",
        "{",
        "}",
        ";",
        "=",
        "0",
        "-1",
        "99999999999",
        '"x"',
        "[",
        "]",
        "option",
        "map",
        "<",
        ">",
        "group",
        "oneof",
        "extend",
        "(",
        ")",
        "to",
        "max",
        "0x",
        ".",
        "enum",
    ],
}


def damaged(text: str, words: list[str], chance: random.Random) -> str:
    """The text with a few words replaced, added, removed or repeated."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        tokens = TOKEN.findall(text)
        place = chance.randrange(len(tokens)) if tokens else 0
        kind = chance.randrange(4)
        if kind == 0 or not tokens:
            tokens[place : place + 1] = [chance.choice(words)]
        elif kind == 1:
            tokens.insert(place, f" {chance.choice(words)} ")
        elif kind == 2:
            del tokens[place]
        else:
            tokens[place:place] = tokens[place : place + chance.randrange(1, 12)]
        text = "".join(tokens)
    return text


@pytest.mark.parametrize("schema_type", sorted(SEEDS))
def test_a_damaged_schema_is_refused_or_can_be_read_again(api: Any, schema_type: str) -> None:
    chance = random.Random(7)
    accepted = 0
    for number in range(500):
        text = damaged(chance.choice(SEEDS[schema_type]), WORDS[schema_type], chance)
        subject = f"s{number % 100}"
        body = {"schema": text, "schemaType": schema_type}
        started = time.process_time()
        answer = api.send("POST", f"/subjects/{subject}/versions?normalize={number % 3 == 0}", body)
        assert answer.status in (200, 400, 409, 422), (answer, text)
        assert api.send("POST", f"/compatibility/subjects/{subject}/versions?verbose=true", body).status in (200, 400)
        assert time.process_time() - started < 30, text  # it ends; the benchmark measures how fast
        if answer.status == 200:
            accepted += 1
            again = {"schema": answer.body["schema"], "schemaType": schema_type}
            assert api.ok("POST", f"/subjects/{subject}/versions", again)["id"] == answer.body["id"]
            for name in ("serialized", "resolved", "ignore_extensions"):
                assert api.ok("GET", f"/schemas/ids/{answer.body['id']}?format={name}")["schema"]
    assert 50 < accepted < 450
    assert json.dumps(api.ok("GET", "/schemas")) == json.dumps(api.restarted().ok("GET", "/schemas"))
