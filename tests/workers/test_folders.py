"""`ottla serve --workers N` with several data folders: where partitions are, and a folder that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import NONE, KafkaStorageError, NotLeaderOrFollower
from ottla.log.checkpoints import HIGH_WATERMARKS_FILE, read_offsets
from ottla.log.files import PosixDisk
from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
)
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest
from support.batches import batch, records_of
from support.waiting import wait_for

Serve = Callable[..., Any]
PARTITIONS = 8
STORAGE, NOT_LEADER = KafkaStorageError.code, NotLeaderOrFollower.code
CLEAN = ".kafka_cleanshutdown"


class Folders:
    """A broker of workers on two folders, which can be started again with another number of them."""

    def __init__(self, serve: Serve, folder: Path) -> None:
        self._serve = serve
        self.roots = {name: folder / name for name in ("one", "two")}
        self.serving: Any = None

    def start(self, workers: int) -> None:
        self.serving = self._serve(workers, "--set", f"log.dirs={','.join(map(str, self.roots.values()))}")
        self.wires = {node: self.serving.wire(port) for node, port in self.serving.ports().items()}

    def stop(self) -> str:
        code, errors = self.serving.stop()
        assert code == 0
        return str(errors)

    def described(self) -> dict[int, dict[str, tuple[int, list[int]]]]:
        """The partitions of topic t on each worker: {worker: {folder: (error, partitions)}}"""
        return {
            node: {
                Path(found.log_dir).name: (
                    found.error_code,
                    sorted(p.partition_index for topic in found.topics if topic.name == "t" for p in topic.partitions),
                )
                for found in wire.call(DescribeLogDirsRequest(topics=None), 4).results
            }
            for node, wire in self.wires.items()
        }

    def placed(self) -> dict[str, list[int]]:
        """The partitions of t in each folder, checked against the folders themselves."""
        described = self.described()
        leaders = self.serving.leaders("t")
        placed: dict[str, list[int]] = {name: [] for name in self.roots}
        for node, folders in described.items():
            for name, (error, partitions) in folders.items():
                assert error == NONE and all(leaders[index] == node for index in partitions)
                placed[name] += partitions
        for name, partitions in placed.items():
            assert {f"t-{index}" for index in partitions} == {path.name for path in self.roots[name].glob("t-?")}
        return {name: sorted(partitions) for name, partitions in placed.items()}

    def states(self) -> list[tuple[int, list[int], list[int]]]:
        """(leader, ISR, offline replicas) of each partition."""
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")], response_partition_limit=100
        )
        (topic,) = self.wires[1].call(request, 0).topics
        return [(p.leader_id, p.isr_nodes, p.offline_replicas) for p in topic.partitions]

    def produce(self, leaders: dict[int, int], value: bytes = b"value") -> list[int]:
        return [self.wires[leader].produce("t", batch(value), index).error_code for index, leader in leaders.items()]

    def first_values(self) -> list[bytes | None]:
        return [
            records_of(self.wires[leader].fetch("t", 0, index))[0].value
            for index, leader in self.serving.leaders("t").items()
        ]

    def checkpointed(self) -> dict[str, dict[int, int]]:
        """The high watermarks of t in the checkpoint of each folder."""
        return {
            name: {
                index: offset
                for (topic, index), offset in sorted(read_offsets(PosixDisk(root), HIGH_WATERMARKS_FILE).items())
                if topic == "t"
            }
            for name, root in self.roots.items()
        }


@pytest.fixture
def folders(serve: Serve, tmp_path: Path) -> Folders:
    return Folders(serve, tmp_path)


def test_each_worker_uses_all_folders(folders: Folders) -> None:
    folders.start(2)
    create(folders.wires[2], "t", PARTITIONS)
    leaders = folders.serving.leaders("t")
    assert folders.produce(leaders) == [NONE] * PARTITIONS
    before = folders.placed()
    assert {name: len(partitions) for name, partitions in before.items()} == {"one": 4, "two": 4}
    assert all(len(partitions) == 2 for each in folders.described().values() for _, partitions in each.values())
    # A follower moves a partition, and its checkpoint moves too.
    moving = next(index for index in before["one"] if leaders[index] == 2)
    assert move(folders.wires[2], folders.roots["two"], moving) == NONE
    assert move(folders.wires[1], folders.roots["two"], moving) != NONE, "not its own"
    after = {name: sorted({*before[name]} ^ {moving}) for name in before}
    wait_for((folders.roots["two"] / f"t-{moving}").exists, "the move to end")
    assert folders.placed() == after
    create(folders.wires[1], "gone", 4)
    folders.wires[2].call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 5)
    assert "ERROR" not in folders.stop()
    assert folders.checkpointed() == {name: dict.fromkeys(partitions, 1) for name, partitions in after.items()}
    for workers in (3, 1, 2):
        assert all((root / CLEAN).exists() for root in folders.roots.values())
        folders.start(workers)
        assert folders.placed() == after
        assert folders.first_values() == [b"value"] * PARTITIONS
        assert folders.stop() == ""


def create(wire: Any, name: str, partitions: int, **config: object) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=str(v)) for k, v in config.items()],
    )
    (result,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    assert result.error_code == NONE, result


def move(wire: Any, folder: Path, index: int) -> int:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[index])
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(folder), topics=[topic])]
    )
    return int(wire.call(request, 2).results[0].partitions[0].error_code)


@pytest.mark.parametrize("finder", [1, 2])
def test_a_folder_that_one_worker_cannot_use_is_offline_in_all(folders: Folders, finder: int) -> None:
    folders.start(2)
    create(folders.wires[1], "t", PARTITIONS, **{"segment.bytes": 1 << 20})
    leaders = folders.serving.leaders("t")
    assert folders.produce(leaders) == [NONE] * PARTITIONS
    lost = folders.placed()["two"]
    kept = folders.placed()["one"]
    assert {leaders[index] for index in lost} == {1, 2}
    gone = folders.roots["two"].with_name("gone")
    folders.roots["two"].rename(gone)
    found = next(index for index in lost if leaders[index] == finder)

    def refused() -> bool:
        return bool(folders.wires[finder].produce("t", batch(bytes(500_000)), found).error_code)

    wait_for(refused, "a new segment that cannot be made")
    wait_for(lambda: all(folders.states()[index][0] == -1 for index in lost), "all of them to be without a leader")

    def expected(code: int) -> list[int]:
        return [code if index in lost else NONE for index in range(PARTITIONS)]

    assert folders.produce(leaders) == expected(STORAGE)
    assert [folders.states()[index] for index in lost] == [(-1, [], [leaders[index]]) for index in lost]
    assert all(folders.states()[index] == (leaders[index], [leaders[index]], []) for index in kept)
    for node, each in folders.described().items():
        assert each == {"one": (NONE, [index for index in kept if leaders[index] == node]), "two": (STORAGE, [])}
    create(folders.wires[2], "u", 4)
    assert len(list(folders.roots["one"].glob("u-?"))) == 4, "new partitions are placed in the remaining folder"
    errors = folders.stop()
    assert errors.count(f"the data folder {folders.roots['two']} failed") == 2, "each worker logs it once"
    # It is still broken, and the number of workers changes.
    folders.roots["two"].write_text("broken")
    for workers in (2, 3, 1):
        folders.start(workers)
        states = folders.states()
        assert [states[index][:2] for index in lost] == [(-1, [])] * len(lost)
        leading = {index: states[index][0] if index in kept else 1 for index in range(PARTITIONS)}
        assert folders.produce(leading) == expected(NOT_LEADER)
        assert "is offline" in folders.stop()
    folders.roots["two"].unlink()
    gone.rename(folders.roots["two"])
    folders.start(2)
    assert folders.placed() == {"one": kept, "two": lost}
    assert folders.first_values() == [b"value"] * PARTITIONS
    assert folders.stop() == ""


def test_all_workers_end_with_the_folder_of_the_metadata(folders: Folders) -> None:
    folders.start(2)
    create(folders.wires[1], "t", PARTITIONS, **{"segment.bytes": 1 << 20})
    leaders = folders.serving.leaders("t")
    found = next(index for index in folders.placed()["one"] if leaders[index] == 2)
    folders.roots["one"].rename(folders.roots["one"].with_name("gone"))
    with pytest.raises(OSError):
        wait_for(
            lambda: folders.wires[2].produce("t", batch(bytes(500_000)), found) is None, "the connection to be closed"
        )
    code, errors = folders.serving.finish()
    assert code == 1 and "cannot continue without it" in errors
