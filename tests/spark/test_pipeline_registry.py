"""Pipelines with the schemas of a registry: the id in each value, references, tables that evolve, and the way back."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from support.tables.other_engines import arrow

START_MS = 1_790_000_040_000
USERS = "spark:secret"


@pytest.fixture(scope="module")
def registry(broker: Any) -> Iterator[str]:
    """The address of `ottla registry` on the broker of the tests, with the login that it wants."""
    environment = {**os.environ, "OTTLA_REGISTRY_USERS": USERS}
    command = [sys.executable, "-m", "ottla.cli.main", "registry", "--port", "0", "-b", broker.bootstrap]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout is not None
        found = re.search(r"http://(\S+)", child.stdout.readline())
        assert found is not None
        yield f"http://{USERS}@{found[1]}"
    finally:
        child.terminate()
        child.wait(60)


@pytest.fixture
def client(registry: str) -> Any:
    """Confluent's own client of the registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": registry.replace(f"{USERS}@", ""), "basic.auth.user.info": USERS})


@pytest.fixture
def register(client: Any) -> Callable[..., int]:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    def go(subject: str, schema: Any, kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        named = [SchemaReference(*one) for one in references]
        return int(client.register_schema(subject, Schema(text, kind, named)))

    return go


def avro(number: int, schema: Any, value: Any, named: Any = ()) -> bytes:
    from io import BytesIO

    import fastavro

    known: dict[str, Any] = {}
    for one in named:
        fastavro.parse_schema(one, named_schemas=known)
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, named_schemas=known), value)
    return b"\0" + struct.pack(">i", number) + stream.getvalue()


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": field, "type": kind} for field, kind in fields]
    for one in made:
        if isinstance(one["type"], list):
            one["default"] = None
    return {"type": "record", "name": name, "namespace": "shop", "fields": made}


def test_avro_of_every_version_with_references(
    spark: Any, broker: Any, make_topic: Any, send: Any, registry: str, register: Any, tmp_path: Path
) -> None:
    topic = make_topic(1, retention_ms=-1)
    money = record("Money", ("amount", "double"), ("currency", "string"))
    register(f"{topic}-money", money)
    refers = (("shop.Money", f"{topic}-money", 1),)
    first = record("Order", ("id", "long"), ("price", "shop.Money"))
    second = record("Order", ("id", "long"), ("price", "Money"), ("note", ["null", "string"]))
    one = register(f"{topic}-value", first, references=refers)
    price = {"amount": 2.5, "currency": "EUR"}
    send(topic, [(b"a", avro(one, first, {"id": 1, "price": price}, [money]))], 0, START_MS)
    told: list[str] = []
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "registry": registry}
    options |= {"on_warning": told.append, "format": "delta"}
    out = str(tmp_path / "orders")
    assert ottla.spark.parse(topic, out, **options).details["good"] == 1
    assert told == []
    two = register(f"{topic}-value", second, references=refers)
    values = [
        avro(two, second, {"id": 2, "price": price, "note": "new"}, [money]),
        avro(one, first, {"id": 3, "price": price}, [money]),
        avro(999, first, {"id": 4, "price": price}, [money]),
        b"no frame",
        None,
    ]
    send(topic, [(b"a", value) for value in values], 0, START_MS)
    done = ottla.spark.parse(topic, out, **options)
    assert (done.details["good"], done.details["bad"]) == (3, 2)
    assert any("column note" in text and "was added" in text for text in told)
    assert f"the schema {topic}-value went from version 1 to 2: new: note" in told
    rows = sorted(arrow(out, "delta").to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["id"], row["note"]) for row in rows] == [
        (0, 1, None),
        (1, 2, "new"),
        (2, 3, None),
        (5, None, None),
    ]
    assert rows[0]["price"] == price
    letters = spark.read.format("ottla").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"{topic}.dead-letters", "includeHeaders": "true"}
    )
    errors = sorted(
        bytes(header.value).decode()
        for row in letters.load().collect()
        for header in row.headers
        if header.key == "ottla.error"
    )
    assert [error[:30] for error in errors] == ["not in Confluent's framing: it", "the schema with id 999 is not "]


def test_a_version_that_comes_during_a_run(
    spark: Any, broker: Any, make_topic: Any, send: Any, registry: str, register: Any, tmp_path: Path
) -> None:
    topic = make_topic(1, retention_ms=-1)
    first, second = (
        record("O", ("id", "long"), ("old", ["null", "long"])),
        record("O", ("id", "long"), ("new", ["null", "long"])),
    )
    one = register(f"{topic}-value", first)
    send(topic, [(b"a", avro(one, first, {"id": n, "old": n})) for n in range(2)], 0, START_MS)
    told: list[str] = []

    def on_progress(progress: Any) -> None:
        if progress.batches == 1 and not came:
            came.append(register(f"{topic}-value", second))

    came: list[int] = []
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "registry": registry}
    options |= {"format": "iceberg", "max_records": 1, "on_warning": told.append, "on_progress": on_progress}
    out = str(tmp_path / "orders")
    ottla.spark.archive(topic, out, decode=True, **options)
    if not came:
        came.append(register(f"{topic}-value", second))
    send(topic, [(b"a", avro(came[0], second, {"id": 7, "new": 70})), (b"a", b"bad")], 0, START_MS)
    ottla.spark.archive(topic, out, decode=True, **options)
    rows = sorted(arrow(out, "iceberg").to_pylist(), key=lambda row: row["offset"])
    assert [(row["value_id"], row["value_old"] in (0, 1), row["value_new"]) for row in rows][2:] == [
        (7, False, 70),
        (None, False, None),
    ]
    assert rows[0]["value_id"] == 0
    assert rows[3]["value_error"].startswith("not in Confluent's framing")
    assert rows[3]["value"] == b"bad"
    assert any("new: new" in text and "gone: old" in text for text in told)
    # It is an archive as any other: each offset once, byte for byte, even if files are merged.
    plain = {"bootstrap": broker.bootstrap, "spark": spark}
    assert ottla.spark.compact(out, spark=spark).files_after == 1
    assert ottla.spark.verify(out, content=True, **plain).problems == []
    after = sorted(arrow(out, "iceberg").to_pylist(), key=lambda row: row["offset"])
    assert [row["value_new"] for row in after] == [row["value_new"] for row in rows]


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_the_other_formats(
    kind: str,
    spark: Any,
    broker: Any,
    make_topic: Any,
    send: Any,
    registry: str,
    client: Any,
    register: Any,
    tmp_path: Path,
) -> None:
    """Written by the bytes that Confluent's framing prescribes, with a reference each."""
    topic = make_topic(1, retention_ms=-1)
    if kind == "JSON":
        part = {"type": "object", "properties": {"city": {"type": "string"}}}
        register(f"{topic}-part", part, kind)
        whole = {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "place": {"$ref": "place.json"}},
            "required": ["id"],
        }
        number = register(f"{topic}-value", whole, kind, (("place.json", f"{topic}-part", 1),))
        good = json.dumps({"id": 1, "place": {"city": "Prague"}}).encode()
        bad = b"{"
    else:
        part = 'syntax = "proto3"; package shop; message Place { string city = 1; }'
        register(f"{topic}-part", part, kind)
        whole = (
            'syntax = "proto3"; package shop; import "place.proto"; import "google/protobuf/timestamp.proto";'
            "message Order { int64 id = 1; Place place = 2; google.protobuf.Timestamp at = 3; }"
            "message Other { int64 n = 1; }"
        )
        number = register(f"{topic}-value", whole, kind, (("place.proto", f"{topic}-part", 1),))
        good = b"\0" + b"\x08\x01\x12\x08\x0a\x06Prague"  # index 0; field 1 = 1; field 2 = {field 1 = Prague}
        bad = b"\x02\x02" + b"\x08\x01"  # the message at index 1
    head = b"\0" + struct.pack(">i", number)
    send(topic, [(b"k", head + good), (b"k", head + bad)], 0, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "registry": registry}
    out = str(tmp_path / "orders")
    done = ottla.spark.parse(topic, out, format="iceberg", **options)
    assert (done.details["good"], done.details["bad"]) == (1, 1)
    (row,) = arrow(out, "iceberg").to_pylist()
    assert (row["id"], row["place"]["city"]) == (1, "Prague")


def test_rows_are_written_for_confluents_deserializer(
    spark: Any, broker: Any, make_topic: Any, send: Any, registry: str, client: Any, tmp_path: Path
) -> None:
    """A query's rows with the registry's framing, read by Confluent's deserializer."""
    from confluent_kafka import Consumer
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    topic, target = make_topic(1), make_topic(1)
    send(topic, [(b"a", b"1"), (b"b", b"2")])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "tables": {"t": topic}}
    query = "select key, int(value) as n, array(value) as all from t"
    ottla.spark.sql(query, to_topic=target, registry=registry, **options)
    ottla.spark.sql(
        "select key, int(value) + 10 as n, null as all from t where key = 'a'",
        to_topic=target,
        registry=registry,
        **options,
    )
    assert client.get_versions(f"{target}-value") == [1]
    decode = AvroDeserializer(client)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": target, "auto.offset.reset": "earliest"})
    consumer.subscribe([target])
    found: list[Any] = []
    while len(found) < 3:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(message)
    consumer.close()
    assert [(m.key(), decode(m.value(), None)) for m in found] == [
        (b"a", {"n": 1, "all": ["1"]}),
        (b"b", {"n": 2, "all": ["2"]}),
        (b"a", {"n": 11, "all": None}),
    ]


def test_mistakes_are_reported_before_spark_runs(
    spark: Any, broker: Any, make_topic: Any, registry: str, register: Any, tmp_path: Path
) -> None:
    topic = make_topic(1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    out = str(tmp_path / "o")
    with pytest.raises(PipelineError, match=r"has no subjects/.*-value/versions/latest"):
        ottla.spark.parse(topic, out, registry=registry, **options)
    with pytest.raises(PipelineError, match="refuses the login"):
        ottla.spark.parse(topic, out, registry=registry.replace("secret", "wrong"), **options)
    with pytest.raises(PipelineError, match=r"127.0.0.1:1 does not answer"):
        ottla.spark.parse(topic, out, registry="http://127.0.0.1:1", **options)
    with pytest.raises(PipelineError, match="choose one with --subject"):
        ottla.spark.parse([topic, "other"], out, registry=registry, **options)
    with pytest.raises(PipelineError, match="leave out the format and the schema"):
        ottla.spark.parse(topic, out, registry=registry, value_format="avro", **options)
    register(f"{topic}-value", record("O", ("id", "long")))
    with pytest.raises(PipelineError, match="plain Parquet can have only one schema"):
        ottla.spark.archive(topic, out, decode=True, registry=registry, **options)
    with pytest.raises(PipelineError, match="add both --decode and --registry"):
        ottla.spark.archive(topic, out, decode=True, **options)
    assert not Path(out, "_delta_log").exists()
