"""Decoded records as Arrow record batches in the shape that Spark expects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.spark.decode import Block


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow types of Spark's columns, with times in UTC."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.2 asks for the zone; before that it is always UTC.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


class Shape:
    """The columns of a query, for the records of one partition."""

    def __init__(self, schema: Any, topic: str, partition: int) -> None:
        self.schema = arrow_schema(schema)
        self._topic = topic
        self._partition = partition
        self._names = self.schema.names
        self.headers: pa.DataType | None = self.schema.field("headers").type if "headers" in self._names else None
        self._topics = pa.array([], type=pa.string())

    def record_batch(self, block: Block) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(name, block) for name in self._names], schema=self.schema)

    def _column(self, name: str, block: Block) -> pa.Array:
        match name:
            case "key":
                return block.keys
            case "value":
                return block.values
            case "topic":
                return self._topic_column(len(block))
            case "partition":
                return pa.array(np.full(len(block), self._partition, dtype=np.int32))
            case "offset":
                return pa.array(block.offsets)
            case "timestamp":
                return pa.array(block.timestamps_ms * 1000, type=pa.timestamp("us", tz="UTC"))
            case "timestampType":
                return pa.array(block.timestamp_types)
        return block.headers

    def _topic_column(self, count: int) -> pa.Array:
        """A column with the same name in every row: built once and cut to length."""
        if len(self._topics) < count:
            self._topics = pa.repeat(pa.scalar(self._topic, type=pa.string()), count)
        return self._topics[:count]
