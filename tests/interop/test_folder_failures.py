"""A data folder that fails: what clients and admins see, the same on Ottla and on Apache Kafka."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import KafkaStorageError, NotLeaderOrFollower
from ottla.wire.messages import DescribeTopicPartitionsRequest
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from support.batches import batch, records_of
from support.kafka import Kafka
from support.processes import is_alive
from support.waiting import wait_for
from support.wire import Wire

OFFLINE, NOT_LEADER = KafkaStorageError.code, NotLeaderOrFollower.code
PARTITIONS = 4


class Target:
    """A broker with two data folders, the first of which also has the metadata. It can be restarted."""

    def __init__(self, folder: Path, start_broker: Callable[..., Any], kind: str) -> None:
        self._folder = folder
        self._start_broker = start_broker
        self._kind = kind
        self.folders = [folder / "logs", folder / "second"]
        self.running: Any = None

    def start(self) -> Wire:
        folders = ",".join(map(str, self.folders))
        if self._kind == "ottla":
            self.running = self._start_broker(log_dirs=folders)
        else:
            self.running = Kafka(self._folder, f"log.dirs={folders}")
        return Wire(self.running.address)

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()

    def has_ended(self) -> bool:
        if self._kind == "ottla":
            return self.running.process.poll() is not None
        return not is_alive(self.running.pid)


@pytest.fixture(params=["ottla", "kafka"])
def target(request: pytest.FixtureRequest, tmp_path: Path, start_broker: Callable[..., Any]) -> Iterator[Target]:
    one = Target(tmp_path / "broker", start_broker, request.param)
    yield one
    one.stop()


def folder_states(wire: Wire) -> dict[str, tuple[int, list[int]]]:
    """{folder: (error, partitions of t)}"""
    return {
        Path(found.log_dir).name: (
            found.error_code,
            sorted(part.partition_index for topic in found.topics if topic.name == "t" for part in topic.partitions),
        )
        for found in wire.call(DescribeLogDirsRequest(topics=None), 4).results
    }


def partition_states(wire: Wire) -> list[tuple[int, list[int], list[int]]]:
    """(leader, ISR, offline replicas) of each partition."""
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")], response_partition_limit=100
    )
    return [(p.leader_id, p.isr_nodes, p.offline_replicas) for p in wire.call(request, 0).topics[0].partitions]


def produced(wire: Wire, value: bytes = b"value") -> list[int]:
    return [wire.produce("t", batch(value), partition).error_code for partition in range(PARTITIONS)]


def move(wire: Wire, folder: Path) -> list[int]:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=list(range(PARTITIONS)))
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(folder), topics=[topic])]
    )
    answer = wire.call(request, 2).results[0].partitions
    return [code for _, code in sorted((part.partition_index, part.error_code) for part in answer)]


def test_a_folder_fails_and_comes_back(target: Target) -> None:
    second = target.folders[1]
    gone = second.with_name("gone")
    with target.start() as wire:
        wire.create_topic("t", PARTITIONS, **{"segment.bytes": 1 << 20})
        wire.wait_until_ready("t", PARTITIONS)
        assert produced(wire) == [0] * PARTITIONS
        lost = folder_states(wire)["second"][1]
        kept = [index for index in range(PARTITIONS) if index not in lost]
        assert len(lost) == 2
        second.rename(gone)
        wait_for(lambda: any(produced(wire, bytes(500_000))), "a new segment that cannot be made")

        def expected(code: int) -> list[int]:
            return [code if index in lost else 0 for index in range(PARTITIONS)]

        wait_for(lambda: partition_states(wire)[lost[0]][0] == -1, "the partitions to be without a leader")
        assert produced(wire) == expected(OFFLINE)
        assert [wire.fetch("t", 0, index).error_code for index in range(PARTITIONS)] == expected(OFFLINE)
        assert folder_states(wire) == {"logs": (0, kept), "second": (OFFLINE, [])}
        assert [partition_states(wire)[index] for index in lost] == [(-1, [], [1])] * 2
        assert [partition_states(wire)[index] for index in kept] == [(1, [1], [])] * 2
        assert move(wire, second) == [OFFLINE] * PARTITIONS
        assert move(wire, target.folders[0]) == expected(OFFLINE)
        wire.create_topic("u", PARTITIONS)
        wire.wait_until_ready("u", PARTITIONS)
    target.stop()
    second.write_text("still broken")
    with target.start() as wire:
        # Kafka returns one or the other, depending on what it learns first at the start.
        refused = (expected(NOT_LEADER), expected(OFFLINE))
        wait_for(lambda: produced(wire) in refused, "what is in the first folder to be led")
        assert folder_states(wire) == {"logs": (0, kept), "second": (OFFLINE, [])}
        assert [partition_states(wire)[index] for index in lost] == [(-1, [], [1])] * 2
    target.stop()
    second.unlink()
    gone.rename(second)
    with target.start() as wire:
        wait_for(lambda: produced(wire) == [0] * PARTITIONS, "all partitions to be led again")
        assert folder_states(wire) == {"logs": (0, kept), "second": (0, lost)}
        for index in lost:
            assert records_of(wire.fetch("t", 0, index))[0].value == b"value"


def test_the_folder_of_the_metadata_fails(target: Target) -> None:
    with target.start() as wire:
        wire.create_topic("t", PARTITIONS, **{"segment.bytes": 1 << 20})
        wire.wait_until_ready("t", PARTITIONS)
        target.folders[0].rename(target.folders[0].with_name("gone"))
        with pytest.raises(OSError):
            wait_for(lambda: produced(wire, bytes(500_000)) is None, "the broker to break the connection")
        wait_for(target.has_ended, "the broker to end")
