"""Replays keep everything about a record, go on where they stopped, and keep time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError


@pytest.fixture
def records_of(broker: Any) -> Callable[[str, int], list[Any]]:
    """Partition, offset, key, value, time and headers of all records, in the order of the log."""
    from confluent_kafka import Consumer, TopicPartition

    def go(topic: str, partitions: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True})
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
                where = (message.partition(), message.offset())
                found.append((*where, message.key(), message.value(), message.timestamp(), message.headers()))
        consumer.close()
        return sorted(found, key=lambda record: record[:2])

    return go


def test_a_replay_keeps_everything_and_goes_on(
    spark: Any, broker: Any, make_topic: Any, send: Any, records_of: Any, tmp_path: Path
) -> None:
    topic = make_topic(3, retention_ms=-1)
    for n in range(4):
        headers = [("n", b"%d" % n), ("none", None)]
        send(topic, [(b"k", b"%d.%d" % (n, i)) for i in range(20)], n % 2, 1_790_000_000_000 - n * 5000, headers)
    send(topic, [(b"gone", None), (None, b"\0\xff" * 100)], 0, 1_700_000_000_000)
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    archive = str(tmp_path / "a")
    ottla.spark.archive(topic, archive, max_records=30, **options)
    target = f"{topic}-again"
    done = ottla.spark.replay(archive, topic=target, compression="zstd", **options)
    assert (done.records, done.lag) == (82, 0)
    assert records_of(target, 3) == records_of(topic, 3)

    # The same again writes nothing; what was archived meanwhile is added behind it.
    assert ottla.spark.replay(archive, topic=target, compression="zstd", **options).records == 0
    send(topic, [(b"k", b"new")] * 3, 1)
    ottla.spark.archive(topic, archive, **options)
    assert ottla.spark.replay(archive, topic=target, **options).records == 3
    assert records_of(target, 3) == records_of(topic, 3)

    send(target, [(b"k", b"from elsewhere")], 1)
    send(topic, [(b"k", b"newer")] * 3, 1)
    ottla.spark.archive(topic, archive, **options)
    with pytest.raises(PipelineError, match=f"somebody else wrote to {target}-1"):
        ottla.spark.replay(archive, topic=target, **options)
    assert ottla.spark.replay(archive, prefix="p.", since_ms=1_800_000_000_000, **options).records <= 9
    with pytest.raises(PipelineError, match="the archive has no topic 'x'"):
        ottla.spark.replay(archive, only="x", **options)


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
    ottla.spark.replay(archive, topic=f"{topic}-slow", speed=10, **options)
    assert time.monotonic() - began >= 1.4  # 15 s at ten times the speed; how long Spark takes beside it, nobody knows
    assert records_of(f"{topic}-slow", 2) == records_of(topic, 2)
    began = time.monotonic()
    ottla.spark.replay(archive, topic=f"{topic}-rate", rate=4, **options)
    assert time.monotonic() - began >= 0.4
    assert records_of(f"{topic}-rate", 2) == records_of(topic, 2)
    with pytest.raises(PipelineError, match="either a speed or a rate"):
        ottla.spark.replay(archive, topic="x", speed=1, rate=1, **options)
