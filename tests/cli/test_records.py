"""`ottla produce` and `ottla consume`: records are read as they were written."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def record(**fields: Any) -> dict[str, Any]:
    return {"partition": 0, "timestamp": 1_700_000_000_000, "key": None, "value": "v", "headers": [], **fields}


def without_places(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in ("topic", "offset")} for line in lines]


def test_json_lines_are_replayed_without_loss(cli: Any, topic: str, unique: Any, tmp_path: Path) -> None:
    chance = random.Random(7)
    # 0xff in front: bytes that happen to be text would be printed as text.
    binary = [{"base64": base64.b64encode(b"\xff" + chance.randbytes(n)).decode()} for n in (0, 5, 300)]
    texts = ["", "plain", "zażółć gęślą jaźń", "two\nlines\u2028and more\r", '"quotes"', "\x00"]
    lines = [
        record(partition=n % 3, timestamp=1_700_000_000_000 - n, key=key, value=value, headers=headers)
        for n, (key, value, headers) in enumerate(
            (key, value, headers)
            for key in (None, "", "k", {"base64": "/w=="})
            for value in (None, *texts, *binary)
            for headers in ([], [["a", "1"], ["a", None], ["", {"base64": "/w=="}]])
        )
    ]
    lines.append(record(timestamp=-1, value="no time at all"))
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        copy = unique(codec)
        cli("topics", "create", copy, "-p", 3)
        cli("produce", copy, "-f", "json", "-i", path, "-z", codec, "--batch-bytes", 2000)
        out = cli("consume", copy, "--format", "json")
        by_partition = [line for p in range(3) for line in lines if line["partition"] == p]
        got = sorted(out.lines, key=lambda line: (line["partition"], line["offset"]))
        assert without_places(got) == by_partition
        assert {line["topic"] for line in got} == {copy}
    path.write_bytes(out.raw)
    cli("produce", topic, "-f", "json", "-i", path)
    again = cli("consume", topic, "--json")
    assert sorted(map(str, without_places(again.lines))) == sorted(map(str, without_places(out.lines)))


def test_lines_can_contain_their_topic(cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(json.dumps({"topic": topic, "value": "x"}) + "\n")
    (written,) = cli("produce", "-f", "json", "-i", path, "--json").json
    assert (written["topic"], written["records"]) == (topic, 1)
    path.write_text('{"value": "x"}\n')
    assert "line 1: the line names no topic" in cli("produce", "-f", "json", "-i", path, code=1).err
    assert "name the topic" in cli("produce", "-v", "x", code=2).err


def test_keys_headers_partition_and_timestamp(cli: Any, topic: str) -> None:
    cli("produce", topic, "-k", "key", "-H", "a=1", "-H", "b=", "-p", 2, "-t", "2023-11-14T22:13:20Z", "-v", "x")
    (line,) = cli("consume", topic, "--json").lines
    assert (line["partition"], line["timestamp"], line["key"], line["value"], line["headers"]) == (
        2,
        1_700_000_000_000,
        "key",
        "x",
        [["a", "1"], ["b", ""]],
    )


def test_a_header_needs_a_value(cli: Any, topic: str) -> None:
    assert "--header takes NAME=VALUE, not 'bad'" in cli("produce", topic, "-H", "bad", "-v", "x", code=2).err
    assert cli("consume", topic, "--json").lines == []


def test_plain_lines_from_a_pipe(child: Any, cli: Any, topic: str) -> None:
    child("produce", topic, "-s", ":", "--null", "NULL", "-p", 0, stdin=b"k1:v1\nk2:NULL\nNULL:v:3\n:\nlast:line")
    out = cli("consume", topic, "-s", "|", "--null", "~").out
    assert out.splitlines() == ["k1|v1", "k2|~", "~|v:3", "|", "last|line"]
    assert cli("consume", topic, "-f", "hex", "-s", " ").out.splitlines()[0] == "6b31 7631"
    assert cli("consume", topic, "-f", "base64").out.splitlines()[0] == base64.b64encode(b"v1").decode()
    assert cli("consume", topic, "--template", r"%p/%o:%k\n", "-n", 2).out == "0/0:k1\n0/1:k2\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the other client's own
def test_keys_go_where_the_java_client_puts_them(cli: Any, topic: str, tmp_path: Path) -> None:
    from kafka.partitioner.default import murmur2

    keys = [f"key-{n}" for n in range(30)]
    path = tmp_path / "in"
    path.write_text("".join(f"{key} x\n" for key in keys))
    cli("produce", topic, "-s", " ", "-i", path)
    for line in cli("consume", topic, "--json").lines:
        assert line["partition"] == (murmur2(line["key"].encode()) & 0x7FFFFFFF) % 3


def test_places_to_start_and_stop(cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    base = 1_700_000_000_000
    path.write_text("".join(json.dumps(record(value=str(n), timestamp=base + n)) + "\n" for n in range(10)))
    cli("produce", topic, "-f", "json", "-i", path)

    def values(*options: object) -> str:
        return "".join(cli("consume", topic, "-f", "raw", *options).out.split())

    assert values() == "0123456789"
    assert values("--from", "7") == "789"
    assert values("--from", "-2") == "89"
    assert values("--from", "99") == ""
    assert values("--from", f"@{base + 6}") == "6789"
    assert values("--from", "2", "--until", "4") == "23"
    assert values("--until", f"@{base + 3}") == "012"
    assert values("--from", "latest") == ""
    assert values("-n", 3, "--from", "1") == "123"
    assert values("-p", "1,2") == ""
    assert "no partition 7" in cli("consume", topic, "-p", 7, code=1).err


def test_a_group_continues_from_its_offsets(cli: Any, topic: str, unique: Any) -> None:
    group = unique("g")
    cli("produce", topic, "-p", 0, *(part for n in range(5) for part in ("-v", str(n))))
    assert cli("consume", topic, "-g", group, "-n", 2, "-f", "raw").out == "0\n1\n"
    assert cli("consume", topic, "-g", group, "-f", "raw").out == "2\n3\n4\n"
    assert cli("consume", topic, "-g", group, "-f", "raw").out == ""
    assert cli("consume", topic, "-g", group, "-f", "raw", "--from", "4").out == "4\n"


def test_following(broker: Any, cli: Any, topic: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "consume", topic, "--follow", "-f", "raw", "--from", "latest"]
    environment = {**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap}
    cli("produce", topic, "-v", "before")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        seen = b""
        for number in range(200):
            # `latest` is looked up a moment after the start: the first values may be too early for it.
            cli("produce", topic, "-v", f"after-{number}")
            os.set_blocking(process.stdout.fileno(), False)
            seen += process.stdout.read() or b""
            if seen:
                break
        assert seen.startswith(b"after-")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.communicate()


def test_a_closed_pipe_is_not_an_error(broker: Any, cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes((b"x" * 1000 + b"\n") * 2000)
    cli("produce", topic, "-i", path)
    done = subprocess.run(
        f"{sys.executable} -m ottla.cli.main consume {topic} -f raw | head -n 1 | wc -c",
        shell=True,
        capture_output=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap},
        timeout=60,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == (b"1001", b"")


def test_a_closed_pipe_is_not_an_error_for_the_list_of_benchmarks() -> None:
    # A pipe without a reader: what `| head` leaves when it ends early.
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ottla.cli.main", "bench", "--list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_json_lines_read_as_text_are_noticed(cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    cli("produce", topic, "-v", "x")
    path.write_bytes(cli("consume", topic, "--json").raw)
    noticed = cli("produce", topic, "-i", path, "--json")
    assert "`--format json`" in noticed.err
    assert noticed.json[0]["records"] == 1
    for arguments in (("-f", "raw"), ("-f", "json")):
        assert "line 1" not in cli("produce", topic, "-i", path, *arguments).err
    path.write_text('{"topic": 1}\n{"topic": ')
    assert "line 1" not in cli("produce", topic, "-i", path).err


def test_bad_lines(cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text('{"value": "good"}\n{"value": 5}\n{"value": "too", "partition": 9}\n{"value": "last"}\n')
    done = cli("produce", topic, "-f", "json", "-i", path, code=1)
    assert done.err.splitlines()[-1].endswith(
        'line 2: value must be a string, null or {"base64": "…"}; 1 record before it was written'
    )
    skipped = cli("produce", topic, "-f", "json", "-i", path, "--skip-bad-lines", "--json")
    assert sum(row["records"] for row in skipped.json) == 2
    assert "line 3 skipped" in skipped.err
    assert f"topic '{topic}' has no partition 9" in skipped.err


def test_a_topic_that_does_not_exist(cli: Any, unique: Callable[[str], str]) -> None:
    name = unique("nope")
    advice = f"topic '{name}' does not exist; create it with `ottla topics create {name}`"
    assert advice in cli("produce", name, "-v", "x", code=1).err
    assert f"no topic is named '{name}'" in cli("consume", name, code=1).err
    assert name not in cli("topics", "list", "--names").out, "the request must not create it"


def test_a_record_that_is_too_large(cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"x" * 2_000_000)
    assert "MESSAGE_TOO_LARGE" in cli("produce", topic, "-i", path, code=1).err
    path.write_bytes(b"y" * 900_000)
    for acks in ("1", "0", "all"):
        cli("produce", topic, "-i", path, "-a", acks, "-p", 0)
    assert cli("produce", topic, "-v", "x", "-p", 0, "--json").json[0]["last_offset"] == 3


def test_contradicting_options_are_refused(cli: Any, topic: str) -> None:
    assert "do not apply to JSON" in cli("produce", topic, "-f", "json", "-s", ":", "-v", "{}", code=2).err
    assert "either" in cli("produce", topic, "-v", "x", "-i", "y", code=2).err
    assert "--follow" in cli("consume", topic, "--follow", "--until", "3", code=2).err
    assert "cannot read" in cli("produce", topic, "-i", "/no/such/file", code=1).err
    assert "not a time" in cli("produce", topic, "-v", "x", "-t", "soon", code=2).err


def test_filters_choose_the_records(cli: Any, topic: str) -> None:
    cli("produce", topic, "-k", "42", "-H", "trace=abc", "-v", '{"total": 7}')
    cli("produce", topic, "-k", "43", "-v", '{"total": 3}')
    cli("produce", topic, "-k", "44", "-v", "text")

    def keys(*filters: str) -> list[str]:
        given = [part for text in filters for part in ("--filter", text)]
        return sorted(line["key"] for line in cli("consume", topic, "--json", *given).lines)

    assert keys("json=total >= 7") == ["42"]
    assert keys("key=4", "value=total") == ["42", "43"]
    assert keys("header=trace=ab") == ["42"]
    assert keys("value=nothing") == []
    assert cli("consume", topic, "--json", "--filter", "key=4", "-n", 2).raw.count(b"\n") == 2
    assert "--filter takes key=…" in cli("consume", topic, "--filter", "total>7", code=2).err
    assert "compares with a number" in cli("consume", topic, "--filter", "json=total > x", code=2).err


def test_separators_may_be_escaped(cli: Any, child: Any, topic: str) -> None:
    child("produce", topic, "-s", r"\x1f", stdin=b"k\x1fv\n")
    assert cli("consume", topic, "-s", r"\t").out == "k\tv\n"
    assert cli("consume", topic, "-s", r"\\").out == "k\\v\n"
    assert "after a backslash use" in cli("consume", topic, "-s", r"\q", code=2).err


def test_a_refused_line_says_what_was_written(child: Any, cli: Any, topic: str) -> None:
    failed = child("produce", topic, "-s", ":", stdin=b"a:1\nb:2\nbad\nc:3\n", code=1)
    assert "line 3: no key separator ':' in the line; 2 records before it were written" in failed.err
    assert sorted(line["value"] for line in cli("consume", topic, "--json").lines) == ["1", "2"]


def test_long_json_is_indented_for_people(cli: Any, topic: str) -> None:
    cli("produce", topic, "-v", json.dumps({"name": "x" * 80, "list": [1]}))
    assert '\n  "list": [\n    1\n  ]\n}' in cli("consume", topic, "-f", "pretty").out
