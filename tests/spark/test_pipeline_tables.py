"""Pipelines from topics to tables: parse, stats, snapshot, sql, quality."""

from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError

START_MS = 1_790_000_000_000 - 1_790_000_000_000 % 60_000


def rows_of(spark: Any, broker: Any, topic: str) -> list[Any]:
    """All records of a topic by offset, read by the official connector."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    return list(frame.orderBy("partition", "offset").collect())


def test_parse_json(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    good = [json.dumps({"id": n, "price": n / 2, "offset": "x"}).encode() for n in range(10)]
    bad = [b"nope", b'{"id": "x"}', b'{"price": 1}', b"[1]", b"", b"\xff\x00"]
    send(topic, [(b"k", value) for value in good], 0)
    send(topic, [(b"bad", value) for value in bad], 1, headers=[("mine", b"\x00\xff")])
    send(topic, [(b"gone", None)], 1)
    options = {"bootstrap": broker.bootstrap, "spark": spark, "value_format": "json"}
    schema = "id BIGINT NOT NULL, price DOUBLE, offset STRING"
    out = str(tmp_path / "p")
    done = ottla.spark.parse(topic, out, schema=schema, **options)
    assert (done.details["good"], done.details["bad"], done.records) == (11, 6, 17)
    table = spark.read.parquet(out)
    assert {"id", "price", "value_offset", "topic", "partition", "offset", "timestamp", "key"} <= set(table.columns)
    found = table.where("partition = 0").orderBy("offset").select("id", "price", "value_offset").collect()
    assert [tuple(row) for row in found] == [(n, n / 2, "x") for n in range(10)]
    assert [row.id for row in table.where("partition = 1").collect()] == [None]

    letters = rows_of(spark, broker, f"{topic}.dead-letters")
    assert sorted(bytes(row.value) for row in letters) == sorted(bad)
    for row in letters:
        headers = {header.key: bytes(header.value) for header in row.headers}
        assert headers["mine"] == b"\x00\xff"
        assert headers["ottla.origin.topic"] == topic.encode()
        assert headers["ottla.origin.partition"] == b"1"
        assert bad[int(headers["ottla.origin.offset"])] == bytes(row.value)
        assert headers["ottla.error"]
    reasons = {bytes(row.value): bytes(row.headers[-1].value).decode() for row in letters}
    assert reasons[b"nope"].startswith("not JSON")
    assert reasons[b'{"id": "x"}'] == "field 'id': \"x\" is not of type long"
    assert reasons[b'{"price": 1}'] == "field 'id' is missing"

    assert ottla.spark.parse(topic, out, schema=schema, **options).records == 0
    with pytest.raises(PipelineError, match="was created with another schema"):
        ottla.spark.parse(topic, out, schema="id INT", **options)
    with pytest.raises(PipelineError, match="the json schema is not valid"):
        ottla.spark.parse(topic, str(tmp_path / "q"), schema="id NOTYPE, x", **options)


def test_parse_avro_and_protobuf(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    import fastavro
    from google.protobuf import descriptor_pb2

    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ]
    schema = {"type": "record", "name": "Order", "fields": fields}
    parsed = fastavro.parse_schema(schema)

    def avro(n: int) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, {"id": n, "at": START_MS + n, "tags": {"a": "b"}, "note": None})
        return b"\0\0\0\0\1" + stream.getvalue()

    topic = make_topic(1)
    send(topic, [(b"k", avro(0)), (b"k", b"\1" + avro(1)), (b"k", avro(2) + b"more"), (b"k", avro(3))])
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    done = ottla.spark.parse(
        topic, str(tmp_path / "a"), value_format="avro", schema=json.dumps(schema), framing="confluent", **options
    )
    assert (done.details["good"], done.details["bad"]) == (2, 2)
    rows = spark.read.parquet(str(tmp_path / "a")).orderBy("offset").selectExpr("id", "unix_millis(at)", "tags", "note")
    assert [tuple(row) for row in rows.collect()] == [(n, START_MS + n, {"a": "b"}, None) for n in (0, 3)]
    errors = [bytes(row.headers[-1].value) for row in rows_of(spark, broker, f"{topic}.dead-letters")]
    assert sorted(error.split(b":")[0] for error in errors) == [
        b"not Avro of this schema",
        b"not in Confluent's framing",
    ]

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="names", number=2, type=9, label=3)
    (tmp_path / "shop.desc").write_bytes(files.SerializeToString())
    topic = make_topic(1)
    send(topic, [(b"k", b"\x08\x05\x12\x01a\x12\x01b"), (b"k", b"\x08"), (b"k", b"")])
    done = ottla.spark.parse(
        topic,
        str(tmp_path / "p"),
        value_format="protobuf",
        schema=str(tmp_path / "shop.desc"),
        message="shop.Order",
        dead_letters=f"{topic}-bad",
        source="ottla",
        **options,
    )
    rows = spark.read.parquet(str(tmp_path / "p")).orderBy("offset").select("id", "names")
    assert [tuple(row) for row in rows.collect()] == [(5, ["a", "b"]), (0, [])]
    assert [bytes(row.value) for row in rows_of(spark, broker, f"{topic}-bad")] == [b"\x08"]


def test_stats(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1, retention_ms=-1)
    # Seconds from the start; 30 comes 40 s late, and is in time for its window.
    for second in (0, 10, 70, 30, 130):
        send(topic, [(b"k%d" % second, b"v" * 10)], 0, START_MS + second * 1000)
    send(topic, [(None, None)], 0, START_MS + 131_000)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "window_ms": 60_000, "delay_ms": 60_000}
    out, report = str(tmp_path / "s"), tmp_path / "r.html"
    to = f"{topic}-stats"
    done = ottla.spark.stats(topic, out, to_topic=to, report=str(report), max_records=2, **options)
    assert done.records == 6

    def windows() -> dict[int, Any]:
        rows = ottla.spark.read_stats(out, spark=spark).selectExpr("unix_millis(window_start) as ms", "*").collect()
        assert len({row.ms for row in rows}) == len(rows)
        return {(row.ms - START_MS) // 60_000: row for row in rows}

    found = windows()
    assert [(n, found[n].records, found[n].distinct_keys, found[n].final) for n in sorted(found)] == [
        (0, 3, 3, True),
        (1, 1, 1, False),
        (2, 2, 1, False),
    ]
    assert (found[0].late, found[0].max_lateness_ms) == (1, 40_000)
    assert found[0].bytes == 10 * 3 + len("k0k10k30")
    assert (found[2].null_keys, found[2].tombstones) == (1, 1)
    assert topic in report.read_text()
    newest = {bytes(row.key): json.loads(bytes(row.value)) for row in rows_of(spark, broker, to)}
    assert sorted((one["records"], one["final"]) for one in newest.values()) == [(1, False), (2, False), (3, True)]

    # The first window is final: what comes for it now is dropped, and counted as that.
    send(topic, [(b"late", b"")], 0, START_MS)
    send(topic, [(b"k", b"")], 0, START_MS + 600_000)
    done = ottla.spark.stats(topic, out, **options)
    assert done.details["dropped"] == {topic: 1}
    found = windows()
    assert {n: (found[n].records, found[n].final) for n in found} == {
        0: (3, True),
        1: (1, True),
        2: (2, True),
        10: (1, False),
    }
    with pytest.raises(PipelineError, match="was created with window_ms 60000"):
        ottla.spark.stats(topic, out, **{**options, "window_ms": 5})


def test_snapshot(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(2, cleanup_policy="compact")
    for partition in (0, 1):
        name = b"ab"[partition : partition + 1]
        send(topic, [(name + b"%d" % (n % 5), b"%d" % n) for n in range(20)], partition)
    send(topic, [(b"a0", None)])
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    out = str(tmp_path / "s")
    ottla.spark.snapshot(topic, out, max_records=7, **options)

    def table() -> dict[bytes, bytes]:
        rows = ottla.spark.read_snapshot(out, spark=spark).collect()
        assert len({bytes(row.key) for row in rows}) == len(rows)
        return {bytes(row.key): bytes(row.value) for row in rows}

    wanted = {b"%s%d" % (p, n): b"%d" % (15 + n) for p in (b"a", b"b") for n in range(5)}
    del wanted[b"a0"]
    assert table() == wanted
    send(topic, [(b"a0", b"back"), (b"a1", None), (b"a2", b"new")])
    done = ottla.spark.snapshot(topic, out, **options)
    assert (done.records, done.details["keys"]) == (3, 9)
    assert table() == {**{k: v for k, v in wanted.items() if k != b"a1"}, b"a0": b"back", b"a2": b"new"}


@pytest.mark.parametrize("few", [True, False])
def test_a_merge_gives_what_a_rewrite_of_everything_gives(spark: Any, few: bool) -> None:
    """Keys that stay in their partition, and such that move between two, against a model in plain Python."""
    from datetime import UTC, datetime, timedelta

    from ottla.spark.pipelines.snapshot import SCHEMA, merged

    chance = random.Random(7)

    def winners(rows: Any) -> dict[bytes, tuple[Any, ...]]:
        found: dict[bytes, tuple[Any, ...]] = {}
        for row in rows:
            if row[1] not in found or (row[6], row[5]) > (found[row[1]][6], found[row[1]][5]):
                found[row[1]] = row
        return found

    table: dict[bytes, tuple[Any, ...]] = {}
    offsets = [0, 0]
    for _ in range(3):
        batch: dict[tuple[bytes, int], tuple[Any, ...]] = {}
        rows = []
        for _ in range(60):
            partition, key = chance.randrange(2), b"k%d" % chance.randrange(30)
            moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(100))
            value = None if chance.random() < 0.2 else b"%d" % chance.randrange(1000)
            offsets[partition] += 1
            row = ("t", key, value, None, partition, offsets[partition], moment)
            rows.append(row)
            batch[key, partition] = row
        previous = spark.createDataFrame(list(table.values()), SCHEMA) if table else None
        result = merged(previous, spark.createDataFrame(rows, SCHEMA), few=few).collect()
        # As it was: the newest of each partition among what the table has and what came, then the youngest.
        for row in table.values():
            batch.setdefault((row[1], row[4]), row)
        table = {key: row for key, row in winners(batch.values()).items() if row[2] is not None}
        assert sorted((bytes(r.key), bytes(r.value), r.partition, r.offset) for r in result) == sorted(
            (row[1], row[2], row[4], row[5]) for row in table.values()
        )


def test_change_events(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1)

    def event(op: str, after: Any = None, wrapped: bool = False) -> bytes:
        body = {"op": op, "before": None, "after": after, "ts_ms": 1, "source": {"op": "no", "after": 1}}
        return json.dumps({"schema": {}, "payload": body} if wrapped else body).encode()

    events = [
        (b"1", event("r", {"id": 1, "name": "a"})),
        (b"2", event("c", {"id": 2, "tags": ["x", None]}, wrapped=True)),
        (b"3", event("c", {"id": 3})),
        (b"1", event("u", {"id": 1, "name": "b"})),
        (b"3", event("d")),
        (b"3", None),
        (b"9", event("m")),
    ]
    send(topic, events)
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    out = str(tmp_path / "s")
    ottla.spark.snapshot(topic, out, envelope="debezium", **options)

    def table() -> dict[bytes, Any]:
        rows = ottla.spark.read_snapshot(out, spark=spark).collect()
        return {bytes(row.key): json.loads(bytes(row.value)) for row in rows}

    assert table() == {b"1": {"id": 1, "name": "b"}, b"2": {"id": 2, "tags": ["x", None]}}
    send(topic, [(b"2", event("d", wrapped=True)), (b"3", event("c", {"id": 3, "again": True}))])
    ottla.spark.snapshot(topic, out, envelope="debezium", **options)
    assert table() == {b"1": {"id": 1, "name": "b"}, b"3": {"id": 3, "again": True}}
    with pytest.raises(PipelineError, match="was created with --envelope debezium"):
        ottla.spark.snapshot(topic, out, **options)
    for value, problem in (
        (b"no json", "not a Debezium envelope in JSON: it has no 'op'"),
        (event("u"), "has the op 'u' without a row"),
        (event("t"), "the source table was truncated"),
    ):
        other = make_topic(1)
        send(other, [(b"1", value)])
        with pytest.raises(PipelineError, match=f"^{other}-0, offset 0: .*{problem}"):
            ottla.spark.snapshot(other, str(tmp_path / other), envelope="debezium", **options)


def test_sql(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        send(topic, [(b"k%d" % (n % 2), json.dumps({"price": n}).encode()) for n in range(10)], partition)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    name = topic.replace("-", "_")
    answer = ottla.spark.sql(
        f"select key, sum(price) as total from {name} group by key order by key", schemas={name: "price INT"}, **options
    )
    assert answer.rows == [{"key": "k0", "total": 40}, {"key": "k1", "total": 50}]
    assert answer.topics == [topic]
    options["tables"] = {"t": topic}
    answer = ottla.spark.sql("select offset, value from t where partition = 1 order by offset", limit=3, **options)
    assert [row["offset"] for row in answer.rows] == [0, 1, 2]
    assert answer.truncated
    assert answer.rows[0]["value"] == '{"price": 0}'

    ottla.spark.sql("select key, value from t where key = 'k1'", to_topic=f"{topic}-k1", **options)
    assert {bytes(row.key) for row in rows_of(spark, broker, f"{topic}-k1")} == {b"k1"}

    stream: dict[str, Any] = {
        **options,
        "schemas": {"t": "price INT"},
        "stream": True,
        "checkpoint": str(tmp_path / "c"),
        "out": str(tmp_path / "o"),
    }
    ottla.spark.sql("select key, price from t", **stream)
    send(topic, [(b"k9", b'{"price": 99}')])
    ottla.spark.sql("select key, price from t", **stream)
    prices = [row.price for row in spark.read.parquet(str(tmp_path / "o")).collect()]
    assert sorted(prices) == sorted([*range(10), *range(10), 99])

    with pytest.raises(PipelineError, match="name `nope` cannot be resolved"):
        ottla.spark.sql("select nope from t", **options)
    with pytest.raises(PipelineError, match="names no topic"):
        ottla.spark.sql("select 1", bootstrap=broker.bootstrap, spark=spark)
    with pytest.raises(PipelineError, match="there is no topic 'gone'"):
        ottla.spark.sql("select 1 from x", tables={"x": "gone"}, bootstrap=broker.bootstrap, spark=spark)


def test_quality(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(2, retention_ms=-1)
    for second in (0, 1, 5, 3, 6):
        send(topic, [(b"k%d" % second, b"v")], 0, START_MS + second * 1000)
    send(topic, [(b"k6", b"v"), (None, b"v"), (None, b"w")], 0, START_MS + 6000)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "checkpoint": str(tmp_path / "c")}
    found = ottla.spark.quality(topic, out=str(tmp_path / "o"), **options)
    one, empty = found.partitions
    assert (one.records, one.duplicates, one.gaps, one.out_of_order, one.null_keys) == (8, 1, 0, 1, 2)
    assert one.max_step_back_ms == 2000
    assert empty.records == 0
    assert not found.clean
    assert [(e["offset"], e["amount"]) for e in found.examples["out_of_order"]] == [(3, 2000)]
    kinds = [row.kind for row in spark.read.parquet(str(tmp_path / "o")).collect()]
    assert sorted(kinds) == ["duplicates", "null_keys", "null_keys", "out_of_order"]

    # What is new only, and it is older than the last record of the run before.
    send(topic, [(b"k", b"v")], 0, START_MS)
    found = ottla.spark.quality(topic, **options)
    assert (found.partitions[0].records, found.partitions[0].out_of_order) == (1, 1)
    assert found.partitions[0].max_step_back_ms == 6000
    assert ottla.spark.quality(topic, **options).clean
