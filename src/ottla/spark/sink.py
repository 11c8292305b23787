"""Writing to any Kafka cluster, in batch and in streams: at least once, like the official sink.

The columns are those of the official sink (key, value, topic, partition, headers) plus `timestamp`, which it ignores.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import datasource as api
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ottla.client import Client, ClientError
from ottla.client.producer import DEFAULT_BATCH_BYTES, Gatherer, Producer, partition_for
from ottla.errors import KafkaError
from ottla.spark.options import OptionError, SinkOptions, sink_options
from ottla.spark.origin import SourceError

_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
STICKY_RECORDS: Final = 500
"""How many records without a key go to one partition before the next is chosen, so that batches get large."""


class SinkError(SourceError):
    """A write failed."""


@dataclass
class Written(WriterCommitMessage):
    """The result of one task."""

    records: int


def check_columns(schema: Any, options: SinkOptions, overwrite: bool) -> None:
    """Raise OptionError unless these columns can be written."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode('append')")
    kinds = {one.name: one.dataType.simpleString() for one in schema.fields}
    if "value" not in kinds:
        raise OptionError("there is no column value to write")
    if options.topic is None and "topic" not in kinds:
        raise OptionError("name the topic with the option topic, or by a column topic")
    for name, accepted in _TYPES.items():
        if name in kinds and kinds[name] not in accepted:
            raise OptionError(f"column {name} is {kinds[name]}; the sink takes {' or '.join(accepted)}")


class _Sending:
    """One task's connection and its batches in flight."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._client = Client(options.connection.bootstrap, security=options.connection.security())
        producer = Producer(self._client, acks=options.acks, idempotent=options.acks == -1)
        self._gatherer = Gatherer(producer, codec=options.codec, batch_bytes=options.batch_bytes)
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._keyless = 0
        self.records = 0

    async def partitions_of(self, topic: str | None) -> int:
        if topic is None:
            raise SinkError("a row has no topic: the column topic is null")
        if topic not in self._counts:
            self._counts[topic] = len((await self._client.topic(topic)).partitions)
        return self._counts[topic]

    async def send(self, batch: Any) -> None:
        """Send all rows of an Arrow batch, in order."""
        columns = {name: _column(batch, name) for name in batch.schema.names if name in _TYPES}
        count = batch.num_rows
        nothing = [None] * count
        now_ms = time.time_ns() // 1_000_000
        keys = _octets(columns.get("key", nothing))
        values = _octets(columns["value"])
        topics = nothing if self._options.topic is not None else columns.get("topic", nothing)
        chosen = columns.get("partition", nothing)
        times = columns.get("timestamp", nothing)  # in microseconds
        add, fixed = self._gatherer.add, self._options.topic
        for key, value, topic, partition, moment, headers in zip(
            keys, values, topics, chosen, times, columns.get("headers", nothing), strict=True
        ):
            name = fixed or topic
            total = await self.partitions_of(name)
            if partition is None:
                partition = self._partition(name, key, total)
            elif not 0 <= partition < total:
                raise SinkError(f"topic '{name}' has partitions 0 to {total - 1}, and a row asks for {partition}")
            listed = [(one["key"] or "", one["value"]) for one in headers] if headers else []
            await add((name, partition), now_ms if moment is None else moment // 1000, key, value, listed)
        self.records += count

    def _partition(self, topic: str, key: bytes | None, total: int) -> int:
        if key is not None:
            return partition_for(key, total)
        self._keyless += 1
        if topic not in self._sticky or self._keyless % STICKY_RECORDS == 0:
            self._sticky[topic] = random.randrange(total)
        return self._sticky[topic]

    async def finish(self) -> None:
        await self._gatherer.flush()
        await self._client.close()

    async def abandon(self) -> None:
        await self._gatherer.abandon()
        await self._client.close()


def _octets(column: list[Any]) -> list[bytes | None]:
    return [one.encode() if isinstance(one, str) else one for one in column]


def _column(batch: Any, name: str) -> list[Any]:
    column = batch.column(name)
    values: list[Any] = (column.cast("int64") if name == "timestamp" else column).to_pylist()
    return values


def write_batches(options: SinkOptions, batches: Iterator[Any]) -> Written:
    """Write Arrow batches and wait for the acknowledgements. Runs on an executor."""
    loop = asyncio.new_event_loop()
    try:
        sending = _Sending(options)
        try:
            for batch in batches:
                loop.run_until_complete(sending.send(batch))
            loop.run_until_complete(sending.finish())
        except BaseException as error:
            loop.run_until_complete(sending.abandon())
            if isinstance(error, (KafkaError, ClientError)):
                raise SinkError(f"{options.connection.bootstrap}: {error}") from error
            raise
        return Written(sending.records)
    finally:
        loop.close()


class Writer(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        self._options = sink_options(options, DEFAULT_BATCH_BYTES)
        check_columns(schema, self._options, overwrite)

    def write(self, iterator: Iterator[Any]) -> Written:
        return write_batches(self._options, iterator)


class _StreamWriting:
    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        self._options = sink_options(options, DEFAULT_BATCH_BYTES)
        check_columns(schema, self._options, overwrite)
        self._schema = schema

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: every task has waited for its acknowledgements."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: the records of a failed batch stay, and are written again when it is repeated (at least once)."""


if hasattr(api, "DataSourceStreamArrowWriter"):  # Spark 4.1

    class StreamWriter(_StreamWriting, api.DataSourceStreamArrowWriter):
        """The writes of a stream."""

        def write(self, iterator: Iterator[Any]) -> Written:
            return write_batches(self._options, iterator)

else:

    class StreamWriter(_StreamWriting, DataSourceStreamWriter):  # type: ignore[no-redef]
        """The writes of a stream in Spark 4.0, which passes rows."""

        def write(self, iterator: Iterator[Any]) -> Written:
            return write_batches(self._options, _arrow_batches(self._schema, iterator))


ROWS: Final = 10_000


def _arrow_batches(schema: Any, rows: Iterator[Any]) -> Iterator[Any]:
    from itertools import islice

    import pyarrow as pa

    from ottla.spark.arrow import arrow_schema

    kind = arrow_schema(schema)
    while some := list(islice(rows, ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in some], schema=kind)
