"""Replays keep everything about a record, continue where they stopped wherever that was, and keep time."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.topics import BlockingClient
from ottla.spark.pipelines.transactions import Reached

Records = list[tuple[Any, ...]]


@pytest.fixture
def records_of(broker: Any) -> Callable[[str, int], Records]:
    """Partition, key, value, time and headers of all committed records, in the order of the log."""
    from confluent_kafka import Consumer, TopicPartition

    def go(topic: str, partitions: int) -> Records:
        settings = {"group.id": "unused", "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found: list[Any] = []
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                at_end.add(message.partition())
            else:
                found.append(
                    (message.partition(), message.key(), message.value(), message.timestamp(), message.headers())
                )
        consumer.close()
        return sorted(found, key=lambda record: record[0])  # stable: the order within a partition stays

    return go


def test_a_replay_keeps_everything_and_goes_on(
    spark: Any, broker: Any, make_topic: Any, send: Any, records_of: Any, tmp_path: Path
) -> None:
    topic = make_topic(3, retention_ms=-1, max_message_bytes=3 << 20)
    for n in range(4):
        headers = [("n", b"%d" % n), ("none", None)]
        send(topic, [(b"k", b"%d.%d" % (n, i)) for i in range(20)], n % 2, 1_790_000_000_000 - n * 5000, headers)
    send(topic, [(b"gone", None), (None, b"\0\xff" * 100)], 0, 1_700_000_000_000)
    send(topic, [(b"large", bytes(2 << 20))], 1, message_max_bytes=3 << 20)
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    archive = str(tmp_path / "a")
    ottla.spark.archive(topic, archive, max_records=30, **options)
    target = f"{topic}-again"
    done = ottla.spark.replay(archive, to_topic=target, compression="zstd", **options)
    assert (done.records, done.lag) == (83, 0)
    assert records_of(target, 3) == records_of(topic, 3)
    shown = BlockingClient(broker.bootstrap, {}).committed(done.group)
    # Tools see no lag, and the text beside the offset says how far the archive is.
    assert {tp: (one.offset, Reached.of(one.metadata)) for tp, one in shown.items()} == {
        (target, 0): (43, Reached(42, 42)),
        (target, 1): (42, Reached(41, 41)),
        (target, 2): (0, Reached(0, 0)),
    }

    # A repetition writes nothing. What was archived meanwhile is added, even if another program has written too.
    assert ottla.spark.replay(archive, to_topic=target, compression="zstd", **options).records == 0
    send(target, [(b"other", b"from elsewhere")], 1)
    send(topic, [(b"k", b"new")] * 3, 1)
    ottla.spark.archive(topic, archive, **options)
    assert ottla.spark.replay(archive, to_topic=target, **options).records == 3
    mine = [record for record in records_of(target, 3) if record[1] != b"other"]
    assert mine == records_of(topic, 3)
    with pytest.raises(PipelineError, match="the archive has no topic 'x'"):
        ottla.spark.replay(archive, only="x", **options)
    with pytest.raises(PipelineError, match="either a speed or a rate"):
        ottla.spark.replay(archive, to_topic="x", speed=1, rate=1, **options)


def test_a_replay_that_is_stopped_and_one_whose_group_is_gone(
    spark: Any, broker: Any, make_topic: Any, send: Any, records_of: Any, tmp_path: Path
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        send(topic, [(b"k", b"%d" % n) for n in range(200)], partition)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    archive, target = str(tmp_path / "a"), f"{topic}-again"
    ottla.spark.archive(topic, archive, **options)

    def stopped() -> Any:
        stop = Event()

        def watch(progress: Any) -> None:
            if progress.records:
                stop.set()

        # Slow enough that it cannot be done before it is stopped, however slow the machine is.
        return ottla.spark.replay(archive, to_topic=target, rate=1, on_progress=watch, stop=stop, **options)

    done = stopped()
    assert done.interrupted
    assert 0 < done.records < 400
    assert done.lag == 400 - done.records
    # No transaction is left open: a reader of committed records sees the end of the topic.
    part = records_of(target, 2)
    assert len(part) == done.records
    rest = ottla.spark.replay(archive, to_topic=target, **options)
    assert rest.records == 400 - done.records
    assert records_of(target, 2) == records_of(topic, 2)

    # A replay that ended is known to have ended, without its group as well; one that was cut off is not guessed at.
    cluster = BlockingClient(broker.bootstrap, {})
    cluster.forget(done.group, cluster.committed(done.group))
    assert ottla.spark.replay(archive, to_topic=target, **options).records == 0
    target += "-2"
    done = stopped()
    cluster.forget(done.group, cluster.committed(done.group))
    with pytest.raises(PipelineError, match="which held the progress of this replay, is gone"):
        ottla.spark.replay(archive, to_topic=target, **options)
    again = ottla.spark.replay(archive, to_topic=target, again=True, **options)
    assert again.records == 400
    assert len(records_of(target, 2)) == 400 + done.records


def test_a_replay_that_is_killed(
    spark: Any, broker: Any, make_topic: Any, send: Any, records_of: Any, kill_after: Any, tmp_path: Path
) -> None:
    """SIGKILL at random moments, then once to the end: each record is there once, in order."""
    topic = make_topic(2)
    for partition in (0, 1):
        send(topic, [(b"k%d" % n, b"%d" % n) for n in range(2000)], partition)
    archive, target, group = str(tmp_path / "a"), f"{topic}-again", f"g-{topic}"
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    ottla.spark.archive(topic, archive, **options)
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "replay", archive, "--to-topic", target]
    command += ["-b", broker.bootstrap, "--master", "local[2]", "--group", group, "--rate", "50"]
    cluster = BlockingClient(broker.bootstrap, {})
    chance = random.Random(topic)

    def replayed() -> int:
        return sum(Reached.of(one.metadata).records for one in cluster.committed(group).values())

    for _ in range(int(os.environ.get("OTTLA_SPARK_KILLS", "1"))):
        wanted = replayed() + chance.randint(1, 100)
        kill_after(command, lambda: replayed() >= wanted, chance)  # noqa: B023
    before = replayed()
    assert 0 < before < 4000
    # Python workers of the killed driver may still write: the first writer that opens a partition fences them.
    done = ottla.spark.replay(archive, to_topic=target, group=group, **options)
    assert 0 < done.records <= 4000 - before
    assert records_of(target, 2) == records_of(topic, 2)


def test_a_replay_keeps_time(
    spark: Any, broker: Any, make_topic: Any, send: Any, records_of: Any, tmp_path: Path
) -> None:
    topic = make_topic(2, retention_ms=-1)
    for n in range(4):
        send(topic, [(b"k", b"%d" % n)], n % 2, 1_790_000_000_000 + n * 5000)
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    archive = str(tmp_path / "a")
    ottla.spark.archive(topic, archive, **options)
    began = time.monotonic()
    ottla.spark.replay(archive, to_topic=f"{topic}-slow", speed=10, **options)
    assert time.monotonic() - began >= 1.4  # 15 s at ten times the speed; how long Spark takes beside it, nobody knows
    assert records_of(f"{topic}-slow", 2) == records_of(topic, 2)
    began = time.monotonic()
    ottla.spark.replay(archive, to_topic=f"{topic}-rate", rate=4, **options)
    assert time.monotonic() - began >= 0.4
    assert records_of(f"{topic}-rate", 2) == records_of(topic, 2)
