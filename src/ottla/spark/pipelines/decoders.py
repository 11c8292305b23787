"""Values as typed columns: JSON, Avro and Protobuf, each decoded with a schema.

Spark itself parses JSON. The Python packages for Avro and Protobuf run in the executors. If a value does not fit the
schema, the decoder explains why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.registry import Registry, Schema, UnknownSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

FORMATS: Final = ("json", "avro", "protobuf")
FRAMINGS: Final = ("plain", "confluent")
_REASON_LENGTH: Final = 300
_LONGEST_NAME: Final = 255

Decode = Callable[[bytes], Any]


class BadValue(Exception):
    """Why a value cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """A format with its schema, small enough to send with every task."""

    format: str
    schema: bytes
    message: str = ""
    framing: str = "plain"
    writers: tuple[tuple[int, bytes], ...] = ()
    """Avro schemas by id, for values that were written with another version of the schema."""
    registry: Registry | None = None
    """Resolves the schema id at the start of each value."""

    def spark_type(self) -> StructType:
        """The columns. PipelineError says what is wrong with the schema."""
        try:
            return {"json": _json_type, "avro": _avro_type, "protobuf": _protobuf_type}[self.format](self)
        except PipelineError:
            raise
        except ImportError as error:
            raise PipelineError(f"{self.format} needs a package: {error}; pip install 'ottla[spark]'") from None
        except Exception as error:
            raise PipelineError(f"the {self.format} schema is not valid: {_first_line(error)}") from None

    def decoder(self) -> Decode:
        """A function from bytes to Spark's values. It raises BadValue with the reason."""
        if self.format == "avro":
            return _avro_decoder(self)
        plain = {"json": _json_decoder, "protobuf": _protobuf_decoder}[self.format](self)
        if self.framing == "plain":
            return plain
        return _unframed_protobuf(plain, self) if self.format == "protobuf" else lambda value: plain(_framed(value)[1])


def load_decoding(
    format: str,
    schema: str,
    *,
    message: str = "",
    framing: str = "plain",
    writer_schemas: Mapping[Any, str] | None = None,
) -> Decoding:
    """`schema` is a file or the text itself: DDL, a Spark or JSON schema; an Avro schema; a Protobuf descriptor set."""
    if format not in FORMATS:
        raise PipelineError(f"the values' format is one of {', '.join(FORMATS)}, not '{format}'")
    if framing not in FRAMINGS:
        raise PipelineError(f"framing is one of {', '.join(FRAMINGS)}, not '{framing}'")
    content = _schema_bytes(format, schema)
    if format == "protobuf" and not message:
        raise PipelineError("Protobuf needs the full name of the message: --message package.Name")
    if writer_schemas and (format, framing) != ("avro", "confluent"):
        raise PipelineError(
            "writer schemas are chosen by the id at the start of each Avro value: add --framing confluent"
        )
    made = Decoding(format, content, message, framing, _writers(writer_schemas or {}))
    made.spark_type()
    return made


def load_registered(registry: Registry, subject: str, message: str = "") -> tuple[Decoding, Schema]:
    """Decode with the newest schema of a subject. Each value is read with the schema that it was written with."""
    found = registry.latest(subject)
    name = message or (message_name(found.content, (0,)) if found.format == "protobuf" else "")
    made = Decoding(found.format, found.content, name, "confluent", (), registry)
    made.spark_type()
    return made, found


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:_REASON_LENGTH]


def _schema_bytes(format: str, schema: str) -> bytes:
    is_text = format != "protobuf" and ("\n" in schema or schema.lstrip()[:1] in ("{", "[") or " " in schema.strip())
    path = Path(schema)
    if is_text and not (len(schema) < _LONGEST_NAME and path.is_file()):
        return schema.encode()
    if path.suffix == ".proto":
        return _compiled(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(f"the schema {schema} cannot be read: {error.strerror}") from None


def _writers(given: Mapping[Any, str]) -> tuple[tuple[int, bytes], ...]:
    import fastavro

    found = []
    for name, schema in given.items():
        if not str(name).isdigit():
            raise PipelineError(f"the id of a writer schema must be a number, not '{name}'")
        content = _schema_bytes("avro", schema)
        try:
            fastavro.parse_schema(json.loads(content))
        except Exception as error:  # the package can raise any exception
            raise PipelineError(f"the avro schema {name} is not valid: {_first_line(error)}") from None
        found.append((int(name), content))
    return tuple(found)


def _compiled(path: Path) -> bytes:
    import shutil
    import subprocess
    import sys
    import tempfile
    from importlib.util import find_spec

    if not path.exists():
        raise PipelineError(f"the schema {path} cannot be read: there is no such file")
    compiler = [shutil.which("protoc")] if shutil.which("protoc") else None
    if compiler is None and find_spec("grpc_tools") is not None:
        compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    if compiler is None:
        raise PipelineError(
            f"{path.name} has to be compiled, and there is no protoc on PATH (nor grpcio-tools); compile it elsewhere "
            f"and pass the result: protoc --include_imports --descriptor_set_out {path.stem}.desc {path.name}"
        )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "schema.desc")
        options = [f"-I{path.parent}", "--include_imports", f"--descriptor_set_out={target}", str(path)]
        done = subprocess.run([*map(str, compiler), *options], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PipelineError(f"protoc refuses the schema: {(done.stderr.splitlines() or ['no reason'])[0]}")
        return target.read_bytes()


def _framed(value: bytes) -> tuple[int, bytes]:
    """Confluent's framing: a zero byte, a schema id of four bytes, and the rest."""
    if len(value) < 5 or value[0] != 0:
        raise BadValue("not in Confluent's framing: it does not start with a zero byte and a schema id")
    return int.from_bytes(value[1:5], "big"), value[5:]


def _unframed_protobuf(plain: Decode, decoding: Decoding) -> Decode:
    """After the frame come the message's indexes within the schema that the value was written with."""

    def decode(value: bytes) -> Any:
        number, rest = _framed(value)
        count, at = _varint(rest, 0)
        indexes = []
        for _ in range(count):
            index, at = _varint(rest, at)
            indexes.append(index)
        if decoding.registry is not None:
            written = _message_at(decoding.registry, number, tuple(indexes) or (0,))
            if written != decoding.message:
                raise BadValue(f"it is a {written}, and the table has {decoding.message}")
        return plain(rest[at:])

    return decode


def _writer(registry: Registry, number: int, format: str) -> bytes:
    """The schema with this id, from the registry."""
    try:
        found = registry.by_id(number)
    except UnknownSchema:
        raise BadValue(f"the schema with id {number} is not in the registry {registry.url}") from None
    if found.format != format:
        raise BadValue(f"the schema with id {number} is {found.format}, not {format}")
    return found.content


@lru_cache(maxsize=100)
def _message_at(registry: Registry, number: int, indexes: tuple[int, ...]) -> str:
    return message_name(_writer(registry, number, "protobuf"), indexes)


def message_name(descriptors: bytes, indexes: Sequence[int]) -> str:
    """The full name of a message, by its position in the last file of a set."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[-1]
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise BadValue(f"the schema has no message {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise BadValue("the indexes of the message are cut off")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


# --- JSON ------------------------------------------------------------------------------------------------------------


def _json_type(decoding: Decoding) -> StructType:
    from pyspark.sql.types import StructType

    text = decoding.schema.decode()
    if not text.lstrip().startswith("{"):
        return columns(text)
    content = json.loads(text)
    if content.get("type") == "struct":
        return StructType.fromJson(content)
    found = _from_json_schema(content, "the schema")
    if not isinstance(found, StructType):
        raise PipelineError("the JSON schema must describe an object")
    return found


def _from_json_schema(node: Mapping[str, Any], where: str) -> DataType:
    """The part of JSON Schema that maps to columns."""
    from pyspark.sql import types as T

    kinds = node.get("type")
    kind = next((k for k in kinds if k != "null"), None) if isinstance(kinds, list) else kinds
    if kind == "object":
        required = set(node.get("required", ()))
        return T.StructType(
            [
                T.StructField(name, _from_json_schema(inner, name), name not in required)
                for name, inner in node.get("properties", {}).items()
            ]
        )
    if kind == "array":
        return T.ArrayType(_from_json_schema(node.get("items", {}), f"{where}[]"))
    if kind == "string":
        return {"date-time": T.TimestampType(), "date": T.DateType()}.get(node.get("format", ""), T.StringType())
    simple = {"integer": T.LongType(), "number": T.DoubleType(), "boolean": T.BooleanType()}
    if kind not in simple:
        raise PipelineError(f"the JSON schema's type '{kind}' of {where} has no column to match")
    return simple[kind]


def _json_decoder(decoding: Decoding) -> Decode:
    """A decoder that only finds the reason why Spark could not parse a value."""
    schema = decoding.spark_type()

    def decode(value: bytes) -> Any:
        try:
            content = json.loads(value)
        except ValueError as error:
            raise BadValue(f"not JSON: {error}") from None
        if not isinstance(content, dict):
            raise BadValue(f"not a JSON object but {type(content).__name__}")
        for field in schema.fields:
            if content.get(field.name) is None and not field.nullable:
                raise BadValue(f"field '{field.name}' is missing")
            reason = _misfit(content.get(field.name), field.dataType.typeName())
            if reason:
                raise BadValue(f"field '{field.name}': {reason}")
        raise BadValue("it does not fit the schema")

    return decode


def _misfit(value: Any, kind: str) -> str:
    wanted: dict[str, tuple[type, ...]] = {
        "long": (int,),
        "integer": (int,),
        "short": (int,),
        "byte": (int,),
        "double": (int, float),
        "float": (int, float),
        "boolean": (bool,),
        "array": (list,),
        "struct": (dict,),
        "map": (dict,),
        "timestamp": (str, int),
        "date": (str,),
    }
    if value is None or kind not in wanted:
        return ""
    fits = isinstance(value, wanted[kind]) and (kind == "boolean" or not isinstance(value, bool))
    return "" if fits else f"{json.dumps(value)[:60]} is not of type {kind}"


# --- Avro ------------------------------------------------------------------------------------------------------------


def _avro_schema(decoding: Decoding) -> Any:
    import fastavro

    return fastavro.schema.expand_schema(json.loads(decoding.schema))


def _avro_type(decoding: Decoding) -> StructType:
    from pyspark.sql.types import StructType

    found, _ = _from_avro(_avro_schema(decoding), "the schema", 0)
    if not isinstance(found, StructType):
        raise PipelineError("the Avro schema must be a record")
    return found


_DEEPEST: Final = 20
"""Deeper nesting means a schema that contains itself, which columns cannot express."""


def _from_avro(node: Any, where: str, depth: int) -> tuple[DataType, bool]:
    """The type of a column, and whether it may be null."""
    from pyspark.sql import types as T

    if depth > _DEEPEST:
        raise PipelineError(f"the Avro schema is recursive at {where}; columns cannot express that")
    if isinstance(node, list):
        kinds = [inner for inner in node if inner != "null"]
        if len(kinds) != 1:
            raise PipelineError(f"the Avro schema has a union of several types at {where}, which no column can hold")
        return _from_avro(kinds[0], where, depth + 1)[0], len(kinds) < len(node)
    kind = node if isinstance(node, str) else node["type"]
    if not isinstance(kind, str):
        return _from_avro(kind, where, depth + 1)
    logical = node.get("logicalType", "") if isinstance(node, dict) else ""
    if kind == "record":
        fields = [(f["name"], *_from_avro(f["type"], f["name"], depth + 1)) for f in node["fields"]]
        return T.StructType([T.StructField(*field) for field in fields]), False
    if kind == "array":
        return T.ArrayType(*_from_avro(node["items"], f"{where}[]", depth + 1)), False
    if kind == "map":
        return T.MapType(T.StringType(), *_from_avro(node["values"], f"{where}{{}}", depth + 1)), False
    if logical == "decimal":
        return T.DecimalType(node["precision"], node.get("scale", 0)), False
    if logical.startswith("time-"):
        raise PipelineError(f"the Avro schema has a time of day at {where}, which Spark has no type for")
    special = {"date": T.DateType(), "timestamp-millis": T.TimestampType(), "timestamp-micros": T.TimestampType()}
    local = {"local-timestamp-millis": T.TimestampNTZType(), "local-timestamp-micros": T.TimestampNTZType()}
    simple = {
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "long": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "bytes": T.BinaryType(),
        "fixed": T.BinaryType(),
        "string": T.StringType(),
        "enum": T.StringType(),
    }
    if kind not in simple:
        raise PipelineError(f"the Avro schema's type '{kind}' at {where} is not known")
    return {**special, **local}.get(logical, simple[kind]), False


def _avro_decoder(decoding: Decoding) -> Decode:
    from io import BytesIO

    import fastavro

    schema = fastavro.parse_schema(json.loads(decoding.schema))
    writers = {number: fastavro.parse_schema(json.loads(content)) for number, content in decoding.writers}
    convert = _converter(decoding.spark_type())

    def decode(value: bytes) -> Any:
        writer, reader = schema, None
        if decoding.framing != "plain":
            number, value = _framed(value)
            if decoding.registry is not None and number not in writers:
                writers[number] = fastavro.parse_schema(json.loads(_writer(decoding.registry, number, "avro")))
            if writers:
                if number not in writers:
                    raise BadValue(f"the schema with id {number} is not known; add it with --writer-schema")
                writer, reader = writers[number], schema
        stream = BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, writer, reader)
        except Exception as error:  # the package can raise any exception
            raise BadValue(f"not Avro of this schema: {type(error).__name__} {error}") from None
        if stream.tell() != len(value):
            raise BadValue(f"not Avro of this schema: {len(value) - stream.tell()} bytes are left over")
        return convert(found)

    return decode


def _converter(kind: Any) -> Callable[[Any], Any]:
    """Convert Python's values to Spark's: UUIDs to text."""
    name = kind.typeName()
    if name == "struct":
        fields = [(field.name, _converter(field.dataType)) for field in kind.fields]
        return lambda value: None if value is None else {key: inner(value.get(key)) for key, inner in fields}
    if name == "array":
        each = _converter(kind.elementType)
        return lambda value: None if value is None else [each(item) for item in value]
    if name == "map":
        held = _converter(kind.valueType)
        return lambda value: None if value is None else {key: held(item) for key, item in value.items()}
    if name == "string":
        return lambda value: None if value is None else str(value)
    return lambda value: value


# --- Protobuf --------------------------------------------------------------------------------------------------------


def message_class(descriptors: bytes, name: str) -> Any:
    """The Python class of a message in a set of descriptors."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    try:
        found = pool.FindMessageTypeByName(name)
    except KeyError:
        there = [f"{file.package}.{m.name}".lstrip(".") for file in files.file for m in file.message_type]
        raise PipelineError(f"the schema has no message '{name}'; it has {', '.join(there[:10])}") from None
    return message_factory.GetMessageClass(found)


def _protobuf_type(decoding: Decoding) -> StructType:
    return _from_message(message_class(decoding.schema, decoding.message).DESCRIPTOR, 0)


def _from_message(descriptor: Any, depth: int) -> StructType:
    from pyspark.sql import types as T

    if depth > _DEEPEST:
        raise PipelineError(f"the Protobuf message {descriptor.full_name} is recursive; columns cannot express that")
    return T.StructType([T.StructField(field.name, _from_field(field, depth)) for field in descriptor.fields])


def _from_field(field: Any, depth: int) -> DataType:
    from pyspark.sql import types as T

    if _is_map(field):
        entry = field.message_type.fields_by_name
        return T.MapType(_one(entry["key"], depth), _one(entry["value"], depth))
    one = _one(field, depth)
    return T.ArrayType(one) if field.is_repeated else one


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _one(field: Any, depth: int) -> DataType:
    from pyspark.sql import types as T

    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return T.TimestampType()
        return _from_message(field.message_type, depth + 1)
    return {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_UINT64: T.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_ENUM: T.StringType(),
        field.CPPTYPE_STRING: T.BinaryType() if field.type == field.TYPE_BYTES else T.StringType(),
    }[field.cpp_type]


def _protobuf_decoder(decoding: Decoding) -> Decode:
    from google.protobuf.message import DecodeError

    made = message_class(decoding.schema, decoding.message)

    def decode(value: bytes) -> Any:
        message = made()
        try:
            message.ParseFromString(value)
        except DecodeError as error:
            raise BadValue(f"not a {decoding.message}: {error}") from None
        if not message.IsInitialized():
            raise BadValue(f"required fields are missing: {', '.join(message.FindInitializationErrors())}")
        return _message_values(message)

    return decode


def _message_values(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            from datetime import UTC

            return value.ToDatetime(tzinfo=UTC)
        return _message_values(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type == field.CPPTYPE_UINT64:
        from decimal import Decimal

        return Decimal(value)
    return value


# --- in the executors ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def decoder_of(decoding: Decoding) -> Decode:
    """Create the decoder once per worker, not for each record."""
    return decoding.decoder()


def explained(decoding: Decoding, value: bytes | bytearray | None) -> tuple[Any, str | None]:
    """The decoded value, or why it cannot be decoded."""
    if value is None:
        return None, None
    try:
        return decoder_of(decoding)(bytes(value)), None
    except BadValue as error:
        return None, str(error)[:_REASON_LENGTH]
