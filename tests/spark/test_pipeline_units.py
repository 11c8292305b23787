"""The parts of pipelines that need no Spark: tables that survive failures, schemas, files of declarations, words."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.compact import choose
from ottla.spark.pipelines.declared import load
from ottla.spark.pipelines.decoders import BadValue, Decoding, load_decoding
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.manifests import WHOLE_EVERY
from ottla.spark.pipelines.report import check_report, html, nice_ticks, picture, points, time_ticks, write_report
from ottla.spark.pipelines.sql import table_name
from ottla.spark.pipelines.stores import LocalStore, open_store
from ottla.spark.pipelines.streams import Loss, Rate, batch_offsets, last_offsets, losses
from ottla.spark.pipelines.tables import Table

ROOT = Path(__file__).resolve().parents[2]


# --- tables ----------------------------------------------------------------------------------------------------------


class FailingStore(LocalStore):
    """Fails with ENOSPC at the n-th operation that changes something, before or after it took effect."""

    def __init__(self, root: str, fail_at: int, after: bool) -> None:
        super().__init__(root)
        self.left = fail_at
        self.after = after

    def _guard(self, change: Any) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        change()
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_new(self, path: str, content: bytes) -> None:
        self._guard(lambda: super(FailingStore, self).write_new(path, content))

    def replace(self, path: str, content: bytes) -> None:
        self._guard(lambda: super(FailingStore, self).replace(path, content))

    def move(self, source: str, target: str) -> None:
        self._guard(lambda: super(FailingStore, self).move(source, target))

    def delete(self, path: str) -> None:
        self._guard(lambda: super(FailingStore, self).delete(path))

    def sync(self, path: str) -> None:
        self._guard(lambda: super(FailingStore, self).sync(path))


def stage(table: Table, first: int, last: int, partition: int = 0) -> dict[str, DataFile]:
    """What Spark would leave: here a file that only says which offsets it holds."""
    staged = f"{table.staging()}/part.parquet"
    path = Path(table.store.root, staged)
    path.parent.mkdir(parents=True)
    path.write_text(f"{first}-{last}")
    name = f"topic=t/date=2026-01-01/t-{partition}-{first:020d}-{last:020d}.parquet"
    return {staged: DataFile(name, "t", partition, first, last, last - first + 1, 10)}


def archive_once(store: LocalStore, end: int, step: int) -> None:
    """An archive of offsets up to `end` in batches; continues where the table is."""
    with Table.create_or_open(store, "archive") as table:
        while (mark := table.state.marks.get(("t", 0), 0)) < end:
            table.commit(stage(table, mark, mark + step - 1), marks={("t", 0): mark + step})


def offsets_in(root: Path) -> list[int]:
    """As a reader sees them who lists Parquet files and knows nothing of manifests."""
    found: list[int] = []
    for path in root.glob("topic=*/**/*.parquet"):
        first, last = map(int, path.read_text().split("-"))
        found += range(first, last + 1)
    return sorted(found)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fail_at", range(1, 18))
def test_a_failure_at_any_operation_loses_and_repeats_nothing(tmp_path: Path, fail_at: int, after: bool) -> None:
    store = FailingStore(str(tmp_path), fail_at, after)
    with pytest.raises((OSError, PipelineError), match=r"(?i)no space left"):
        for end in range(4, 40, 4):
            archive_once(store, end, 2)
    seen = offsets_in(tmp_path)
    assert seen == list(range(len(seen)))
    archive_once(LocalStore(str(tmp_path)), 40, 2)
    assert offsets_in(tmp_path) == list(range(40))
    table = Table.open(LocalStore(str(tmp_path)))
    assert len(table.state.files) == 20
    assert not list(tmp_path.glob("_ottla/staging/*"))


@pytest.mark.parametrize("fail_at", range(1, 10))
def test_compaction_is_all_or_nothing(tmp_path: Path, fail_at: int) -> None:
    archive_once(LocalStore(str(tmp_path)), 8, 2)
    with (
        pytest.raises((OSError, PipelineError), match=r"(?i)no space left"),
        Table.create_or_open(FailingStore(str(tmp_path), fail_at, True), "archive") as table,
    ):
        table.commit(stage(table, 0, 7), remove=list(table.state.files))
    with Table.create_or_open(LocalStore(str(tmp_path)), "archive") as table:
        assert sum(file.records for file in table.state.files.values()) == 8
        assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("topic=*/**/*.parquet")} == set(
            table.state.files
        )
    assert offsets_in(tmp_path) == list(range(8))


def test_opening_a_long_table_reads_few_manifests(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    archive_once(store, 3 * WHOLE_EVERY, 1)
    read: list[str] = []
    original = store.read
    store.read = lambda path: (read.append(path), original(path))[1]  # type: ignore[method-assign,func-returns-value]
    table = Table.open(store)
    assert len(table.state.files) == 3 * WHOLE_EVERY
    assert len(read) <= 3


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with Table.create_or_open(store, "archive"):
        with pytest.raises(PipelineError, match="another process writes to"):
            Table.create_or_open(store, "archive")
        Table.open(store)
    with Table.create_or_open(store, "archive"):
        pass


def test_a_table_of_another_kind_and_a_folder_of_other_files_are_refused(tmp_path: Path) -> None:
    with Table.create_or_open(LocalStore(str(tmp_path / "a")), "archive"):
        pass
    with pytest.raises(PipelineError, match="was written by the pipeline 'archive'"):
        Table.create_or_open(LocalStore(str(tmp_path / "a")), "parse")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("")
    with pytest.raises(PipelineError, match=r"holds files that no pipeline wrote \(mine.txt\)"):
        Table.create_or_open(LocalStore(str(tmp_path / "b")), "archive")
    with pytest.raises(PipelineError, match="is not a folder that `ottla pipeline archive` wrote"):
        Table.open(LocalStore(str(tmp_path / "c")))


def test_a_file_that_vanished_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    archive_once(store, 2, 2)
    next(tmp_path.glob("topic=*/**/*.parquet")).unlink()
    with pytest.raises(PipelineError, match="is missing: it was removed from outside"):
        Table.create_or_open(store, "archive")


def test_stores_by_their_names(tmp_path: Path) -> None:
    assert open_store(str(tmp_path), None).root == str(tmp_path)
    assert open_store(f"file://{tmp_path}/a%20b", None).root == f"{tmp_path}/a b"
    with pytest.raises(PipelineError, match="needs a Spark session"):
        open_store("hdfs://name/x", None)
    with pytest.raises(PipelineError, match=r"^s3a:// is not supported; write s3://BUCKET/PATH"):
        open_store("s3a://bucket/x", None)


def test_small_neighbours_are_merged_and_large_files_stay() -> None:
    def file(first: int, size: int, date: str = "1", partition: int = 0) -> DataFile:
        return DataFile(f"topic=t/date={date}/{partition}-{first}.parquet", "t", partition, first, first, 1, size)

    packs = choose([file(2, 4), file(0, 4), file(1, 4), file(3, 50), file(4, 1), file(5, 1, "2")], 10)
    assert [[f.first_offset for f in pack] for pack in packs] == [[0, 1]]
    packs = choose([file(n, 1, partition=n % 2) for n in range(6)], 100)
    assert [[f.first_offset for f in pack] for pack in packs] == [[0, 2, 4], [1, 3, 5]]


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match=r"file/a/_ottla.*: Not a directory\. Run the same command again"):
        Table.create_or_open(LocalStore(str(tmp_path / "file" / "a")), "archive")


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_of_spark_checkpoints(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert last_offsets(store) == {}
    for number in range(3):
        store.write_new(f"offsets/{number}", f'v1\n{{"batchId": 1}}\n{{"t":{{"0":{number},"1":7}}}}'.encode())
    store.write_new("commits/1", b"v1\n{}")
    store.write_new("commits/.1.crc", b"")
    assert batch_offsets(store, 2) == {("t", 0): 2, ("t", 1): 7}
    assert batch_offsets(store, 3) is None
    assert last_offsets(store) == {("t", 0): 1, ("t", 1): 7}


def test_losses_are_records_deleted_before_they_were_read() -> None:
    starts = {("t", 0): 5, ("t", 1): 5, ("t", 2): 5, ("t", 3): 5}
    ends = {("t", 0): 10, ("t", 1): 10, ("t", 2): 5, ("t", 3): 10}
    found = losses(starts, ends, {("t", 0): 8, ("t", 1): 5, ("t", 2): 9, ("t", 3): 30})
    assert found == [Loss("t", 0, 5, 8), Loss("t", 3, 5, 10)]


# --- schemas ---------------------------------------------------------------------------------------------------------

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
        ],
    }
)


def avro(value: dict[str, Any]) -> bytes:
    from io import BytesIO

    import fastavro

    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), value)
    return stream.getvalue()


def descriptor_set() -> bytes:
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="names", number=2, type=9, label=3)
    message.field.add(name="paid", number=3, type=8, label=1)
    content: bytes = files.SerializeToString()
    return content


def test_avro_values() -> None:
    decoding = load_decoding("avro", AVRO)
    assert decoding.spark_type().simpleString() == "struct<id:bigint,name:string,tags:map<string,int>>"
    decode = decoding.decoder()
    good = avro({"id": 7, "name": None, "tags": {"a": 1}})
    assert decode(good) == {"id": 7, "name": None, "tags": {"a": 1}}
    with pytest.raises(BadValue, match="2 bytes are left over"):
        decode(good + b"xx")
    with pytest.raises(BadValue, match="not Avro of this schema"):
        decode(good[:-1][:2])
    framed = load_decoding("avro", AVRO, framing="confluent").decoder()
    assert framed(b"\0\0\0\0\7" + good)["id"] == 7
    with pytest.raises(BadValue, match="Confluent's framing"):
        framed(good)


def test_avro_values_of_other_versions_of_the_schema(tmp_path: Path) -> None:
    """The id at the start of a value identifies the schema that it was written with."""
    from io import BytesIO

    import fastavro

    old = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "string"}],
    }
    new = json.loads(AVRO)
    new["fields"] = [{**field, **({"default": {}} if field["name"] == "tags" else {})} for field in new["fields"]]
    new["fields"][1]["default"] = None
    (tmp_path / "an old schema.avsc").write_text(json.dumps(old))
    writers = {7: str(tmp_path / "an old schema.avsc"), "8": AVRO}
    decoding = load_decoding("avro", json.dumps(new), framing="confluent", writer_schemas=writers)
    decode = decoding.decoder()
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(old), {"id": 5, "x": "dropped"})
    assert decode(b"\0\0\0\0\7" + stream.getvalue()) == {"id": 5, "name": None, "tags": {}}
    same = {"id": 6, "name": "n", "tags": {"a": 1}}
    assert decode(b"\0\0\0\0\x08" + avro(same)) == same
    with pytest.raises(BadValue, match="the schema with id 9 is not known"):
        decode(b"\0\0\0\0\x09" + avro(same))
    for given, problem in (
        ({"x": AVRO}, "must be a number, not 'x'"),
        ({1: '{"type": "recor"}'}, "the avro schema 1 is not valid"),
        ({1: "gone.avsc"}, r"gone\.avsc cannot be read"),
    ):
        with pytest.raises(PipelineError, match=problem):
            load_decoding("avro", AVRO, framing="confluent", writer_schemas=given)
    with pytest.raises(PipelineError, match="--framing confluent"):
        load_decoding("avro", AVRO, writer_schemas=writers)


def test_proto_files_are_compiled_with_any_available_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by something that stands for protoc, and for the compiler that comes with grpcio-tools."""
    (tmp_path / "made").write_bytes(descriptor_set())
    (tmp_path / "shop.proto").write_text("message Order {}")
    arguments = {"message": "shop.Order"}
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"no protoc on PATH .* --descriptor_set_out shop\.desc shop\.proto"):
        load_decoding("protobuf", str(tmp_path / "shop.proto"), **arguments)

    compiler = (
        f"import sys, shutil\nout = next(a for a in sys.argv if a.startswith('--descriptor_set_out='))\n"
        f"assert '-I{tmp_path}' in sys.argv and '--include_imports' in sys.argv\n"
        f"shutil.copy({str(tmp_path / 'made')!r}, out.partition('=')[2])\n"
    )
    package = tmp_path / "packages" / "grpc_tools"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "protoc.py").write_text(compiler)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    found = load_decoding("protobuf", str(tmp_path / "shop.proto"), **arguments)
    assert found.schema == descriptor_set()

    (tools / "protoc").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('shop.proto:1:1: wrong')\n")
    (tools / "protoc").chmod(0o755)
    with pytest.raises(PipelineError, match=r"protoc refuses the schema: shop\.proto:1:1: wrong"):
        load_decoding("protobuf", str(tmp_path / "shop.proto"), **arguments)
    (tools / "protoc").write_text(f"#!{sys.executable}\n{compiler}")
    assert load_decoding("protobuf", str(tmp_path / "shop.proto"), **arguments) == found


def test_protobuf_values(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_set())
    decoding = load_decoding("protobuf", str(path), message="shop.Order")
    assert decoding.spark_type().simpleString() == "struct<id:bigint,names:array<string>,paid:boolean>"
    decode = decoding.decoder()
    assert decode(b"\x08\x05\x12\x01a\x12\x01b") == {"id": 5, "names": ["a", "b"], "paid": False}
    with pytest.raises(BadValue, match=r"not a shop\.Order"):
        decode(b"\x08")
    framed = load_decoding("protobuf", str(path), message="shop.Order", framing="confluent").decoder()
    assert framed(b"\0\0\0\0\1\0\x08\x05")["id"] == 5
    assert framed(b"\0\0\0\0\1\2\0\x08\x05")["id"] == 5


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        (
            '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "at": {"type": "string", '
            '"format": "date-time"}, "tags": {"type": ["array", "null"], "items": {"type": "number"}}}}',
            "struct<id:bigint,at:timestamp,tags:array<double>>",
        ),
        ('{"type":"struct","fields":[{"name":"a","type":"string","nullable":true,"metadata":{}}]}', "struct<a:string>"),
    ],
)
def test_json_schemas(schema: str, columns: str) -> None:
    assert load_decoding("json", schema).spark_type().simpleString() == columns


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"nope", "not JSON"),
        (b"[1]", "not a JSON object but list"),
        (b'{"at": 1}', "field 'id' is missing"),
        (b'{"id": "x"}', "field 'id': \"x\" is not of type long"),
        (b'{"id": true}', "field 'id': true is not of type long"),
    ],
)
def test_reasons_why_json_does_not_fit(value: bytes, reason: str) -> None:
    schema = '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}'
    with pytest.raises(BadValue, match=reason):
        load_decoding("json", schema).decoder()(value)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("xml", "x"), "format is one of json, avro, protobuf"),
        (("avro", "missing.avsc"), "cannot be read: No such file"),
        (("avro", '{"type": "recor"}'), "the avro schema is not valid"),
        (("avro", '"string"'), "cannot be read"),
        (("avro", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}'), "union"),
        (("json", '{"type": "string"}'), "must describe an object"),
        (("json", '{"type": "object", "properties": {"a": {"type": "odd"}}}'), "'odd' of a has no column"),
        (
            ("json", "id BIGNT"),
            r"^the json schema is not valid: column 'id' has the unknown type 'BIGNT'; did you mean BIGINT",
        ),
        (("protobuf", "x.desc"), "cannot be read"),
        (("protobuf", "x.proto"), "there is no such file"),
    ],
)
def test_wrong_schemas_are_reported(arguments: tuple[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=problem):
        load_decoding(*arguments)


def test_a_message_that_the_schema_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_set())
    with pytest.raises(PipelineError, match=r"no message 'shop.Oder'; it has shop\.Order"):
        load_decoding("protobuf", str(path), message="shop.Oder")
    with pytest.raises(PipelineError, match="needs the full name of the message"):
        load_decoding("protobuf", str(path))


def test_a_decoding_travels_to_executors() -> None:
    import pickle

    decoding = load_decoding("avro", AVRO)
    assert pickle.loads(pickle.dumps(decoding)) == decoding == Decoding("avro", AVRO.encode())


# --- declarations ----------------------------------------------------------------------------------------------------


def test_the_example_makes_sense() -> None:
    entries, spark = load(str(ROOT / "examples" / "pipelines" / "pipelines.yaml"))
    assert [entry.pipeline for entry in entries] == [
        "archive",
        "compact",
        "verify",
        "parse",
        "snapshot",
        "sql",
        "stats",
    ]
    assert [entry.follows for entry in entries] == [False] * 6 + [True]
    assert entries[0].arguments["isolation"] == "read_committed"
    assert "topics" not in entries[1].arguments
    assert spark["master"] == "local[*]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pipelines: [", "is not YAML"),
        ("- 1", "has no list named 'pipelines'"),
        ("pipelines: []\nbotstrap: x", "'botstrap' is not known"),
        ("pipelines: [{pipeline: archve}]", "pipeline 1: 'pipeline' is one of archive"),
        ("pipelines: [{pipeline: archive, topics: a}]", "pipeline 1: archive needs 'out'"),
        ("pipelines: [{pipeline: archive, topics: a, out: b, sped: 1}]", "archive has no option 'sped'"),
        ("pipelines: [{pipeline: archive, topics: a, out: b, spark: 1}]", "archive has no option 'spark'"),
        ("pipelines: [{pipeline: verify, archive: a, follow: true}]", "verify has no option 'follow'"),
        ("pipelines: [{pipeline: replay, archive: a, follow: true}]", "replay has no option 'follow'"),
        ("pipelines: [{pipeline: replay, archive: a, topic: t}]", "replay has no option 'topic'; it has .*to_topic"),
        (
            "pipelines: [{pipeline: stats, topics: a, out: b, window: soon}]",
            "pipeline 1: window: 'soon' is not a duration",
        ),
        (
            "pipelines: [{name: x, pipeline: verify, archive: a}, {name: x, pipeline: verify, archive: b}]",
            "two pipelines are named 'x'",
        ),
    ],
)
def test_wrong_files_are_reported(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(PipelineError, match=problem):
        load(str(path))


def test_a_file_has_the_names_of_the_command_line(tmp_path: Path) -> None:
    """Every option of a command, with _ for -, is an option of its entry."""
    from argparse import ArgumentParser

    from ottla.cli.pipeline import add_parser
    from ottla.spark.pipelines.declared import PIPELINES, _names, _parameters

    parser = ArgumentParser()
    add_parser(parser.add_subparsers())
    kinds = parser._subparsers._group_actions[0].choices["pipeline"]._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    not_declared = {"help", "json", "spark_log", "timeout", "fail"}  # of the command, not of what it does
    for pipeline in PIPELINES:
        named = {name for name, (target, _) in _names(pipeline).items() if target in _parameters(pipeline)}
        options = {action.dest for action in kinds[pipeline]._actions} - not_declared
        assert options <= _parameters(pipeline) | named, pipeline
    text = "pipelines: [{pipeline: stats, topics: a, out: b, window: 5m, interval: 30s, no_group: true, start: '-2h'}]"
    (tmp_path / "p.yaml").write_text(text)
    arguments = load(str(tmp_path / "p.yaml"))[0][0].arguments
    assert (arguments["window_ms"], arguments["interval_s"], arguments["group"]) == (300_000, 30.0, None)
    assert isinstance(arguments["start"], int)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        load("missing.yaml")


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("java.io.IOException: No space left on device\n\tat x", "no space left on the disk"),
        ("x\nottla.spark.pipelines.errors.PipelineError: in our own words\n\tat y", "^in our own words$"),
        ("a\nCaused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: x", "does not exist"),
        ("boom\n\nCaused by: java.lang.IllegalStateException: the reason\n\tat z", "IllegalStateException: the reason"),
        ("worker:\nTraceback\n  File\nValueError: bad thing\n", "ValueError: bad thing"),
        ("just this", "^just this$"),
        ("", "^RuntimeError$"),
    ],
)
def test_failures_in_one_line(text: str, words: str) -> None:
    import re

    told = str(explain(RuntimeError(text)))
    assert re.search(words, told), told
    assert "\n" not in told


def test_a_full_disk_is_explained() -> None:
    assert "no space left" in str(explain(OSError(errno.ENOSPC, "No space left on device")))
    told = str(explain(PermissionError(errno.EACCES, "Permission denied", "/out/x")))
    assert told.startswith("/out/x: Permission denied. Run the same command again")
    own = PipelineError("as it is")
    assert explain(own) is own


def test_the_rate_is_that_of_the_last_batches() -> None:
    rate = Rate(0.0)
    assert rate.of(100, 10.0) == 10.0
    assert rate.of(100, 20.0) == 0.0
    assert rate.of(100, 21.0) == 0.0
    assert rate.of(200, 30.0) == 10.0


def test_names_of_tables() -> None:
    assert table_name("orders.v1-eu") == "orders_v1_eu"


# --- reports ---------------------------------------------------------------------------------------------------------


def windows(topic: str, count: int) -> list[dict[str, Any]]:
    from datetime import UTC, datetime

    return [
        {
            "topic": topic,
            "window_start": datetime.fromtimestamp(1_790_000_000 + 60 * n, UTC),
            "records": n,
            "bytes": n * 100,
            "records_per_second": n / 60,
            "bytes_per_second": n * 100 / 60,
            "distinct_keys": n,
            "max_lateness_ms": 1000 * n,
            "late": 1,
        }
        for n in range(count)
    ]


def test_a_page_without_anything_beside_it(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    write_report(str(page), windows("a<b", 3) + windows("b", 5000), {"b": 7})
    text = page.read_text()
    assert "a&lt;b" in text
    assert "a<b" not in text
    assert text.count("<svg") == 8
    assert "http" not in text
    assert len(text) < 500_000
    assert html({}, {}).startswith("<!doctype html>")


def test_a_report_explains_its_windows(tmp_path: Path) -> None:
    """The time zone, the length of a window, what late means; the windows at the edges are not complete."""
    text = html({"a": windows("a", 6)}, {"a": 3}, window_ms=60_000, late_after_ms=2000)
    assert "21 Sep 2026 14:13:20 to 14:19:20 UTC" in text
    assert "windows of 1 min" in text
    assert "more than 2 s late" in text
    assert text.count('stroke-dasharray="3 4"') == 2 * 4
    assert "the first and the last window, which are not complete" in text


def test_windows_that_are_too_few_to_have_edges() -> None:
    text = html({"a": windows("a", 2)}, {}, window_ms=60_000)
    assert "So few windows are not complete" in text
    assert "stroke-dasharray" not in text


def test_windows_without_records_are_zero() -> None:
    some = windows("a", 10)
    found = points([*some[:3], *some[7:]], "records_per_second", 60_000)
    assert [round(value * 60) for _, value in found] == [0, 1, 2, 0, 0, 7, 8, 9]
    assert [round(moment - found[0][0]) // 60 for moment, _ in found] == [0, 1, 2, 3, 6, 7, 8, 9]


def test_no_peak_is_lost_among_many_windows() -> None:
    some = windows("a", 20_000)
    for window in some:
        window["records_per_second"] = 1.0
    some[12_345]["records_per_second"], some[777]["records_per_second"] = 99.0, 0.0
    values = [value for _, value in points(some, "records_per_second", 60_000)]
    assert len(values) <= 1100
    assert (max(values), min(values)) == (99.0, 0.0)


@pytest.mark.parametrize(
    ("greatest", "ticks"),
    [(0, [0, 1]), (7, [0, 2, 4, 6, 8]), (1000, [0, 250, 500, 750, 1000]), (0.9, [0, 0.25, 0.5, 0.75, 1.0])],
)
def test_round_numbers_beside_a_chart(greatest: float, ticks: list[float]) -> None:
    assert nice_ticks(greatest) == pytest.approx(ticks)


def test_round_moments_below_a_chart() -> None:
    hour = 1_790_002_800
    assert [text for _, text in time_ticks(hour + 60, hour + 3 * 3600)] == ["16:00", "17:00", "18:00"]
    assert [text for _, text in time_ticks(hour, hour + 30 * 3600)] == [
        "18:00",
        "00:00\n22 Sep",
        "06:00",
        "12:00",
        "18:00",
    ]


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_report(str(tmp_path / "r.png"), windows("a", 3), {})
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_in_a_picture_covers_anything_else() -> None:
    pytest.importorskip("matplotlib")
    names = [f"a-rather-long-name-of-a-topic-in-the-warehouse.number-{n}.v{n}" for n in range(7)]
    figure = picture({name: windows(name, 9) for name in names}, 60_000, 1000)
    figure.draw_without_rendering()
    boxes = [one.get_tightbbox() for one in (*figure.axes, *figure.legends, *figure.texts)]
    assert len(boxes) == 4 + 1 + 2
    for at, one in enumerate(boxes):
        assert not [other for other in boxes[at + 1 :] if one.overlaps(other)], at
    for box in boxes:
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_reports_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"\.html or \.png file"):
        check_report("stats.pdf")
    with pytest.raises(PipelineError, match="there is no folder"):
        check_report(str(tmp_path / "no" / "r.html"))
    check_report(None)
