"""`format("ottla")` as a sink: what was written is what every client reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

HEADERS = "array(struct('h' as key, cast('1' as binary) as value), struct('n' as key, cast(null as binary) as value))"


@pytest.fixture
def sink(broker: Any) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


def read(spark: Any, broker: Any, topic: str) -> list[Any]:
    """Reads with the official connector, so that the two ends are different implementations."""
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    frame = spark.read.format("kafka").options(**options).load()
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_keys_headers_partitions_and_times_are_kept(
    spark: Any, broker: Any, sink: dict[str, str], make_topic: Any, codec: str
) -> None:
    topic = make_topic(partitions=3, retention_ms=-1)
    frame = spark.range(0, 999, 1, 2).selectExpr(
        "cast(id as string) key",
        "if(id % 10 = 0, null, cast(concat('v', id) as binary)) value",
        f"'{topic}' topic",
        "cast(id % 3 as int) partition",
        "timestamp_millis(1700000000123 + id) timestamp",
        f"if(id % 2 = 0, {HEADERS}, null) headers",
    )
    frame.write.format("ottla").mode("append").options(**sink, **{"kafka.compression.type": codec}).save()
    found = read(spark, broker, topic)
    assert len(found) == 999
    for row in found:
        number = int(row.key)
        assert row.partition == number % 3
        assert row.value == (None if number % 10 == 0 else b"v%d" % number)
        assert row.timestamp.microsecond // 1000 == (123 + number) % 1000
        expected = None if number % 2 else [("h", b"1"), ("n", None)]
        assert (row.headers and [(one.key, one.value) for one in row.headers]) == expected
    for partition in range(3):
        keys = [int(row.key) for row in found if row.partition == partition]
        assert sorted(keys) == list(range(partition, 999, 3))


def test_keys_go_where_the_java_client_puts_them(
    spark: Any, broker: Any, sink: dict[str, str], make_topic: Any
) -> None:
    ours, official = make_topic(partitions=5), make_topic(partitions=5)
    frame = spark.range(400).selectExpr("concat('some-key-', id) key", "'v' value").coalesce(1)
    frame.write.format("ottla").mode("append").options(**sink, topic=ours).save()
    frame.write.format("kafka").options(**sink, topic=official).save()
    placed = [[(row.partition, row.key) for row in read(spark, broker, topic)] for topic in (ours, official)]
    assert placed[0] == placed[1]


def test_rows_without_a_key_are_spread(spark: Any, broker: Any, sink: dict[str, str], make_topic: Any) -> None:
    topic = make_topic(partitions=2)
    spark.range(30_000).selectExpr("'v' value").write.format("ottla").mode("append").options(**sink, topic=topic).save()
    counts = [len([row for row in read(spark, broker, topic) if row.partition == p]) for p in range(2)]
    assert sum(counts) == 30_000 and min(counts) > 0


def test_a_stream(
    spark: Any, broker: Any, finish: Any, sink: dict[str, str], make_topic: Any, send: Any, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    send(source, [(b"k%d" % i, b"v%d" % i) for i in range(200)], partition=1)

    def run() -> None:
        finish(
            spark.readStream.format("ottla")
            .options(**sink, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="90")
            .load()
            .selectExpr("key", "value", "partition", "timestamp")
            .writeStream.queryName("copy")
            .format("ottla")
            .options(**sink, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )

    run()
    send(source, [(b"k200", b"v200")], partition=1)
    run()
    found = read(spark, broker, target)
    # Two tasks of a batch may write side by side; one partition of the source is one task, in order.
    assert [row.key for row in found] == [b"k%d" % i for i in range(201)]
    assert [row.timestamp for row in found] == [row.timestamp for row in read(spark, broker, source)]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["'v' value"], {}, "name the topic with the option topic, or by a column topic"),
        (["'k' key"], {"topic": "t"}, "there is no column value to write"),
        (["1 value"], {"topic": "t"}, "column value is int; the sink takes binary or string"),
        (["'v' value"], {"topic": "t", "acks": "all"}, "unknown option 'acks'"),
        (["'v' value"], {"topic": "no-such-topic-at-all"}, "topic 'no-such-topic-at-all' does not exist"),
        (["'v' value", "cast(null as string) topic"], {}, "a row has no topic"),
    ],
)
def test_wrong_columns_and_options_of_a_write_are_refused(
    spark: Any, sink: dict[str, str], columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.range(3).selectExpr(*columns).write.format("ottla").mode("append").options(**sink, **options).save()


def test_a_partition_that_is_not_there(spark: Any, sink: dict[str, str], make_topic: Any) -> None:
    topic = make_topic(partitions=2)
    writer = spark.range(3).selectExpr("'v' value", "7 partition").write.format("ottla").options(**sink, topic=topic)
    with pytest.raises(PySparkException, match="has partitions 0 to 1, and a row asks for 7"):
        writer.mode("append").save()
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writer.mode("overwrite").save()
