"""Running a pipeline as a stream: micro-batches with their offsets, losses, progress, and the group that shows the lag.

Spark's checkpoint records the offsets of a micro-batch before the batch begins, and repeats the same batch after a
crash. The pipeline is responsible for what the batch writes. Our own note next to Spark's files (`ottla.json`) contains
the pipeline, the cluster and the topics with their ids, so that a checkpoint is not used for another pipeline.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ottla.client import ClientError
from ottla.errors import KafkaError
from ottla.spark.pipelines.errors import STARTS, PipelineError, Starved, explain
from ottla.spark.pipelines.jobs import Job, Progress
from ottla.spark.pipelines.stores import Store, open_store, read_json
from ottla.spark.pipelines.topics import Offsets, TopicPartition, flat
from ottla.spark.sessions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE: Final = "ottla.json"
_POLL_S: Final = 0.25
_COMMIT_S: Final = 1.0
_LOOK_S: Final = 2.0
"""The time between two checks of the ends of the topics."""
_RATE_S: Final = 10.0
_SETTLE_S: Final = 300.0
"""How long a batch may take to end when the pipeline stops. Killing it instead loses nothing."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were removed before they were read: from `first` up to, but not including, `end`."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: its records and the offsets it covers, gaps included."""

    number: int
    frame: Callable[[], DataFrame]
    starts: Offsets
    ends: Offsets


@dataclass(slots=True)
class Summary:
    """The result of a run."""

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
"""Handles a batch and returns the number of its records. When it returns, its output must be durable."""


def run_stream(
    job: Job, handle: Handler, starts: Offsets, belongs_to: str, read: Callable[[Offsets], DataFrame]
) -> Summary:
    """Run `read` over the topics as a Spark stream, which may keep state between its batches.

    Ends when everything that existed at the start is read, or follows the topics until stopped.
    """
    assert job.checkpoint is not None
    store = open_store(job.checkpoint, job.spark)
    try:
        check_note(job, store, belongs_to)
    except OSError as error:
        raise explain(error) from None
    runner = _StreamRunner(job, store, handle, starts)
    for left in range(STARTS - 1, -1, -1):
        try:
            query = read(starts).writeStream.foreachBatch(runner.on_frame).option("checkpointLocation", store.url())
            runner.watch(triggered(job, query).start())
        except KeyboardInterrupt:
            runner.summary.interrupted = True
        except Exception as error:
            failure = runner.failure or explain(error)
            if not left or not isinstance(failure, Starved):
                raise failure from None
            runner.reset()  # an unfinished batch runs again, as after a crash
            continue
        break
    return runner.finish()


def triggered(job: Job, writer: Any) -> Any:
    """The trigger of the stream: when the next micro-batch begins."""
    if job.follow:
        return writer.trigger(processingTime=f"{round((job.options.get('interval_s') or 5) * 1000)} milliseconds")
    return writer.trigger(availableNow=True)


def check_note(job: Job, store: Store, belongs_to: str = "") -> None:
    """Refuse the checkpoint of another pipeline, cluster or topic, or of a topic that was recreated since."""
    ids = {topic.name: topic.topic_id for topic in job.topics.values()}
    mine = {"pipeline": job.pipeline, "cluster": job.cluster.cluster_id(), "topics": ids, "belongs_to": belongs_to}
    another = "choose another folder with --checkpoint"
    if not store.exists(NOTE):
        if store.names("offsets"):
            raise PipelineError(f"{store.root} is the checkpoint of a query that is not a pipeline of Ottla; {another}")
        store.write_new(NOTE, json.dumps(mine, indent=1).encode())
        return
    there = read_json(store, NOTE)
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
        f"topic '{topic}' was deleted and created again after {where} was created; its offsets now refer to other "
        "records. Start again with another folder"
    )


def batch_offsets(store: Store, number: int) -> Offsets | None:
    """The ends of a micro-batch, as Spark wrote them before the batch began."""
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
    """The ends of the completed batches."""
    done = [int(name) for name in store.names("commits") if name.isdigit()]
    return (batch_offsets(store, max(done)) or {}) if done else {}


def planned_offsets(store: Store) -> Offsets:
    """The ends of the batches that were started."""
    begun = [int(name) for name in store.names("offsets") if name.isdigit()]
    return (batch_offsets(store, max(begun)) or {}) if begun else {}


class Watch:
    """Watches a running query: shows its progress, commits for the group, and stops it cleanly."""

    def __init__(self, job: Job, store: Store, starts: Offsets) -> None:
        self.job = job
        self.store = store
        self.starts = dict(starts)
        self.summary = Summary(job.pipeline, sorted(job.topics), group=job.group, checkpoint=job.checkpoint, lag=0)
        self._began = time.monotonic()
        self._bounds = job.bounds()
        self._looked_at = self._began
        self._position = dict(self.starts)
        self._committed: Offsets = {}
        self._committed_at = 0.0
        self._rate = Rate(self._began)

    def watch(self, query: Any) -> None:
        """Wait for the end. A request to stop takes effect between two batches."""
        stop = self.job.options.get("stop")
        try:
            while not query.awaitTermination(_POLL_S):
                self.look()
                self.commit()
                if stop is not None and stop.is_set():
                    self.summary.interrupted = True
                    self._settle(query)
                    break
        finally:
            self._end(query)

    def _settle(self, query: Any) -> None:
        """Let the current batch finish, if it does so in time."""
        deadline = time.monotonic() + _SETTLE_S
        while query.status["isTriggerActive"] and time.monotonic() < deadline:
            if query.awaitTermination(_POLL_S):
                return
            self.look()

    def _end(self, query: Any) -> None:
        query.stop()

    def _now(self) -> Offsets:
        """The ends of the completed batches."""
        return last_offsets(self.store)

    def _done(self) -> int:
        return sum(max(end - self.starts.get(tp, end), 0) for tp, end in self._position.items())

    def look(self) -> None:
        """Show the progress."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            with suppress(KafkaError, ClientError):  # the query itself reports problems with the cluster
                self._bounds = self.job.bounds()
        self._position |= self._now()
        tell = self.job.options.get("on_progress")
        if tell is None:
            return
        lag, done = self._lag(), self._done()
        tell(Progress(self.job.pipeline, done, done + lag, lag, self._rate.of(done, now), self.summary.batches))

    def _lag(self) -> int:
        return sum(max(high - self._position.get(tp, low), 0) for tp, (low, high) in self._bounds.items())

    def commit(self, force: bool = False) -> None:
        """Commit the offsets that Spark has committed. If this fails, the pipeline continues."""
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
        with suppress(KafkaError, ClientError):
            self._bounds = self.job.bounds()
        self.commit(force=True)
        self.summary.seconds = time.monotonic() - self._began
        self.look()
        self.summary.lag = self._lag()
        return self.summary


class Rate:
    """Records per second over the last few seconds, not over the whole run."""

    def __init__(self, now: float) -> None:
        self._seen: deque[tuple[float, int]] = deque([(now, 0)])

    def of(self, records: int, now: float) -> float:
        self._seen.append((now, records))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return (records - before) / max(now - then, 1e-3)


class _Stopped(Exception):
    """Rejects a batch that Spark begins while the query is being stopped."""


class Runner(Watch):
    """Passes batches to the pipeline's handler, and counts records."""

    def __init__(self, job: Job, store: Store, handle: Handler, starts: Offsets) -> None:
        super().__init__(job, store, starts)
        self.handle = handle
        self.failure: PipelineError | None = None
        self._flight = 0
        self._landed = 0

    def on_batch(self, batch: Batch) -> None:
        try:
            self._on_batch(batch)
        except PipelineError as error:
            self.failure = error
            raise
        except Exception as error:
            self.failure = explain(error)
            raise
        finally:
            self._flight = self._landed = 0

    def _on_batch(self, batch: Batch) -> None:
        self._bounds = self.check_topics()
        lost = losses(batch.starts, batch.ends, {tp: low for tp, (low, _) in self._bounds.items()})
        tell_losses(self.job, lost)
        self.summary.lost += lost
        self._flight = sum(max(end - batch.starts.get(tp, end), 0) for tp, end in batch.ends.items())
        self.summary.records += self.handle(batch)
        self.summary.batches += 1
        self._position |= batch.ends

    def check_topics(self) -> dict[TopicPartition, tuple[int, int]]:
        """The current start and end of each partition. Topics may have grown, but must not have been recreated."""
        now = self.job.cluster.topics()
        for name, topic in list(self.job.topics.items()):
            if name not in now:
                raise PipelineError(f"topic '{name}' was deleted while it was read")
            if now[name].topic_id != topic.topic_id:
                raise PipelineError(recreated(name, self.store.root))
            self.job.topics[name] = now[name]
        return self.job.bounds()

    def _now(self) -> Offsets:
        return {}

    def _done(self) -> int:
        return self.summary.records + self._within()

    def _within(self) -> int:
        """Roughly how many records of the current batch are done, estimated from its tasks."""
        if not self._flight or is_remote(self.job.spark):
            return 0
        tracker = self.job.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        shares = [stage.numCompletedTasks / stage.numTasks for stage in stages if stage and stage.numTasks]
        self._landed = max(self._landed, int(self._flight * min(shares, default=0)))
        return self._landed

    def _lag(self) -> int:
        return max(super()._lag() - self._landed, 0)


class _StreamRunner(Runner):
    """Connects the callbacks of a stream to the handler."""

    def __init__(self, job: Job, store: Store, handle: Handler, starts: Offsets) -> None:
        super().__init__(job, store, handle, {**starts, **last_offsets(store)})
        self.first = starts
        self._busy = Lock()
        self._stopping = False

    def reset(self) -> None:
        self.failure = None
        self._stopping = False

    def on_frame(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._stopping:
                raise _Stopped
            ends = batch_offsets(self.store, number)
            if ends is None:
                raise PipelineError(f"{self.store.root} has no offsets of batch {number}; it was changed from outside")
            starts = batch_offsets(self.store, number - 1) or self.first
            self.on_batch(Batch(number, lambda: frame, starts, ends))

    def _end(self, query: Any) -> None:
        """The handler runs in its own thread and may be in a commit: wait for it before releasing anything."""
        self._stopping = True
        query.stop()
        if self._busy.acquire(timeout=_SETTLE_S):
            self._busy.release()


def commit_progress(job: Job, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit to the consumer group. A failure is a warning and does not end the pipeline."""
    if job.group is None or not offsets:
        return
    try:
        job.cluster.commit(job.group, offsets)
    except (KafkaError, ClientError) as error:
        job.warn(f"the progress could not be committed to the group '{job.group}': {error}")


def tell_losses(job: Job, lost: list[Loss]) -> None:
    """One warning for each loss, or an error if the pipeline should fail on data loss."""
    for one in lost:
        text = (
            f"{one.topic}-{one.partition}: records {one.first} to {one.end - 1} were removed by retention before "
            "they were read"
        )
        if job.options.get("on_data_loss") == "fail":
            raise PipelineError(f"{text}; to continue after them, add --on-data-loss warn")
        job.warn(text)


def losses(starts: Offsets, ends: Offsets, log_starts: Offsets) -> list[Loss]:
    """The offsets that a batch should read but that no longer exist."""
    return [
        Loss(tp[0], tp[1], start, min(log_starts[tp], ends.get(tp, start)))
        for tp, start in sorted(starts.items())
        if tp in log_starts and log_starts[tp] > start and ends.get(tp, start) > start
    ]
