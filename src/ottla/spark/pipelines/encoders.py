"""Rows as values in Confluent's framing, with a schema from a registry, for writing to a topic."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.decoders import message_class, message_name
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.registry import Registry, UnknownSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_RECORD: Final = "Row"


@dataclass(frozen=True, slots=True)
class Encoding:
    """A schema from the registry to write values with."""

    id: int
    format: str
    schema: bytes


def encoding_for(registry: Registry, subject: str, columns: StructType) -> Encoding:
    """The newest schema of a subject. If there is none, an Avro schema of these columns becomes the first."""
    try:
        found = registry.latest(subject)
        return Encoding(found.id, found.format, found.content)
    except UnknownSchema:
        text = json.dumps(avro_schema(columns, _RECORD))
        return Encoding(registry.register(subject, "avro", text), "avro", text.encode())


def framed(frame: DataFrame, topic: str, encoding: Encoding) -> DataFrame:
    """Rows for a topic: the column `key` unchanged, all others as one value."""
    from pyspark.sql import functions as F

    @F.udf("binary", useArrow=False)  # type: ignore[untyped-decorator]
    def encode(row: Any) -> bytes:
        from ottla.spark.pipelines.encoders import encoder_of

        return encoder_of(encoding)(row.asDict(recursive=True))

    key = [F.col("key").cast("string").cast("binary").alias("key")] if "key" in frame.columns else []
    body = F.struct(*[name for name in frame.columns if name != "key"])
    return frame.select(F.lit(topic).alias("topic"), *key, encode(body).alias("value"))


@lru_cache(maxsize=8)
def encoder_of(encoding: Encoding) -> Callable[[dict[str, Any]], bytes]:
    """Create the encoder once per worker, not for each record."""
    head = b"\0" + struct.pack(">i", encoding.id)
    encode = {"avro": _avro, "json": _json, "protobuf": _protobuf}[encoding.format](encoding)

    def whole(row: dict[str, Any]) -> bytes:
        try:
            return head + encode(row)
        except Exception as error:  # the packages can raise any exception
            raise PipelineError(f"a row does not fit the schema with id {encoding.id}: {error}") from None

    return whole


def _avro(encoding: Encoding) -> Callable[[dict[str, Any]], bytes]:
    from io import BytesIO

    import fastavro

    schema = fastavro.parse_schema(json.loads(encoding.schema))

    def encode(row: dict[str, Any]) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, row, strict_allow_default=True)
        return stream.getvalue()

    return encode


def _json(encoding: Encoding) -> Callable[[dict[str, Any]], bytes]:
    def plain(value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            return value.decode()
        return value.isoformat() if hasattr(value, "isoformat") else str(value)

    return lambda row: json.dumps({k: v for k, v in row.items() if v is not None}, default=plain).encode()


def _protobuf(encoding: Encoding) -> Callable[[dict[str, Any]], bytes]:
    from google.protobuf import json_format

    made = message_class(encoding.schema, message_name(encoding.schema, (0,)))

    def encode(row: dict[str, Any]) -> bytes:
        message = made()
        json_format.ParseDict({k: v for k, v in row.items() if v is not None}, message)
        # The first message of the schema, whose index is written as a single zero.
        return b"\0" + bytes(message.SerializeToString())

    return encode


def avro_schema(columns: StructType, name: str) -> dict[str, Any]:
    """An Avro record for columns; each may be null."""
    fields = [
        {"name": field.name, "type": ["null", _avro_type(field.dataType, f"{name}_{field.name}")], "default": None}
        for field in columns.fields
        if name != _RECORD or field.name != "key"
    ]
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: DataType, name: str) -> Any:
    from pyspark.sql import types as T

    simple: dict[type, Any] = {
        T.StringType: "string",
        T.BinaryType: "bytes",
        T.BooleanType: "boolean",
        T.ByteType: "int",
        T.ShortType: "int",
        T.IntegerType: "int",
        T.LongType: "long",
        T.FloatType: "float",
        T.DoubleType: "double",
        T.DateType: {"type": "int", "logicalType": "date"},
        T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
        T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
    }
    for one, text in simple.items():
        if isinstance(kind, one):
            return text
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, T.MapType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if isinstance(kind, T.StructType):
        return avro_schema(kind, name)
    raise PipelineError(f"Avro has no type for {kind.simpleString()}; cast it in the query")
