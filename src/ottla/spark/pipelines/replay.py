"""`replay`: writes an archive back to topics, with keys, headers, order, timestamps and partitions, at a chosen speed.

Spark's Kafka sink cannot set timestamps, and repeats records when a task is repeated. So executors write with Ottla's
own client: one task owns a target partition and appends in transactions. Each transaction commits the position in the
archive to a consumer group (see `transactions`). After a crash at any point, the next run aborts open transactions and
continues after the last commit. Nothing is lost or repeated, even if both runs overlap or other programs write to the
topic. A note next to the archive records the target topics, and the position at the end of a run.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.client import ClientError
from ottla.errors import KafkaError
from ottla.records.record import Record
from ottla.spark.pipelines.archive import KIND, read_archive
from ottla.spark.pipelines.commits import FOLDER
from ottla.spark.pipelines.errors import PipelineError, explain, patient
from ottla.spark.pipelines.jobs import Job, Options, Progress, cluster_of, spark_of
from ottla.spark.pipelines.stores import open_store, read_json
from ottla.spark.pipelines.streams import Summary
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.topics import BlockingClient, TopicPartition, partitions_of
from ottla.spark.pipelines.transactions import Appender, Reached
from ottla.spark.sessions import interruptible, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.client import Client

_CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_POLL_S: Final = 0.5
_GATHER_S: Final = 0.1
"""When paced, records that are due within this time become visible together, to avoid a transaction per record."""
# Retention must not remove old records as soon as they are back, and large records must be accepted.
_NEW_TOPIC: Final = {
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(64 << 20),
}


Progresses = dict[TopicPartition, Reached]


@dataclass(frozen=True, slots=True)
class Target:
    """The data that a task needs; it is sent to executors."""

    cluster: BlockingClient
    names: dict[str, str]
    group: str
    codec: int
    paced: bool
    tasks: int

    def appender(self, client: Client, tp: TopicPartition) -> Appender:
        return Appender(client, tp, f"{self.group}-{tp[0]}-{tp[1]}", self.group, self.codec)


def replay(
    archive: str,
    *,
    to_topic: str | None = None,
    prefix: str = "",
    only: str | None = None,
    speed: float = 0.0,
    rate: float = 0.0,
    compression: str = "none",
    since_ms: int | None = None,
    until_ms: int | None = None,
    again: bool = False,
    **options: Unpack[Options],
) -> Summary:
    """Write the archived records to `to_topic`, or to topics with their original names after a `prefix`, exactly once.

    `speed` 1 keeps the pauses between the records' timestamps, 10 is ten times as fast, and 0 is as fast as possible;
    `rate` is a number of records per second instead. `only` chooses one of several archived topics. Records that were
    replayed before are not replayed again, unless `again` is set. The group shows the progress of each target
    partition.
    """
    if compression not in _CODECS:
        raise PipelineError(f"compression is one of {', '.join(_CODECS)}, not '{compression}'")
    if speed < 0 or rate < 0 or (speed and rate):
        raise PipelineError("give either a speed or a rate, above zero")
    store = open_store(archive, options.get("spark"))
    table = Table.open(store, KIND)
    cluster = cluster_of(options)
    names = _names(table, to_topic, prefix, only)
    spark = spark_of(options)
    for source, target in names.items():
        most = max([0, *(partition for name, partition in table.state.marks if name == source)]) + 1
        cluster.ensure_topic(target, most, _NEW_TOPIC, at_least=most)
    mark = _fingerprint(table, cluster, names, since_ms, until_ms)
    group = options.get("group") or f"ottla-replay-{'-'.join(names.values())}"[:230] + f"-{mark}"
    job = Job("replay", spark, cluster, {}, options, None, group)
    goal = Target(cluster, names, group, _CODECS[compression], bool(speed or rate), parallelism(spark))
    note = _Note(table, f"{FOLDER}/replays/{mark}.json", goal)
    before = note.begin(again)
    frame = _chosen(read_archive(spark, table), names, since_ms, until_ms)
    counts = {(row.topic, row.partition): row["count"] for row in frame.groupBy("topic", "partition").count().collect()}
    rest = _behind(frame, {(source, p): before.get((names[source], p), Reached()).offset for source, p in counts})
    summary = _run(job, _ordered(rest, goal, speed, rate), goal, sum(counts.values()), before)
    if not summary.interrupted:
        note.end(_reached(goal, stable=True))
    summary.details = {"archive": store.root, "topics": names}
    return summary


def _names(table: Table, topic: str | None, prefix: str, only: str | None) -> dict[str, str]:
    archived = sorted({name for name, _ in table.state.marks})
    if only is not None:
        if only not in archived:
            raise PipelineError(f"the archive has no topic '{only}'; it has {', '.join(archived) or 'none'}")
        archived = [only]
    if not archived:
        raise PipelineError(f"{table.store.root} holds no records yet")
    if topic is None:
        return {name: prefix + name for name in archived}
    if len(archived) > 1:
        raise PipelineError(f"the archive holds {', '.join(archived)}; choose one with --only, or give a --prefix")
    return {archived[0]: topic}


def _chosen(frame: DataFrame, names: dict[str, str], since_ms: int | None, until_ms: int | None) -> DataFrame:
    from pyspark.sql import functions as F

    chosen = frame.where(F.col("topic").isin(list(names)))
    if since_ms is not None:
        chosen = chosen.where(F.unix_millis("timestamp") >= since_ms)
    if until_ms is not None:
        chosen = chosen.where(F.unix_millis("timestamp") < until_ms)
    return chosen


def _behind(frame: DataFrame, reached: Mapping[TopicPartition, int]) -> DataFrame:
    """The rows that were not replayed before."""
    from pyspark.sql import functions as F

    for (topic, partition), offset in reached.items():
        if offset:
            here = (F.col("topic") == topic) & (F.col("partition") == partition)
            frame = frame.where(~here | (F.col("offset") >= offset))
    return frame


def _fingerprint(table: Table, cluster: BlockingClient, names: dict[str, str], *limits: int | None) -> str:
    """Identifies the records and the target of a replay. Another choice is another replay."""
    import hashlib

    what = json.dumps([table.id, cluster.cluster_id(), sorted(names.items()), limits])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


class _Note:
    """A note next to the archive, because a topic may be recreated, and brokers delete groups that stay idle."""

    def __init__(self, table: Table, path: str, target: Target) -> None:
        self._store = table.store
        self._path = path
        self._target = target
        self._cluster = target.cluster
        self._group = target.group
        topics = target.cluster.resolve(sorted(set(target.names.values())))
        self._ids = {name: topic.topic_id for name, topic in topics.items()}
        self._partitions = partitions_of(topics)

    def begin(self, again: bool) -> Progresses:
        """The progress of earlier runs in each target partition. After this call the group contains every partition."""
        there: dict[str, Any] = {}
        if self._store.exists(self._path):
            there = read_json(self._store, self._path)
            # A killed run may have left a transaction open, or may still be writing.
            _fence(self._target, self._partitions)
        known = self._cluster.committed(self._group, stable=True)
        if again or there.get("topics") != self._ids:
            self._cluster.forget(self._group, known)
            there, known = {}, {}
        reached = {tp: Reached.of(known[tp].metadata) for tp in self._partitions if tp in known}
        kept = {tp: Reached.of(text) for tp, text in _flat_texts(there.get("reached", {})).items()}
        missing = {tp: kept.get(tp, Reached()) for tp in self._partitions if tp not in reached}
        if not there.get("ended", True) and any(list(tp) in there["partitions"] for tp in missing):
            raise PipelineError(
                f"the group '{self._group}', which held the progress of this replay, is gone: brokers remove a group "
                "that is idle for offsets.retention.minutes. Replay to another topic, or all of it again with --again"
            )
        if missing:
            bounds = self._cluster.bounds(missing, committed=False)
            texts = {tp: found.text() for tp, found in missing.items()}
            self._cluster.commit(self._group, {tp: bounds[tp][1] for tp in missing}, texts)
        self._write({**kept, **reached}, ended=False)
        return {**reached, **missing}

    def end(self, reached: Progresses) -> None:
        self._write(reached, ended=True)

    def _write(self, reached: Progresses, ended: bool) -> None:
        texts: dict[str, dict[str, str]] = {}
        for (topic, partition), found in sorted(reached.items()):
            texts.setdefault(topic, {})[str(partition)] = found.text()
        content = {
            "topics": self._ids,
            "group": self._group,
            "partitions": self._partitions,
            "reached": texts,
            "ended": ended,
        }
        self._store.replace(self._path, json.dumps(content).encode())


def _flat_texts(texts: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, str]:
    return {(topic, int(partition)): text for topic, inner in texts.items() for partition, text in inner.items()}


def _reached(target: Target, *, stable: bool = False) -> Progresses:
    """The committed progress of every target partition."""
    wanted = set(target.names.values())
    found = target.cluster.committed(target.group, stable=stable)
    return {tp: Reached.of(one.metadata) for tp, one in found.items() if tp[0] in wanted}


def _records(reached: Progresses) -> int:
    return sum(one.records for one in reached.values())


def _run(job: Job, ordered: DataFrame, target: Target, total: int, reached: Progresses) -> Summary:
    """Spark writes in a thread. The group shows the progress."""
    summary = Summary("replay", sorted(target.names.values()), group=target.group)
    began = time.monotonic()
    tell = job.options.get("on_progress")
    stop = job.options.get("stop")
    before = _records(reached)
    failure: PipelineError | None = None
    try:
        with ThreadPoolExecutor(1) as pool, interruptible(job.spark) as tagged:
            work: Future[None] = pool.submit(tagged, lambda: _send(ordered, target))
            while not work.done():
                wait([work], timeout=_POLL_S)
                done = _records(_reached(target))
                rate = (done - before) / max(time.monotonic() - began, 1e-3)
                if tell is not None:
                    tell(Progress("replay", done - before, total - before, max(total - done, 0), rate, 0))
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
            work.result()
    except KeyboardInterrupt:
        summary.interrupted = True
    except Exception as error:
        failure = explain(error)
    # Abort open transactions, because otherwise readers of committed records would wait for the timeout. Also, Apache
    # Kafka reports a transaction as committed before its markers are all written. A producer that starts again waits
    # for them.
    with suppress(*((KafkaError, ClientError) if failure is not None else ())):
        _fence(target, reached)
    if failure is not None:
        raise failure
    done = _records(_reached(target, stable=True))
    summary.seconds = time.monotonic() - began
    summary.records = done - before
    summary.lag = max(total - done, 0)
    return summary


@patient
def _send(ordered: DataFrame, target: Target) -> None:
    try:
        ordered.mapInArrow(_sender(target), "sent bigint").collect()
    except Exception as error:
        raise explain(error) from None


def _fence(target: Target, partitions: Iterable[TopicPartition]) -> None:
    """Fence another writer of this replay, and abort its open transactions."""
    wanted = list(partitions)

    async def ask(client: Client) -> None:
        await asyncio.gather(*(target.appender(client, tp).open() for tp in wanted))

    target.cluster.call(ask)


def _ordered(frame: DataFrame, target: Target, speed: float, rate: float) -> DataFrame:
    """Each target partition in one task, in order. When paced, the partitions of a task are interleaved by due time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = ["topic", "partition"]
    so_far = Window.partitionBy(*place).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    due = F.lit(0.0)
    if speed:
        first = frame.selectExpr("unix_millis(min(timestamp)) as first").collect()[0]["first"] or 0
        # If a record is newer than the next one, it delays that one: order takes precedence over time.
        due = (F.max(F.unix_millis("timestamp")).over(so_far) - first) / (1000 * speed)
    elif rate:
        # Each partition gets its share of the rate, so that all of them end at the same time.
        mine = F.count("*").over(Window.partitionBy(*place))
        due = (F.row_number().over(so_far) - 1) / mine * (frame.count() / rate)
    by_time = ["due"] if target.paced else []
    rows = frame.withColumn("due", due)
    spread = rows.repartition(target.tasks, *place).sortWithinPartitions(*by_time, *place, "offset")
    return spread.select(
        "topic", "partition", "offset", F.unix_millis("timestamp").alias("timestamp"), "due", "key", "value", "headers"
    )


def _sender(target: Target) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        rows = (row for batch in batches for row in batch.to_pylist())
        sent = asyncio.run(_send_all(target, rows))
        yield pa.RecordBatch.from_arrays([pa.array([sent], pa.int64())], ["sent"])

    return send


async def _send_all(target: Target, rows: Iterator[Mapping[str, Any]]) -> int:
    """One task: skip the records that its partitions already have, then append the rest."""
    sent = 0
    began_at: float | None = None
    appenders: dict[TopicPartition, Appender] = {}
    try:
        async with target.cluster.client() as client:
            try:
                for row in rows:
                    tp = (target.names[row["topic"]], row["partition"])
                    appender = appenders.get(tp)
                    if appender is None:
                        if not target.paced:  # sorted by partition: the previous ones are done
                            await _commit(appenders)
                        appender = appenders[tp] = target.appender(client, tp)
                        await appender.open()
                    if row["offset"] < appender.reached.offset:
                        continue
                    if target.paced:
                        began_at = began_at or time.time()
                        await _wait_until(began_at + row["due"], appenders)
                    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
                    record = Record(0, row["timestamp"], row["key"], row["value"], headers)
                    await appender.add(row["offset"], record)
                    sent += 1
                await _commit(appenders)
            finally:
                for appender in appenders.values():
                    await appender.abandon()
    except (KafkaError, ClientError) as error:
        # Spark returns the text of a task's exception, so this message says what to do.
        raise PipelineError(_told(error)) from None
    return sent


def _told(error: Exception) -> str:
    from ottla.errors import InvalidProducerEpoch, MessageTooLarge, ProducerFenced

    if isinstance(error, ProducerFenced | InvalidProducerEpoch):
        return "another run of this replay has started, so this one stopped; nothing is lost or repeated"
    if isinstance(error, MessageTooLarge):
        return f"{error}; raise max.message.bytes of the topic, and run the same command again"
    return str(error)


async def _wait_until(due: float, appenders: Mapping[TopicPartition, Appender]) -> None:
    """Wait until a record is due. Unless the wait is very short, commit what was written, so that readers see it."""
    pause = due - time.time()
    if pause >= _GATHER_S or any(appender.open_s >= _GATHER_S for appender in appenders.values()):
        await _commit(appenders)
        pause = due - time.time()
    if pause > 0:
        await asyncio.sleep(pause)


async def _commit(appenders: Mapping[TopicPartition, Appender]) -> None:
    await asyncio.gather(*(appender.commit() for appender in appenders.values()))
