"""Apache Kafka and Ottla compact the same log: the same batches remain, and they are identical except for clock
times."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.log import checkpoints
from ottla.log.cleaner import LogCleaner
from ottla.log.files import PosixDisk
from ottla.log.manager import LogManager
from ottla.log.options import LogConfig
from ottla.records.batch import Batch, batches
from support.kafka import Kafka
from support.waiting import wait_for

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "t"
AHEAD_MS = 20 * 60_000
CONFIG = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Oracle:
    """An Apache Kafka whose topic is compacted when the test says so. Until then its policy keeps everything."""

    def __init__(self, base: Path) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.base = base
        self.kafka = Kafka(base, "log.cleaner.backoff.ms=100")
        self.where = {"bootstrap.servers": self.kafka.bootstrap, "log_level": 2}
        self.admin = AdminClient(self.where)
        config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "segment.ms": "1000",
            "delete.retention.ms": "0",
            "min.cleanable.dirty.ratio": "0.0",
            "file.delete.delay.ms": "0",
        }
        self.admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
        # Kafka starts a segment when a batch is more than `segment.ms` later than the segment's first one. Markers have
        # the time of the clock. If records were older than that, a segment that begins with a marker would never end,
        # and the cleaner would find nothing to do. So records are ahead of the clock (an hour is allowed), and only
        # `roll` moves them.
        self.now_ms = SystemClock().now_ms() + AHEAD_MS

    def set_policy(self, policy: str) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def produce(self, producer: Any, *pairs: tuple[str, str | None]) -> None:
        for key, value in pairs:
            producer.produce(TOPIC, key=key, value=value, timestamp=self.now_ms)
        assert producer.flush(60) == 0

    def roll(self) -> None:
        self.now_ms += 10_000

    def cleaned_to(self) -> int:
        path = self.base / "logs" / "cleaner-offset-checkpoint"
        with suppress(FileNotFoundError):
            for line in path.read_text().splitlines()[2:]:
                topic, _, offset = line.split()
                if topic == TOPIC:
                    return int(offset)
        return -1

    def end_offset(self, isolation: Any) -> int:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place = TopicPartition(TOPIC, 0)
        found = self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)[place].result(60)
        return int(found.offset)

    def is_settled(self) -> bool:
        """Whether every transaction has its marker: Kafka writes it after it has answered."""
        from confluent_kafka import IsolationLevel

        return self.end_offset(IsolationLevel.READ_COMMITTED) == self.end_offset(IsolationLevel.READ_UNCOMMITTED)

    def compact(self, to: Path) -> int:
        """Keep a copy of the log, let Kafka compact it, and return how far it got."""
        before = self.cleaned_to()
        wait_for(self.is_settled, "the end of the transactions", 300)
        shutil.copytree(self.base / "logs" / f"{TOPIC}-0", to / f"{TOPIC}-0")
        self.set_policy("compact")
        wait_for(lambda: self.cleaned_to() > before, "the compaction", 300)
        self.set_policy("delete")
        return self.cleaned_to()

    def left(self, up_to: int) -> list[Batch]:
        return read_folder(self.base / "logs" / f"{TOPIC}-0", up_to)

    def stop(self) -> None:
        self.kafka.kill()


def read_folder(folder: Path, up_to: int) -> list[Batch]:
    found = []
    for path in sorted(folder.glob("*.log")):
        found += [batch for batch in batches(path.read_bytes()) if batch.base_offset < up_to]
    return found


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[Oracle]:
    started = Oracle(tmp_path / "kafka")
    yield started
    started.stop()


def compact_ourselves(data: Path, clean_to: int) -> list[Batch]:
    disk = PosixDisk(data)
    checkpoints.MetaProperties("cluster", 1, "A" * 22).write(disk)
    if clean_to > 0:
        checkpoints.write_offsets(disk, "cleaner-offset-checkpoint", {(TOPIC, 0): clean_to})
    manager = LogManager(disk, lambda topic: CONFIG, SystemClock(), new_token=lambda: "0" * 32)
    manager.open("cluster", 1, "A" * 22)
    manager.load_all()
    cleaner = LogCleaner(manager)
    log = manager.get(TOPIC, 0)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    assert cleaner.run_until_clean() == 1
    assert not cleaner.uncleanable
    end = cleaner.clean_offsets[TOPIC, 0]
    manager.close()
    return read_folder(data / f"{TOPIC}-0", end)


def summary(batch: Batch) -> tuple[object, ...]:
    records = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch.records()]
    header = (batch.base_offset, batch.last_offset, batch.attributes, batch.max_timestamp, batch.leader_epoch)
    producer = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    # A delete horizon is the time of the cleaning; a compressed payload depends on the library.
    exact = bytes(batch.view()) if not batch.has_delete_horizon and not batch.codec else b""
    return (*header, *producer, tuple(records), exact)


def write_everything(oracle: Oracle, round_number: int) -> None:
    """Overwritten keys within and across batches, tombstones, codecs, committed and aborted transactions, sequences."""
    from confluent_kafka import Producer

    quiet = {**oracle.where, "linger.ms": 50}
    plain = Producer({**quiet, "enable.idempotence": False})
    numbered = Producer({**quiet, "enable.idempotence": True})
    for n in range(12):
        oracle.produce(plain, *[(f"k{n * i % 5}", f"{round_number}-{n}-{i}") for i in range(6)])
        oracle.produce(numbered, (f"k{n % 7}", f"{round_number}-{n}"), ("x", None if n % 3 else "x"))
        if n % 4 == 3:
            oracle.roll()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        packed = Producer({**quiet, "compression.type": codec})
        oracle.produce(packed, *[(f"{codec}-{i % 3}", "v" * 100 * i) for i in range(7)])
        oracle.produce(packed, (f"{codec}-1", None))
    oracle.roll()
    with_end = Producer({**quiet, "transactional.id": f"ends-{round_number}"})
    with_end.init_transactions()
    for n in range(6):
        with_end.begin_transaction()
        oracle.produce(with_end, (f"t{n % 2}", f"{round_number}-{n}"), (f"k{n % 5}", f"in transaction {n}"))
        with_end.abort_transaction() if n % 3 == 0 else with_end.commit_transaction()
        if n % 2:
            oracle.roll()
        oracle.produce(plain, (f"t{n % 2}", None if n == 2 else "after"))
    oracle.roll()
    oracle.produce(plain, (f"closing-{round_number}", "1"))
    oracle.roll()
    oracle.produce(plain, (f"active-{round_number}", "1"))


def test_kafka_and_ottla_compact_to_the_same_records(oracle: Oracle, tmp_path: Path) -> None:
    clean_to = 0
    for number in range(3):
        write_everything(oracle, number)
        data = tmp_path / f"ours-{number}"
        data.mkdir()
        end = oracle.compact(data)
        ours = compact_ourselves(data, clean_to)
        theirs = oracle.left(end)
        assert ours[-1].last_offset < end
        assert [(b.base_offset, b.record_count) for b in ours] == [(b.base_offset, b.record_count) for b in theirs]
        for our_batch, their_batch in zip(ours, theirs, strict=True):
            assert summary(our_batch) == summary(their_batch)
        if number:
            assert any(batch.has_delete_horizon for batch in theirs)
            assert any(not batch.record_count for batch in theirs)
        clean_to = end
    jars = run(str(ROOT / "scripts" / "kafka-jars")).strip().splitlines()[-1]
    files = [p for p in (data / f"{TOPIC}-0").iterdir() if p.suffix in {".log", ".index", ".timeindex", ".txnindex"}]
    tool = ("java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments", "--files")
    output = run(*tool, ",".join(map(str, sorted(files))), "--print-data-log", "--deep-iteration")
    assert not re.search(r"(?i)mismatch|corrupt|exception|not found|error|isvalid: false", output)
    assert f"| offset: {ours[-1].last_offset} " in output
