"""`replay`: an archive back into topics, with keys, headers, order, timestamps and partitions, at a chosen speed.

Spark's Kafka sink cannot set timestamps, so executors write with Ottla's own client: one task owns a target partition
and appends whole batches. A run that was cut off goes on exactly: how many records of ours a partition holds is its end
minus the end it had at the beginning (which a note beside the archive keeps), as long as nobody else writes to it. The
last of them is compared with the archive before anything is added.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.archive import KIND, read_archive
from ottla.spark.pipelines.cluster import Cluster, Offsets, TopicPartition, flat, nested
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.jobs import Job, Options, Progress, cluster_of, spark_of
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Summary
from ottla.spark.pipelines.tables import FOLDER, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_POLL_S: Final = 0.5
# Old records must not fall to retention as soon as they are back.
_NEW_TOPIC: Final = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a task needs to know; it travels to executors."""

    cluster: Cluster
    names: dict[str, str]
    bases: Offsets
    codec: int
    speed: float
    per_second: float
    began_at: float
    first_ms: int
    tasks: int


def replay(
    archive: str,
    *,
    topic: str | None = None,
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
    """Write the archived records to `topic`, or to topics of their own names behind a `prefix`.

    `speed` 1 keeps the pauses between the records' timestamps, 10 is ten times as fast, 0 as fast as it goes; `rate` is
    a number of records per second instead. `only` chooses one of several archived topics. What was replayed before is
    not replayed once more, unless `again` is set.
    """
    if compression not in _CODECS:
        raise PipelineError(f"compression is one of {', '.join(_CODECS)}, not '{compression}'")
    if speed < 0 or rate < 0 or (speed and rate):
        raise PipelineError("give either a speed or a rate, above zero")
    store = open_store(archive, options.get("spark"))
    table = Table.open(store, KIND)
    cluster = cluster_of(options)
    names = _names(table, topic, prefix, only)
    spark = spark_of(options)
    frame = _chosen(read_archive(spark, table), names, since_ms, until_ms)
    job = Job("replay", spark, cluster, {}, options, None, None)
    counts = {(row.topic, row.partition): row["count"] for row in frame.groupBy("topic", "partition").count().collect()}
    for source, target in names.items():
        most = max([0, *(partition for name, partition in table.state.marks if name == source)]) + 1
        cluster.ensure_topic(target, most, _NEW_TOPIC, at_least=most)
    note = f"{FOLDER}/replays/{_note_name(cluster, names, since_ms, until_ms)}.json"
    if again:
        store.delete(note)
    bases = _bases(table, cluster, names, note)
    first = frame.selectExpr("unix_millis(min(timestamp)) as first").collect()[0]["first"] if speed else 0
    goal = Target(
        cluster, names, bases, _CODECS[compression], speed, rate, 0.0, first or 0, spark.sparkContext.defaultParallelism
    )
    summary = _run(job, frame, goal, counts)
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


def _note_name(cluster: Cluster, names: dict[str, str], *limits: int | None) -> str:
    import hashlib

    what = json.dumps([cluster.cluster_id(), sorted(names.items()), limits])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def _bases(table: Table, cluster: Cluster, names: dict[str, str], note: str) -> Offsets:
    """The ends of the target partitions before the first record of ours, and the topics they belong to."""
    targets = cluster.resolve(list(names.values()))
    ids = {name: topic.topic_id for name, topic in targets.items()}
    partitions = [(name, index) for name, topic in targets.items() for index in range(topic.partitions)]
    ends = {tp: end for tp, (_, end) in cluster.bounds(partitions, committed=False).items()}
    if table.store.exists(note):
        there = json.loads(table.store.read(note))
        if there["topics"] == ids:
            return {**ends, **flat(there["bases"])}
    table.store.replace(note, json.dumps({"topics": ids, "bases": nested(ends)}).encode())
    return ends


def _run(job: Job, frame: DataFrame, target: Target, counts: dict[TopicPartition, int]) -> Summary:
    """Spark writes in a thread; how far it is, the ends of the partitions tell."""
    from dataclasses import replace

    summary = Summary("replay", sorted(target.names.values()))
    total = sum(counts.values())
    began = time.monotonic()
    tell = job.options.get("on_progress")
    stop = job.options.get("stop")
    before = sum(_done(target).values())
    target = replace(target, began_at=time.time())
    ordered = _ordered(frame, target)
    job.spark.sparkContext.setLocalProperty("spark.job.description", "ottla replay")
    with ThreadPoolExecutor(1) as pool:
        work: Future[Any] = pool.submit(lambda: ordered.rdd.mapPartitions(_sender(target)).collect())
        try:
            while not work.done():
                _wait(work)
                done = min(sum(_done(target).values()), total)
                rate = (done - before) / max(time.monotonic() - began, 1e-3)
                if tell is not None:
                    tell(Progress("replay", done, total, total - done, rate, 0))
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
            work.result()
        except KeyboardInterrupt:
            summary.interrupted = True
            job.spark.sparkContext.cancelAllJobs()
        except Exception as error:
            raise explain(error) from None
    done_now = _done(target)
    summary.seconds = time.monotonic() - began
    summary.records = sum(done_now.values()) - before
    summary.lag = total - sum(done_now.values())
    return summary


def _wait(work: Future[Any]) -> None:
    from concurrent.futures import wait

    wait([work], timeout=_POLL_S)


def _done(target: Target) -> Offsets:
    """Records of ours in each target partition."""
    ends = target.cluster.bounds(target.bases, committed=False)
    return {tp: max(ends[tp][1] - base, 0) for tp, base in target.bases.items()}


def _ordered(frame: DataFrame, target: Target) -> DataFrame:
    """Each target partition in one task, in order; when paced, the partitions of a task by the time they are due."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = ["topic", "partition"]
    rows = frame.withColumn("due", F.unix_millis("timestamp"))
    by_time = [] if not target.speed else ["due"]
    if target.speed:
        # A record that is younger than its successor holds that one up: order goes before time.
        window = Window.partitionBy(*place).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
        rows = rows.withColumn("due", F.max("due").over(window))
    spread = rows.repartition(target.tasks, *place).sortWithinPartitions(*by_time, *place, "offset")
    return spread.select(
        "topic", "partition", "offset", F.unix_millis("timestamp").alias("timestamp"), "due", "key", "value", "headers"
    )


def _sender(target: Target) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def send(rows: Iterator[Any]) -> Iterator[int]:
        yield asyncio.run(_send_all(target, rows))

    return send


async def _send_all(target: Target, rows: Iterator[Any]) -> int:
    """One task: skip what its partitions have already, then append."""
    from ottla.client.producer import Gatherer, Producer

    sent = 0
    skips: Offsets = {}
    async with target.cluster.client() as client:
        gatherer = Gatherer(Producer(client), codec=target.codec)
        pace = _Pace(target)
        for row in rows:
            tp = (target.names[row.topic], row.partition)
            if tp not in skips:
                skips[tp] = await _written(client, target, tp)
            if skips[tp] > 0:
                skips[tp] -= 1
                if skips[tp] == 0:
                    await _compare_last(client, tp, row)
                continue
            wait = pace.wait_s(row.due, sent)
            if wait > 0:
                await gatherer.flush()
                await asyncio.sleep(wait)
            headers = [(header.key, _bytes(header.value)) for header in row.headers or ()]
            await gatherer.add(tp, row.timestamp, _bytes(row.key), _bytes(row.value), headers)
            sent += 1
        await gatherer.flush()
    return sent


def _bytes(content: bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)


class _Pace:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._began = time.time()

    def wait_s(self, due_ms: int, sent: int) -> float:
        target = self._target
        if target.speed:
            return target.began_at + (due_ms - target.first_ms) / 1000 / target.speed - time.time()
        if target.per_second:
            share = target.per_second / target.tasks
            return self._began + sent / share - time.time()
        return 0.0


async def _written(client: Any, target: Target, tp: TopicPartition) -> int:
    from ottla.client.offsets import LATEST, list_offsets

    end = (await list_offsets(client, {tp: LATEST}))[tp].offset
    return max(end - target.bases[tp], 0)


async def _compare_last(client: Any, tp: TopicPartition, row: Any) -> None:
    """What is to be the last record of ours must be it."""
    from ottla.client.fetcher import Fetcher
    from ottla.client.offsets import LATEST, list_offsets

    last = (await list_offsets(client, {tp: LATEST}))[tp].offset - 1
    fetcher = Fetcher(client, {tp: last})
    try:
        fetched = await fetcher.poll()
        while not fetched:
            fetched = await fetcher.poll()
    finally:
        await fetcher.close()
    record = next(r for one in fetched for batch in one.batches for r in batch.records() if r.offset == last)
    mine = (row.timestamp, _bytes(row.key), _bytes(row.value))
    if (record.timestamp, record.key, record.value) != mine:
        raise PipelineError(
            f"somebody else wrote to {tp[0]}-{tp[1]} since this replay was begun, so it cannot go on; "
            "replay to another topic"
        )
