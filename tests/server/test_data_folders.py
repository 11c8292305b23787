"""A broker with several data folders, as its clients and its metadata see them."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import NONE, KafkaStorageError, LogDirNotFound, NotLeaderOrFollower, UnknownTopicOrPartition
from ottla.log.files import PosixDisk
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.wire.messages import MetadataRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.wire.messages.topics import DeleteTopicsRequest
from support.waiting import wait_for_async

UNASSIGNED = bytes(15) + b"\1"
Disks = Callable[..., MultiDirDisk]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return lambda *names: MultiDirDisk([str(tmp_path / name) for name in names or ("one", "two", "three")])


async def described(client: Any, *wanted: tuple[str, list[int]]) -> dict[str, dict[tuple[str, int], tuple[int, bool]]]:
    """{folder: {partition: (bytes, whether it is still being moved there)}}"""
    entry = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = [entry(topic=topic, partitions=partitions) for topic, partitions in wanted] or None
    answer = await client.call(DescribeLogDirsRequest(topics=topics), 4)
    assert all(folder.error_code == NONE and folder.total_bytes > 0 for folder in answer.results)
    return in_folders(answer)


async def held(client: Any) -> dict[str, dict[tuple[str, int], tuple[int, bool]]]:
    """The same, including failed folders."""
    return in_folders(await client.call(DescribeLogDirsRequest(topics=None), 4))


def in_folders(answer: Any) -> dict[str, dict[tuple[str, int], tuple[int, bool]]]:
    return {
        Path(folder.log_dir).name: {
            (topic.name, each.partition_index): (each.partition_size, each.is_future_key)
            for topic in folder.topics
            for each in topic.partitions
        }
        for folder in answer.results
    }


async def alter(client: Any, *moves: tuple[Path, str, list[int]]) -> dict[tuple[str, int], int]:
    folder, entry = AlterReplicaLogDirsRequest.AlterReplicaLogDir, AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    answer = await client.call(
        AlterReplicaLogDirsRequest(
            dirs=[folder(path=str(path), topics=[entry(name=topic, partitions=which)]) for path, topic, which in moves]
        ),
        2,
    )
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


async def fetched(client: Any, topic: str, partition: int) -> Any:
    data = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[data])]
    )
    return (await client.call(request, 12)).responses[0].partitions[0]


async def values(client: Any, topic: str, partition: int) -> bytes:
    found = await fetched(client, topic, partition)
    assert found.error_code == NONE
    return bytes(found.records)


def directories(running: Any, topic: str) -> dict[int, list[bytes]]:
    return {
        index: partition.directories for index, partition in running.broker.metadata.topics[topic].partitions.items()
    }


def test_partitions_are_spread_and_registered_in_the_metadata(run: Any, run_broker: Any, disks: Disks) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 4)
            told: list[Any] = []
            running.broker.metadata_log.subscribe(told.extend)
            await running.settle()
            assert (await client.produce("t", b"value", partition=3)).error_code == NONE
            found = await described(client)
            assert {name: sorted(held) for name, held in found.items()} == {
                "one": [("t", 0), ("t", 3)],
                "two": [("t", 1)],
                "three": [("t", 2)],
            }
            assert found["one"]["t", 3][0] > 0 and found["one"]["t", 0] == (0, False)
            assert await described(client, ("t", [1, 9]), ("u", [0])) == {
                "one": {},
                "two": {("t", 1): (0, False)},
                "three": {},
            }
            ids = running.broker.log_dirs._ids
            by_name = {Path(root).name: directory for root, directory in ids.items()}
            assert directories(running, "t") == {
                index: [by_name[name]] for index, name in enumerate(["one", "two", "three", "one"])
            }
            (broker,) = running.broker.metadata.brokers.values()
            assert sorted(broker.log_dirs) == sorted(ids.values())

    run(main())


def test_replicas_are_moved_while_they_are_used(run: Any, run_broker: Any, disks: Disks, tmp_path: Path) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 3)
            for _ in range(3):
                await client.produce("t", b"first" * 1000)
            assert await alter(
                client,
                (tmp_path / "three", "t", [0, 7]),
                (tmp_path / "two", "t", [1]),
                (tmp_path / "nowhere", "t", [2]),
                (tmp_path / "two", "nothing", [0]),
            ) == {
                ("t", 0): NONE,
                ("t", 1): NONE,
                ("t", 2): LogDirNotFound.code,
                ("t", 7): UnknownTopicOrPartition.code,
                ("nothing", 0): UnknownTopicOrPartition.code,
            }
            found = await described(client)
            assert ("t", 0) in found["three"], "in its folder, or as a future replica"
            while not (tmp_path / "three" / "t-0").exists():
                await client.produce("t", b"meanwhile")
            await client.produce("t", b"last")
            await running.settle()
            found = await described(client)
            assert sorted(found["three"]) == [("t", 0), ("t", 2)] and found["one"] == {}
            assert directories(running, "t")[0] == directories(running, "t")[2]
            records = await values(client, "t", 0)
            assert records.count(b"first" * 1000) == 3 and records.count(b"last") == 1
            size = found["three"]["t", 0][0]
            assert size == len(records)
        # The next start finds it there.
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            assert await values(client, "t", 0) == records
            assert (tmp_path / "three" / "t-0").exists() and not (tmp_path / "one" / "t-0").exists()

    run(main())


def test_a_deleted_topic_ends_its_move(run: Any, run_broker: Any, disks: Disks, tmp_path: Path) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            # The move may be over before the topic is deleted. The deleted files must then not wait for a minute.
            await client.create_topic("t", 1, file_delete_delay_ms=0)
            await client.produce("t", b"value")
            assert await alter(client, (tmp_path / "two", "t", [0])) == {("t", 0): NONE}
            await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            await wait_for_async(lambda: not [path for path in (tmp_path / "two").iterdir() if path.is_dir()])

    run(main())


@pytest.mark.parametrize("left", ["a copy beside the log", "a copy and no log"])
def test_a_move_continues_after_a_crash(run: Any, run_broker: Any, disks: Disks, tmp_path: Path, left: str) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 1)
            await client.produce("t", b"value")
            records = await values(client, "t", 0)
        future = tmp_path / "two" / f"t-0.{'ab' * 16}-future"
        if left == "a copy and no log":
            (tmp_path / "one" / "t-0").rename(future)
        else:
            future.mkdir()
            (future / "00000000000000000000.log").write_bytes(records[:10])
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await wait_for_async(lambda: (tmp_path / "two" / "t-0").exists())
            await running.settle()
            assert await values(client, "t", 0) == records
            assert not future.exists()
            assert directories(running, "t") == {0: [running.broker.log_dirs._ids[str(tmp_path / "two")]]}

    run(main())


def test_a_missing_folder_is_not_treated_as_empty(run: Any, run_broker: Any, disks: Disks, tmp_path: Path) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 5)
            await running.settle()
        (tmp_path / "two").rename(tmp_path / "unmounted")
        for names in ((), ("one", "three")):
            with pytest.raises(
                KafkaStorageError, match=r"2 partitions \(t-1, t-4\) are in a data folder that log.dirs"
            ):
                async with run_broker(disk=disks(*names)):
                    pass
        # Another data folder with the same partitions works as well.
        shutil.rmtree(tmp_path / "two")
        for number in (1, 4):
            (tmp_path / "unmounted" / f"t-{number}").rename(tmp_path / "one" / f"t-{number}")
        async with run_broker(disk=disks("one", "three")) as running:
            found = await described(await running.connect())
            assert len(found["one"]) == 4
            assert len(set(map(tuple, directories(running, "t").values()))) == 2

    run(main())


def test_metadata_can_have_its_own_folder(run: Any, run_broker: Any, tmp_path: Path) -> None:
    def disk() -> MultiDirDisk:
        return MultiDirDisk([str(tmp_path / "one")], str(tmp_path / "metadata"))

    async def main() -> None:
        async with run_broker(disk=disk()) as running:
            client = await running.connect()
            await client.create_topic("t", 1)
            assert list(await described(client)) == ["one"]
            assert directories(running, "t") != {0: [UNASSIGNED]}
        assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir()
        async with run_broker(disk=disk()) as running:
            assert "t" in running.broker.metadata.topics

    run(main())


async def states(client: Any) -> dict[str, int]:
    answer = await client.call(DescribeLogDirsRequest(topics=None), 4)
    return {Path(folder.log_dir).name: folder.error_code for folder in answer.results}


async def produced(client: Any, topic: str, partitions: int) -> list[int]:
    return [(await client.produce(topic, b"value", partition=index)).error_code for index in range(partitions)]


def log_lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def take_away(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}-gone"))


async def fail_with_a_new_segment(client: Any, folder: Path, topic: str, partition: int) -> None:
    """Remove the folder: the broker can still write to the open segment, but cannot create the next one."""
    take_away(folder)
    for _ in range(3):
        if (await client.produce(topic, bytes(500_000), partition=partition)).error_code:
            return
    raise AssertionError("the folder is gone, and nobody noticed")


def test_only_the_failed_folder_is_offline(
    run: Any, run_broker: Any, disks: Disks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    STORAGE, NOT_LEADER = KafkaStorageError.code, NotLeaderOrFollower.code

    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 4, **{"segment.bytes": 1 << 20})
            await running.settle()
            assert await produced(client, "t", 4) == [NONE] * 4
            await fail_with_a_new_segment(client, tmp_path / "two", "t", 1)
            await running.settle()
            assert await produced(client, "t", 4) == [NONE, STORAGE, NONE, NONE]
            assert (await fetched(client, "t", 1)).error_code == STORAGE
            assert b"value" in await values(client, "t", 3)
            assert await states(client) == {"one": NONE, "two": STORAGE, "three": NONE}
            assert len(log_lines(caplog, "two failed")) == 1
            assert not log_lines(caplog, "such requests get")
            lost = running.broker.metadata.topics["t"].partitions[1]
            assert (lost.leader, lost.isr, lost.eligible_leader_replicas, lost.last_known_elr) == (-1, [], [1], [1])
            answer = await client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
            assert [part.offline_replicas for part in answer.topics[0].partitions] == [[], [1], [], []]
            assert await alter(client, (tmp_path / "two", "t", [0]), (tmp_path / "one", "t", [1])) == {
                ("t", 0): STORAGE,
                ("t", 1): STORAGE,
            }
            await client.create_topic("u", 4)
            assert await produced(client, "u", 4) == [NONE] * 4
        # The disk is still broken at the next start.
        (tmp_path / "two").write_text("")
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            assert await produced(client, "t", 4) == [NONE, NOT_LEADER, NONE, NONE]
            assert await states(client) == {"one": NONE, "two": STORAGE, "three": NONE}
            assert log_lines(caplog, "two is offline")
        (tmp_path / "two").unlink()
        (tmp_path / "two-gone").rename(tmp_path / "two")
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            assert await produced(client, "t", 4) == [NONE] * 4
            assert (await values(client, "t", 1)).count(b"value") == 2
            assert await states(client) == {"one": NONE, "two": NONE, "three": NONE}

    run(main())


@pytest.mark.parametrize("which", ["of the metadata", "the only one"])
def test_a_broker_stops_if_a_required_folder_fails(
    run: Any, run_broker: Any, disks: Disks, tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    async def main() -> None:
        disk = disks() if which == "of the metadata" else PosixDisk(str(tmp_path / "one"))
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            await client.create_topic("t", 1, **{"segment.bytes": 1 << 20})
            await running.settle()
            halted: list[bool] = []
            running.broker.on_halt = lambda: halted.append(True)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await fail_with_a_new_segment(client, tmp_path / "one", "t", 0)
            await wait_for_async(lambda: not running.broker.is_running)
            assert halted == [True] and running.broker.has_halted
            assert len(log_lines(caplog, "cannot continue without it")) == 1

    run(main())


def test_a_start_needs_the_folder_of_the_metadata(run: Any, run_broker: Any, disks: Disks, tmp_path: Path) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()):
            pass
        (tmp_path / "one").rename(tmp_path / "gone")
        (tmp_path / "one").write_text("")
        with pytest.raises(KafkaStorageError, match="one failed"):
            async with run_broker(disk=disks()):
                pass

    run(main())


def test_a_folder_that_failed_between_two_starts_is_offline(
    run: Any, run_broker: Any, disks: Disks, tmp_path: Path
) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 4)
            assert await produced(client, "t", 4) == [NONE] * 4
        (tmp_path / "two").rename(tmp_path / "gone")
        (tmp_path / "two").write_text("")
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            lost = running.broker.metadata.topics["t"].partitions[1]
            assert (lost.leader, lost.isr, lost.eligible_leader_replicas, lost.last_known_elr) == (-1, [], [1], [1])
            assert await produced(client, "t", 4) == [NONE, NotLeaderOrFollower.code, NONE, NONE]
        (tmp_path / "two").unlink()
        (tmp_path / "gone").rename(tmp_path / "two")
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            assert await produced(client, "t", 4) == [NONE] * 4

    run(main())


def test_moves_end_with_their_folder(run: Any, run_broker: Any, disks: Disks, tmp_path: Path) -> None:
    async def main() -> None:
        async with run_broker(disk=disks()) as running:
            client = await running.connect()
            await client.create_topic("t", 3, **{"segment.bytes": 1 << 20})
            await running.settle()
            await client.produce("t", b"value")
            (tmp_path / "two").rename(tmp_path / "two-gone")
            (tmp_path / "two").write_text("")
            await alter(client, (tmp_path / "two", "t", [0]))
            await wait_for_async(lambda: running.broker.log_dirs.is_offline(str(tmp_path / "two")))
            assert await produced(client, "t", 3) == [NONE, KafkaStorageError.code, NONE]
            assert sorted((await held(client))["one"]) == [("t", 0)]

    run(main())
