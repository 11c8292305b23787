"""Archives: each offset is in exactly one file, for any topic content and whenever the driver dies."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.archive import read_archive
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Record = tuple[int, int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture
def transact(broker: Any, unique: Callable[[str], str]) -> Callable[..., None]:
    """Writes records in one transaction, and commits or aborts it."""
    from confluent_kafka import Producer

    def go(topic: str, records: Any, partition: int = 0, commit: bool = True) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("tx")})
        producer.init_transactions(60)
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition)
        # All of it is in the log before the end of the transaction, so that an abort has something to abort.
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)

    return go


@pytest.fixture
def consumed(broker: Any) -> Callable[..., list[Record]]:
    """All committed records of a topic as librdkafka reads them."""
    from confluent_kafka import Consumer, TopicPartition

    def go(topic: str, partitions: int) -> list[Record]:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found: list[Record] = []
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                at_end.add(message.partition())
                continue
            headers = tuple((key, value) for key, value in message.headers() or ())
            where = (message.partition(), message.offset())
            found.append((*where, message.key(), message.value(), message.timestamp()[1], headers))
        consumer.close()
        return sorted(found, key=lambda record: record[:2])

    return go


def archived(spark: Any, out: str) -> list[Record]:
    """All records of an archive."""
    from pyspark.sql import functions as F

    frame = read_archive(spark, Table.open(LocalStore(out)))
    columns = ("partition", "offset", "key", "value", F.unix_millis("timestamp").alias("ms"), "headers")
    return [
        (
            row.partition,
            row.offset,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.ms,
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers or ()),
        )
        for row in frame.select(*columns).orderBy("partition", "offset").collect()
    ]


@pytest.mark.parametrize("source", ["kafka", "ottla"])
def test_everything_that_a_topic_can_hold(
    source: str,
    spark: Any,
    broker: Any,
    make_topic: Any,
    send: Any,
    transact: Any,
    consumed: Any,
    tmp_path: Path,
) -> None:
    topic = make_topic(4, max_message_bytes=3 << 20, retention_ms=-1)
    for number, codec in enumerate(CODECS):
        headers = [("codec", codec.encode()), ("empty", b""), ("none", None)]
        day = 1_790_000_000_000 + number * 86_400_000
        send(topic, [(f"k{n}", b"v" * 50) for n in range(20)], 0, day, headers, compression_type=codec)
    send(topic, [(b"gone", None), (None, b"no key"), (b"", b"")], partition=1)
    transact(topic, [(b"c", b"committed")] * 5, partition=1)
    transact(topic, [(b"a", b"aborted")] * 5, partition=1, commit=False)
    transact(topic, [(b"c", b"committed too")] * 5, partition=1)
    send(topic, [(b"large", os.urandom(1 << 20))] * 2, partition=2, message_max_bytes=3 << 20)
    options = {"bootstrap": broker.bootstrap, "spark": spark, "source": source}
    out = str(tmp_path / "archive of it")

    done = ottla.spark.archive(topic, out, max_records=60, **options)
    wanted = consumed(topic, 4)
    assert archived(spark, out) == wanted
    assert done.records == len(wanted) == 100 + 13 + 2
    assert done.lag == 0
    assert done.batches > 1
    assert done.group == f"ottla-archive-{topic}"
    found = ottla.spark.verify(out, content=True, **options)
    assert found.problems == []
    gaps = {p.partition: p.gaps for p in found.partitions}
    # The aborted records, and three markers of which the last may come after the last record.
    assert gaps == {0: 0, 1: 8, 2: 0, 3: 0}
    names = sorted(path.name for path in Path(out).glob("topic=*/date=2026-09-21/*.parquet"))
    assert names[0].startswith(f"{topic}-0-{0:020d}-")

    # Without its checkpoint, as the manifests know how far it is; and what came meanwhile is added.
    shutil.rmtree(Path(out, "_ottla", "checkpoint"))
    send(topic, [(b"new", b"er")] * 5, partition=3)
    assert ottla.spark.archive(topic, out, **options).records == 5
    assert ottla.spark.archive(topic, out, **options).records == 0
    before = len(list(Path(out).glob("topic=*/**/*.parquet")))
    merged = ottla.spark.compact(out, spark=spark)
    assert merged.files_before == before
    assert merged.files_after == len(list(Path(out).glob("topic=*/**/*.parquet"))) < before
    assert archived(spark, out) == consumed(topic, 4)
    assert ottla.spark.verify(out, **options).ok


def test_times_are_microseconds_and_older_archives_are_read(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """Files of before have INT96 times, which have no minimum and maximum."""
    from pyarrow import parquet

    topic = make_topic(1, retention_ms=-1)
    send(topic, [(b"k", b"%d" % n) for n in range(5)], timestamp=1_790_000_000_123)
    out = tmp_path / "a"
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    ottla.spark.archive(topic, str(out), **options)

    def times() -> list[tuple[str, bool]]:
        footers = [parquet.ParquetFile(path).metadata for path in out.glob("topic=*/**/*.parquet")]
        columns = [footer.row_group(0).column(footer.schema.names.index("timestamp")) for footer in footers]
        return [(column.physical_type, bool(column.statistics and column.statistics.has_min_max)) for column in columns]

    assert times() == [("INT64", True)]
    file = next(out.glob("topic=*/**/*.parquet"))
    rows = parquet.ParquetFile(file).read()
    parquet.write_table(rows, file, use_deprecated_int96_timestamps=True)
    assert times() == [("INT96", False)]
    send(topic, [(b"k", b"%d" % n) for n in range(5, 8)], timestamp=1_790_000_000_456)
    assert ottla.spark.archive(topic, str(out), **options).records == 3
    assert sorted(times()) == [("INT64", True), ("INT96", False)]
    assert ottla.spark.verify(str(out), content=True, **options).problems == []
    ottla.spark.compact(str(out), spark=spark)
    assert times() == [("INT64", True)]
    assert ottla.spark.verify(str(out), content=True, **options).problems == []


def test_the_verifier_sees_what_is_wrong(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    out = tmp_path / "a"
    ottla.spark.archive(topic, str(out), **options)
    assert ottla.spark.verify(str(out), **options).ok, "an archive of an empty topic has no files"
    send(topic, [(b"k", b"%d" % n) for n in range(10)], partition=0)
    send(topic, [(b"k", b"%d" % n) for n in range(10)], partition=1)
    ottla.spark.archive(topic, str(out), **options)
    one, two = sorted(out.glob("topic=*/**/*.parquet"))

    extra = one.with_name("copy.parquet")
    shutil.copy(one, extra)
    problems = ottla.spark.verify(str(out), log=False, spark=spark).problems
    assert len(problems) == 1
    assert "copy.parquet is in no manifest" in problems[0]
    extra.unlink()

    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    problems = ottla.spark.verify(str(out), log=False, spark=spark).problems
    assert any("does not hold what the manifest says" in problem for problem in problems)
    one.unlink()
    assert [p for p in ottla.spark.verify(str(out), log=False, spark=spark).problems if p.endswith("is missing")]
    one.write_bytes(kept)

    # A batch that a faulty archiver forgot: the marks are there, the file is not.
    with Table.create_or_open(LocalStore(str(out)), "archive") as table:
        table.commit({}, remove=[two.relative_to(out).as_posix()])
    found = ottla.spark.verify(str(out), **options)
    assert found.problems == [f"{topic}-1: 10 records of the log are in no file, first 0"]
    assert [p.missing for p in found.partitions] == [0, 10]


def test_a_disk_that_fills_up(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ottla.spark.pipelines.archive as module

    topic = make_topic(1)
    send(topic, [(b"k", b"%d" % n) for n in range(30)])
    out = str(tmp_path / "a")
    options = {"bootstrap": broker.bootstrap, "spark": spark, "max_records": 10}

    class Full(LocalStore):
        left = 0

        def write_new(self, path: str, content: bytes) -> None:
            self.fail()
            super().write_new(path, content)

        def move(self, source: str, target: str) -> None:
            self.fail()
            super().move(source, target)

        def fail(self) -> None:
            Full.left -= 1
            if Full.left == 0:
                raise OSError(errno.ENOSPC, "No space left on device")

    for at in (2, 3, 4):
        Full.left = at
        monkeypatch.setattr(module, "open_store", lambda location, _: Full(location))
        with pytest.raises(PipelineError, match="no space left on the disk; free some"):
            ottla.spark.archive(topic, out, **options)
    monkeypatch.undo()
    ottla.spark.archive(topic, out, **options)
    assert [record[1] for record in archived(spark, out)] == list(range(30))


def test_records_that_retention_removed(
    spark: Any, broker: Any, admin: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition

    topic = make_topic(1)
    send(topic, [(b"k", b"%d" % n) for n in range(10)])
    out = str(tmp_path / "a")
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    ottla.spark.archive(topic, out, **options)
    send(topic, [(b"k", b"%d" % n) for n in range(10, 20)])
    admin.delete_records([TopicPartition(topic, 0, 15)])[TopicPartition(topic, 0)].result(60)
    with pytest.raises(PipelineError, match="records 10 to 14 were removed by retention"):
        ottla.spark.archive(topic, out, on_data_loss="fail", **options)
    told: list[str] = []
    done = ottla.spark.archive(topic, out, on_warning=told.append, **options)
    assert told == [f"{topic}-0: records 10 to 14 were removed by retention before they were read"]
    assert [(loss.first, loss.end) for loss in done.lost] == [(10, 15)]
    assert [record[1] for record in archived(spark, out)] == [*range(10), *range(15, 20)]
    found = ottla.spark.verify(out, **options)
    assert found.ok
    assert [(p.gone, p.gaps) for p in found.partitions] == [(5, 0)]
    assert [(lost["first"], lost["end"]) for lost in found.lost] == [(10, 15)]


@pytest.mark.parametrize("source", ["kafka", "ottla"])
def test_records_that_retention_removes_during_a_run_are_reported(
    source: str,
    spark: Any,
    broker: Any,
    admin: Any,
    make_topic: Any,
    send: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the moment when Spark plans a batch and the one when it reads it."""
    from confluent_kafka import TopicPartition

    from ottla.spark.pipelines.archive import _Archiver

    topic = make_topic(1)
    send(topic, [(b"k", b"%d" % n) for n in range(30)])
    write = _Archiver.write
    calls: list[int] = []

    def deleting(self: Any, batch: Any) -> int:
        if len(calls) == 1:
            admin.delete_records([TopicPartition(topic, 0, 17)])[TopicPartition(topic, 0)].result(60)
        calls.append(batch.number)
        return write(self, batch)

    monkeypatch.setattr(_Archiver, "write", deleting)
    out = str(tmp_path / "a")
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": source}
    ottla.spark.archive(topic, out, max_records=10, **options)
    found = ottla.spark.verify(out, **options)
    assert found.problems == []
    # A consumer may have fetched them before, and then nothing is lost; what is not there is written down as lost.
    lost = [offset for one in found.lost for offset in range(one["first"], one["end"])]
    assert set(lost) <= set(range(10, 17))
    assert sorted([*lost, *(record[1] for record in archived(spark, out))]) == list(range(30))


def test_topics_that_were_deleted_or_created_again(
    spark: Any, broker: Any, admin: Any, make_topic: Any, send: Any, until: Any, tmp_path: Path
) -> None:
    topic, other = make_topic(1), make_topic(1)
    send(topic, [(b"k", b"v")] * 3)
    out = str(tmp_path / "a")
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    # Apache Kafka acknowledges a topic a moment before it shows it.
    until(lambda: {topic, other} <= set(admin.list_topics(timeout=60).topics), "the topics")
    with pytest.raises(PipelineError, match=f"there is no topic '{topic}-not'"):
        ottla.spark.archive(f"{topic}-not", out, **options)
    ottla.spark.archive(topic, out, **options)
    with pytest.raises(PipelineError, match=f"is a checkpoint of {topic}, and {topic} is not read now"):
        ottla.spark.archive(other, out, **options)
    with pytest.raises(PipelineError, match="is the checkpoint of the pipeline 'archive'"):
        ottla.spark.snapshot(topic, str(tmp_path / "s"), checkpoint=f"{out}/_ottla/checkpoint", **options)
    with pytest.raises(PipelineError, match="is the checkpoint of another output"):
        ottla.spark.archive(topic, str(tmp_path / "b"), checkpoint=f"{out}/_ottla/checkpoint", **options)
    with pytest.raises(PipelineError, match="was created with --isolation read_committed"):
        ottla.spark.archive(topic, out, isolation="read_uncommitted", **options)
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic's deletion")
    make_topic(1, name=topic)
    until(lambda: {topic, other} <= set(admin.list_topics(timeout=60).topics), "the topics")
    with pytest.raises(PipelineError, match=f"topic '{topic}' was deleted and created again"):
        ottla.spark.archive(topic, out, **options)
    with pytest.raises(PipelineError, match=f"topic '{topic}' was deleted and created again"):
        ottla.spark.verify(out, **options)
    assert len(archived(spark, out)) == 3


def test_a_topic_that_is_recreated_during_a_run_ends_the_run(
    spark: Any,
    broker: Any,
    admin: Any,
    make_topic: Any,
    send: Any,
    until: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets mean other records then, so the run ends before it reads one of them."""
    from ottla.spark.pipelines.archive import _Archiver

    topic = make_topic(1)
    send(topic, [(b"old", b"%d" % n) for n in range(30)])
    until(lambda: topic in admin.list_topics(timeout=60).topics, "the topic")
    write = _Archiver.write

    def write_and_replace(self: Any, batch: Any) -> int:
        count = write(self, batch)
        admin.delete_topics([topic])[topic].result(60)
        until(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic's deletion")
        make_topic(1, name=topic)
        until(lambda: topic in admin.list_topics(timeout=60).topics, "the new topic")
        send(topic, [(b"new", b"%d" % n) for n in range(30)])
        return count

    monkeypatch.setattr(_Archiver, "write", write_and_replace)
    out = str(tmp_path / "a")
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    with pytest.raises(PipelineError, match=f"^topic '{topic}' was deleted and created again"):
        ottla.spark.archive(topic, out, max_records=10, **options)
    assert [(record[1], record[2]) for record in archived(spark, out)] == [(n, b"old") for n in range(10)]


def test_other_file_systems(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is not a plain path goes through Hadoop's file systems; here the one for local files stands for them."""
    import ottla.spark.pipelines.archive as module
    from ottla.spark.pipelines.stores import HadoopStore

    out = f"file://{tmp_path}/out"
    store = HadoopStore(out, spark)
    store.write_new("a/b", b"one\0\xff")
    with pytest.raises(FileExistsError):
        store.write_new("a/b", b"two")
    assert store.read("a/b") == b"one\0\xff"
    store.replace("a/b", b"three")
    store.move("a/b", "c/d")
    assert (store.exists("a/b"), store.names("c"), list(store.walk(""))) == (False, ["d"], [("c/d", 5)])
    store.delete("c")
    store.delete("a")
    assert store.names("nowhere") == []

    topic = make_topic(1)
    send(topic, [(b"k", b"v")] * 5)
    monkeypatch.setattr(module, "open_store", lambda location, session: HadoopStore(location, session))
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    assert ottla.spark.archive(topic, out, **options).records == 5
    assert ottla.spark.archive(topic, out, **options).records == 0
    monkeypatch.undo()
    assert [record[1] for record in archived(spark, f"{tmp_path}/out")] == list(range(5))
