"""Classic groups and offsets on the wire: versions, states and error codes."""

import pytest

from ottla.errors import (
    NONE,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import (
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
from ottla.wire.primitives import ZERO_UUID
from support.wire import Wire


@pytest.fixture
def group(wire: Wire, unique) -> str:
    """A group name whose coordinator is ready: the first lookup creates the offsets topic."""
    name = unique("g")
    for _ in range(5000):
        found = wire.call(FindCoordinatorRequest(coordinator_keys=[name]), 4).coordinators[0]
        if found.error_code == NONE:
            return name
    raise AssertionError(found)


def join_request(
    group: str, member: str = "", instance: str | None = None, protocols: dict[str, bytes] | None = None, **more
) -> JoinGroupRequest:
    arguments = {"session_timeout_ms": 30000, "rebalance_timeout_ms": 30000, "protocol_type": "consumer", **more}
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        group_instance_id=instance,
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data)
            for name, data in (protocols or {"range": b"meta"}).items()
        ],
        **arguments,
    )


def join(wire: Wire, group: str, version: int = 9, **more):
    """Joins as clients do: with the id from the first answer."""
    found = wire.call(join_request(group, **more), version)
    if found.error_code == MemberIdRequired.code:
        found = wire.call(join_request(group, found.member_id, **more), version)
    return found


def sync(wire: Wire, group: str, joined, assignments: dict[str, bytes] | None = None, version: int = 5, **more):
    arguments = {"generation_id": joined.generation_id, "member_id": joined.member_id, **more}
    return wire.call(
        SyncGroupRequest(
            group_id=group,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
            **{"group_instance_id": None, **arguments},
        ),
        version,
    )


def beat(wire: Wire, group: str, generation: int, member: str, version: int = 4, instance: str | None = None) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)
    code: int = wire.call(request, version).error_code
    return code


def commit(
    wire: Wire,
    group: str,
    topic: str,
    offset: int = 5,
    version: int = 9,
    generation: int = -1,
    member: str = "",
    partition: int = 0,
    metadata: str | None = "note",
    topic_id: bytes = ZERO_UUID,
    **more,
) -> int:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
        **more,
    )
    code: int = wire.call(request, version).topics[0].partitions[0].error_code
    return code


def fetched(wire: Wire, group: str, topic: str, version: int = 9, partition: int = 0):
    if version < 8:
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        found = wire.call(OffsetFetchRequest(group_id=group, topics=wanted), version)
        return found.topics[0].partitions[0]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name=topic,
                        topic_id=wire.topic_id(topic) if version >= 10 else ZERO_UUID,
                        partition_indexes=[partition],
                    )
                ],
            )
        ]
    )
    found = wire.call(request, version).groups[0]
    assert (found.group_id, found.error_code) == (group, NONE)
    return found.topics[0].partitions[0]


# Joining


@pytest.mark.parametrize("version", range(10))
def test_join_sync_beat_leave_in_every_version(version: int, group: str, wire: Wire) -> None:
    first = wire.call(join_request(group), version)
    if version >= 4:
        assert (first.error_code, first.generation_id) == (MemberIdRequired.code, -1)
        assert first.member_id.startswith("wire-")
        first = wire.call(join_request(group, first.member_id), version)
    assert (first.error_code, first.generation_id, first.protocol_name) == (NONE, 1, "range")
    assert first.leader == first.member_id
    assert [(m.member_id, bytes(m.metadata)) for m in first.members] == [(first.member_id, b"meta")]
    synced = sync(wire, group, first, {first.member_id: b"mine"}, min(version, 5))
    assert (synced.error_code, bytes(synced.assignment)) == (NONE, b"mine")
    assert beat(wire, group, 1, first.member_id, min(version, 4)) == NONE
    identity = LeaveGroupRequest.MemberIdentity(member_id=first.member_id)
    left = wire.call(LeaveGroupRequest(group_id=group, member_id=first.member_id, members=[identity]), min(version, 5))
    assert left.error_code == NONE
    assert all(member.error_code == NONE for member in left.members)
    assert beat(wire, group, 1, first.member_id, min(version, 4)) == UnknownMemberId.code


def test_joins_that_are_refused(group: str, wire: Wire) -> None:
    assert wire.call(join_request(""), 9).error_code == InvalidGroupId.code
    assert wire.call(join_request(group, session_timeout_ms=10), 9).error_code == InvalidSessionTimeout.code
    assert wire.call(join_request(group, session_timeout_ms=10_000_000), 9).error_code == InvalidSessionTimeout.code
    assert wire.call(join_request(group, member="who"), 9).error_code == UnknownMemberId.code
    assert join(wire, group).error_code == NONE
    assert wire.call(join_request(group, protocol_type="connect"), 9).error_code == InconsistentGroupProtocol.code
    assert wire.call(join_request(group, protocols={"other": b""}), 9).error_code == InconsistentGroupProtocol.code
    assert wire.call(join_request(group, member="who"), 9).error_code == UnknownMemberId.code


def test_a_second_member_makes_the_first_one_rejoin(group: str, wire: Wire, connect) -> None:
    first = join(wire, group)
    sync(wire, group, first, {first.member_id: b"all"})
    other = connect()
    required = other.call(join_request(group), 9)
    other.send(join_request(group, required.member_id), 9)
    while (code := beat(wire, group, 1, first.member_id)) == NONE:
        pass
    assert code == RebalanceInProgress.code
    again = wire.call(join_request(group, first.member_id), 9)
    second = other.receive()
    assert (again.generation_id, second.generation_id) == (2, 2)
    assert again.leader == second.leader == first.member_id
    assert {m.member_id for m in again.members} == {first.member_id, second.member_id}
    assert second.members == []
    # The follower's sync waits for the leader's.
    other.send(SyncGroupRequest(group_id=group, generation_id=2, member_id=second.member_id, assignments=[]), 3)
    mine = sync(wire, group, again, {first.member_id: b"a", second.member_id: b"b"})
    assert (bytes(mine.assignment), bytes(other.receive().assignment)) == (b"a", b"b")
    # Requests of generation 1 are refused.
    assert beat(wire, group, 1, first.member_id) == IllegalGeneration.code
    assert sync(wire, group, again, generation_id=1).error_code == IllegalGeneration.code
    assert beat(wire, group, 2, first.member_id) == NONE


def test_the_protocol_is_chosen_by_vote(group: str, wire: Wire, connect) -> None:
    first = join(wire, group, protocols={"a": b"1", "b": b"1"})
    sync(wire, group, first)
    other = connect()
    other.send(join_request(group, protocols={"b": b"2", "c": b"2"}), 3)
    while beat(wire, group, 1, first.member_id) == NONE:
        pass
    again = wire.call(join_request(group, first.member_id, protocols={"a": b"1", "b": b"1"}), 9)
    assert again.protocol_name == "b"
    assert {bytes(m.metadata) for m in again.members} == {b"1", b"2"}


@pytest.mark.parametrize("version", [5, 9])
def test_a_member_id_given_to_a_dynamic_member_is_not_for_a_static_one(version: int, group: str, wire: Wire) -> None:
    ahead = wire.call(join_request(group), version)
    assert ahead.error_code == MemberIdRequired.code
    refused = wire.call(join_request(group, ahead.member_id, instance="i"), version)
    assert (refused.error_code, refused.member_id) == (UnknownServerError.code, "")
    joined = wire.call(join_request(group, ahead.member_id), version)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (NONE, ahead.member_id, 1)


def test_unknown_members_are_refused(group: str, wire: Wire) -> None:
    assert beat(wire, group, 1, "who") == UnknownMemberId.code
    joined = join(wire, group)
    assert beat(wire, group, 1, "who") == UnknownMemberId.code
    # Between join and sync the group is rebalancing.
    assert beat(wire, group, 1, joined.member_id) == NONE
    assert sync(wire, group, joined, member_id="who").error_code == UnknownMemberId.code
    assert sync(wire, group, joined, {joined.member_id: b"x"}).error_code == NONE
    assert beat(wire, group, 7, joined.member_id) == IllegalGeneration.code


def test_static_members(group: str, wire: Wire, connect) -> None:
    first = wire.call(join_request(group, instance="one"), 9)
    # A static member needs no second join.
    assert (first.error_code, first.generation_id) == (NONE, 1)
    sync(wire, group, first, {first.member_id: b"mine"}, group_instance_id="one")
    back = connect().call(join_request(group, instance="one"), 9)
    # The same generation and a new id; no other member has noticed.
    assert (back.error_code, back.generation_id) == (NONE, 1)
    assert back.member_id != first.member_id
    synced = sync(wire, group, back, group_instance_id="one")
    assert (synced.error_code, bytes(synced.assignment)) == (NONE, b"mine")
    assert beat(wire, group, 1, first.member_id, instance="one") == FencedInstanceId.code
    assert beat(wire, group, 1, back.member_id, instance="one") == NONE
    assert beat(wire, group, 1, back.member_id, instance="two") == UnknownMemberId.code
    gone = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="one")
    unknown = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="two")
    left = wire.call(LeaveGroupRequest(group_id=group, members=[gone, unknown]), 5)
    assert left.error_code == NONE
    assert [member.error_code for member in left.members] == [NONE, UnknownMemberId.code]


# Describing


def described(wire: Wire, group: str, version: int = 6):
    return wire.call(DescribeGroupsRequest(groups=[group]), version).groups[0]


@pytest.mark.parametrize("version", range(7))
def test_describe(version: int, group: str, wire: Wire) -> None:
    absent = described(wire, group, version)
    assert (absent.error_code, absent.group_state) == (GroupIdNotFound.code if version >= 6 else NONE, "Dead")
    joined = join(wire, group)
    assert described(wire, group, version).group_state == "CompletingRebalance"
    sync(wire, group, joined, {joined.member_id: b"mine"})
    stable = described(wire, group, version)
    assert (stable.error_code, stable.group_state, stable.protocol_type) == (NONE, "Stable", "consumer")
    assert stable.protocol_data == "range"
    (member,) = stable.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "wire", "/127.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"meta", b"mine")


@pytest.mark.parametrize("version", range(6))
def test_list(version: int, group: str, wire: Wire) -> None:
    join(wire, group)
    found = wire.call(ListGroupsRequest(), version)
    (mine,) = [one for one in found.groups if one.group_id == group]
    assert mine.protocol_type == "consumer"
    if version >= 4:
        assert mine.group_state == "CompletingRebalance"
        for state, there in (("CompletingRebalance", True), ("completingrebalance", True), ("Stable", False)):
            listed = wire.call(ListGroupsRequest(states_filter=[state]), version).groups
            assert (group in {one.group_id for one in listed}) is there, state
    if version >= 5:
        assert mine.group_type == "classic"
        for kind, there in (("classic", True), ("Classic", True), ("consumer", False)):
            listed = wire.call(ListGroupsRequest(types_filter=[kind]), version).groups
            assert (group in {one.group_id for one in listed}) is there, kind


@pytest.mark.parametrize("version", range(3))
def test_delete(version: int, group: str, topic: str, wire: Wire) -> None:
    def delete(name: str) -> int:
        code: int = wire.call(DeleteGroupsRequest(groups_names=[name]), version).results[0].error_code
        return code

    assert delete(group) == GroupIdNotFound.code
    joined = join(wire, group)
    sync(wire, group, joined)
    assert commit(wire, group, topic, generation=1, member=joined.member_id) == NONE
    assert delete(group) == NonEmptyGroup.code
    wire.call(LeaveGroupRequest(group_id=group, member_id=joined.member_id), 0)
    assert described(wire, group).group_state == "Empty"
    assert delete(group) == NONE
    assert fetched(wire, group, topic).committed_offset == -1


# Offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(version: int, group: str, topic: str, wire: Wire) -> None:
    assert commit(wire, group, topic, 7, version=version) == NONE
    assert fetched(wire, group, topic).committed_offset == 7
    # A lower offset simply overwrites.
    assert commit(wire, group, topic, 3, version=version, metadata="other") == NONE
    found = fetched(wire, group, topic)
    assert (found.committed_offset, found.metadata, found.error_code) == (3, "other", NONE)


def test_commit_by_id(group: str, topic: str, wire: Wire) -> None:
    assert commit(wire, group, "", 9, version=10, topic_id=wire.topic_id(topic)) == NONE
    assert fetched(wire, group, topic, 10).committed_offset == 9
    assert commit(wire, group, "", 9, version=10, topic_id=b"\x05" * 16) == UnknownTopicId.code


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_in_every_version(version: int, group: str, topic: str, wire: Wire) -> None:
    empty = fetched(wire, group, topic, version)
    assert (empty.committed_offset, empty.metadata, empty.error_code) == (-1, "", NONE)
    commit(wire, group, topic, 4)
    found = fetched(wire, group, topic, version)
    assert (found.committed_offset, found.metadata, found.error_code) == (4, "note", NONE)
    if version >= 5:
        assert found.committed_leader_epoch == -1


def test_fetch_all_offsets_of_a_group(group: str, make_topic, wire: Wire) -> None:
    topics = [make_topic(2), make_topic()]
    for topic in topics:
        commit(wire, group, topic, 1)
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    found = wire.call(OffsetFetchRequest(groups=[wanted]), 9).groups[0]
    assert {topic.name: [p.partition_index for p in topic.partitions] for topic in found.topics} == {
        topic: [0] for topic in topics
    }


def test_commits_that_are_refused(group: str, topic: str, wire: Wire, unique) -> None:
    assert commit(wire, group, topic, generation=3, member="who") == GroupIdNotFound.code
    assert commit(wire, group, topic, generation=3, member="who", version=8) == IllegalGeneration.code
    assert commit(wire, group, unique("nowhere")) == UnknownTopicOrPartition.code
    assert commit(wire, group, topic, partition=9) == UnknownTopicOrPartition.code
    assert commit(wire, group, topic, metadata="x" * 4097) == OffsetMetadataTooLarge.code
    assert fetched(wire, group, topic).committed_offset == -1
    joined = join(wire, group)
    assert commit(wire, group, topic, generation=1, member=joined.member_id) == RebalanceInProgress.code
    sync(wire, group, joined)
    assert commit(wire, group, topic, generation=1, member=joined.member_id) == NONE
    assert commit(wire, group, topic, generation=0, member=joined.member_id) == IllegalGeneration.code
    assert commit(wire, group, topic, generation=1, member="who") == UnknownMemberId.code
    assert commit(wire, group, topic) == UnknownMemberId.code
    assert fetched(wire, group, topic).committed_offset == 5


def test_null_metadata_is_empty(group: str, topic: str, wire: Wire) -> None:
    assert commit(wire, group, topic, metadata=None) == NONE
    assert fetched(wire, group, topic).metadata == ""
    assert commit(wire, group, topic, metadata="x" * 4096) == NONE


def test_offset_delete(group: str, make_topic, wire: Wire, unique) -> None:
    topic = make_topic()

    def delete(name: str, partition: int = 0) -> tuple[int, int | None]:
        entry = OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)]
        )
        found = wire.call(OffsetDeleteRequest(group_id=group, topics=[entry]), 0)
        return found.error_code, found.topics[0].partitions[0].error_code if found.topics else None

    assert delete(topic)[0] == GroupIdNotFound.code
    commit(wire, group, topic)
    assert delete(unique("nowhere")) == (NONE, UnknownTopicOrPartition.code)
    assert delete(topic) == (NONE, NONE)
    assert fetched(wire, group, topic).committed_offset == -1
