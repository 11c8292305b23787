"""`ottla migrate`: no record is lost or duplicated, wherever it is interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.migration import Copy

START_MS = 1_700_000_000_000


# --- offsets ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), max_size=8), st.integers(0, 5))
def test_offsets_shift_by_what_is_missing(kept: list[list[bool]], start: int) -> None:
    """Batches of offsets, some or all of which compaction removed; a commit maps to the next remaining record."""
    copy = Copy(("t", 0), start)
    survivors: list[int] = []
    offset = start
    for batch in kept:
        there = [offset + n for n, keep in enumerate(batch) if keep]
        if there:
            copy.note(there[0], len(survivors), there[-1] - there[0] + 1 == len(there))
            survivors += there
        offset += len(batch)
    copy.next_offset, copy.target_next = offset, len(survivors)
    for committed in range(offset + 2):
        expected = sum(survivor < committed for survivor in survivors)
        target, count_from = copy.shifted(committed)
        if count_from is not None:
            target += sum(count_from <= survivor < committed for survivor in survivors)
            target = min(target, copy.target_next)
        assert target == expected, (committed, survivors, copy.shifts)


def test_a_log_without_gaps_needs_one_entry() -> None:
    copy = Copy(("t", 0), 0)
    for batch in range(100):
        copy.note(batch * 10, batch * 10, True)
    assert copy.shifts == [(0, 0, True)]


# --- between two brokers ---------------------------------------------------------------------------------------------


def write(ottla: Any, broker: Any, topic: str, count: int, path: Path, *, codec: str = "none", first: int = 0) -> None:
    chance = random.Random(count)
    with path.open("w") as file:
        for n in range(first, first + count):
            line = {
                "partition": n % 2,
                "timestamp": START_MS + n,
                "key": None if n % 5 == 0 else f"k{n % 50}",
                "value": None if n % 7 == 0 else chance.randbytes(chance.randrange(150)).hex(),
                "headers": [["h", None], ["n", str(n)]] if n % 3 == 0 else [],
            }
            file.write(json.dumps(line) + "\n")
    ottla("produce", topic, "-f", "json", "-i", path, "-z", codec, on=broker)


def content(ottla: Any, broker: Any, topic: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in ottla("consume", topic, "--json", on=broker).lines:
        found.setdefault(line["partition"], []).append(line)
    return found


@pytest.fixture
def source(start_broker: Any, ottla: Any, tmp_path: Path) -> Any:
    broker = start_broker(tmp_path / "source")
    ottla("topics", "create", "orders", "-p", 2, "-c", "retention.ms=-1", "-c", "max.message.bytes=3000000", on=broker)
    ottla("topics", "create", "users", "-p", 2, "-c", "message.timestamp.type=LogAppendTime", on=broker)
    write(ottla, broker, "orders", 3000, tmp_path / "in", codec="lz4")
    write(ottla, broker, "users", 100, tmp_path / "in")
    ottla("consume", "orders", "-g", "readers", "-n", 1000, "-f", "raw", on=broker)
    ottla("consume", "users", "-g", "readers", "-f", "raw", on=broker)
    return broker


def check_copy(ottla: Any, source: Any, target: Any) -> None:
    for topic in ("orders", "users"):
        assert content(ottla, target, topic) == content(ottla, source, topic)
        (there,) = ottla("configs", "get", "topic", topic, "--json", on=target).json
        (here,) = ottla("configs", "get", "topic", topic, "--json", on=source).json
        assert there["configs"] == here["configs"]
    rows = [ottla("groups", "describe", "readers", "--json", on=one).json[0]["offsets"] for one in (source, target)]
    assert rows[0] == rows[1]


def migrate(ottla: Any, source: Any, target: Any, state: Path, *options: object, code: int = 0) -> Any:
    return ottla("migrate", "--to", target.bootstrap, "--state", state, *options, on=source, code=code)


def test_everything_is_copied(ottla: Any, source: Any, start_broker: Any, tmp_path: Path) -> None:
    target = start_broker(tmp_path / "target")
    plan = migrate(ottla, source, target, tmp_path / "state", "--dry-run", "--json").json
    assert {row["topic"]: row["to_copy"] for row in plan["topics"]} == {"orders": 3000, "users": 100}
    assert ottla("topics", "list", "--names", on=target).out == ""
    assert not (tmp_path / "state").exists()
    done = migrate(ottla, source, target, tmp_path / "state")
    assert "orders" in done.out
    assert "offsets of 1 group: readers" in done.out
    check_copy(ottla, source, target)
    # Run again after more was written: only what is new is copied.
    write(ottla, source, "users", 50, tmp_path / "in", first=5000)
    plan = migrate(ottla, source, target, tmp_path / "state", "--dry-run", "--json").json
    assert {row["topic"]: row["to_copy"] for row in plan["topics"]} == {"orders": 0, "users": 50}
    result = migrate(ottla, source, target, tmp_path / "state", "--json").json
    assert {row["topic"]: row["records"] for row in result["topics"]} == {"orders": 3000, "users": 150}
    check_copy(ottla, source, target)


def test_large_batches_keep_their_compressed_bytes(ottla: Any, start_broker: Any, tmp_path: Path) -> None:
    source, target = start_broker(tmp_path / "source"), start_broker(tmp_path / "target")
    ottla("topics", "create", "big", on=source)
    path = tmp_path / "in"
    path.write_text("".join(f"{random.Random(n).randbytes(2000).hex()}\n" for n in range(200)))
    ottla("produce", "big", "-i", path, "-z", "zstd", on=source)
    migrate(ottla, source, target, tmp_path / "state")
    source.stop()
    target.stop()

    def payloads(folder: Path) -> list[tuple[Any, ...]]:
        from ottla.records.batch import batches

        data = (folder / "big-0" / f"{0:020d}.log").read_bytes()
        return [(b.codec, b.base_offset, b.record_count, bytes(b.payload())) for b in batches(data)]

    assert payloads(tmp_path / "source") == payloads(tmp_path / "target")
    assert {codec for codec, *_ in payloads(tmp_path / "target")} == {4}


def test_gaps_shift_the_offsets_of_groups(ottla: Any, start_broker: Any, tmp_path: Path) -> None:
    source, target = start_broker(tmp_path / "source"), start_broker(tmp_path / "target")
    ottla("topics", "create", "t", on=source)
    for n in range(6):
        ottla("produce", "t", *(word for m in range(5) for word in ("-v", f"{n * 5 + m}")), on=source)
    ottla("topics", "alter", "t", "--delete-records-before", "0:12", on=source)
    ottla("consume", "t", "-n", 6, "-g", "g", "-f", "raw", on=source)
    migrate(ottla, source, target, tmp_path / "state")
    assert ottla("consume", "t", "-f", "raw", on=target).out.split() == [str(n) for n in range(12, 30)]
    assert ottla("consume", "t", "-g", "g", "-f", "raw", on=target).out.split() == [str(n) for n in range(18, 30)]


def test_a_streams_group_continues_on_the_target(
    ottla: Any, start_broker: Any, tmp_path: Path, streams_beat: Callable[..., Any]
) -> None:
    source, target = start_broker(tmp_path / "source"), start_broker(tmp_path / "target")
    ottla("topics", "create", "t", on=source)
    ottla("produce", "t", "-v", "a", "-v", "b", "-v", "c", on=source)
    for epoch in (0, -1):
        streams_beat(source, "app", "t", epoch)
    ottla("groups", "reset-offsets", "app", "--topic", "t", "--to-latest", "--execute", on=source)
    migrate(ottla, source, target, tmp_path / "state")
    assert streams_beat(target, "app", "t", 0).error_code == 0
    (described,) = ottla("groups", "describe", "app", "--json", on=target).json
    assert described["type"] == "streams"
    assert [(row["topic"], row["offset"]) for row in described["offsets"]] == [("t", 3)]


def interrupted_until_done(source: Any, target: Any, state: Path, chance: random.Random, how: int) -> int:
    """Starts it repeatedly, and ends it after a random time. Returns how many runs it took."""
    command = [sys.executable, "-m", "ottla.cli.main", "migrate", "--to", target.bootstrap, "--state", str(state)]
    for attempt in range(1, 80):
        process = subprocess.Popen(
            command,
            env={**os.environ, "OTTLA_BOOTSTRAP": source.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            # From less than the start time of Python, in small steps: some interruptions happen during the copy on a
            # fast machine, and it still finishes on a slow one.
            process.wait(0.04 * 1.1**attempt * (0.7 + 0.6 * chance.random()))
        except subprocess.TimeoutExpired:
            process.send_signal(how)
        out, err = process.communicate(timeout=120)
        if process.returncode == 0:
            return attempt
        if b"<frozen importlib" in err or b"Fatal Python error" in err:
            continue  # Python itself was interrupted, while it started
        assert process.returncode in (-how, 130), (out + err).decode()
        if process.returncode == 130 and err:
            assert b"run the same command again" in err, err.decode()
    raise AssertionError("it never came to its end")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_migration_continues(
    ottla: Any, source: Any, start_broker: Any, tmp_path: Path, how: int
) -> None:
    target = start_broker(tmp_path / "target")
    write(ottla, source, "orders", 20_000, tmp_path / "in")
    tries = interrupted_until_done(source, target, tmp_path / "state", random.Random(1), how)
    assert tries > 1
    check_copy(ottla, source, target)


@pytest.mark.parametrize("lost", [1, 2, 5, 20])
def test_records_missing_from_the_state_file_are_found_at_the_target(
    ottla: Any, source: Any, start_broker: Any, tmp_path: Path, lost: int
) -> None:
    """The state is written occasionally; records copied since then must not be copied again."""
    target = start_broker(tmp_path / "target")
    state = tmp_path / "state"
    migrate(ottla, source, target, state)
    content_of_state = json.loads(state.read_text())
    for entry in content_of_state["partitions"]:
        entry["next_offset"] = max(entry["next_offset"] - lost * 17, 0)
        entry["target_next"] = max(entry["target_next"] - lost * 17, 0)
    state.write_text(json.dumps(content_of_state))
    write(ottla, source, "orders", 500, tmp_path / "in", first=9000)
    migrate(ottla, source, target, state)
    check_copy(ottla, source, target)


def test_a_migration_follows_until_it_is_interrupted(
    ottla: Any, source: Any, start_broker: Any, tmp_path: Path, eventually: Any
) -> None:
    target = start_broker(tmp_path / "target")
    command = [sys.executable, "-m", "ottla.cli.main", "migrate", "--follow", "--to", target.bootstrap]
    process = subprocess.Popen(
        [*command, "--state", str(tmp_path / "state")],
        env={**os.environ, "OTTLA_BOOTSTRAP": source.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: "orders" in ottla("topics", "list", "--names", on=target).out, "the topics")
        write(ottla, source, "orders", 200, tmp_path / "in", first=9000)

        def arrived() -> bool:
            rows = ottla("topics", "list", "--sizes", "--json", on=target).json
            return {row["name"]: row["records"] for row in rows} == {"orders": 3200, "users": 100}

        eventually(arrived, "what was written meanwhile")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
        check_copy(ottla, source, target)
    finally:
        process.kill()
        process.wait()


def test_impossible_migrations_are_refused(ottla: Any, source: Any, start_broker: Any, tmp_path: Path) -> None:
    target = start_broker(tmp_path / "target")
    state = tmp_path / "state"
    assert "same cluster" in migrate(ottla, source, source, state, code=1).err
    ottla("topics", "create", "orders", on=target)
    assert "ottla topics alter orders -p 2" in migrate(ottla, source, target, state, code=1).err
    ottla("topics", "alter", "orders", "-p", 2, on=target)
    ottla("produce", "orders", "-v", "x", on=target)
    assert "did not write" in migrate(ottla, source, target, state, code=1).err
    ottla("topics", "delete", "orders", on=target)
    migrate(ottla, source, target, state)
    ottla("topics", "delete", "orders", on=target)
    assert "no longer exists on the target" in migrate(ottla, source, target, state, code=1).err
    assert "no topics to copy" in migrate(ottla, source, target, state, "--exclude", "*", code=1).err
    assert "another migration" in migrate(ottla, target, source, state, code=1).err
    state.write_text("{}")
    assert "cannot be read" in migrate(ottla, source, target, state, code=1).err


# --- into Apache Kafka -----------------------------------------------------------------------------------------------


@pytest.mark.jvm
@pytest.mark.slow
def test_into_apache_kafka(ottla: Any, source: Any, kafka: Any, tmp_path: Path) -> None:
    write(ottla, source, "orders", 20_000, tmp_path / "in", codec="gzip", first=5000)
    interrupted_until_done(source, kafka, tmp_path / "state", random.Random(2), signal.SIGKILL)
    wait_until_same(lambda: check_copy(ottla, source, kafka))
    write(ottla, source, "users", 70, tmp_path / "in", first=200)
    migrate(ottla, source, kafka, tmp_path / "state")
    wait_until_same(lambda: check_copy(ottla, source, kafka))
    ottla("topics", "describe", on=kafka)
    ottla("groups", "list", "--lag", on=kafka)


@pytest.mark.jvm
@pytest.mark.slow
def test_out_of_apache_kafka_with_gaps(
    ottla: Any, kafka: Any, start_broker: Any, tmp_path: Path, eventually: Any
) -> None:
    """Transactions, including aborted ones, and a compacted topic: groups continue at the right record of those that
    remain."""
    from confluent_kafka import Producer

    compact = "cleanup.policy=compact min.cleanable.dirty.ratio=0.01 max.compaction.lag.ms=1 segment.bytes=1048576"
    settings = [word for pair in compact.split() for word in ("-c", pair)]
    ottla("topics", "create", "moves", on=kafka)
    ottla("topics", "create", "latest", *settings, on=kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "mover", "linger.ms": 5})
    producer.init_transactions()
    for n in range(12):
        producer.begin_transaction()
        for m in range(10):
            producer.produce("moves", value=f"{n}-{m}")
        producer.flush()
        (producer.abort_transaction if n % 3 == 0 else producer.commit_transaction)()
    lines = tmp_path / "in"
    with lines.open("w") as file:
        for n in range(30_000):
            file.write(f"k{n if n % 10 == 0 else n % 7}\t{n:0100d}\n")
    ottla("produce", "latest", "-s", "\\t", "-i", lines, on=kafka)
    eventually(lambda: ottla("consume", "latest", "-f", "raw", on=kafka).out.count("\n") < 15_000, "compaction", 120)
    offsets = [line["offset"] for line in ottla("consume", "latest", "--json", on=kafka).lines]
    assert len(offsets) < offsets[-1]

    target = start_broker(tmp_path / "target")
    for number, at in enumerate((0, 1, 17, 55, 9_999, 20_001, 29_999)):
        ottla("groups", "reset-offsets", f"g{number}", "--topic", "latest", "--to-offset", at, "--execute", on=kafka)
    for number, at in enumerate((0, 11, 12, 35, 100, 131)):
        ottla("groups", "reset-offsets", f"g{number}", "--topic", "moves", "--to-offset", at, "--execute", on=kafka)
    ottla("migrate", "moves", "latest", "--to", target.bootstrap, "--state", tmp_path / "state", on=kafka)

    def rest(broker: Any, topic: str, group: str) -> list[tuple[Any, ...]]:
        place = ottla("groups", "describe", group, "--json", on=broker).json[0]["offsets"]
        start = next(row["offset"] for row in place if row["topic"] == topic)
        found = ottla("consume", topic, "--json", "--from", start, on=broker).lines
        return [(line["key"], line["value"], line["timestamp"]) for line in found]

    for number in range(6):
        assert rest(target, "moves", f"g{number}") == rest(kafka, "moves", f"g{number}")
    for number in range(7):
        assert rest(target, "latest", f"g{number}") == rest(kafka, "latest", f"g{number}")


@pytest.mark.jvm
@pytest.mark.slow
def test_the_folder_of_apache_kafka_is_read(ottla: Any, kafka: Any) -> None:
    """After the tests above it contains transactions, compacted logs and copies. It is in use: its ends may change."""
    found = ottla("verify", kafka.data, "--live", "--deep", "--json", code=None).json["findings"]
    assert [f for f in found if f["severity"] == "error"] == []
    internal = [path for path in kafka.data.iterdir() if path.name.startswith("__")]
    dumped = ottla("dump-log", *internal, "--records", "--json")
    assert '"note"' not in dumped.out, "every record of an internal topic is decoded"


def wait_until_same(check: Callable[[], None], timeout_s: float = 20) -> None:
    """Waits: settings become visible a moment after Apache Kafka has acknowledged them."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
