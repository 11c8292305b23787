"""`format("ottla")` returns the same as the official connector, over the wire and from files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(params=["wire", "files"])
def way(request: pytest.FixtureRequest, broker: Any) -> dict[str, str]:
    """Options for the cluster, or for its folder with the cluster to say what may be read."""
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    if request.param == "files":
        options["path"] = str(request.getfixturevalue("data_folder"))
    return options


@pytest.fixture(scope="module")
def rich(broker: Any, admin: Any) -> str:
    """All that a topic can hold: codecs, headers, nulls, 1 MB, transactions of both ends, an empty partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    topic = f"rich-{time.time_ns()}"
    admin.create_topics([NewTopic(topic, 4, 1, config={"max.message.bytes": "3000000", "retention.ms": "-1"})])[
        topic
    ].result(60)
    for number, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
        producer = Producer({**settings, "message.max.bytes": 3_000_000})
        for i in range(300):
            producer.produce(
                topic,
                key=None if i % 7 == 0 else f"key-{i}",
                value=None if i % 11 == 0 else f"{codec} {i} ".encode() * (i % 40),
                partition=number % 2,
                timestamp=1_600_000_000_000 + number * 300_000 + i * 1000,
                headers=[("a", b"1"), ("b", None), ("a", b"")] if i % 5 == 0 else None,
            )
        producer.produce(topic, value=b"m" * 1_000_000, partition=number % 2, timestamp=1_600_002_000_000)
        assert producer.flush(60) == 0
    for name, commit in (("x", False), ("y", True), ("z", False)):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(60)
        for _ in range(2):
            producer.begin_transaction()
            for i in range(50):
                producer.produce(topic, key=name, value=f"{name} {i}", partition=2)
            assert producer.flush(60) == 0  # an abort would drop what was not sent
            (producer.commit_transaction if commit else producer.abort_transaction)(60)
    return topic


def rows(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def load(spark: Any, form: str, options: dict[str, str], **more: str) -> Any:
    return spark.read.format(form).options(**options, **more).load()


def official(spark: Any, broker: Any, **more: str) -> Any:
    return load(spark, "kafka", {"kafka.bootstrap.servers": broker.bootstrap}, **more)


def test_the_same_rows_as_the_official_connector(spark: Any, broker: Any, rich: str, way: dict[str, str]) -> None:
    choice = {"subscribe": rich, "includeHeaders": "true"}
    expected, got = official(spark, broker, **choice), load(spark, "ottla", way, **choice)
    assert got.schema == expected.schema
    found = rows(got)
    assert found == rows(expected)
    assert len(found) == 5 * 301 + 6 * 50
    committed = rows(load(spark, "ottla", way, **choice, **COMMITTED))
    assert committed == rows(official(spark, broker, **choice, **COMMITTED))
    assert {row.key for row in committed if row.partition == 2} == {b"y"}


def test_choices_of_offsets_and_times(spark: Any, broker: Any, rich: str, way: dict[str, str]) -> None:
    offsets = {"0": 17, "1": 290, "2": -2, "3": 0}
    ends = {"0": 500, "1": -1, "2": 60, "3": -1}
    by_offset = {
        "subscribePattern": f"{rich[:-3]}.*",
        "startingOffsets": json.dumps({rich: offsets}),
        "endingOffsets": json.dumps({rich: ends}),
    }
    by_time = {
        "assign": json.dumps({rich: [0, 1]}),
        "startingTimestamp": "1600000000500",
        "endingOffsetsByTimestamp": json.dumps({rich: {"0": 1_600_000_700_000, "1": 1_600_000_400_001}}),
    }
    for choice in (by_offset, by_time):
        expected = rows(official(spark, broker, **choice).drop("value"))
        assert rows(load(spark, "ottla", way, **choice).drop("value")) == expected
        assert expected


def test_filters_are_pushed_down(spark: Any, rich: str, way: dict[str, str]) -> None:
    frame = load(spark, "ottla", way, subscribe=rich)
    everything = rows(frame)
    filtered = frame.where(
        "partition = 1 AND offset >= 100 AND offset < 250 AND timestamp >= '2020-09-13 12:33:00' AND topic IS NOT NULL"
    )
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    assert filtered.rdd.getNumPartitions() == 1
    least = 1_600_000_380.0
    assert rows(filtered) == [
        row
        for row in everything
        if row.partition == 1 and 100 <= row.offset < 250 and row.timestamp.timestamp() >= least
    ]
    assert filtered.count() > 0
    assert frame.where("topic = 'another'").count() == 0
    assert frame.where("partition in (0, 3) and key is null").count() == len(
        [row for row in everything if row.partition == 0 and row.key is None]
    )


def test_large_partitions_are_read_by_several_tasks(spark: Any, rich: str, way: dict[str, str]) -> None:
    split = load(spark, "ottla", way, subscribe=rich, minPartitions="9", **COMMITTED)
    assert split.rdd.getNumPartitions() >= 8
    assert rows(split) == rows(load(spark, "ottla", way, subscribe=rich, **COMMITTED))
    if "path" in way:
        assert load(spark, "ottla", way, subscribe=rich, maxBytesPerTask="100000").rdd.getNumPartitions() > 8


def test_fewer_columns(spark: Any, rich: str, way: dict[str, str]) -> None:
    reader = spark.read.format("ottla").options(**way, subscribe=rich)
    assert reader.schema("offset bigint, partition int").load().where("partition = 0").count() == 3 * 301
    with pytest.raises(PySparkException, match="has no column value string: value is binary"):
        reader.schema("value string").load().count()


def test_append_time(spark: Any, broker: Any, make_topic: Any, send: Any, way: dict[str, str]) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    for codec in ("none", "zstd"):
        send(topic, [(None, b"v%d" % i) for i in range(20)], timestamp=1_500_000_000_000, compression_type=codec)
    found = rows(load(spark, "ottla", way, subscribe=topic))
    assert found == rows(official(spark, broker, subscribe=topic))
    assert {row.timestampType for row in found} == {1}
    assert min(row.timestamp.year for row in found) > 2020


def test_unknown_topics_addresses_and_options_are_refused(
    spark: Any, way: dict[str, str], unique: Callable[[str], str]
) -> None:
    with pytest.raises(PySparkException, match=r"topic 'no-such-.*' does not exist"):
        load(spark, "ottla", way, subscribe=unique("no-such")).count()
    with pytest.raises(PySparkException, match=r"cannot connect to 127\.0\.0\.1:1"):
        load(spark, "ottla", {"kafka.bootstrap.servers": "127.0.0.1:1"}, subscribe="t").count()
    with pytest.raises(PySparkException, match="unknown option 'topics'"):
        load(spark, "ottla", way, topics="t").count()


def run(finish: Any, spark: Any, options: dict[str, str], folder: Path, **more: str) -> list[int]:
    """One AvailableNow run of a stream to Parquet; the sizes of its micro-batches."""
    reader = spark.readStream.format("ottla").options(**options, **more)
    writer = reader.load().writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.options(path=str(folder / "out"), checkpointLocation=str(folder / "checkpoint"))
    return finish(writer)


def test_a_stream_in_limited_batches_that_goes_on(
    spark: Any, finish: Any, make_topic: Any, send: Any, way: dict[str, str], tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    for partition, count in ((0, 300), (1, 100)):
        send(topic, [(b"k", b"v%d" % i) for i in range(count)], partition=partition, batch_size=2_000)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    sizes = run(finish, spark, way, tmp_path, **options)
    assert sum(sizes) == 400 and len(sizes) == 3 and max(sizes) <= 150
    send(topic, [(b"k", b"more")] * 50, partition=1)
    assert run(finish, spark, way, tmp_path, **options) == [50]
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.count() == 450
    assert found.select("partition", "offset").distinct().count() == 450


def test_a_limit_in_bytes(
    spark: Any, finish: Any, make_topic: Any, send: Any, way: dict[str, str], tmp_path: Path
) -> None:
    topic = make_topic()
    for _ in range(8):  # eight batches at least: a limit cuts between them
        send(topic, [(None, b"v" * 1_000)] * 50)
    sizes = run(finish, spark, way, tmp_path, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="120000")
    assert sum(sizes) == 400
    assert len(sizes) > 1


def test_a_checkpoint_of_another_topic(
    spark: Any, finish: Any, make_topic: Any, send: Any, broker: Any, tmp_path: Path, unique: Any
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    one, other = make_topic(), make_topic()
    send(one, [(None, b"v")])
    assert run(finish, spark, options, tmp_path, subscribe=one) == [1]
    with pytest.raises(PySparkException, match="the checkpoint belongs to another query: it has offsets of topic"):
        run(finish, spark, options, tmp_path, subscribe=other)


def test_offsets_that_retention_took(
    spark: Any, finish: Any, admin: Any, make_topic: Any, send: Any, way: dict[str, str], tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition

    topic = make_topic()
    send(topic, [(None, b"v%d" % i) for i in range(10)])
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert run(finish, spark, way, tmp_path, **options) == [10]
    send(topic, [(None, b"v%d" % i) for i in range(10, 30)])
    for future in admin.delete_records([TopicPartition(topic, 0, 25)]).values():
        future.result(60)
    with pytest.raises(PySparkException, match="Set failOnDataLoss=false to continue"):
        run(finish, spark, way, tmp_path, **options)
    assert run(finish, spark, way, tmp_path, **options, failOnDataLoss="false") == [5]
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.offset for row in found.collect()) == [*range(10), *range(25, 30)]


def test_a_topic_that_is_deleted_and_created_again(
    spark: Any, finish: Any, admin: Any, make_topic: Any, send: Any, broker: Any, tmp_path: Path, until: Any
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    topic = make_topic()
    send(topic, [(None, b"old")] * 10)
    assert run(finish, spark, options, tmp_path, subscribe=topic) == [10]
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic's end")
    make_topic(name=topic)
    send(topic, [(None, b"new")] * 3)
    with pytest.raises(PySparkException, match="was the topic deleted and created again"):
        run(finish, spark, options, tmp_path, subscribe=topic)
    assert run(finish, spark, options, tmp_path, subscribe=topic, failOnDataLoss="false") == [3]


def test_partitions_that_come_later(
    spark: Any, finish: Any, admin: Any, make_topic: Any, send: Any, broker: Any, tmp_path: Path, until: Any
) -> None:
    from confluent_kafka.admin import NewPartitions

    options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    topic = make_topic()
    send(topic, [(None, b"v")] * 10)
    assert run(finish, spark, options, tmp_path, subscribe=topic) == [10]
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3, "the new partitions")
    send(topic, [(None, b"v")] * 7, partition=2)
    assert run(finish, spark, options, tmp_path, subscribe=topic) == [7]


def test_files_of_a_broker_that_was_stopped(spark: Any, finish: Any, start_broker: Any, tmp_path: Path) -> None:
    """No broker runs: only the folder shows what may be read."""
    from confluent_kafka import Producer

    broker = start_broker(num_partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(100):
        producer.produce("left", value=f"v{i}", partition=i % 2)
    assert producer.flush(60) == 0
    assert broker.stop() == 0
    options = {"path": str(broker.data), "subscribe": "left"}
    found = rows(spark.read.format("ottla").options(**options).load())
    assert [(row.partition, row.offset) for row in found] == [(p, o) for p in range(2) for o in range(50)]
    assert run(finish, spark, options, tmp_path / "stream", startingOffsets="earliest") == [100]
