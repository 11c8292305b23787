"""Kafka's tools read Ottla's files, and Ottla reads a folder that Kafka wrote."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clock import ManualClock
from ottla.enums import OffsetTimestamp
from ottla.log.files import PosixDisk
from ottla.log.loader import open_log
from ottla.log.manager import LogManager
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker
from support.kafka import Kafka

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

START_MS = 1_700_000_000_000
ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, timeout: float = 300) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def jars() -> str:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs java and mvn")
    return run(str(ROOT / "scripts" / "kafka-jars")).strip().splitlines()[-1]


def dump(jars: str, files: list[Path], *options: str) -> str:
    names = ",".join(map(str, files))
    return run("java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)


def write_folder(path: Path) -> int:
    """Three segments with every codec, idempotent and transactional producers, markers, three leader epochs."""
    disk = PosixDisk(path)
    disk.mkdir("")
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=500)
    log = open_log(disk, "t", 0, config, ManualClock(START_MS))
    for n in range(600):
        transactional = n % 3 == 1
        records = [Record(i, START_MS + n * 10 + i, b"k%d" % i, b"v" * 100) for i in range(2)]
        made = build_batch(records, 0, n % 5, n % 3, 0, n // 3 * 2, transactional=transactional)
        log.append([Batch(made)], leader_epoch=n // 200)
        if transactional and n % 10 == 1:
            marker = end_transaction_marker(
                n % 20 == 1, 0, producer_id=1, producer_epoch=0, timestamp_ms=START_MS + n * 10
            )
            log.append([Batch(marker)], leader_epoch=n // 200, origin=Origin.COORDINATOR)
    log.close()
    disk.close()
    return log.log_end_offset


def test_dump_log_reads_every_kind_of_file(jars: str, tmp_path: Path) -> None:
    end = write_folder(tmp_path)
    folder = tmp_path / "t-0"
    kinds = {path.suffix for path in folder.iterdir()}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot"} <= kinds
    files = sorted(path for path in folder.iterdir() if path.suffix in kinds - {""})
    plain = dump(jars, files, "--print-data-log", "--deep-iteration")
    checked = dump(jars, files, "--index-sanity-check")
    for output in (plain, checked):
        assert not re.search(
            r"(?i)mismatch|corrupt|exception|not found|error|out of order|invalid: |isvalid: false", output
        )
    assert checked.count("passed sanity check.") == 6
    assert plain.count("isvalid: true") == 600 + 20
    assert f"| offset: {end - 1} " in plain
    assert set(re.findall(r"compresscodec: (\w+)", plain)) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert "endTxnMarker: ABORT" in plain
    assert "producerId: 2 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in plain
    # the tool reports this for every segment that does not start at offset 0, even for Kafka's own
    assert set(re.findall(r"(-?\d+) is followed by", plain)) == {"-1"}
    assert re.search(r"version: 0 producerId: 1 firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+", plain)


@pytest.fixture(scope="module")
def kafka_folders(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Path]]:
    """{clean: folder}: the folder after SIGTERM, and the folder that a machine crash before it would leave."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    base = tmp_path_factory.mktemp("kafka")
    kafka = Kafka(base)
    try:
        where = {"bootstrap.servers": kafka.bootstrap}
        # The records are from long ago: half a minute after its start Kafka would start to remove them.
        kept = {"segment.bytes": "1048576", "retention.ms": "-1"}
        topics = [NewTopic("plain", 1, 1, config=kept), NewTopic("tx", 1, 1)]
        admin = AdminClient(where)
        for future in admin.create_topics(topics).values():
            future.result(60)
        quiet = {**where, "linger.ms": 0, "log_level": 2}
        producer = Producer({**quiet, "enable.idempotence": True, "batch.num.messages": 50})
        for n in range(15_000):
            producer.produce("plain", key=str(n), value="v" * 100, timestamp=START_MS + n)
            if n % 1000 == 999:
                producer.flush()
        transactions = Producer({**quiet, "transactional.id": "one"})
        transactions.init_transactions()
        for n in range(4):
            transactions.begin_transaction()
            for i in range(5):
                transactions.produce("tx", value=f"{n}-{i}")
            transactions.flush()
            if n % 2:
                transactions.abort_transaction()
            else:
                transactions.commit_transaction()
        shutil.copytree(base / "logs", base / "unclean")
        kafka.stop()
        yield {True: base / "logs", False: base / "unclean"}
    finally:
        kafka.kill()


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_that_kafka_wrote_is_read(kafka_folders: dict[bool, Path], tmp_path: Path, clean: bool) -> None:
    shutil.copytree(kafka_folders[clean], tmp_path / "data")
    disk = PosixDisk(tmp_path / "data")
    manager = LogManager(disk, lambda _: LogConfig(), ManualClock(START_MS), new_token=lambda: "0" * 32)
    meta = manager.open("unused", 1, "unused")
    assert meta.cluster_id != "unused"
    assert manager.clean_start is clean
    assert (manager.previous_broker_epoch >= 0) is clean
    manager.load_all()
    plain = manager.get("plain", 0)
    assert plain is not None
    assert plain.topic_id is not None
    assert (plain.log_start_offset, plain.log_end_offset) == (0, 15_000)
    assert len(plain.segments) > 1
    assert [r.offset for batch in plain.batches(0) for r in batch.records()] == list(range(15_000))
    for n in (0, 1, 7_500, 14_999):
        found = plain.offset_for_timestamp(START_MS + n)
        assert found is not None
        assert (found.offset, found.timestamp) == (n, START_MS + n)
        first = Batch(plain.read(n, 1).records.read())
        assert first.base_offset <= n <= first.last_offset
    newest = plain.offset_for_timestamp(OffsetTimestamp.MAX_TIMESTAMP)
    assert newest is not None
    assert newest.offset == 14_999
    (state,) = plain.producers.producers.values()
    assert state.last_sequence == 14_999
    transactions = manager.get("tx", 0)
    assert transactions is not None
    aborted = transactions.aborted_transactions(0, 100)
    assert [(t.first_offset, t.last_offset) for t in aborted] == [(6, 11), (18, 23)]
    transactions.update_high_watermark(24)
    assert transactions.last_stable_offset == 24
    metadata = manager.get("__cluster_metadata", 0)
    assert metadata is not None
    assert sum(batch.record_count for batch in metadata.batches(0)) > 10
    manager.close()


def test_dump_log_reads_what_we_appended_to_kafkas_folder(
    jars: str, kafka_folders: dict[bool, Path], tmp_path: Path
) -> None:
    shutil.copytree(kafka_folders[True], tmp_path / "data")
    disk = PosixDisk(tmp_path / "data")
    manager = LogManager(disk, lambda _: LogConfig(), ManualClock(START_MS), new_token=lambda: "0" * 32)
    manager.open("unused", 1, "unused")
    log = manager.get("plain", 0)
    assert log is not None
    for n in range(200):
        records = [Record(0, START_MS + 20_000 + n, b"ours", b"v" * 100)]
        log.append([Batch(build_batch(records))], leader_epoch=1)
    log.update_high_watermark(log.log_end_offset)
    manager.close()
    files = sorted(p for p in (tmp_path / "data" / "plain-0").iterdir() if p.suffix in {".log", ".index", ".timeindex"})
    output = dump(jars, files, "--print-data-log")
    assert not re.search(r"(?i)mismatch|corrupt|exception|not found|error|isvalid: false", output)
    assert "| offset: 15199 " in output
