"""`ottla pipeline` as people run it: exit codes, one line for what is wrong, and files of declarations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.spark.pipelines.formats import Kind
from ottla.spark.pipelines.stores import LocalStore
from support.tables.table_writer import open_table

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ottla(spark: Any, broker: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in this process, so that it uses the Spark of the tests."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["pipeline", *map(str, words)])
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return code, out, err

    return run


def child(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "pipeline", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=900,
        check=False,
    )


def test_a_file_of_pipelines(ottla: Run, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    send(topic, [(b"k%d" % n, b'{"n": %d}' % n) for n in range(10)])
    file = tmp_path / "p.yaml"
    entries = [
        {"name": "copy", "pipeline": "archive", "topics": topic, "out": str(tmp_path / "a")},
        {"name": "proof", "pipeline": "verify", "archive": str(tmp_path / "a")},
        {"pipeline": "quality", "topics": [topic]},
        {"pipeline": "sql", "query": "select count(*) as n from t", "tables": {"t": topic}},
    ]
    bootstrap = os.environ["OTTLA_BOOTSTRAP"]
    file.write_text(json.dumps({"bootstrap": bootstrap, "pipelines": entries}))
    code, out, _ = ottla("run", file, "--check")
    assert (code, out.splitlines()) == (0, ["copy: archive", "proof: verify", "quality-3: quality", "sql-4: sql"])
    code, out, err = ottla("run", file, "--json")
    assert code == 0, err
    copy, proof, quality, sql = json.loads(out)
    assert (copy["name"], copy["records"], copy["lag"]) == ("copy", 10, 0)
    assert proof["problems"] == []
    assert quality["partitions"][0]["records"] == 10
    assert sql["rows"] == [{"n": 10}]
    code, out, _ = ottla("verify", tmp_path / "a")
    assert code == 0
    assert out.splitlines()[-1] == "each offset is in exactly one file"
    next((tmp_path / "a").glob("topic=*/**/*.parquet")).unlink()
    code, _, err = ottla("verify", tmp_path / "a", "--no-log")
    assert code == 1
    assert "is missing" in err


def test_a_file_of_pipelines_ends_with_a_table(ottla: Run, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    send(topic, [(b"k", b'{"n": 1}'), (None, b"no json")])
    file = tmp_path / "p.yaml"
    typed = {"name": "typed", "pipeline": "parse", "topics": topic, "value_format": "json", "schema": "n INT"}
    query = {"name": "rows", "pipeline": "sql", "query": "select 7 as seven from t", "table": {"t": topic}, "limit": 1}
    entries = [query, {**typed, "out": str(tmp_path / "p")}, {"name": "look", "pipeline": "quality", "topics": topic}]
    file.write_text(json.dumps({"bootstrap": os.environ["OTTLA_BOOTSTRAP"], "pipelines": entries}))
    code, out, err = ottla("run", file)
    assert code == 0, err
    told, looked = err.splitlines()[-2:]
    assert told.startswith("typed: found something, 2 records in ")
    assert told.endswith("; 1 record did not match")
    assert looked == "look: found something, 1 null keys"
    *rows, head, asked, first, second = (line.split() for line in out.splitlines())
    assert rows == [["seven"], ["7"], []]
    assert asked[:4] == ["rows", "done", "-", "1"]
    assert head == ["PIPELINE", "RESULT", "IN", "OUT", "DEAD", "LETTERS", "FINDINGS", "LOST", "LAG", "FILES", "SECONDS"]
    assert first[:-1] == ["typed", "found", "something", "2", "1", "1", "-", "0", "0", "1"]
    assert second[:6] == ["look", "found", "something", "2", "-", "-"]
    assert ottla("run", file, "--fail")[0] == 1


def test_sql_prints_its_result_or_error(ottla: Run, make_topic: Any, send: Any) -> None:
    topic = make_topic(1)
    send(topic, [(b"a", b"x"), (None, b"\xff")])
    code, out, err = ottla("sql", "select key, value, offset from t order by offset", "--table", f"t={topic}")
    assert code == 0, err
    assert [line.split() for line in out.splitlines()] == [["key", "value", "offset"], ["a", "x", "0"], ["-", "�", "1"]]
    code, out, err = ottla("sql", "select nope from t", "--table", f"t={topic}")
    assert (code, out) == (1, "")
    assert "`nope` cannot be resolved" in err
    assert len(err.splitlines()) == 1
    code, out, err = ottla("quality", topic, "--fail", "--json")
    assert code == 1
    found = json.loads(out)
    assert (found["clean"], found["partitions"][0]["null_keys"]) == (False, 1)


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("archive", "no-such-topic", "--out", "x"), 1, "there is no topic 'no-such-topic'"),
        (("archive", "no-such-*", "--out", "x"), 1, "no topic matches 'no-such-*'"),
        (("archive", "t", "--out", "x", "--start", "soon"), 1, "there is no topic 't'"),
        (
            ("parse", "t", "--out", "x", "--value-format", "avro", "--schema", "gone.avsc"),
            1,
            "gone.avsc cannot be read",
        ),
        (("stats", "t", "--out", "x", "--report", "r.pdf"), 1, "a report is a .html or .png file"),
        (("run", "gone.yaml"), 1, "gone.yaml cannot be read"),
        (("archive", "t", "--out", "x", "-b", "127.0.0.1:1"), 1, "cannot connect to 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_line(ottla: Run, words: tuple[str, ...], code: int, line: str, tmp_path: Path) -> None:
    found, out, err = ottla(*words)
    assert (found, out) == (code, "")
    assert line in err
    assert len(err.splitlines()) == 1


def test_without_java(broker: Any, admin: Any, make_topic: Any, until: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    until(lambda: topic in admin.list_topics(timeout=60).topics, "the topic")
    done = child("archive", topic, "--out", tmp_path / "a", "-b", broker.bootstrap, PATH="/nowhere", JAVA_HOME="")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Spark needs Java 17 or newer" in done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("verify", "nosuchdir"), "nosuchdir is not a folder that `ottla pipeline archive` wrote"),
        (("compact", "nosuchdir"), "nosuchdir is not a folder that `ottla pipeline archive` wrote"),
        (("replay", "nosuchdir", "--to-topic", "t"), "nosuchdir is not a folder that `ottla pipeline archive` wrote"),
        (("parse", "t", "--out", "x", "--value-format", "json", "--schema", "id BIGNT"), "did you mean BIGINT?"),
        (("sql", "select 1 from t", "--schema", "t=id BIGNT"), "did you mean BIGINT?"),
        (("archive", "t", "--out", "s3a://b/t"), "write s3://BUCKET/PATH and add --format delta or iceberg"),
        (("verify", "s3a://b/t"), "s3a:// is not supported; write s3://BUCKET/PATH"),
        (("quality", "t", "--checkpoint", "s3n://b/t"), "s3n:// is not supported; write s3://BUCKET/PATH"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(words: tuple[str, ...], line: str, broker: Any) -> None:
    """There is no Java here, which Spark would say first."""
    done = child(*words, "-b", broker.bootstrap, PATH="/nowhere", JAVA_HOME="")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert line in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("archive", "--out", "photos"), "photos holds files that no pipeline wrote (a.jpg); name an empty folder"),
        (("archive", "--out", "t", "--format", "delta"), "t was created with --format parquet; use that format"),
        (("snapshot", "--out", "t"), "t was written by the pipeline 'archive'; choose another folder"),
        (
            ("archive", "--out", "x", "--format", "iceberg", "--catalog", "http://127.0.0.1:1"),
            "the catalog http://127.0.0.1:1 cannot be used: Connection refused",
        ),
    ],
)
def test_a_place_that_cannot_be_used_is_reported_before_spark_starts(
    words: tuple[str, ...], line: str, broker: Any, make_topic: Any, admin: Any, until: Any, tmp_path: Path
) -> None:
    topic = make_topic(1)
    until(lambda: topic in admin.list_topics(timeout=60).topics, "the topic")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    open_table(LocalStore(str(tmp_path / "t")), Kind("parquet")).close()
    places = [str(tmp_path / word) if word in ("photos", "t", "x") else word for word in words]
    done = child(places[0], topic, *places[1:], "-b", broker.bootstrap, PATH="/nowhere", JAVA_HOME="")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert line in done.stderr
    assert not (tmp_path / "x").exists()


def test_other_commands_cost_no_spark() -> None:
    code = (
        "import sys; sys.argv = ['ottla', 'pipeline', 'archive', '--help']\nfrom ottla.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'pyarrow', 'numpy', 'ottla.spark'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
