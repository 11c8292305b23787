"""Decoding the values of a frame: JSON by Spark itself, Avro and Protobuf by Python in the executors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.decoders import Decoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORIGIN: Final = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
_CORRUPT: Final = "_ottla_corrupt"


def decoded(frame: DataFrame, decoding: Decoding, keep: Sequence[str] = _ORIGIN) -> DataFrame:
    """Add `data` (a struct, null if the value is null) and `error` (null if the value fits the schema)."""
    rows = frame.select(*keep)
    if decoding.format == "json":
        return _decoded_json(rows, decoding, keep)
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    result = StructType([StructField("data", decoding.spark_type()), StructField("error", StringType())])

    @F.udf(result, useArrow=False)  # type: ignore[untyped-decorator]
    def decode(value: bytearray | None) -> tuple[Any, str | None]:
        from ottla.spark.pipelines.decoders import explained

        return explained(decoding, value)

    # It is deterministic, but then Spark would call it once for each of its two fields.
    both = rows.withColumn("_both", decode.asNondeterministic()("value"))
    return both.select(*keep, "_both.data", "_both.error")


def _decoded_json(rows: DataFrame, decoding: Decoding, keep: Sequence[str]) -> DataFrame:
    """Spark parses the values. Python only looks for the reason if Spark cannot parse one."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema = decoding.spark_type()
    loose = StructType([StructField(f.name, f.dataType, True) for f in schema.fields])
    wide = StructType([*loose.fields, StructField(_CORRUPT, StringType())])
    framed = decoding.framing != "plain"
    text = (F.expr("substring(value, 6)") if framed else F.col("value")).cast("string")
    parsed = F.from_json(text, wide, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    read = rows.withColumn("data", parsed)
    wrong = F.col(f"data.{_CORRUPT}").isNotNull() | F.col("data").isNull()
    if framed:
        wrong = wrong | F.expr("length(value) < 5 or substring(value, 1, 1) <> X'00'")
    for field in schema.fields:
        if not field.nullable:
            wrong = wrong | F.col(f"data.`{field.name}`").isNull()
    bad = F.col("value").isNotNull() & wrong
    reason = F.when(bad, _reasons(decoding)(F.col("value")))
    kept = F.struct(*[F.col(f"data.`{field.name}`").alias(field.name) for field in schema.fields])
    return read.select(*keep, F.when(F.col("value").isNotNull() & ~bad, kept).alias("data"), reason.alias("error"))


def _reasons(decoding: Decoding) -> Any:
    from pyspark.sql import functions as F

    @F.udf("string", useArrow=False)  # type: ignore[untyped-decorator]
    def reason(value: bytearray | None) -> str | None:
        from ottla.spark.pipelines.decoders import explained

        return explained(decoding, value)[1]

    return reason
