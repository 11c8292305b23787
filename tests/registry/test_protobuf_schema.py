"""Protobuf: reading text and descriptors, the text that is stored, descriptors for clients."""

from __future__ import annotations

import base64

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.registry.entities import Reference
from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import Source
from ottla.registry.protobuf.known import KNOWN, known_file
from ottla.registry.protobuf.meta import meta_options
from ottla.registry.protobuf.schema import ProtobufSchema

FULL = """
// Comments go.
syntax = "proto3"; package shop.v1;
option java_package = "com.shop"; option (own).part = { a: 1, b: [ "x", "y" ] };
import public "common.proto"; import 'google/protobuf/timestamp.proto';
enum Kind {
  option allow_alias = true; reserved 7, 9 to 11, "OLD"; NONE = 0; ANY = 0; BIG = 0x10; LOW = -1 [deprecated = true];
}
message Order {
  reserved 2, 15, 9 to 11, 1000 to max; reserved "foo";
  option deprecated = false;
  message Line { string sku = 1; Kind kind = 2; message Deep { .shop.v1.Order up = 1; } }
  optional string id = 1 [json_name = "ID", deprecated = true];
  map < string , Line > lines = 3;
  oneof pay { int64 cash = 4; string card = 5 [deprecated = true]; }
  google.protobuf.Timestamp at = 6; repeated common.Address to = 7 [packed = false];
  enum State { NEW = 0; }
  State state = 8;
}
service Shop {
  rpc Buy (Order) returns (stream Order.Line) { option deprecated = true; }; rpc Look(stream Order) returns (Order);
}
"""
STORED = """syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";
import public "common.proto";

option java_package = "com.shop";
option (own).part = {
  a: 1,
  b: [
    "x",
    "y"
  ]
};

message Order {
  reserved 2, 15, 9 to 11, 1000 to max;
  reserved "foo";

  option deprecated = false;

  optional string id = 1 [
    deprecated = true,
    json_name = "ID"
  ];
  map<string, Line> lines = 3;
  google.protobuf.Timestamp at = 6;
  repeated common.Address to = 7 [packed = false];
  State state = 8;

  oneof pay {
    int64 cash = 4;
    string card = 5 [deprecated = true];
  }

  message Line {
    string sku = 1;
    Kind kind = 2;
  \x20\x20
    message Deep {
      .shop.v1.Order up = 1;
    }
  }
  enum State {
    NEW = 0;
  }
}
enum Kind {
  reserved 7, 9 to 11, "OLD";
  option allow_alias = true;
  NONE = 0;
  ANY = 0;
  BIG = 16;
  LOW = -1 [deprecated = true];
}

service Shop {
  rpc Buy (Order) returns (stream Order.Line) {
    option deprecated = true;
  };
  rpc Look (stream Order) returns (Order);
}
""".replace("  \x20\x20\n", "  \n")
COMMON = 'syntax = "proto3"; package common; message Address { string street = 1; }'


def parse(text: str, **files: str) -> ProtobufSchema:
    resolved = tuple((f"{name}.proto", content) for name, content in files.items())
    references = tuple(Reference(name, name, 1) for name, _ in resolved)
    schema = ProtobufSchema.parse(Source(text, references, resolved, new=True))
    schema.check(True)
    return schema


def test_the_stored_text_is_canonical() -> None:
    schema = parse(FULL, common=COMMON)
    assert schema.canonical() == STORED
    assert parse(STORED, common=COMMON).canonical() == STORED


def test_every_feature_of_proto2_is_read() -> None:
    text = """package p;

message M {
  required int32 a = 1 [default = -5];
  optional string b = 2 [default = "x\\"\\n"];
  optional E e = 3 [default = B];
  optional double d = 4 [default = inf];

  repeated group G = 5 {
    optional bytes raw = 6;
  }

  extensions 100 to 199;
}
enum E {
  A = 1;
  B = 2;
}

extend M {
  optional string extra = 100;
}
"""
    schema = parse(text)
    assert schema.canonical() == text
    descriptor = schema.descriptor()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))(a=1)
    assert (made.b, made.e, made.d) == ('x"\n', 2, float("inf"))
    assert ProtobufSchema.parse(Source(schema.formatted("serialized"))).canonical() == text


def test_a_descriptor_and_its_text_are_the_same_schema() -> None:
    schema = parse(FULL.replace('option (own).part = { a: 1, b: [ "x", "y" ] };', ""), common=COMMON)
    serialized = schema.formatted("serialized")
    again = parse(serialized, common=COMMON)
    # Only details that the descriptor does not contain are written differently.
    wanted = schema.canonical().replace(".shop.v1.Order up", "Order up")
    wanted = wanted.replace(
        "  reserved 2, 15, 9 to 11, 1000 to max;\n",
        "  reserved 2;\n  reserved 15;\n  reserved 9 to 11;\n  reserved 1000 to max;\n",
    )
    wanted = wanted.replace('reserved 7, 9 to 11, "OLD";', 'reserved 7;\n  reserved 9 to 11;\n  reserved "OLD";')
    assert again.canonical() == wanted
    assert again.normalized().canonical() == schema.normalized().canonical()


def test_the_descriptor_is_complete() -> None:
    descriptor = parse(FULL, common=COMMON).descriptor()
    order = descriptor.message_type[0]
    fields = {field.name: field for field in order.field}
    assert (fields["lines"].type_name, fields["lines"].label) == (".shop.v1.Order.LinesEntry", 3)
    assert [nested.name for nested in order.nested_type if nested.options.map_entry] == ["LinesEntry"]
    assert fields["state"].type == descriptor_pb2.FieldDescriptorProto.TYPE_ENUM
    assert fields["at"].type_name == ".google.protobuf.Timestamp"
    assert fields["id"].proto3_optional
    assert order.oneof_decl[fields["id"].oneof_index].name == "_id"
    assert order.oneof_decl[fields["cash"].oneof_index].name == "pay"
    assert (descriptor.syntax, descriptor.package) == ("proto3", "shop.v1")
    assert base64.b64decode(parse(FULL, common=COMMON).formatted("serialized")) == descriptor.SerializeToString(
        deterministic=True
    )


def test_an_incomplete_surrogate_is_replaced() -> None:
    text = parse(r'option java_package = "\ud83d\ude00"; option (own) = "a\ud800b\udc00"; message M {}').canonical()
    assert 'option java_package = "\U0001f600";' in text
    assert 'option (own) = "a\ufffdb\ufffd";' in text


def test_normalizing() -> None:
    one = parse('syntax = "proto2"; package p; message M { optional N b = 2; optional int32 a = 1; message N {} }')
    other = parse("package p; message M { optional int32 a = 1; optional .p.M.N b = 2; message N {} }")
    assert one.normalized().canonical() == other.normalized().canonical()
    assert ".p.M.N b = 2;" in one.normalized().canonical()
    # Records identify messages by position, so the order stays.
    two = parse('syntax = "proto3"; message B {} message A {}').normalized().canonical()
    assert two.index("message B") < two.index("message A")


def test_custom_options_can_be_left_out() -> None:
    text = parse(FULL, common=COMMON).formatted("ignore_extensions")
    assert "own" not in text and "java_package" in text


TAGGED = """
syntax = "proto3";
import "confluent/meta.proto";
option (confluent.file_meta).doc = "cards";
message Card {
  option (confluent.message_meta) = { doc: "one card" params: { key: "owner" value: "shop" } };
  string number = 1 [(confluent.field_meta).tags = "PII", (.confluent.field_meta).tags = ["PCI"], deprecated = true];
  bytes amount = 2 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }], tags: ["A", "B"] }];
  enum Kind { option (confluent.enum_meta).tags = "K"; NONE = 0 [(confluent.enum_value_meta).doc = "unknown"]; }
}
"""
TAGGED_BY_DESCRIPTOR = """syntax = "proto3";

import "confluent/meta.proto";

option (confluent.file_meta) = {
  doc: "cards"
};

message Card {
  option (confluent.message_meta) = {
    doc: "one card",
    params: [
      {
        key: "owner",
        value: "shop"
      }
    ]
  };

  string number = 1 [
    deprecated = true,
    (confluent.field_meta) = {
      tags: [
        "PII",
        "PCI"
      ]
    }
  ];
  bytes amount = 2 [(confluent.field_meta) = {
    params: [
      {
        value: "2",
        key: "scale"
      }
    ],
    tags: [
      "A",
      "B"
    ]
  }];

  enum Kind {
    option (confluent.enum_meta) = {
      tags: [
        "K"
      ]
    };
    NONE = 0 [(confluent.enum_value_meta) = {
      doc: "unknown"
    }];
  }
}
"""


def test_confluents_options_are_in_the_descriptor() -> None:
    serialized = parse(TAGGED).formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    card = file.message_type[0]
    assert file.options.Extensions[meta_pb2.file_meta].doc == "cards"
    assert card.options.Extensions[meta_pb2.message_meta].params == {"owner": "shop"}
    assert card.field[0].options.Extensions[meta_pb2.field_meta].tags == ["PII", "PCI"]
    assert card.field[0].options.deprecated
    assert card.field[1].options.Extensions[meta_pb2.field_meta].params == {"scale": "2"}
    assert card.enum_type[0].options.Extensions[meta_pb2.enum_meta].tags == ["K"]
    assert card.enum_type[0].value[0].options.Extensions[meta_pb2.enum_value_meta].doc == "unknown"
    again = parse(serialized)
    assert again.canonical() == TAGGED_BY_DESCRIPTOR
    assert parse(again.canonical()).formatted("serialized") == serialized


def test_damaged_options_of_confluent_are_left_out() -> None:
    # A process without Confluent's client does not parse these options.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(known_file("google/protobuf/descriptor.proto"))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.DescriptorProto"))(name="M")
    message.options.MergeFromString(b"\x82\x44\x02\xff\xff")
    assert meta_options(message) == []
    text = 'syntax = "proto3"; message M { option (confluent.message_meta) = { doc: { a: 1 } tags: 7 params: 3 }; }'
    parse(text).formatted("serialized")


@pytest.mark.parametrize("path", sorted(KNOWN))
def test_known_imports_need_no_reference(path: str) -> None:
    descriptor = known_file(path)
    message = next(iter(descriptor.message_type), None) or next(iter(descriptor.enum_type))
    parse(f'syntax = "proto3"; import "{path}"; message M {{ {descriptor.package}.{message.name} x = 1; }}')


INVALID = [
    ("", "the file is empty"),
    (" ; // nothing", "the file is empty"),
    ("message", "expected a name"),
    ("message M {", "expected '}' at the end of message M, found the end of the file"),
    ("message M { int32 a = ; }", "line 1, column 23: expected a number, found ;"),
    ("message M {\n  int32 a = 1\n}", "line 3, column 1: expected ';'"),
    ('{"type": "string"}', "expected a message"),
    ('syntax = "proto4";', "Unexpected syntax: proto4"),
    ("message M { Nope a = 1; }", "Could not resolve type: Nope"),
    ('import "none.proto"; message M { none.X a = 1; }', "Could not resolve type: none.X"),
    ("message M { optional int32 a = 1; optional int32 b = 1; }", "Protobuf refuses it"),
    ("message M { optional int32 a = 1; optional int32 a = 2; }", "Protobuf refuses it"),
    ('syntax = "proto3"; enum E { A = 1; }', "Protobuf refuses it"),
    ("message M {} message M {}", "Protobuf refuses it"),
    ("message M { /* no end", "unexpected '/* no end"),
    ('option x = "no end', "unexpected '\"no end"),
    ("aGVsbG8=", "expected a message"),
    ("message M { optional int32 a = 99999999999; }", None),
]


@pytest.mark.parametrize(("text", "problem"), INVALID)
def test_invalid_files_are_refused(text: str, problem: str | None) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(text)
    assert problem is None or problem in str(caught.value)


def test_an_import_for_compiler_plugins_only_may_be_missing() -> None:
    parse('syntax = "proto3"; import "validate/x.proto"; message M { string a = 1 [(validate.rules).string.len = 3]; }')


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    def nested(depth: int) -> str:
        return "".join(f"message M{number} {{" for number in range(depth)) + "}" * depth

    parse(nested(30))
    for depth in (101, 5_000, 100_000):
        with pytest.raises(InvalidSchema, match="nested deeper than 100 levels"):
            parse(nested(depth))


def test_a_large_file_is_parsed_quickly() -> None:
    fields = "".join(f"optional string field_{number} = {number};" for number in range(1, 3_000))
    schema = parse("".join(f"message M{number} {{{fields}}}" for number in range(5)))
    assert schema.cannot_read(schema, False) == []
