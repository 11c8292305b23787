"""The options of `format("ottla")`: those of Spark's own Kafka source, and a few more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ottla.client import Security
from ottla.client.routing import parse_bootstrap
from ottla.enums import IsolationLevel
from ottla.spark.errors import SparkSetupError

TopicPartition: TypeAlias = tuple[str, int]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
CHOICES: Final = ("subscribe", "subscribepattern", "assign")
TASK_BYTES: Final = 128 << 20
"""In bytes of segment files. A larger range of one partition is read by several tasks."""
CONNECTION_OPTIONS: Final = ("bootstrap", "kafka.bootstrap.servers")


class OptionError(SparkSetupError):
    """An option is missing, unknown or invalid."""


@dataclass(frozen=True)
class Position:
    """The position to begin or end at: a word for all partitions, offsets for some partitions, or times (ms)."""

    word: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Connection:
    """The connection settings for a cluster. Picklable, because tasks need them."""

    bootstrap: str
    properties: Mapping[str, str]

    def security(self) -> Security:
        try:
            return Security.from_properties(self.properties)
        except ValueError as error:
            raise OptionError(str(error)) from None


@dataclass(frozen=True)
class SourceOptions:
    connection: Connection | None
    folders: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Position = Position()
    ending: Position = Position(LATEST)
    no_match_is_latest: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    isolation: int = IsolationLevel.READ_UNCOMMITTED
    min_partitions: int = 0
    task_records: int = 0
    task_bytes: int = TASK_BYTES
    trigger_records: int = 0
    trigger_bytes: int = 0
    to_log_end: bool = False
    check_crcs: bool = True

    def includes(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(topic == name for name, _ in self.assigned)


_SOURCE_OPTIONS: Final = {
    *CONNECTION_OPTIONS,
    *CHOICES,
    "path",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "endingoffsets",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
    "includeheaders",
    "failondataloss",
    "minpartitions",
    "maxrecordsperpartition",
    "maxbytespertask",
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "highwatermark",
    "checkcrcs",
}


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check the options of a source. OptionError names the option and the problem."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(options, _SOURCE_OPTIONS)
    folders = tuple(part.strip() for part in options.get("path", "").split(",") if part.strip())
    connection = _connection(options, needed=not folders)
    chosen = [name for name in CHOICES if options.get(name)]
    if len(chosen) != 1:
        raise OptionError("choose the topics with exactly one of the options subscribe, subscribePattern and assign")
    if streaming and any(name.startswith("ending") for name in options):
        raise OptionError("ending offsets are for batch reads; a stream has no end")
    starting = _position(options, "starting", LATEST if streaming else EARLIEST)
    ending = _position(options, "ending", LATEST)
    if not streaming and (starting.word == LATEST or -1 in starting.offsets.values()):
        raise OptionError("startingOffsets cannot be latest for a batch read")
    if ending.word == EARLIEST or -2 in ending.offsets.values():
        raise OptionError("endingOffsets cannot be earliest")
    pattern = options.get("subscribepattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern {pattern!r} is not a regular expression: {error}") from None
    return SourceOptions(
        connection,
        folders,
        tuple(part.strip() for part in options.get("subscribe", "").split(",") if part.strip()),
        pattern,
        _assigned(options.get("assign")),
        starting,
        ending,
        no_match_is_latest=_one_of(options, "startingoffsetsbytimestampstrategy", ("error", "latest")) == "latest",
        include_headers=_flag(options, "includeheaders", False),
        fail_on_data_loss=_flag(options, "failondataloss", True),
        isolation=isolation_of(options),
        min_partitions=_number(options, "minpartitions"),
        task_records=_number(options, "maxrecordsperpartition"),
        task_bytes=_number(options, "maxbytespertask") or TASK_BYTES,
        trigger_records=_number(options, "maxoffsetspertrigger"),
        trigger_bytes=_number(options, "maxbytespertrigger"),
        to_log_end=_one_of(options, "highwatermark", ("checkpoint", "end")) == "end",
        check_crcs=_flag(options, "checkcrcs", True),
    )


@dataclass(frozen=True)
class SinkOptions:
    connection: Connection
    topic: str | None
    codec: int
    acks: int
    batch_bytes: int


_SINK_OPTIONS: Final = {*CONNECTION_OPTIONS, "topic", "path", "checkpointlocation", "queryname"}
"""The last two belong to Spark, which also passes them to the sink."""
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def sink_options(given: Mapping[str, str], default_batch_bytes: int) -> SinkOptions:
    """Read and check the options of a sink."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(options, _SINK_OPTIONS)
    if options.get("path"):
        raise OptionError(
            "the sink writes to a cluster, not to a folder: leave out path, and set kafka.bootstrap.servers"
        )
    connection = _connection(options, needed=True)
    assert connection is not None
    codec = options.get("kafka.compression.type", "none")
    if codec not in _CODECS:
        raise OptionError(f"kafka.compression.type is one of {', '.join(_CODECS)}, not {codec}")
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(options.get("kafka.acks", "all"))
    if acks is None:
        raise OptionError(f"kafka.acks is all, 1 or 0, not {options['kafka.acks']}")
    batch_bytes = _number(options, "kafka.batch.size") or default_batch_bytes
    return SinkOptions(connection, options.get("topic"), _CODECS.index(codec), acks, batch_bytes)


def _connection(options: Mapping[str, str], *, needed: bool) -> Connection | None:
    text = options.get("kafka.bootstrap.servers") or options.get("bootstrap")
    if not text:
        if needed:
            raise OptionError("choose a cluster with kafka.bootstrap.servers, or a data folder with path")
        return None
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}") from None
    properties = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
    connection = Connection(text, properties)
    connection.security()
    return connection


def isolation_of(options: Mapping[str, str]) -> int:
    level = _one_of(options, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
    return IsolationLevel.READ_COMMITTED if level == "read_committed" else IsolationLevel.READ_UNCOMMITTED


def _refuse_unknown(options: Mapping[str, str], known: set[str]) -> None:
    # Properties of Kafka's client pass through unchanged. Properties without a meaning here have no effect.
    unknown = [name for name in options if name not in known and not name.startswith("kafka.")]
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r} of format('ottla')")


def _position(options: Mapping[str, str], side: str, default: str) -> Position:
    """The position, in the order of the official connector: one time for all, then times by partition, then offsets."""
    for_all = options.get(f"{side}timestamp")
    if for_all is not None:
        return Position(timestamp_ms=_number(options, f"{side}timestamp"))
    by_time = options.get(f"{side}offsetsbytimestamp")
    if by_time is not None:
        return Position(timestamps_ms=_by_partition(f"{side}OffsetsByTimestamp", by_time))
    text = options.get(f"{side}offsets", default).strip()
    if text.lower() in (EARLIEST, LATEST):
        return Position(text.lower())
    return Position(offsets=_by_partition(f"{side}Offsets", text))


def _by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    try:
        parsed: Any = json.loads(text)
        found = {
            (topic, int(partition)): int(number)
            for topic, numbers in parsed.items()
            for partition, number in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f'{name} is earliest, latest or JSON such as {{"topic": {{"0": 5}}}}, not {text}') from None
    return found


def _assigned(text: str | None) -> tuple[TopicPartition, ...]:
    if text is None:
        return ()
    try:
        parsed: Any = json.loads(text)
        return tuple((topic, int(partition)) for topic, numbers in parsed.items() for partition in numbers)
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f'assign is JSON such as {{"topic": [0, 1]}}, not {text}') from None


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name)
    if text is None:
        return 0
    if not text.strip().isdigit():
        raise OptionError(f"{name} is a number, not {text!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text == "true"


def _one_of(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise OptionError(f"{name} is {' or '.join(choices)}, not {text!r}")
    return text
