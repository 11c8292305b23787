"""Micro-batches of the pipelines that write a table: planned here, read as batch jobs, done when the table has them.

The table records its own position, so no Spark stream is needed. Each round looks up the ends of the topics, reads up
to them (at most `max_records`), passes the records to the pipeline, and writes the position to the checkpoint in the
format of Spark's streams. This costs less than a stream, supports limits on every version of Spark, and works over
Spark Connect, where the callback of a stream would run in another process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

from ottla.spark.pipelines.errors import STARTS, Starved, explain
from ottla.spark.pipelines.jobs import BATCH_RECORDS, Job
from ottla.spark.pipelines.stores import Store, open_store
from ottla.spark.pipelines.streams import Batch, Handler, Runner, Summary, check_note, last_offsets
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.topics import Offsets, TopicPartition, nested
from ottla.spark.plan import shared
from ottla.spark.sessions import interruptible

_POLL_S: Final = 0.25
_DEFAULT_INTERVAL_S: Final = 5.0
_KEPT: Final = 10
"""How many checkpoint entries to keep besides the newest."""


def run_batches(job: Job, handle: Handler, table: Table, starts: Offsets) -> Summary:
    """Bring a table up to the ends that the topics had at the start, or follow the topics until stopped.

    A first run begins at `starts`. Later runs begin at the table's position, or at the checkpoint for partitions that
    the table does not have.
    """
    assert job.checkpoint is not None
    store = open_store(job.checkpoint, job.spark)
    try:
        check_note(job, store, table.id)
    except OSError as error:
        raise explain(error) from None
    position = {**starts, **_of(last_offsets(store), starts), **_of(table.state.marks, starts)}
    runner = Runner(job, store, handle, position)
    target = None if job.follow else {tp: high for tp, (_, high) in job.bounds().items()}
    number = max((int(name) for name in store.names("commits") if name.isdigit()), default=-1)
    if number < 0:
        # A later run must begin where this one did, even if there is nothing to read yet: `latest` means now.
        number = 0
        _write_down(store, number, position)
    try:
        for ends in _plans(job, runner, position, target):
            number += 1
            _run(job, runner, number, position, ends)
            position |= ends
            _write_down(store, number, position)
            runner.commit()
    except KeyboardInterrupt:
        runner.summary.interrupted = True
    except OSError as error:
        raise explain(error) from None
    return runner.finish()


def _of(offsets: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]) -> Offsets:
    return {tp: offset for tp, offset in offsets.items() if tp in wanted}


def _plans(job: Job, runner: Runner, position: Offsets, target: Offsets | None) -> Iterator[Offsets]:
    """The end of each batch. Stops when everything is read, or on request."""
    interval_s = job.options.get("interval_s") or _DEFAULT_INTERVAL_S
    stop = job.options.get("stop")
    while stop is None or not stop.is_set():
        began = time.monotonic()
        bounds = runner.check_topics() if target is None else job.bounds()
        for tp, (low, _) in bounds.items():
            position.setdefault(tp, low)  # a partition that was added
        highs = {tp: high if target is None else target.get(tp, 0) for tp, (_, high) in bounds.items()}
        ends = {tp: high for tp, high in highs.items() if high > position[tp]}
        if ends:
            yield position | shared(position, ends, job.options.get("max_records") or BATCH_RECORDS)
        elif target is not None:
            return
        if target is None:
            _rest(runner, stop, began + interval_s)
    runner.summary.interrupted = True


def _rest(runner: Runner, stop: Any, until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        runner.look()
        runner.commit()
        if stop is None:
            time.sleep(min(left, _POLL_S))
        elif stop.wait(min(left, _POLL_S)):
            return


def _run(job: Job, runner: Runner, number: int, starts: Offsets, ends: Offsets) -> None:
    """Run one batch in its own thread, so that this thread can show the progress."""
    begin = dict(starts)

    def frame() -> Any:
        lows = {tp: low for tp, (low, _) in job.bounds().items()}
        return job.read_batch({tp: min(max(start, lows[tp]), ends[tp]) for tp, start in begin.items()}, ends)

    for left in range(STARTS - 1, -1, -1):
        runner.failure = None
        with ThreadPoolExecutor(1) as pool, interruptible(job.spark) as tagged:
            future = pool.submit(tagged, lambda: runner.on_batch(Batch(number, frame, begin, ends)))
            while not wait([future], _POLL_S).done:
                runner.look()
                runner.commit()
        error = future.exception()
        if error is None:
            return
        failure = runner.failure or explain(error)
        if not left or not isinstance(failure, Starved):
            raise failure from None


def _write_down(store: Store, number: int, position: Offsets) -> None:
    text = "\n".join(["v1", json.dumps({"batchId": number}), json.dumps(nested(position))])
    store.replace(f"offsets/{number}", text.encode())
    store.replace(f"commits/{number}", b"v1\n{}")
    for folder in ("offsets", "commits"):
        for name in store.names(folder):
            if name.isdigit() and int(name) <= number - _KEPT:
                store.delete(f"{folder}/{name}")
