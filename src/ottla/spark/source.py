"""The Spark data source `ottla`: batch and streaming reads, batch and streaming writes.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()
    spark.read.format("ottla").option("subscribe", "orders").load("/var/lib/ottla")

Spark pickles these classes by name, so Ottla must be installed where executors run.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import datasource as api
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.errors import KafkaError
from ottla.spark import plan
from ottla.spark.filters import Pushed, push
from ottla.spark.options import OptionError, SourceOptions, source_options
from ottla.spark.origin import Bounds, DataLost, Origin, SourceError, open_origin
from ottla.spark.plan import Range

COLUMNS: Final = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
HEADERS: Final = ("headers", "array<struct<key:string,value:binary>>")


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        """The columns of the official connector. `schema(...)` can select fewer of them."""
        columns = list(COLUMNS)
        if str(self.options.get("includeHeaders", "false")).lower() == "true":
            columns.append(HEADERS)
        return ", ".join(f"{name} {kind}" for name, kind in columns)

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(source_options(self.options, streaming=False), _checked_schema(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(source_options(self.options, streaming=True), _checked_schema(schema))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.sink import Writer

        return Writer(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.sink import StreamWriter

        return StreamWriter(self.options, schema, overwrite)


def _checked_schema(schema: Any) -> Any:
    known = dict((*COLUMNS, HEADERS))
    for one in schema.fields:
        if known.get(one.name) != one.dataType.simpleString():
            what = f"is {known[one.name]}" if one.name in known else "is not one of its columns"
            raise OptionError(
                f"format('ottla') has no column {one.name} {one.dataType.simpleString()}: {one.name} {what}"
            )
    return schema


@dataclass
class Task(InputPartition):
    """A range of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def _tasks(ranges: Sequence[Range]) -> list[Task]:
    return [Task(*one) for one in ranges]


def read_task(options: SourceOptions, schema: Any, task: Task, pushed: Pushed) -> Iterator[Any]:
    """The records of a task as Arrow batches. Runs on an executor."""
    from ottla.spark.arrow import Shape
    from ottla.spark.decode import decode_parts

    def lost(gone: int, there: int) -> None:
        if options.fail_on_data_loss:
            raise DataLost(
                f"{task.topic}-{task.partition}: offsets {gone} to {there - 1} are gone; retention removed them while "
                "they were read. Set failOnDataLoss=false to continue with what is there"
            )

    shape = Shape(schema, task.topic, task.partition)
    wanted = pushed.wanted._replace(start=max(task.start, pushed.wanted.start), end=min(task.end, pushed.wanted.end))
    origin = open_origin(options)
    if os.environ.get("SPARK_REUSE_WORKER") and not gc.get_freeze_count():
        # Spark collects garbage after each task in such a process. Freezing the imported objects saves 20 ms each time.
        gc.freeze()
    try:
        for batches in origin.read((task.topic, task.partition), task.start, task.end, lost):
            for block in decode_parts(batches, wanted, shape.headers):
                if len(block):
                    yield shape.record_batch(block)
    except KafkaError as error:
        raise SourceError(
            f"{task.topic}-{task.partition}: records from offset {task.start} to {task.end} cannot be decoded: {error}"
        ) from error
    finally:
        origin.close()


class Reader(DataSourceReader):
    """A batch read. Spark 4.1 and later push filters down."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        origin = open_origin(options)
        try:
            partitions = [tp for tp in plan.partitions_of(origin, options) if self._pushed.includes(*tp)]
            bounds = origin.bounds(partitions)
            begin = plan.starts(origin, options, bounds) if partitions else {}
            end = plan.ends(origin, options, bounds) if partitions else {}
            ranges = plan.checked(options, begin, end, bounds)
            ranges = plan.narrowed(origin, ranges, self._pushed.wanted)
            return list(_tasks(plan.split(origin, options, ranges)))
        finally:
            origin.close()

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, Task):  # Spark's placeholder for an empty list
            return iter(())
        return read_task(self._options, self._schema, partition, self._pushed)

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        self._pushed, left = push(filters)
        yield from left


class _StreamReader(DataSourceStreamReader):
    """The parts that all versions of Spark share. Runs in one process of the driver; only `read` runs elsewhere."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._origin: Origin | None = None
        self._target: plan.Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origin": None}

    @property
    def origin(self) -> Origin:
        if self._origin is None:
            self._origin = open_origin(self._options)
        return self._origin

    def _bounds(self) -> dict[tuple[str, int], Bounds]:
        """The bounds for a running query. A deleted topic ends the query only if data loss is not allowed."""
        may_lack = not self._options.fail_on_data_loss
        return self.origin.bounds(plan.partitions_of(self.origin, self._options, may_lack=may_lack))

    def initialOffset(self) -> dict[str, Any]:
        bounds = self.origin.bounds(plan.partitions_of(self.origin, self._options))
        return plan.to_json(plan.starts(self.origin, self._options, bounds))

    def reportLatestOffset(self) -> dict[str, Any]:
        return plan.to_json({tp: pair.end for tp, pair in self._bounds().items()})

    def latest(self, start: dict[str, Any], max_records: int, max_bytes: int) -> dict[str, Any]:
        """The end of the next micro-batch."""
        begin = self._begin(start)
        bounds = self._bounds()
        for tp, pair in bounds.items():
            begin.setdefault(tp, pair.start)
        # A partition that no longer exists stays in the offsets, so that `partitions` can report it.
        end = {tp: max(bounds[tp].end, offset) if tp in bounds else offset for tp, offset in begin.items()}
        if self._target is not None:
            end = {tp: max(min(offset, self._target.get(tp, 0)), begin[tp]) for tp, offset in end.items()}
        for tp, pair in bounds.items():
            if pair.end < begin[tp] or begin[tp] < pair.start:
                self._lost_before(tp, begin[tp], pair)
                begin[tp], end[tp] = pair.start, pair.end
        return plan.to_json(plan.limited(self.origin, begin, end, max_records, max_bytes))

    def _lost_before(self, tp: tuple[str, int], offset: int, there: Bounds) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{tp[0]}-{tp[1]} has offsets {there.start} to {there.end} now, and the query is at {offset}: was the "
                "topic deleted and created again, or did retention overtake? Set failOnDataLoss=false to continue with "
                "what is there"
            )

    def _begin(self, start: dict[str, Any]) -> plan.Offsets:
        """The offsets of a checkpoint, which must belong to these topics."""
        for topic in start:
            if not self._options.includes(topic):
                raise SourceError(
                    f"the checkpoint belongs to another query: it has offsets of topic '{topic}', which is not read"
                )
        return plan.from_json(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, last = self._begin(start), plan.from_json(end)
        bounds = self._bounds()
        for tp in last:
            begin.setdefault(tp, bounds[tp].start if tp in bounds else 0)
        ranges = plan.checked(self._options, begin, last, bounds)
        return list(_tasks(plan.split(self.origin, self._options, ranges)))

    def read(self, partition: Any) -> Iterator[Any]:
        return read_task(self._options, self._schema, partition, Pushed())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds the progress."""

    def stop(self) -> None:
        if self._origin is not None:
            self._origin.close()
            self._origin = None


if hasattr(api, "ReadLimit"):  # Spark 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class StreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """A stream reader with limits for a micro-batch, and AvailableNow."""

        def getDefaultReadLimit(self) -> ReadLimit:
            if self._options.trigger_records:
                return ReadMaxRows(self._options.trigger_records)
            if self._options.trigger_bytes:
                return ReadMaxBytes(self._options.trigger_bytes)
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            if isinstance(limit, ReadAllAvailable):
                return self.latest(start, 0, 0)
            # Spark passes one limit at a time. If both were given, both apply.
            max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
            return self.latest(start, max_records, self._options.trigger_bytes)

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = {tp: pair.end for tp, pair in self._bounds().items()}

else:

    class StreamReader(_StreamReader):  # type: ignore[no-redef]
        """Spark 4.0 and 4.1 have no limits for a micro-batch: each reads everything available."""

        def latestOffset(self) -> dict[str, Any]:
            return plan.to_json({tp: pair.end for tp, pair in self._bounds().items()})
