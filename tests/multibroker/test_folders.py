"""Brokers of a cluster with several data folders, one of which fails."""

from pathlib import Path
from typing import Any

import pytest

from ottla.errors import NONE, KafkaStorageError
from ottla.metadata.image import UNASSIGNED
from ottla.wire.messages import AssignReplicasToDirsRequest, DescribeLogDirsRequest
from support.batches import batch
from support.requests import produce_request

OFFLINE = KafkaStorageError.code
QUORUMS = pytest.mark.parametrize("controllers", [None, 3])


def folders(tmp_path: Path, count: int = 2) -> list[Path]:
    return [tmp_path / f"disk{number}" for number in range(1, count + 1)]


def image(cluster: Any) -> Any:
    return cluster.nodes.controller.image


def partitions(cluster: Any) -> dict[tuple[str, int], Any]:
    return {(topic.name, partition.index): partition for topic, partition in image(cluster).partitions()}


def folder_of(cluster: Any, key: tuple[str, int], broker_id: int) -> str:
    """The disk of a broker's replica according to the metadata; "" if it is not known yet."""
    partition = partitions(cluster)[key]
    directory = partition.directories[partition.replicas.index(broker_id)]
    if directory == UNASSIGNED:
        return ""
    ids = cluster.broker(broker_id).server.log_dirs._ids
    return next(Path(root).parent.name for root, each in ids.items() if each == directory)


async def topic_on_both_disks(cluster: Any) -> None:
    cluster.create_topic("t", assignments=[[1, 2, 3]] * 4)
    await cluster.wait_in_sync()
    await cluster.wait_until(
        lambda c: all(folder_of(c, key, broker) for key in partitions(c) for broker in (1, 2, 3)),
    )


async def folder_states(cluster: Any, wire: Any, broker_id: int) -> dict[str, int]:
    answer = await wire.ask(cluster, broker_id, DescribeLogDirsRequest(topics=None), 4)
    return {Path(found.log_dir).parent.name: found.error_code for found in answer.results}


async def produced(cluster: Any, wire: Any, broker_id: int, partition: int) -> int:
    request = produce_request("t", memoryview(batch(b"value", timestamp=0)), partition=partition, acks=-1)
    answer = await wire.ask(cluster, broker_id, request, 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@QUORUMS
def test_another_broker_leads_the_partitions_of_a_failed_folder(
    run: Any, wire: Any, tmp_path: Path, controllers: int | None
) -> None:
    async def scenario(cluster: Any) -> None:
        await topic_on_both_disks(cluster)
        found = partitions(cluster)
        on_second = {key for key in found if folder_of(cluster, key, 1) == "disk2"}
        assert len(on_second) == 2
        assert {found[key].leader for key in found} == {1}
        fault = cluster.faults.fail_folder(str(tmp_path / "disk2" / "broker-1"))
        assert fault.fired == 1
        await cluster.wait_until(lambda c: all(1 not in partitions(c)[key].isr for key in on_second))
        for key, partition in partitions(cluster).items():
            assert (partition.leader == 1, 1 in partition.isr) == ((key not in on_second,) * 2), key
        assert await folder_states(cluster, wire, 1) == {"disk1": NONE, "disk2": OFFLINE}
        assert await folder_states(cluster, wire, 2) == {"disk1": NONE, "disk2": NONE}
        assert len(image(cluster).brokers[1].log_dirs) == 1 and not image(cluster).brokers[1].fenced
        topic, index = min(on_second)
        kept = min(set(found) - on_second)[1]
        assert await produced(cluster, wire, 1, index) == OFFLINE
        assert await produced(cluster, wire, partitions(cluster)[topic, index].leader, index) == NONE
        assert await produced(cluster, wire, 1, kept) == NONE
        # A restart finds the folder, and the broker catches up.
        await cluster.restart(1)
        await cluster.wait_in_sync()
        assert await folder_states(cluster, wire, 1) == {"disk1": NONE, "disk2": NONE}
        assert len(image(cluster).brokers[1].log_dirs) == 2

    run(scenario, controllers=controllers, data=folders(tmp_path))


def test_new_replicas_are_placed_in_the_remaining_folders(run: Any, wire: Any, tmp_path: Path) -> None:
    async def scenario(cluster: Any) -> None:
        await topic_on_both_disks(cluster)
        cluster.broker(2).faults.fail_folder()
        cluster.create_topic("u", assignments=[[2, 1]] * 3)
        await cluster.wait_in_sync("u")
        assert {folder_of(cluster, ("u", index), 2) for index in range(3)} == {"disk1"}

    run(scenario, data=folders(tmp_path))


def test_a_broker_that_cannot_report_its_folder_ends(run: Any, wire: Any, tmp_path: Path) -> None:
    async def scenario(cluster: Any) -> None:
        await topic_on_both_disks(cluster)
        cluster.partition_network([1], [2, 3])
        cluster.broker(1).faults.fail_folder()
        await cluster.wait_until(lambda c: not c.broker(1).is_running)
        await cluster.wait_until(lambda c: all(found.leader in (2, 3) for found in partitions(c).values()))

    run(scenario, data=folders(tmp_path), settings={"log.dir.failure.timeout.ms": 400})


@pytest.mark.parametrize("count", [1, 2])
def test_a_broker_stops_if_a_folder_that_it_needs_fails(run: Any, wire: Any, tmp_path: Path, count: int) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        cluster.faults.fail_folder(str(tmp_path / "disk1" / "broker-1"))
        assert not cluster.broker(1).is_running
        await cluster.wait_until(lambda c: partitions(c)["t", 0].leader in (2, 3))
        await cluster.start(1)
        await cluster.wait_in_sync()

    run(scenario, data=folders(tmp_path, count))


def test_assignments_that_are_wrong_are_refused(run: Any, wire: Any, tmp_path: Path) -> None:
    async def scenario(cluster: Any) -> None:
        await topic_on_both_disks(cluster)
        cluster.create_topic("u", assignments=[[2, 3]])
        topics = image(cluster).topics
        part, topic = AssignReplicasToDirsRequest.PartitionData, AssignReplicasToDirsRequest.TopicData
        elsewhere = bytes(range(16))
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=cluster.broker(1).node.broker_epoch,
            directories=[
                AssignReplicasToDirsRequest.DirectoryData(
                    id=elsewhere,
                    topics=[
                        topic(topic_id=topics["t"].topic_id, partitions=[part(partition_index=n) for n in (0, 9)]),
                        topic(topic_id=topics["u"].topic_id, partitions=[part(partition_index=0)]),
                        topic(topic_id=elsewhere, partitions=[part(partition_index=0)]),
                    ],
                )
            ],
        )
        answer = cluster.nodes.controller.duties.assign_replicas_to_dirs(request)
        codes = [[each.error_code for each in found.partitions] for found in answer.directories[0].topics]
        assert codes == [[0, 3], [6], [100]]
        moved = partitions(cluster)["t", 0]
        assert moved.directories[0] == elsewhere and moved.leader in (2, 3), "that folder is not one of broker 1"

    run(scenario, data=folders(tmp_path))
