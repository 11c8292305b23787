"""Every version of every group request over a socket: it is answered, with the error code of that version."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.config import Config
from ottla.enums import CoordinatorType
from ottla.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    MemberIdRequired,
    UnknownMemberId,
    UnknownTopicId,
)
from ottla.server.broker import Broker
from ottla.wire.frames import encode_request, response_header_version
from ottla.wire.messages import (
    RESPONSES,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from ottla.wire.schema import Message

Call = Callable[[Message, int], Awaitable[Any]]


def on_a_broker(test: Callable[[Call], Awaitable[None]]) -> None:
    async def main() -> None:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
        }
        async with Broker(Config.load(preset="dev", overrides=settings)) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker._listeners[0].port)

            async def call(request: Message, version: int) -> Any:
                writer.write(encode_request(request, version, 7, "tester"))
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                start = 5 if response_header_version(request.API_KEY, version) else 4
                return RESPONSES[request.API_KEY].decode(frame[start:], version)

            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[]
            )
            await call(CreateTopicsRequest(topics=[topic]), 5)
            await call(FindCoordinatorRequest(key="g", key_type=CoordinatorType.GROUP), 3)
            try:
                await test(call)
            finally:
                writer.close()
                await writer.wait_closed()

    asyncio.run(main())


def commit(
    group_id: str, generation: int = -1, member_id: str = "", topic_id: bytes = bytes(16)
) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="m"
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[partition])
    return OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
    )


def join(group_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_classic_membership_works_in_every_version() -> None:
    async def test(call: Call) -> None:
        for version in range(JoinGroupRequest.MAX_VERSION + 1):
            group_id = f"g{version}"
            answer = await call(join(group_id), version)
            assert answer.error_code == (MemberIdRequired.code if version >= 4 else 0)
            member_id = answer.member_id
            if version >= 4:
                answer = await call(join(group_id, member_id), version)
            assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member_id)
            assert (await call(join(""), version)).error_code == InvalidGroupId.code
            assert (await call(join(f"absent{version}", "stranger"), version)).error_code == UnknownMemberId.code
            assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
            sync = SyncGroupRequest(
                group_id=group_id,
                generation_id=1,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[assignment],
            )
            assert (await call(sync, min(version, 5))).assignment == b"all"
            sync.protocol_name = None
            assert (await call(sync, min(version, 5))).error_code == (
                InconsistentGroupProtocol.code if version >= 5 else 0
            )
            beat = HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id)
            assert (await call(beat, min(version, 4))).error_code == 0
            beat.group_id = "absent"
            assert (await call(beat, min(version, 4))).error_code == UnknownMemberId.code
            leave = LeaveGroupRequest(
                group_id=group_id,
                member_id=member_id,
                members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)],
            )
            for expected in (0, 25):
                answer = await call(leave, min(version, 5))
                codes = [answer.error_code, *(member.error_code for member in answer.members)]
                assert codes == ([0, expected] if version >= 3 else [expected])

    on_a_broker(test)


def test_offset_requests_work_in_every_version() -> None:
    async def test(call: Call) -> None:
        for version in range(10):
            answer = await call(commit(f"o{version}"), version)
            assert answer.topics[0].partitions[0].error_code == 0
            # v0 has no generation that could be wrong.
            answer = await call(commit(f"absent{version}", 3, "x"), version)
            expected = 0 if version == 0 else 69 if version >= 9 else 22
            assert answer.topics[0].partitions[0].error_code == expected
        answer = await call(commit("o10", topic_id=b"x" * 16), 10)
        assert answer.topics[0].partitions[0].error_code == UnknownTopicId.code
        for version in range(OffsetFetchRequest.MAX_VERSION + 1):
            old = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            new = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=b"x" * 16, partition_indexes=[0])
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="o1", topics=[new])
            request = OffsetFetchRequest(group_id="o1", topics=[old], groups=[group])
            answer = await call(request, version)
            topics = answer.topics if version < 8 else answer.groups[0].topics
            found = topics[0].partitions[0]
            assert (found.committed_offset, found.error_code) == ((-1, 100) if version >= 10 else (5, 0))
            request.topics = group.topics = None
            if version >= 2:
                answer = await call(request, version)
                topics = answer.topics if version < 8 else answer.groups[0].topics
                assert topics[0].partitions[0].committed_offset == 5
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name="t", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
        )
        assert (
            await call(OffsetDeleteRequest(group_id="absent", topics=[topic]), 0)
        ).error_code == GroupIdNotFound.code
        answer = await call(OffsetDeleteRequest(group_id="o1", topics=[topic]), 0)
        assert answer.topics[0].partitions[0].error_code == 0

    on_a_broker(test)


def test_describe_list_and_delete_work_in_every_version() -> None:
    async def test(call: Call) -> None:
        await call(commit("o"), 9)
        for version in range(ListGroupsRequest.MAX_VERSION + 1):
            answer = await call(ListGroupsRequest(states_filter=[], types_filter=[]), version)
            assert [group.group_id for group in answer.groups] == ["o"]
        for version in range(DescribeGroupsRequest.MAX_VERSION + 1):
            answer = await call(DescribeGroupsRequest(groups=["o", "absent"]), version)
            assert [(group.error_code, group.group_state) for group in answer.groups] == [
                (0, "Empty"),
                (GroupIdNotFound.code if version >= 6 else 0, "Dead"),
            ]
        for version in range(ConsumerGroupDescribeRequest.MAX_VERSION + 1):
            answer = await call(ConsumerGroupDescribeRequest(group_ids=["o"]), version)
            assert answer.groups[0].error_code == GroupIdNotFound.code
        for version in range(DeleteGroupsRequest.MAX_VERSION + 1):
            await call(commit("o"), 9)
            answer = await call(DeleteGroupsRequest(groups_names=["o", "absent"]), version)
            assert {result.group_id: result.error_code for result in answer.results} == {
                "o": 0,
                "absent": GroupIdNotFound.code,
            }

    on_a_broker(test)


@pytest.mark.parametrize("version", [0, 1])
def test_the_consumer_protocol_works_over_a_socket(version: int) -> None:
    async def test(call: Call) -> None:
        def beat(member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
            joins = epoch == 0
            return ConsumerGroupHeartbeatRequest(
                group_id="n",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=10_000 if joins else -1,
                subscribed_topic_names=["t"] if joins else None,
                topic_partitions=[] if joins else None,
            )

        answer = await call(beat("", 0), version)
        assert answer.error_code == (0 if version == 0 else InvalidRequest.code)
        if version == 1:
            answer = await call(beat("me", 0), version)
        assert (answer.member_epoch, answer.assignment.topic_partitions[0].partitions) == (2, [0, 1])
        member_id = answer.member_id
        assert (await call(beat(member_id, 2), version)).assignment is None
        assert (await call(beat(member_id, 9), version)).error_code == FencedMemberEpoch.code
        assert (await call(beat(member_id, -1), version)).member_epoch == -1
        assert (await call(beat(member_id, 2), version)).error_code == UnknownMemberId.code

    on_a_broker(test)
