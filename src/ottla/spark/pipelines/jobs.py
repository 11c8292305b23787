"""The shared parts of all pipelines: their options, the topics they read, and the choice of a source."""

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
from ottla.spark.pipelines.topics import BlockingClient, Offsets, TopicInfo, nested, partitions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BATCH_RECORDS: Final = 2_000_000
"""Records of a micro-batch: few enough that a crash repeats minutes, not hours, and enough to keep commits cheap."""
SOURCES: Final = ("kafka", "ottla")
WRITERS: Final = ("archive", "stats", "parse", "snapshot", "sql")
"""The pipelines that write tables."""
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
ON_DATA_LOSS: Final = ("warn", "fail")
_EARLIEST, _LATEST = -2, -1
_LARGEST_REQUEST: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a pipeline. `lag` counts offsets from its position to the ends of the topics."""

    pipeline: str
    records: int
    total: int
    lag: int
    records_per_second: float
    batches: int


class Options(TypedDict, total=False):
    """Keyword arguments that every pipeline accepts."""

    bootstrap: str
    """The brokers to contact first."""
    client_config: Mapping[str, str] | str
    """Properties of a Kafka client (security.protocol, sasl.*, ssl.*), or a file of them. `${env:NAME}` is replaced."""
    spark: Any
    """The session to use. Without one, `ottla.spark.session` creates it."""
    master: str
    """Where a new session runs: local[*], spark://…, yarn, k8s://…."""
    conf: Mapping[str, str]
    """Settings for a new session."""
    source: str
    """`kafka` (the official connector) or `ottla`. The default is the connector, if it is available."""
    source_options: Mapping[str, str]
    """More options for the source, as for Spark's `.option(…)`."""
    start: str | int
    """Where a first run begins: `earliest`, `latest`, or a time in epoch milliseconds."""
    isolation: str
    """`read_committed` (the default) or `read_uncommitted`."""
    max_records: int
    """The largest micro-batch."""
    checkpoint: str
    """The folder with the position from which a later run continues."""
    group: str | None
    """The consumer group that shows the progress. The default is named after the pipeline; None means no group."""
    follow: bool
    """Keep processing new records until stopped. Otherwise end when everything that existed at the start is done."""
    interval_s: float
    """Seconds between micro-batches when following."""
    on_data_loss: str
    """`warn` or `fail` when retention removed records before they were read."""
    stop: Event
    """Ends the pipeline once it is set."""
    on_progress: Callable[[Progress], None]
    on_warning: Callable[[str], None]


class TableOptions(Options, total=False):
    """Keyword arguments of the pipelines that write tables."""

    format: str | None
    """`parquet`, `delta` or `iceberg`. The default is the format of the existing table, or `parquet`."""
    catalog: str | None
    """For Iceberg: `sql` (SQLite in the table's folder), `hadoop`, the URL of a database, or that of a REST catalog."""
    catalog_options: Mapping[str, str]
    """More properties of the catalog. `${env:NAME}` is replaced when the catalog is used."""
    table_name: str | None
    """For Iceberg: the name in the catalog. The default is `default.FOLDER`."""


@dataclass(slots=True)
class Job:
    """One run of one pipeline."""

    pipeline: str
    spark: SparkSession
    cluster: BlockingClient
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
        """The offsets at which a first run begins. Spark resolves `_EARLIEST` and `_LATEST` when it requests them."""
        start = self.options.get("start", "earliest")
        if start == "earliest":
            return dict.fromkeys(self.partitions, _EARLIEST)
        if start == "latest":
            return dict.fromkeys(self.partitions, _LATEST)
        return self.cluster.at_time(self.partitions, int(start))

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        return self.cluster.bounds(self.partitions, self.committed_only)

    def range(self) -> tuple[Offsets, Offsets]:
        """The range that a batch job reads: from its first offsets up to the current ends."""
        bounds = self.bounds()
        firsts = self.first_offsets()
        named = {_EARLIEST: 0, _LATEST: 1}
        starts = {tp: bounds[tp][named[at]] if at in named else max(at, bounds[tp][0]) for tp, at in firsts.items()}
        ends = {tp: max(bounds[tp][1], starts[tp]) for tp in starts}
        return starts, ends

    def read_batch(self, starts: Offsets, ends: Offsets) -> DataFrame:
        """The records from `starts` up to, but not including, `ends`, with headers."""
        return self.spark.read.format(self.format()).options(**self.source_range(starts, ends)).load()

    def source_range(self, starts: Offsets, ends: Offsets) -> dict[str, str]:
        """The options of a source that reads from `starts` up to, but not including, `ends`."""
        more = sorted(tp for tp, end in ends.items() if end > starts[tp]) or sorted(ends)
        assigned: dict[str, list[int]] = {}
        for topic, partition in more:
            assigned.setdefault(topic, []).append(partition)
        options = {key: value for key, value in self._options().items() if key != "subscribe"}
        return {
            **options,
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(nested({tp: starts[tp] for tp in more})),
            "endingOffsets": json.dumps(nested({tp: ends[tp] for tp in more})),
        }

    def read_stream(self, starts: Offsets) -> DataFrame:
        """All records from `starts` on. A checkpoint takes precedence."""
        limit = str(self.options.get("max_records") or BATCH_RECORDS)
        reader = self.spark.readStream.format(self.format()).options(**self._options())
        return reader.option("startingOffsets", json.dumps(nested(starts))).option("maxOffsetsPerTrigger", limit).load()

    def format(self) -> str:
        """The format of source and sinks: the chosen one, or else the official connector if the session has it."""
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
            # `streams` finds, reports and records losses, in the same way for every source.
            "failOnDataLoss": "false",
            **self.options.get("source_options", {}),
        }

    def sink_options(self) -> dict[str, str]:
        """The options for writers. Any record that another topic accepted must be accepted here."""
        return {**self.kafka_options(), "kafka.max.request.size": str(_LARGEST_REQUEST)}

    def kafka_options(self) -> dict[str, str]:
        """The connection options, for readers and writers."""
        properties = self.cluster.properties
        if self.format() == "kafka":
            properties = java_properties(properties)
        named = {f"kafka.{key}": value for key, value in properties.items()}
        return {"kafka.bootstrap.servers": self.cluster.bootstrap, **named}

    def write_topic(self, frame: DataFrame) -> None:
        """Append rows (key, value, headers, topic, maybe partition) to topics. Some may be written even on failure."""
        frame.write.format(self.format()).mode("append").options(**self.sink_options()).save()


def open_job(pipeline: str, topics: str | Sequence[str], options: Options, *, checkpoint: str | None = None) -> Job:
    """Run the cheap checks, then start Spark."""
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
    """The requested format, after a check that it is available."""
    return check_format(
        options.get("format"), options.get("catalog"), options.get("catalog_options"), options.get("table_name")
    )


def cluster_of(options: Options) -> BlockingClient:
    return BlockingClient(
        options.get("bootstrap") or DEFAULT_BOOTSTRAP, client_properties(options.get("client_config"))
    )


def spark_of(options: Options) -> SparkSession:
    """The given session, or a new one."""
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
