"""`ottla verify` and `ottla dump-log`: an intact folder has no findings, and every kind of damage has one."""

import errno
import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.log.files import PosixDisk
from ottla.log.loader import open_log
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, batches, build_batch, end_transaction_marker

START_MS = 1_700_000_000_000


def write_partition(root: Path, topic: str = "t") -> Path:
    """Segments with every codec, three producers, one of them transactional, aborts, and three leader epochs."""
    disk = PosixDisk(root)
    disk.mkdir("")
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    log = open_log(disk, topic, 0, config, ManualClock(START_MS))
    for n in range(300):
        transactional = n % 3 == 1
        records = [Record(i, START_MS + n * 10 + i, b"k%d" % i, b"v" * 100) for i in range(2)]
        made = build_batch(records, 0, n % 5, n % 3, 0, n // 3 * 2, transactional=transactional)
        log.append([Batch(made)], leader_epoch=n // 100)
        if transactional and n % 10 == 1:
            marker = end_transaction_marker(
                n % 20 == 1, 0, producer_id=1, producer_epoch=0, timestamp_ms=START_MS + n * 10
            )
            log.append([Batch(marker)], leader_epoch=n // 100, origin=Origin.COORDINATOR)
    log.close()
    disk.close()
    return root / f"{topic}-0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partition(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def partition(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data" / "t-0"))


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def edit(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def findings(ottla: Any, folder: Path, *options: str) -> list[tuple[str, str, str]]:
    done = ottla("verify", folder, "--json", *options, code=None)
    found = [(f["severity"], f["path"].rpartition("/")[2], f["problem"]) for f in done.json["findings"]]
    assert done.code == (1 if found else 0)
    return found


def test_a_sound_partition(ottla: Any, sound: Path) -> None:
    assert findings(ottla, sound, "--deep") == []
    done = ottla("verify", sound)
    assert "nothing wrong" in done.err
    segments = [line for line in done.out.splitlines() if "▕" in line]
    assert len(segments) == len(logs(sound)) >= 3
    assert "█" in done.out
    assert "✗" not in done.out
    (report,) = ottla("verify", sound, "--json").json["partitions"]
    assert report["end_offset"] == 610
    assert sum(segment["aborted_transactions"] for segment in report["segments"]) == 5


def test_a_flipped_bit(ottla: Any, partition: Path) -> None:
    def flip(data: bytearray) -> None:
        data[len(data) // 2] ^= 1

    edit(logs(partition)[1], flip)
    ((severity, name, problem),) = findings(ottla, partition)
    assert (severity, name) == ("error", logs(partition)[1].name)
    assert "CRC is wrong" in problem
    done = ottla("verify", partition, code=1)
    assert "✗" in done.out
    assert "1 error" in done.err
    assert ottla("verify", partition, "--quiet", code=1).out.count("\n") == 1


def test_every_truncation_of_the_last_batch_is_a_torn_tail(ottla: Any, partition: Path) -> None:
    last = logs(partition)[-1]
    whole = last.read_bytes()
    *_, final = batches(whole)
    for path in partition.glob(f"{last.stem}.*index"):
        path.unlink()
    for cut in (1, 8, 17, 30, 61, final.size - 1):
        last.write_bytes(whole[: final.position + cut])
        torn = [found for found in findings(ottla, partition) if "torn tail" in found[2]]
        assert [(severity, name) for severity, name, _ in torn] == [("warning", last.name)], cut
        assert f"{cut} bytes at position {final.position}" in torn[0][2]
    assert "░" in ottla("verify", partition, code=1).out


def test_damage_in_the_middle_of_the_log(ottla: Any, partition: Path) -> None:
    path = logs(partition)[0]
    path.write_bytes(path.read_bytes()[:-10])
    assert ("error", path.name) in [(s, n) for s, n, problem in findings(ottla, partition) if "torn tail" in problem]


def test_zeros_at_the_end_are_reported_as_such(ottla: Any, partition: Path) -> None:
    path = logs(partition)[-1]
    path.write_bytes(path.read_bytes() + bytes(1000))
    ((severity, _, problem),) = findings(ottla, partition)
    assert severity == "warning"
    assert "1000 bytes" in problem
    assert "zeros" in problem


def test_offsets_that_go_back(ottla: Any, partition: Path) -> None:
    def move_back(data: bytearray) -> None:
        second = list(batches(bytes(data)))[1]
        struct.pack_into(">q", data, second.position, 0)  # base offset: outside of the CRC

    edit(logs(partition)[0], move_back)
    assert any("offsets go back" in problem for _, _, problem in findings(ottla, partition))


def test_segments_that_overlap(ottla: Any, partition: Path) -> None:
    second = logs(partition)[1]
    copy = partition / f"{int(second.stem) - 1:020d}.log"
    shutil.copy(logs(partition)[0], copy)
    assert any("starts at" in problem and name == copy.name for _, name, problem in findings(ottla, partition))


def test_deep_verification_reads_records(ottla: Any, tmp_path: Path) -> None:
    folder = tmp_path / "x-0"
    folder.mkdir()
    good = build_batch([Record(0, START_MS, b"k", b"v"), Record(1, START_MS, b"k", b"v")])
    fields = good[61:]
    fields[2 + 1] = 0x08  # the first record's offset delta
    from ottla.records.batch import pack_batch

    bad = pack_batch(
        fields,
        2,
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=START_MS,
        max_timestamp=START_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    (folder / f"{0:020d}.log").write_bytes(bad)
    for index in ("index", "timeindex"):
        (folder / f"{0:020d}.{index}").write_bytes(b"")
    assert findings(ottla, folder) == []
    assert any("a record has offset" in problem for _, _, problem in findings(ottla, folder, "--deep"))


@pytest.mark.parametrize(
    ("suffix", "offset", "value", "problem"),
    [
        ("index", 4, ">i", "leads to no batch"),
        ("index", 8, ">i", "does not grow"),
        ("timeindex", 0, ">q", "the largest time up to there"),
        ("timeindex", 8, ">i", "outside the segment"),
    ],
)
def test_indexes_that_contradict_the_log(
    ottla: Any, partition: Path, suffix: str, offset: int, value: str, problem: str
) -> None:
    path = partition / f"{logs(partition)[0].stem}.{suffix}"
    replacement = {"leads to no batch": 7, "does not grow": 0, "the largest time up to there": START_MS - 5}.get(
        problem
    )
    edit(path, lambda data: struct.pack_into(value, data, offset, 1 << 30 if replacement is None else replacement))
    found = findings(ottla, partition)
    assert any(name == path.name and problem in text for _, name, text in found), found


def test_ragged_and_missing_indexes(ottla: Any, partition: Path) -> None:
    stem = logs(partition)[0].stem
    index, times = partition / f"{stem}.index", partition / f"{stem}.timeindex"
    times.write_bytes(times.read_bytes() + b"\x01")
    index.unlink()
    orphan = partition / f"{99999:020d}.index"
    orphan.write_bytes(b"")
    found = {name: problem for _, name, problem in findings(ottla, partition)}
    assert "is missing" in found[index.name]
    assert "extra bytes at its end" in found[times.name]
    assert "without a log" in found[orphan.name]


def test_preallocated_indexes_are_fine(ottla: Any, partition: Path) -> None:
    for path in (*partition.glob("*.index"), *partition.glob("*.timeindex")):
        path.write_bytes(path.read_bytes() + bytes(24_000))
    assert findings(ottla, partition) == []


def test_an_aborted_transaction_that_would_be_visible(ottla: Any, partition: Path) -> None:
    path = next(iter(sorted(partition.glob("*.txnindex"))))
    path.write_bytes(b"")
    found = findings(ottla, partition)
    assert found
    assert all(severity == "error" and "is missing" in problem for severity, _, problem in found)
    path.write_bytes(struct.pack(">hqqqq", 0, 1, 9, 5, 0))
    assert any("impossible entry" in problem for _, _, problem in findings(ottla, partition))


def test_producer_snapshots(ottla: Any, partition: Path) -> None:
    snapshots = sorted(partition.glob("*.snapshot"))
    edit(snapshots[0], lambda data: data.__setitem__(-1, data[-1] ^ 1))
    ((severity, name, problem),) = findings(ottla, partition)
    assert (severity, name) == ("warning", snapshots[0].name)
    assert "checksum" in problem
    # A valid snapshot of another moment, which contradicts the log.
    shutil.copy(snapshots[-1], snapshots[0])
    assert any("which comes later" in problem for _, _, problem in findings(ottla, partition))
    shutil.copy(snapshots[1], snapshots[-1])
    found = findings(ottla, partition)
    assert any(name == snapshots[-1].name and "the log says" in problem for _, name, problem in found)


def test_leader_epochs(ottla: Any, partition: Path) -> None:
    path = partition / "leader-epoch-checkpoint"
    original = path.read_text()
    for text, expected in (
        ("0\n1\n0 0\n", "was written under epoch"),
        ("0\n3\n0 0\n2 50\n1 90\n", "do not grow"),
        ("0\n5\n0 0\n", "cannot be read"),
        ("rubbish", "cannot be read"),
        (original.replace("\n3\n", "\n4\n") + "9 99999\n", "beyond the log's end"),
    ):
        path.write_text(text)
        found = findings(ottla, partition)
        assert any(expected in problem for _, _, problem in found), (text, found)


def test_a_log_start_that_moved_is_fine(ottla: Any, partition: Path) -> None:
    """DeleteRecords cuts the checkpoint at an offset in the middle of a segment."""
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n1 250\n2 406\n")
    assert findings(ottla, partition) == []


@pytest.mark.parametrize(("suffix", "expected"), [(".cleaned", "compaction was interrupted"), (".swap", "replaces")])
def test_leftovers(ottla: Any, partition: Path, suffix: str, expected: str) -> None:
    (partition / f"{logs(partition)[0].name}{suffix}").write_bytes(b"x")
    ((severity, _, problem),) = findings(ottla, partition)
    assert severity == "warning"
    assert expected in problem


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_files_that_are_not_part_of_the_log_are_ignored(ottla: Any, partition: Path, suffix: str) -> None:
    (partition / f"notes.{suffix}").write_bytes(b"x")
    (partition / f"7.{suffix}").write_bytes(b"x")
    assert findings(ottla, partition) == []


def test_files_that_wait_for_deletion_are_not_a_finding(ottla: Any, partition: Path) -> None:
    """Retention and deleted topics leave such files for a minute, or until the next start after a stop."""
    (partition / f"{logs(partition)[0].name}.deleted").write_bytes(b"x")
    shutil.copytree(partition, partition.parent / f"gone-0.{'a' * 32}-delete")
    (partition.parent / "meta.properties").write_text(
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    done = ottla("verify", partition.parent)
    assert "nothing wrong" in done.err
    assert "note: t-0/00000000000000000000.log.deleted: waits to be deleted" in done.out
    assert "-delete: waits to be deleted" in done.out


def test_snapshots_know_batches_that_compaction_removed(ottla: Any, partition: Path) -> None:
    """One is at the end of a segment, another in the middle of the gap."""
    second, third = logs(partition)[1:3]
    shutil.copy(partition / f"{second.stem}.snapshot", partition / f"{int(second.stem) + 1:020d}.snapshot")
    for kind in ("log", "index", "timeindex", "txnindex"):
        (partition / f"{second.stem}.{kind}").unlink()
    assert (partition / f"{third.stem}.snapshot").exists()
    assert not [name for _, name, _ in findings(ottla, partition) if name.endswith(".snapshot")]
    shutil.copy(partition / f"{third.stem}.snapshot", partition / f"{10**9:020d}.snapshot")
    ((severity, problem),) = [(s, p) for s, name, p in findings(ottla, partition) if name.endswith(".snapshot")]
    assert severity == "warning" and "beyond the log's end" in problem


# --- whole folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(start_broker: Any, ottla: Any, tmp_path: Path) -> Path:
    """A data folder that a broker wrote and closed."""
    broker = start_broker(tmp_path / "data")
    ottla("topics", "create", "orders", "-p", 2, "-c", "segment.bytes=1048576", on=broker)
    ottla("produce", "orders", *(word for n in range(50) for word in ("-v", f"value {n}")), "-z", "zstd", on=broker)
    ottla("produce", "orders", "-k", "key", "-v", "x", on=broker)
    ottla("consume", "orders", "-g", "readers", "-f", "raw", on=broker)
    assert "a broker uses" in ottla("verify", tmp_path / "data", code=1).err
    ottla("verify", tmp_path / "data", "--live", code=None)
    broker.stop()
    return tmp_path / "data"


def test_a_folder_that_may_only_be_read(ottla: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = io.open

    def only_to_read(path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        if set(mode) & set("wax+"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really_open(path, mode, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(io, "open", only_to_read)
        ottla("verify", folder)


def test_a_folder_after_a_clean_stop_has_no_findings(ottla: Any, folder: Path) -> None:
    done = ottla("verify", folder, "--deep")
    assert "nothing wrong" in done.err
    assert "not closed cleanly" not in done.err
    assert "orders-0" in done.out
    assert "empty: __consumer_offsets (49)" in done.out
    (folder / ".kafka_cleanshutdown").unlink()
    assert "not closed cleanly" in ottla("verify", folder).err


def test_checkpoints_of_the_folder_are_compared_with_its_partitions(ottla: Any, folder: Path) -> None:
    checkpoint = folder / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 99999\n")
    start = folder / "log-start-offset-checkpoint"
    start.write_text("0\n2\norders 0 99999\n")
    (folder / "orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (folder / "replication-offset-checkpoint").write_text("nonsense")
    (folder / f"gone-0.{'a' * 32}-delete").mkdir()
    (folder / "meta.properties").write_text("version=7\n")
    found = {name: (severity, problem) for severity, name, problem in findings(ottla, folder)}
    assert found[checkpoint.name][0] == "warning"
    assert found["orders"] == ("error", found["orders"][1])
    assert "different topics" in found["orders"][1]
    assert "unknown version" in found["replication-offset-checkpoint"][1]
    assert "waits to be deleted" in found[f"gone-0.{'a' * 32}-delete"][1]
    assert found["meta.properties"][0] == "error"
    assert any(
        name == start.name and severity == "error" and "ends at" in problem
        for severity, name, problem in findings(ottla, folder)
    )


def test_other_folders_are_refused(ottla: Any, tmp_path: Path) -> None:
    assert "neither a data folder" in ottla("verify", tmp_path, code=1).err
    assert "is not a folder" in ottla("verify", tmp_path / "nope", code=1).err


# --- dump-log --------------------------------------------------------------------------------------------------------


def entries(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_dump_of_every_kind_of_file(ottla: Any, sound: Path) -> None:
    found = entries(ottla("dump-log", sound, "--records", "--json"))
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for entry in found:
        by_kind.setdefault(f"{entry['kind']}{Path(entry['file']).suffix}", []).append(entry)
    assert len(by_kind["batch.log"]) == 310
    assert {entry["codec"] for entry in by_kind["batch.log"]} == {"none", "gzip", "snappy", "lz4", "zstd"}
    records = by_kind["record.log"]
    assert [record["offset"] for record in records] == list(range(610))
    assert [record["control"] for record in records if "control" in record].count("abort") == 5
    assert {entry["producer_id"] for entry in by_kind["aborted.txnindex"]} == {1}
    assert {entry["producer_id"] for entry in by_kind["producer.snapshot"]} == {0, 1, 2}
    assert by_kind["entry.index"][0].keys() == {"file", "kind", "offset", "position"}
    assert by_kind["entry.timeindex"][0]["timestamp"] >= START_MS
    epochs = [e for e in found if e["file"].endswith("leader-epoch-checkpoint")]
    assert [entry["epoch"] for entry in epochs] == [0, 1, 2]


def test_dump_in_words(ottla: Any, sound: Path) -> None:
    text = ottla("dump-log", logs(sound)[0], "--records", "--offsets", "4:5", "--max-bytes", "3").out
    assert text.splitlines()[0] == str(logs(sound)[0])
    assert "batch base_offset=" in text
    assert "key='k0' value='vvv'…(100 bytes)" in text
    assert text.count("batch base_offset") == 2


def test_dump_says_what_is_damaged(ottla: Any, partition: Path) -> None:
    path = logs(partition)[0]
    edit(path, lambda data: data.__setitem__(100, data[100] ^ 1))
    path.write_bytes(path.read_bytes()[:-3])
    done = ottla("dump-log", path, code=1)
    assert "the CRC is wrong" in done.out
    assert "the last batch is incomplete" in done.out
    assert "does not exist" in ottla("dump-log", partition / "nope", code=1).err


def test_internal_topics_are_decoded(ottla: Any, folder: Path) -> None:
    found = entries(ottla("dump-log", folder, "--records", "--json"))
    commits = [e for e in found if e.get("type") == "OffsetCommit"]
    assert {(e["key"]["group"], e["key"]["topic"]) for e in commits} == {("readers", "orders")}
    metadata = {e["value"]["name"]: e for e in found if e.get("type") == "TopicRecord"}
    assert {"orders", "__consumer_offsets"} <= metadata.keys()
    assert not [e for e in found if "note" in e], "nothing is left undecoded"
    assert any(e["kind"] == "properties" and e["file"].endswith("meta.properties") for e in found)
    assert any(e["file"].endswith("recovery-point-offset-checkpoint") and e["topic"] == "orders" for e in found)


def test_a_missing_middle_segment(ottla: Any, partition: Path) -> None:
    gone, following = logs(partition)[1:3]
    for path in partition.glob(f"{gone.stem}.*"):
        path.unlink()
    found = [(name, problem) for severity, name, problem in findings(ottla, partition) if severity == "error"]
    first, last = int(gone.stem), int(following.stem) - 1
    name, problem = next((name, problem) for name, problem in found if "are missing" in problem)
    assert name == following.name
    assert f"offsets {first} to {last} are missing before it" in problem
    assert f"--delete-records-before 0:{last + 1}" in problem


def test_gaps_of_a_compacted_log_are_sound(ottla: Any, partition: Path) -> None:
    for path in partition.glob(f"{logs(partition)[1].stem}.*"):
        path.unlink()
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 500\n")
    assert not [problem for _, _, problem in findings(ottla, partition) if "are missing" in problem]


def test_an_index_whose_log_is_missing_after_a_clean_stop(ottla: Any, partition: Path) -> None:
    gone = logs(partition)[1]
    gone.unlink()
    (partition.parent / ".kafka_cleanshutdown").touch()
    found = {name: (severity, problem) for severity, name, problem in findings(ottla, partition)}
    severity, problem = found[f"{gone.stem}.index"]
    assert severity == "error"
    assert f"its log file, {gone.name}, is missing; restore it" in problem


@pytest.mark.parametrize("suffix", ["log", "index", "txnindex", "snapshot"])
def test_a_folder_in_the_place_of_a_file(ottla: Any, partition: Path, suffix: str) -> None:
    path = partition / f"{logs(partition)[1].stem}.{suffix}"
    path.unlink(missing_ok=True)
    path.mkdir()
    found = [
        problem for severity, name, problem in findings(ottla, partition) if (severity, name) == ("error", path.name)
    ]
    assert any("is a folder, and should be a file" in problem for problem in found)


@pytest.mark.parametrize("keep", [0, 10, 34])
def test_a_damaged_index_of_aborted_transactions(ottla: Any, partition: Path, keep: int) -> None:
    path = sorted(partition.glob("*.txnindex"))[0]
    path.write_bytes(path.read_bytes()[:keep].ljust(keep, b"?") if keep != 34 else b"\xff" * 34)
    assert path.name in [name for severity, name, _ in findings(ottla, partition) if severity == "error"]
