"""Retention and compaction in a running broker, in virtual time, in threads and in a separate process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import CorruptMessage
from ottla.log.cleaning_job import CleaningAborted, CleaningJob, Source
from ottla.log.files import PosixDisk
from ottla.log.options import LogConfig
from ottla.records.batch import Record, build_batch
from ottla.server import housekeeping as cleaning
from ottla.server.cleaner_work import ProcessWork, Throttle, WorkerEnded
from support.requests import produce_request
from support.waiting import wait_for_async

START_MS = 1_700_000_000_000
Run = Callable[[Any], Any]

COMPACT = {"cleanup_policy": "compact", "segment_ms": "1000", "min_cleanable_dirty_ratio": "0.01"}


def keyed(key: bytes, value: bytes | None, timestamp: int) -> bytearray:
    return build_batch([Record(0, timestamp, key, value)])


async def put(client: Any, topic: str, *records: bytearray) -> None:
    for one in records:
        response = await client.call(produce_request(topic, one), 9)
        assert response.responses[0].partition_responses[0].error_code == 0, response


def offsets_of(running: Any, topic: str) -> list[int]:
    log = running.broker.logs.get(topic, 0)
    return [r.offset for b in log.batches(0) for r in b.records()]


@pytest.mark.parametrize("process", [False, True])
def test_a_topic_is_compacted_while_it_is_used(
    run: Run, run_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: bool
) -> None:
    if process:
        monkeypatch.setattr(cleaning, "PROCESS_FROM_BYTES", 0)

    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(disk=PosixDisk(tmp_path), clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t", **COMPACT)
            for n in range(10):
                await put(client, "t", keyed(b"k%d" % (n % 3), b"%d" % n, START_MS + n * 600))
            before = len(running.broker.logs.get("t", 0).segments)
            assert before > 3
            clock.advance(14_999)
            await running.settle()
            assert not running.broker.housekeeper.cleaner.in_progress
            clock.advance(1)
            assert running.broker.housekeeper.cleaner.in_progress
            await put(client, "t", keyed(b"during", b"", START_MS + 6000))
            await wait_for_async(lambda: ("t", 0) in running.broker.housekeeper.cleaner.clean_offsets)
            assert not running.broker.housekeeper.cleaner.uncleanable
            found = offsets_of(running, "t")
            assert len(found) < 8
            assert found[-4:] == [7, 8, 9, 10]

    run(main())
    assert not list((tmp_path / "t-0").glob("*.cleaned")) + list((tmp_path / "t-0").glob("*.swap"))


def test_committed_offsets_are_compacted(run: Run, run_broker: Any) -> None:
    from ottla.wire.messages.offsets import OffsetCommitRequest

    async def main() -> None:
        clock = ManualClock(START_MS)
        settings = {"offsets.topic.num.partitions": 1, "offsets.topic.segment.bytes": 1_048_576}
        async with run_broker(clock=clock, settings=settings) as running:
            client = await running.connect()
            await client.create_topic("t")
            running.broker.directory.coordinator_of("__consumer_offsets", "g")
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="x"
            )
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
            for _ in range(50):
                response = await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
            assert response.topics[0].partitions[0].error_code == 0
            log = running.broker.logs.get("__consumer_offsets", 0)
            assert log.config.compact
            log.roll()
            clock.advance(15_000)
            await wait_for_async(lambda: ("__consumer_offsets", 0) in running.broker.housekeeper.cleaner.clean_offsets)
            assert len(offsets_of(running, "__consumer_offsets")) < 10

    run(main())


def test_an_idle_broker_has_no_timer_for_compaction(run: Run, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            waiting = len(running.broker.timer)
            await client.create_topic("plain")
            await client.create_topic("compact", **COMPACT)
            await put(client, "compact", keyed(b"k", b"1", START_MS))
            assert len(running.broker.timer) == waiting
            await put(client, "compact", keyed(b"k", b"2", START_MS + 2000))
            assert len(running.broker.timer) == waiting + 1
            clock.advance(15_000)
            await wait_for_async(lambda: running.broker.housekeeper.cleaner.clean_offsets)
            clock.advance(15_000)
            await running.settle()
            assert len(running.broker.timer) <= waiting + 1  # possibly the delayed removal of files
            clock.advance(60_000)
            assert len(running.broker.timer) == waiting

    run(main())


def test_the_cleaner_can_be_switched_off(run: Run, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock, settings={"log.cleaner.enable": False}) as running:
            client = await running.connect()
            await client.create_topic("t", **COMPACT)
            for n in range(3):
                await put(client, "t", keyed(b"k", b"%d" % n, START_MS + n * 2000))
            clock.advance(60_000)
            await running.settle()
            assert offsets_of(running, "t") == [0, 1, 2]

    run(main())


def test_a_changed_policy_takes_effect(run: Run, run_broker: Any) -> None:
    from ottla.wire.messages.configs import IncrementalAlterConfigsRequest

    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t", segment_ms="1000")
            for n in range(3):
                await put(client, "t", keyed(b"k", b"%d" % n, START_MS + n * 2000))
            config = IncrementalAlterConfigsRequest.AlterableConfig
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name="t",
                configs=[config(name="cleanup.policy", config_operation=AlterConfigOp.SET, value="compact")],
            )
            response = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert response.responses[0].error_code == 0
            clock.advance(15_000)
            await wait_for_async(lambda: offsets_of(running, "t") == [1, 2])

    run(main())


def test_a_stop_ends_the_cleaning(run: Run, run_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "PROCESS_FROM_BYTES", 0)

    async def main() -> None:
        clock = ManualClock(START_MS)
        # At one byte per second the work would take hours.
        settings = {"log.cleaner.io.max.bytes.per.second": 1.0}
        async with run_broker(disk=PosixDisk(tmp_path), clock=clock, settings=settings) as running:
            client = await running.connect()
            await client.create_topic("t", **COMPACT)
            for n in range(5):
                await put(client, "t", keyed(b"k", b"%d" % n, START_MS + n * 2000))
            clock.advance(15_000)
            assert running.broker.housekeeper.cleaner.in_progress

    run(main())
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 5


def test_retention_runs_and_logs_what_it_deletes(run: Run, run_broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t", retention_ms="10000", segment_ms="1000", file_delete_delay_ms="100")
            for n in range(3):
                await put(client, "t", keyed(b"k", b"%d" % n, START_MS + n * 2000))
            log = running.broker.logs.get("t", 0)
            clock.advance(12_500)
            await running.settle()
            assert log.log_start_offset == 0
            with caplog.at_level(logging.INFO, "ottla.log.log"):
                clock.advance(30_000 - 12_500)  # log.initial.task.delay.ms
                await running.settle()
            assert log.log_start_offset == 3
            lines = [r.getMessage() for r in caplog.records if "deleting segment" in r.getMessage()]
            assert len(lines) == 3
            assert "due to log retention time 10000ms breach" in lines[0]
            await put(client, "t", keyed(b"k", b"4", clock.now_ms()))
            clock.advance(299_999)
            await running.settle()
            assert log.log_start_offset == 3
            clock.advance(1)
            await running.settle()
            assert log.log_start_offset == 4

    run(main())


def test_compact_and_delete_expires_in_the_cleaners_interval(run: Run, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t", **{**COMPACT, "cleanup_policy": "compact,delete"}, retention_ms="5000")
            await put(client, "t", keyed(b"k", b"1", START_MS))
            log = running.broker.logs.get("t", 0)
            clock.advance(15_000)
            await running.settle()
            assert (log.log_start_offset, log.log_end_offset) == (1, 1)

    run(main())


def test_a_retention_sweep_yields_to_requests(run: Run, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            client = await running.connect()
            await client.create_topic("t", partitions=200)
            for index in range(200):
                running.broker.replicas.leader("t", index)  # creates its folder, if it does not exist yet
            turns = 0
            running.broker.housekeeper.sweep()
            while running.broker.housekeeper._sweep is not None:
                turns += 1
                await asyncio.sleep(0)
            assert turns >= 200 // cleaning.SWEEP_STEPS

    run(main())


def job_for(tmp_path: Path, data: bytes) -> CleaningJob:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(data)
    return CleaningJob("t-0", "t-0", LogConfig(), [Source(0, len(data), 0, 0)], 0, 100, START_MS)


def test_a_cleaner_process_reports_its_error(tmp_path: Path) -> None:
    damaged = keyed(b"k", b"value", START_MS)
    damaged[-3] ^= 1
    work = ProcessWork(job_for(tmp_path, bytes(damaged)), str(tmp_path), None)
    with pytest.raises(CorruptMessage, match="wrong CRC"):
        next(work)
    work.close()


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    job = job_for(tmp_path, bytes(keyed(b"k", b"v", START_MS)))
    work = ProcessWork(job, str(tmp_path), 0.001)
    work._start()
    assert work._process is not None
    work._process.kill()
    with pytest.raises(WorkerEnded, match="ended with code -9"):
        next(work)
    work.close()
    work = ProcessWork(job, str(tmp_path), None)
    work.abort()
    with pytest.raises(CleaningAborted):
        next(work)
    work.close()


def test_a_process_does_not_outlive_its_broker(tmp_path: Path) -> None:
    job = job_for(tmp_path, bytes(keyed(b"k", b"v", START_MS)))
    work = ProcessWork(job, str(tmp_path), 0.001)
    process = work._start()
    assert process.stdin is not None
    process.stdin.close()  # as when the broker is killed
    assert process.wait(20) == 1
    work.close()


def test_a_thread_cleans_where_processes_are_not_possible(
    run: Run,
    run_broker: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cleaning, "PROCESS_FROM_BYTES", 0)
    monkeypatch.setattr("sys.executable", "/nonexistent/python")

    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(disk=PosixDisk(tmp_path), clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t", **COMPACT)
            for n in range(3):
                await put(client, "t", keyed(b"k", b"%d" % n, START_MS + n * 2000))
            clock.advance(15_000)
            await wait_for_async(lambda: not running.broker.housekeeper.cleaner.in_progress)
            assert "tried again later" in caplog.text
            clock.advance(60_000)
            await wait_for_async(lambda: offsets_of(running, "t") == [1, 2])

    run(main())


def test_the_throttle_keeps_its_rate() -> None:
    now_s = 0.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    throttle = Throttle(1000, lambda: now_s, sleep)
    for _ in range(100):
        throttle.pace(50)
    assert now_s == pytest.approx(5.0)
    assert max(slept) <= 0.1
    unlimited = Throttle(None, lambda: now_s, sleep)
    unlimited.pace(1 << 40)
    assert now_s == pytest.approx(5.0)
