"""A broker serves other clients while one of its coordinators loads. Only clients of that coordinator have to wait."""

import asyncio
from typing import Any

from ottla.enums import CoordinatorType
from ottla.errors import CoordinatorLoadInProgress
from ottla.log.files import MemoryDisk
from ottla.wire.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

PARTITIONS, COMMITS = 500, 60
"""30,000 records: a few hundred milliseconds, and many slices."""
LARGE, SMALL = "large", "small"


async def coordinated(client: Any) -> None:
    found = await client.call(
        FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=[LARGE, SMALL]), 4
    )
    assert [each.error_code for each in found.coordinators] == [0, 0]


async def commit(client: Any, group: str, partitions: int) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=7, committed_metadata=""
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )
    answer = await client.call(request, 8)
    assert {partition.error_code for partition in answer.topics[0].partitions} == {0}


async def fetched(client: Any, group: str) -> tuple[int, int]:
    """The error, and the committed offset of the topic's last partition."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[PARTITIONS - 1])
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    (found,) = (await client.call(OffsetFetchRequest(groups=[asked]), 8)).groups
    return found.error_code, -1 if found.error_code else found.topics[0].partitions[0].committed_offset


async def filled(running: Any) -> Any:
    """A client of a broker where one group has many offsets in its log, and another group few."""
    client = await running.connect()
    await client.create_topic("t", PARTITIONS)
    await coordinated(client)
    for _ in range(COMMITS):
        await commit(client, LARGE, PARTITIONS)
    await commit(client, SMALL, PARTITIONS)
    groups = running.broker.groups
    assert groups.partition_for(LARGE) != groups.partition_for(SMALL)
    return client


async def loaded(client: Any) -> tuple[int, int]:
    while True:
        error_code, offset = await fetched(client, LARGE)
        if error_code != CoordinatorLoadInProgress.code:
            return error_code, offset


def test_other_requests_are_served_while_a_group_loads(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await filled(running)
            groups = running.broker.coordinators.groups
            groups.host.load(groups.coordinator.partition_for(LARGE))
            assert await fetched(client, LARGE) == (CoordinatorLoadInProgress.code, -1)
            assert await fetched(client, SMALL) == (0, 7)
            await coordinated(client)
            await commit(client, SMALL, 1)
            listed = await client.call(ListGroupsRequest(), 4)
            assert listed.error_code == CoordinatorLoadInProgress.code
            assert await fetched(client, LARGE) == (CoordinatorLoadInProgress.code, -1)
            assert await loaded(client) == (0, 7)
            listed = await client.call(ListGroupsRequest(), 4)
            assert sorted(group.group_id for group in listed.groups) == [LARGE, SMALL]

    run(main())


def test_a_start_with_a_large_log_answers_before_it_is_loaded(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk) as running:
            await filled(running)
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            assert await fetched(client, LARGE) == (CoordinatorLoadInProgress.code, -1)
            assert await loaded(client) == (0, 7)
            assert await fetched(client, SMALL) == (0, 7)

    run(main())


def test_a_stop_during_the_load_loses_nothing(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk) as running:
            await filled(running)
        async with run_broker(disk=disk) as running:
            assert running.broker.groups.is_loading
        async with run_broker(disk=disk) as running:
            assert await loaded(await running.connect()) == (0, 7)

    run(main())


def test_the_offsets_topic_is_deleted_while_it_is_loaded(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await filled(running)
            groups = running.broker.coordinators.groups
            groups.host.load(groups.coordinator.partition_for(LARGE))
            deleted = await client.call(DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=5000), 5)
            assert deleted.responses[0].error_code == 0
            assert not running.broker.groups.is_loading
            await coordinated(client)  # creates the topic again
            assert await fetched(client, LARGE) == (0, -1)
            await asyncio.sleep(0)
            assert await fetched(client, LARGE) == (0, -1)

    run(main())
