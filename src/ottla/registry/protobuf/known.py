"""Files that every .proto file may import without a reference, because all clients have them."""

from __future__ import annotations

import importlib
from functools import cache

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from .descriptors import from_descriptor, to_descriptor
from .model import ProtoFile
from .parser import parse
from .types import Types

_GOOGLE_PROTOBUF = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
_GOOGLE_TYPE = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng",
    "money", "month", "phone_number", "postal_address", "quaternion", "timeofday",
)  # fmt: skip
# Confluent's files: tags and documentation as options, and two types that Protobuf lacks.
_CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "confluent/type/variant.proto": """
        syntax = "proto3";
        package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
    """,
}
KNOWN = frozenset(
    (
        *(f"google/protobuf/{name}.proto" for name in _GOOGLE_PROTOBUF),
        *(f"google/type/{name}.proto" for name in _GOOGLE_TYPE),
        *_CONFLUENT,
    )
)


@cache
def known_file(name: str) -> FileDescriptorProto:
    """The descriptor of a file in KNOWN."""
    if name in _CONFLUENT:
        file = parse(_CONFLUENT[name])
        imports = [(known_model(path), None) for path in file.imports]
        return to_descriptor(file, Types.of(file, imports), name)
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    descriptor = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(descriptor)
    return descriptor


@cache
def known_model(name: str) -> ProtoFile:
    """The same file as a model."""
    return from_descriptor(known_file(name))
