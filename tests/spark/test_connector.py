"""Spark's official Kafka connector, with its real jars, on Ottla (or with `--bootstrap` on any other broker)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException


@pytest.fixture
def read(spark: Any, broker: Any) -> Any:
    def load(**options: Any) -> Any:
        named = {key.replace("__", "."): str(value) for key, value in options.items()}
        return spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).options(**named).load()

    return load


@pytest.fixture
def stream(spark: Any, broker: Any, finish: Any, tmp_path: Path) -> Any:
    """One AvailableNow run to Parquet in the test's folder; the sizes of its micro-batches."""

    def run(**options: Any) -> list[int]:
        named = {key.replace("__", "."): str(value) for key, value in options.items()}
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        writer = reader.options(**named).load().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
        found: list[int] = finish(writer)
        return found

    return run


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_batch_reads(read: Any, make_topic: Any, send: Any) -> None:
    topic = make_topic(partitions=3, retention_ms=-1)
    for partition in (0, 1):
        for second in range(20):
            send(topic, [(b"k", b"v")], partition=partition, timestamp=1_700_000_000_000 + second * 1000)
    everything = span(0, 0, 20) + span(1, 0, 20)
    assert offsets(read(subscribe=topic)) == everything
    assert offsets(read(subscribePattern=f"{topic[:-2]}.*")) == everything
    assert offsets(read(assign=json.dumps({topic: [1]}))) == span(1, 0, 20)
    some = read(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 5, "1": -2, "2": 0}}),
        endingOffsets=json.dumps({topic: {"0": 7, "1": 3, "2": -1}}),
    )
    assert offsets(some) == span(0, 5, 7) + span(1, 0, 3)
    assert offsets(
        read(
            subscribe=topic,
            startingTimestamp=1_700_000_004_001,
            startingOffsetsByTimestampStrategy="latest",
            endingTimestamp=1_700_000_010_000,
        )
    ) == span(0, 5, 10) + span(1, 5, 10)
    by_time = read(
        assign=json.dumps({topic: [0, 1]}),
        startingOffsetsByTimestamp=json.dumps({topic: {"0": 1_700_000_019_000, "1": 0}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": 1_700_000_099_000, "1": 1_700_000_002_000}}),
    )
    assert offsets(by_time) == span(0, 19, 20) + span(1, 0, 2)
    split = read(subscribe=topic, minPartitions=8)
    assert split.rdd.getNumPartitions() >= 8 and offsets(split) == everything


def test_headers_and_transactions(read: Any, broker: Any, make_topic: Any, send: Any) -> None:
    from confluent_kafka import Producer

    topic = make_topic()
    send(topic, [(b"k", b"v")], headers=[("a", b"1"), ("a", None)])
    for end, name in (("abort", "x"), ("commit", "y")):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, value=name, partition=0)
        assert producer.flush(60) == 0
        (producer.abort_transaction if end == "abort" else producer.commit_transaction)(60)
    found = read(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [row.value for row in found] == [b"v", b"x", b"y"]
    assert [(header.key, header.value) for header in found[0].headers] == [("a", b"1"), ("a", None)]
    committed = read(subscribe=topic, kafka__isolation__level="read_committed")
    assert [row.value for row in committed.orderBy("offset").collect()] == [b"v", b"y"]


def test_a_stream_recovers_and_writes_each_record_once(
    spark: Any, stream: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        send(topic, [(b"k", b"v%d" % i) for i in range(100)], partition=partition)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}
    sizes = stream(**options)
    assert sum(sizes) == 200 and max(sizes) <= 60 and len(sizes) == 4
    # As if the driver had died between the last batch and its commit: the batch must be read and written again.
    last = str(len(sizes) - 1)
    for name in (last, f".{last}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        (tmp_path / "out" / "_spark_metadata" / name).unlink(missing_ok=True)
    send(topic, [(b"k", b"more")] * 10, partition=1)
    again = stream(**options)
    assert again == [sizes[-1], 10]
    assert offsets(spark.read.parquet(str(tmp_path / "out"))) == span(0, 0, 100) + span(1, 0, 110)


def test_data_loss_is_an_error_unless_it_is_allowed(
    stream: Any, admin: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition

    topic = make_topic()
    send(topic, [(None, b"v")] * 10)
    assert stream(subscribe=topic, startingOffsets="earliest") == [10]
    send(topic, [(None, b"v")] * 10)
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result(60)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        stream(subscribe=topic)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "kept", tmp_path / "checkpoint")
    assert stream(subscribe=topic, failOnDataLoss="false") == [5]


def test_offsets_fetched_with_a_consumer_group(spark: Any, stream: Any, make_topic: Any, send: Any) -> None:
    """The older way, in which the driver is a member of a group."""
    topic = make_topic(partitions=2)
    send(topic, [(None, b"v")] * 10, partition=1)
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, "true")
    try:
        assert stream(subscribePattern=f"{topic[:-2]}.*", startingOffsets="earliest", groupIdPrefix="ours") == [10]
    finally:
        spark.conf.unset(name)


def test_both_sinks(
    spark: Any, broker: Any, finish: Any, read: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=3)
    headers = "array(struct('h' as key, cast('1' as binary) as value)) headers"
    columns = ["cast(id as string) key", "concat('v', id) value", headers, "cast(id % 2 as int) partition"]
    frame = spark.range(300).selectExpr(*columns, f"'{source}' topic")
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"}
    frame.write.format("kafka").options(**sink).save()
    assert offsets(read(subscribe=source)) == span(0, 0, 150) + span(1, 0, 150)
    finish(
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .options(subscribe=source, startingOffsets="earliest", includeHeaders="true")
        .load()
        .selectExpr("key", "upper(cast(value as string)) value", "headers")
        .writeStream.format("kafka")
        .options(**sink, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    found = read(subscribe=target, includeHeaders="true").collect()
    assert sorted(row.value for row in found) == sorted(b"V%d" % i for i in range(300))
    assert {header.key for row in found for header in row.headers} == {"h"}


def test_a_topic_that_does_not_exist(read: Any, unique: Any) -> None:
    with pytest.raises(Py4JJavaError, match="UnknownTopicOrPartitionException"):
        read(subscribe=unique("nowhere")).count()
