"""Change events as a changelog: the effect of a record on the row of its key.

A plain changelog needs no conversion: a value is the new row, and a record without a value deletes the row. Debezium
wraps both in a JSON envelope, with or without a schema:

    {"op": "u", "before": {…}, "after": {…}, "source": {…}, "ts_ms": 1790000000000}

For a create, an update or a snapshot read, `after` is the new row. A delete removes the row, and so does the tombstone
after it. The order is that of the offsets, which Debezium keeps for each key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENVELOPES: Final = ("plain", "debezium")
_SETS: Final = ("c", "u", "r")
_DELETE: Final = "d"
_MESSAGE: Final = "m"
"""An event that is not about a row."""


def check_envelope(envelope: str) -> None:
    if envelope not in ENVELOPES:
        raise PipelineError(f"envelope is one of {', '.join(ENVELOPES)}, not '{envelope}'")


def unwrapped(rows: DataFrame, envelope: str) -> DataFrame:
    """The same rows as a plain changelog. PipelineError if a record is not such an envelope."""
    if envelope == "plain":
        return rows
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")

    def part(name: str) -> object:
        return F.coalesce(F.get_json_object(text, f"$.payload.{name}"), F.get_json_object(text, f"$.{name}"))

    read = rows.withColumn("_op", part("op")).withColumn("_after", part("after"))
    sets = F.col("_op").isin(*_SETS) & F.col("_after").isNotNull()
    fits = F.col("value").isNull() | sets | F.col("_op").isin(_DELETE, _MESSAGE)
    wrong = read.where(~F.coalesce(fits, F.lit(False))).select("topic", "partition", "offset", "_op").limit(1).collect()
    if wrong:
        raise PipelineError(_told(wrong[0].topic, wrong[0].partition, wrong[0].offset, wrong[0]["_op"]))
    value = F.when(sets, F.col("_after").cast("binary"))
    # Compared with null-safety: a tombstone has no op.
    return read.where(~F.col("_op").eqNullSafe(_MESSAGE)).withColumn("value", value).drop("_op", "_after")


def _told(topic: str, partition: int, offset: int, op: str | None) -> str:
    where = f"{topic}-{partition}, offset {offset}"
    if op == "t":
        return (
            f"{where}: the source table was truncated, which a snapshot cannot show; start again in another folder, "
            "after this record"
        )
    what = "has no 'op'" if op is None else f"has the op '{op}' without a row" if op in _SETS else f"has the op '{op}'"
    return f"{where}: the value is not a Debezium envelope in JSON: it {what}"
