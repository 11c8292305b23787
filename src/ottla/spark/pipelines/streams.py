"""Running a pipeline as a stream: micro-batches with their offsets, losses, progress, and the group that shows the lag.

Spark's checkpoint says which offsets a micro-batch has before the batch begins, and repeats the same batch after a
crash. What the batch leaves behind is the pipeline's affair. A note of our own beside Spark's files (`ottla.json`)
names the pipeline, the cluster and the topics with their ids, so that a checkpoint cannot be taken for another one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.cluster import Offsets, TopicPartition, flat
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.jobs import Job, Progress
from ottla.spark.pipelines.stores import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE: Final = "ottla.json"
_POLL_S: Final = 0.25
_COMMIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were removed before they were read: from `first` up to before `end`."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: its records and the offsets it covers, gaps included."""

    number: int
    frame: DataFrame
    starts: Offsets
    ends: Offsets


@dataclass(slots=True)
class Summary:
    """What a run did."""

    pipeline: str
    topics: list[str]
    records: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag: int = 0
    group: str | None = None
    checkpoint: str | None = None
    lost: list[Loss] = field(default_factory=list)
    interrupted: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


Handler = Callable[[Batch], int]
"""Takes a batch and gives the number of its records; when it returns, what it wrote must be safe."""


def run_stream(job: Job, handle: Handler, starts: Offsets, belongs_to: str = "") -> Summary:
    """Run until all is read that was there at the start, or until stopped when following."""
    assert job.checkpoint is not None
    store = open_store(job.checkpoint, job.spark)
    check_note(job, store, belongs_to)
    runner = _Runner(job, store, handle, starts)
    frame = job.read_stream(starts)
    try:
        query = frame.writeStream.foreachBatch(runner.on_batch).option("checkpointLocation", store.url())
        if job.follow:
            query = query.trigger(processingTime=f"{job.options.get('interval_s') or 5} seconds")
        else:
            query = query.trigger(availableNow=True)
        runner.watch(query.start())
    except KeyboardInterrupt:
        runner.summary.interrupted = True
    except Exception as error:
        raise (runner.failure or explain(error)) from None
    return runner.finish()


def check_note(job: Job, store: Store, belongs_to: str = "") -> None:
    """Refuse the checkpoint of another pipeline, cluster, topic, or of a topic that has been created anew since."""
    ids = {topic.name: topic.topic_id for topic in job.topics.values()}
    mine = {"pipeline": job.pipeline, "cluster": job.cluster.cluster_id(), "topics": ids, "belongs_to": belongs_to}
    another = "name another folder with --checkpoint"
    if not store.exists(NOTE):
        if store.names("offsets"):
            raise PipelineError(f"{store.root} is the checkpoint of a query that is no pipeline of Ottla; {another}")
        store.write_new(NOTE, json.dumps(mine, indent=1).encode())
        return
    there = json.loads(store.read(NOTE))
    if there["pipeline"] != job.pipeline:
        raise PipelineError(f"{store.root} is the checkpoint of the pipeline '{there['pipeline']}'; {another}")
    missing = sorted(set(there["topics"]) - set(ids))
    if missing:
        raise PipelineError(
            f"{store.root} is a checkpoint of {', '.join(sorted(there['topics']))}, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not read now; {another}"
        )
    if there["cluster"] != mine["cluster"]:
        raise PipelineError(f"{store.root} is a checkpoint of another cluster than {job.cluster.bootstrap}; {another}")
    for name, topic_id in there["topics"].items():
        if topic_id and ids[name] != topic_id:
            raise PipelineError(recreated(name, store.root))
    if there["belongs_to"] != belongs_to:
        raise PipelineError(f"{store.root} is the checkpoint of another output; {another}")
    if set(ids) != set(there["topics"]):
        store.replace(NOTE, json.dumps(mine, indent=1).encode())


def recreated(topic: str, where: str) -> str:
    return (
        f"topic '{topic}' was deleted and created again since {where} was begun; its offsets mean other records now. "
        "Begin anew with another folder"
    )


def batch_offsets(store: Store, number: int) -> Offsets | None:
    """The ends of a micro-batch as Spark wrote them down before it began."""
    path = f"offsets/{number}"
    if number < 0 or not store.exists(path):
        return None
    lines = store.read(path).decode().splitlines()
    found: Offsets = {}
    for line in lines[2:]:
        if line.startswith("{"):
            found |= flat(json.loads(line))
    return found


def last_offsets(store: Store) -> Offsets:
    """Up to where the batches that are done reach."""
    done = [int(name) for name in store.names("commits") if name.isdigit()]
    return (batch_offsets(store, max(done)) or {}) if done else {}


class _Runner:
    """Between Spark's callbacks and the pipeline's handler."""

    def __init__(self, job: Job, store: Store, handle: Handler, starts: Offsets) -> None:
        self.job = job
        self.store = store
        self.handle = handle
        self.starts = starts
        self.failure: PipelineError | None = None
        self.summary = Summary(job.pipeline, sorted(job.topics), group=job.group, checkpoint=job.checkpoint, lag=0)
        self._began = time.monotonic()
        self._bounds = job.bounds()
        self._position = {**starts, **last_offsets(store)}
        self._committed: Offsets = {}
        self._committed_at = 0.0

    def on_batch(self, frame: DataFrame, number: int) -> None:
        try:
            self._on_batch(frame, number)
        except PipelineError as error:
            self.failure = error
            raise
        except Exception as error:
            self.failure = explain(error)
            raise

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        ends = batch_offsets(self.store, number)
        if ends is None:
            raise PipelineError(f"{self.store.root} has no offsets of batch {number}; it was changed from outside")
        starts = batch_offsets(self.store, number - 1) or self.starts
        self._check_topics()
        self._bounds = self.job.bounds()
        lost = losses(starts, ends, {tp: low for tp, (low, _) in self._bounds.items()})
        self._tell(lost)
        self.summary.records += self.handle(Batch(number, frame, starts, ends))
        self.summary.batches += 1
        self._position |= ends

    def _check_topics(self) -> None:
        now = self.job.cluster.topics()
        for name, topic in self.job.topics.items():
            if name not in now:
                raise PipelineError(f"topic '{name}' was deleted while it was read")
            if now[name].topic_id != topic.topic_id:
                raise PipelineError(recreated(name, self.store.root))

    def _tell(self, lost: list[Loss]) -> None:
        for one in lost:
            text = (
                f"{one.topic}-{one.partition}: records {one.first} to {one.end - 1} were removed by retention before "
                "they were read"
            )
            if self.job.options.get("on_data_loss") == "fail":
                raise PipelineError(f"{text}; go on behind them with --on-data-loss warn")
            self.job.warn(text)
        self.summary.lost += lost

    def watch(self, query: Any) -> None:
        """Wait for the end; show progress and commit it to the group meanwhile."""
        stop = self.job.options.get("stop")
        try:
            while not query.awaitTermination(_POLL_S):
                self._show()
                self._commit()
                if stop is not None and stop.is_set():
                    self.summary.interrupted = True
                    break
        finally:
            query.stop()

    def _lag(self) -> int:
        return sum(max(high - self._position.get(tp, low), 0) for tp, (low, high) in self._bounds.items())

    def _show(self) -> None:
        tell = self.job.options.get("on_progress")
        if tell is None:
            return
        seconds = max(time.monotonic() - self._began, 1e-3)
        lag = self._lag()
        done = self.summary.records
        tell(Progress(self.job.pipeline, done, done + lag, lag, done / seconds, self.summary.batches))

    def _commit(self, force: bool = False) -> None:
        """Offsets that Spark has committed; a group that cannot be written to is no reason to stop."""
        if self.job.group is None or (not force and time.monotonic() - self._committed_at < _COMMIT_S):
            return
        self._committed_at = time.monotonic()
        offsets = last_offsets(self.store)
        changed = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if not changed:
            return
        commit_progress(self.job, changed)
        self._committed |= changed

    def finish(self) -> Summary:
        self._bounds = self.job.bounds()
        self._commit(force=True)
        self.summary.seconds = time.monotonic() - self._began
        self.summary.lag = self._lag()
        self._show()
        return self.summary


def commit_progress(job: Job, offsets: Mapping[TopicPartition, int]) -> None:
    """To the consumer group; one that cannot be written to is worth a warning, not the pipeline's end."""
    from ottla.client import ClientError
    from ottla.errors import KafkaError

    if job.group is None or not offsets:
        return
    try:
        job.cluster.commit(job.group, offsets)
    except (KafkaError, ClientError) as error:
        job.warn(f"the progress could not be committed to the group '{job.group}': {error}")


def losses(starts: Offsets, ends: Offsets, log_starts: Offsets) -> list[Loss]:
    """What a batch was to read and is no longer there."""
    return [
        Loss(tp[0], tp[1], start, min(log_starts[tp], ends.get(tp, start)))
        for tp, start in sorted(starts.items())
        if tp in log_starts and log_starts[tp] > start and ends.get(tp, start) > start
    ]
