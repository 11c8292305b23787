"""What all pipelines share: their options, the topics they read, and the one place where a source is chosen."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.formats import Kind, check_format
from ottla.spark.pipelines.login import REDACTED, client_properties, java_properties
from ottla.spark.pipelines.topics import Cluster, Offsets, TopicInfo, nested, partitions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BATCH_RECORDS: Final = 2_000_000
"""Records of a micro-batch: few enough that a crash repeats minutes, not hours; many enough that commits are cheap."""
SOURCES: Final = ("kafka", "ottla")
WRITERS: Final = ("archive", "stats", "parse", "snapshot", "sql")
"""The pipelines that write tables."""
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
ON_DATA_LOSS: Final = ("warn", "fail")
_EARLIEST, _LATEST = -2, -1
_LARGEST_REQUEST: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pipeline is. `lag` counts offsets from its position to the ends of the topics."""

    pipeline: str
    records: int
    total: int
    lag: int
    records_per_second: float
    batches: int


class Options(TypedDict, total=False):
    """Keyword arguments that every pipeline takes."""

    bootstrap: str
    """Brokers to ask first."""
    client_config: Mapping[str, str] | str
    """Properties of a Kafka client (security.protocol, sasl.*, ssl.*), or a file of them; `${env:NAME}` is replaced."""
    spark: Any
    """A session to use; one is made with `ottla.spark.session` otherwise."""
    master: str
    """Where a session that is made runs: local[*], spark://…, yarn, k8s://…."""
    conf: Mapping[str, str]
    """Settings for a session that is made."""
    source: str
    """`kafka` (the official connector) or `ottla`; without a choice the connector, where it can be had."""
    source_options: Mapping[str, str]
    """Further options for the source, as Spark's `.option(…)` takes them."""
    start: str | int
    """Where a first run begins: `earliest`, `latest`, or a time in epoch milliseconds."""
    isolation: str
    """`read_committed` (the default) or `read_uncommitted`."""
    max_records: int
    """The largest micro-batch."""
    checkpoint: str
    """The folder from which a later run goes on."""
    group: str | None
    """The consumer group that shows the progress; one named after the pipeline unless given, None for none."""
    follow: bool
    """Go on with new records until stopped; otherwise end when all that was there at the start is done."""
    interval_s: float
    """Seconds between micro-batches when following."""
    on_data_loss: str
    """`warn` or `fail` when retention removed records before they were read."""
    stop: Event
    """Ends the pipeline after it was set."""
    on_progress: Callable[[Progress], None]
    on_warning: Callable[[str], None]


class TableOptions(Options, total=False):
    """Keyword arguments of the pipelines that write tables."""

    format: str | None
    """`parquet`, `delta` or `iceberg`; without it, that of the table that is there, or `parquet`."""
    catalog: str | None
    """Of Iceberg: `sql` (SQLite in the table's folder), `hadoop`, a database's URL, or that of a REST catalog."""
    catalog_options: Mapping[str, str]
    """Further properties of the catalog; `${env:NAME}` is replaced when it is used."""
    table_name: str | None
    """Of Iceberg: the name in the catalog, `default.FOLDER` if none is given."""


@dataclass(slots=True)
class Job:
    """One run of one pipeline."""

    pipeline: str
    spark: SparkSession
    cluster: Cluster
    topics: dict[str, TopicInfo]
    options: Options
    checkpoint: str | None
    group: str | None
    warnings: list[str] = field(default_factory=list)

    @property
    def committed_only(self) -> bool:
        return self.options.get("isolation", ISOLATIONS[0]) == ISOLATIONS[0]

    @property
    def follow(self) -> bool:
        return bool(self.options.get("follow"))

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return partitions_of(self.topics)

    def warn(self, text: str) -> None:
        if text in self.warnings:
            return
        self.warnings.append(text)
        tell = self.options.get("on_warning")
        if tell is not None:
            tell(text)

    # --- the seam between pipelines and sources ----------------------------------------------------------------------

    def first_offsets(self) -> Offsets:
        """Where a first run begins; `_EARLIEST` and `_LATEST` stand for what they are when Spark asks."""
        start = self.options.get("start", "earliest")
        if start == "earliest":
            return dict.fromkeys(self.partitions, _EARLIEST)
        if start == "latest":
            return dict.fromkeys(self.partitions, _LATEST)
        return self.cluster.at_time(self.partitions, int(start))

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        return self.cluster.bounds(self.partitions, self.committed_only)

    def range(self) -> tuple[Offsets, Offsets]:
        """What a batch job reads: from where it is to begin up to what is there now."""
        bounds = self.bounds()
        firsts = self.first_offsets()
        named = {_EARLIEST: 0, _LATEST: 1}
        starts = {tp: bounds[tp][named[at]] if at in named else max(at, bounds[tp][0]) for tp, at in firsts.items()}
        ends = {tp: max(bounds[tp][1], starts[tp]) for tp in starts}
        return starts, ends

    def read_batch(self, starts: Offsets, ends: Offsets) -> DataFrame:
        """The records from `starts` up to before `ends`, with headers."""
        reader = self.spark.read.format(self.format()).options(**self._options())
        return (
            reader.option("startingOffsets", json.dumps(nested(starts)))
            .option("endingOffsets", json.dumps(nested(ends)))
            .load()
        )

    def read_stream(self, starts: Offsets) -> DataFrame:
        """All records from `starts` on; a checkpoint wins over them."""
        limit = str(self.options.get("max_records") or BATCH_RECORDS)
        reader = self.spark.readStream.format(self.format()).options(**self._options())
        return reader.option("startingOffsets", json.dumps(nested(starts))).option("maxOffsetsPerTrigger", limit).load()

    def format(self) -> str:
        """Of the source and of sinks: the official connector where the session has it, unless one is chosen."""
        chosen = self.options.get("source")
        if chosen is None:
            from ottla.spark.sessions import has_connector

            return "kafka" if has_connector(self.spark) else "ottla"
        if chosen not in SOURCES:
            raise PipelineError(f"there is no source '{chosen}'; choose one of {', '.join(SOURCES)}")
        return chosen

    def _options(self) -> dict[str, str]:
        return {
            **self.kafka_options(),
            "subscribe": ",".join(self.topics),
            "includeHeaders": "true",
            "kafka.isolation.level": self.options.get("isolation") or ISOLATIONS[0],
            # Losses are found, told and written down by `streams`, for every source alike.
            "failOnDataLoss": "false",
            **self.options.get("source_options", {}),
        }

    def sink_options(self) -> dict[str, str]:
        """For writers; whoever could write a record somewhere can write it here."""
        return {**self.kafka_options(), "kafka.max.request.size": str(_LARGEST_REQUEST)}

    def kafka_options(self) -> dict[str, str]:
        """The connection, for readers and writers alike."""
        properties = self.cluster.properties
        if self.format() == "kafka":
            properties = java_properties(properties)
        named = {f"kafka.{key}": value for key, value in properties.items()}
        return {"kafka.bootstrap.servers": self.cluster.bootstrap, **named}

    def write_topic(self, frame: DataFrame) -> None:
        """Append rows (key, value, headers, topic, maybe partition) to topics; a failure may leave some written."""
        frame.write.format(self.format()).mode("append").options(**self.sink_options()).save()


def open_job(pipeline: str, topics: str | Sequence[str], options: Options, *, checkpoint: str | None = None) -> Job:
    """Check what is cheap to check, then start Spark."""
    unknown = set(options) - set(TableOptions.__annotations__ if pipeline in WRITERS else Options.__annotations__)
    if unknown:
        raise TypeError(f"{pipeline}() has no option {', '.join(sorted(unknown))}")
    _check_choices(options)
    cluster = cluster_of(options)
    named = [topics] if isinstance(topics, str) else list(topics)
    resolved = cluster.resolve(named)
    group = options["group"] if "group" in options else f"ottla-{pipeline}-{'-'.join(resolved)}"[:249]
    return Job(
        pipeline, spark_of(options), cluster, resolved, options, options.get("checkpoint") or checkpoint, group or None
    )


def target_of(options: TableOptions) -> Kind | None:
    """The format that was asked for, and can be had."""
    return check_format(
        options.get("format"), options.get("catalog"), options.get("catalog_options"), options.get("table_name")
    )


def cluster_of(options: Options) -> Cluster:
    return Cluster(options.get("bootstrap") or DEFAULT_BOOTSTRAP, client_properties(options.get("client_config")))


def spark_of(options: Options) -> SparkSession:
    """The session that was given, or one that is made."""
    spark = options.get("spark")
    if spark is None:
        from ottla.spark import session

        wanted = {"kafka": True, "ottla": False}.get(options.get("source") or "")
        config = dict(options.get("conf") or {})
        tell = options.get("on_warning") or warnings.warn
        spark = session(master=options.get("master"), config=config, connector=wanted, on_warning=tell)
    spark.conf.set("spark.sql.redaction.options.regex", f"{REDACTED}|url")
    return spark


def _check_choices(options: Options) -> None:
    for key, choices in (("isolation", ISOLATIONS), ("on_data_loss", ON_DATA_LOSS), ("source", SOURCES)):
        value = options.get(key)
        if value is not None and value not in choices:
            raise PipelineError(f"{key} is one of {', '.join(choices)}, not '{value}'")
    if (options.get("max_records") or 1) < 1:
        raise PipelineError("max_records must be at least 1")
    start = options.get("start", "earliest")
    if not isinstance(start, int) and start not in ("earliest", "latest"):
        raise PipelineError(f"start is earliest, latest or a time in epoch milliseconds, not '{start}'")
