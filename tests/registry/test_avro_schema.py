"""Avro: which schemas are valid, and the text that is stored."""

from __future__ import annotations

import json
import random
from typing import Any

import fastavro
import pytest

from ottla.registry.avro.schema import AvroSchema
from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import Source


def parse(value: Any, new: bool = True) -> AvroSchema:
    return AvroSchema.parse(Source(value if isinstance(value, str) else json.dumps(value), new=new))


# Each schema as given and as Apache Avro's Java library prints it.
CANONICAL = [
    ('{"type": "string"}', '"string"'),
    (' [ "null" , {"type":"long"} ] ', '["null","long"]'),
    (
        '{"fields":[{"type":"int","name":"a"}],"doc":"d","name":"n.s.R","type":"record","x":1,"aliases":["Q","o.P"]}',
        '{"type":"record","name":"R","namespace":"n.s","doc":"d","fields":[{"name":"a","type":"int"}],"x":1,'
        '"aliases":["Q","o.P"]}',
    ),
    (
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"s","type":{"type":"record","name":"n.S",'
        '"fields":[]}},{"name":"t","type":"n.S"},{"name":"u","type":{"type":"fixed","size":2,"name":"o.F"}}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"s","type":{"type":"record","name":"S",'
        '"fields":[]}},{"name":"t","type":"S"},{"name":"u","type":{"type":"fixed","name":"F","namespace":"o",'
        '"size":2}}]}',
    ),
    (
        '{"type":"record","name":"R","fields":[{"p":1,"aliases":["b"],"order":"ignore","default":1e10,"doc":"x",'
        '"type":"double","name":"a"},{"name":"c","order":"ascending","type":"float","default":0.00001}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","doc":"x","default":1.0E10,'
        '"order":"ignore","aliases":["b"],"p":1},{"name":"c","type":"float","default":1.0E-5}]}',
    ),
    (
        '{"type":"enum","symbols":["A","B"],"default":"A","name":"E","doc":"d"}',
        '{"type":"enum","name":"E","doc":"d","symbols":["A","B"],"default":"A"}',
    ),
    (
        '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal"}',
        '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal"}',
    ),
    ('{"type":"map","values":{"type":"array","items":"int","k":"é"}}', None),
]


@pytest.mark.parametrize(("given", "wanted"), CANONICAL)
def test_the_canonical_text_is_that_of_apache_avro(given: str, wanted: str | None) -> None:
    text = parse(given).canonical()
    assert text == (wanted or given)
    assert parse(text).canonical() == text
    # Another implementation reads it as the same schema.
    to_canonical = fastavro.schema.to_parsing_canonical_form
    assert to_canonical(json.loads(text)) == to_canonical(json.loads(given))


def test_normalizing_orders_properties_and_aliases() -> None:
    one = parse('{"type":"bytes","zoo":{"b":1,"a":2},"scale":2,"logicalType":"decimal","precision":4,"abc":1}')
    other = parse('{"abc":1,"logicalType":"decimal","precision":4,"scale":2,"type":"bytes","zoo":{"a":2,"b":1}}')
    assert one.canonical() != other.canonical()
    assert one.normalized().canonical() == other.normalized().canonical()
    assert one.normalized().canonical() == (
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2,"abc":1,"zoo":{"a":2,"b":1}}'
    )


# Each schema as given and as Confluent's Java library normalises it.
NORMALIZED = [
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":0},{"name":"b","type":'
        '{"type":"array","items":"float"},"default":[1,2.5]},{"name":"c","type":["double","null"],"default":3},'
        '{"name":"d","type":{"type":"map","values":"double"},"default":{"z":1,"y":2}},'
        '{"name":"e","type":{"type":"record","name":"S","fields":[{"name":"f","type":"double"}]},"default":{"f":7}}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":0.0},{"name":"b","type":'
        '{"type":"array","items":"float"},"default":[1.0,2.5]},{"name":"c","type":["double","null"],"default":3.0},'
        '{"name":"d","type":{"type":"map","values":"double"},"default":{"y":2.0,"z":1.0}},'
        '{"name":"e","type":{"type":"record","name":"S","fields":[{"name":"f","type":"double"}]},"default":{"f":7.0}}]}',
    ),
    # Not a decimal in Avro, so precision and scale are ordinary properties.
    (
        '{"type":"long","scale":2,"precision":4,"prop":1,"logicalType":"decimal"}',
        '{"type":"long","logicalType":"decimal","precision":4,"prop":1,"scale":2}',
    ),
    (
        '{"type":"fixed","name":"F","size":2,"scale":2,"prop":1,"logicalType":"decimal","precision":4}',
        '{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":4,"scale":2,"prop":1}',
    ),
    (
        '{"type":"fixed","name":"F","size":2,"scale":2,"prop":1,"logicalType":"decimal","precision":5}',
        '{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":5,"prop":1,"scale":2}',
    ),
]


@pytest.mark.parametrize(("given", "wanted"), NORMALIZED)
def test_normalized_text(given: str, wanted: str) -> None:
    text = parse(given).normalized().canonical()
    assert text == wanted
    assert parse(text).normalized().canonical() == text


def test_a_type_within_a_type_is_that_type() -> None:
    assert parse('{"type": {"type": "int"}}').canonical() == '"int"'


INVALID = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("nonsense", "not JSON"),
    ("1", "Schema not yet supported: 1"),
    ('"nope"', "Undefined schema: nope"),
    ("{}", "No type"),
    ({"type": "record", "fields": []}, "No name in schema"),
    ({"type": "record", "name": "R"}, "Record has no fields"),
    ({"type": "record", "name": "1R", "fields": []}, "Illegal initial character: 1R"),
    ({"type": "record", "name": "a-b", "fields": []}, "Illegal character in: a-b"),
    ({"type": "record", "name": "", "fields": []}, "Empty name"),
    ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "No field type"),
    ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "No field name"),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "long"}]},
        "Duplicate field a in record R: a type:LONG pos:1 and a type:INT pos:0.",
    ),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]},
        'Invalid default for field a: "x" not a "int"',
    ),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"], "default": "x"}]},
        'Invalid default for field a: "x" not a ["null","int"]',
    ),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "Duplicate enum symbol: A"),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "The Enum Default: B is not in the enum symbol"),
    ({"type": "enum", "name": "E"}, "Enum has no symbols"),
    ({"type": "fixed", "name": "F", "size": -1}, "Invalid or no size"),
    ({"type": "array"}, "Array has no items type"),
    ({"type": "map"}, "Map has no values type"),
    (["int", "int"], "Duplicate in union:int"),
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999}]}',
        "1E+999 is too large for a double",
    ),
    (["null", ["int"]], "Nested union"),
    ([{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}], "Can't redefine: F"),
]


@pytest.mark.parametrize(("given", "problem"), INVALID)
def test_invalid_schemas_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(given).canonical()
    assert problem in str(caught.value)


def test_a_stored_schema_may_have_mistakes_that_are_now_refused() -> None:
    value = {
        "type": "record",
        "name": "R",
        "namespace": "a-b",
        "fields": [{"name": "a", "type": "int", "default": "x"}],
    }
    assert parse(value, new=False).canonical() == json.dumps(value, separators=(",", ":"))


def test_the_check_of_a_default_that_contains_itself_ends() -> None:
    field = {"name": "r", "type": "R", "default": {}}
    with pytest.raises(InvalidSchema):
        parse({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, field]})


def test_references_stay_names_unless_resolved() -> None:
    inner = '{"type":"record","name":"In","namespace":"n","fields":[]}'
    outer = '{"type":"record","name":"Out","namespace":"n","fields":[{"name":"i","type":"n.In"}]}'
    schema = AvroSchema.parse(Source(outer, resolved=(("n.In", inner),), new=True))
    assert schema.canonical() == ('{"type":"record","name":"Out","namespace":"n","fields":[{"name":"i","type":"In"}]}')
    assert schema.formatted("resolved") == (
        '{"type":"record","name":"Out","namespace":"n","fields":[{"name":"i","type":'
        '{"type":"record","name":"In","fields":[]}}]}'
    )
    assert schema.formatted("whatever") == schema.canonical()


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    assert parse(nested(90)).canonical() == nested(90)
    for depth in (101, 1_000, 100_000):
        with pytest.raises(InvalidSchema, match="nested deeper than 100 levels"):
            parse(nested(depth))


def test_a_schema_with_many_fields_is_parsed_quickly() -> None:
    fields = [{"name": f"f{number}", "type": "string"} for number in range(5_000)]
    schema = parse({"type": "record", "name": "R", "fields": fields})
    random.Random(1).shuffle(fields)
    other = parse({"type": "record", "name": "R", "fields": fields})
    assert schema.cannot_read(other, False) == []
