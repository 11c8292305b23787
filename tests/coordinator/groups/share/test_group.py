"""KIP-932 membership as Apache Kafka 4.3.1 implements it: the answers in the tables come from a real broker."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups import description as describe
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.classic.description import describe as describe_classic
from ottla.coordinator.groups.consumer.assignors import MemberSpec
from ottla.coordinator.groups.share import offsets as share_offsets
from ottla.coordinator.groups.share.assignor import assign_simple
from ottla.coordinator.groups.share.description import describe as describe_share
from ottla.coordinator.groups.share.protocol import validate
from ottla.coordinator.runtime.interfaces import Client
from ottla.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteShareGroupOffsetsRequest,
    ShareGroupHeartbeatRequest,
)

SESSION_MS = 45_000


class FakeState:
    """Share coordinators that answer immediately, or when a test lets them."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        self.error: KafkaError | None = None
        self.asked = 0

    def initialize(
        self, group_id: str, epoch: int, offsets: Mapping[bytes, Mapping[int, int]], done: Callable[[Any], None]
    ) -> None:
        self.asked += 1
        outcome = {}
        for topic_id, each in offsets.items():
            for index, offset in each.items():
                outcome[topic_id, index] = self.error
                if self.error is None:
                    self.offsets[group_id, topic_id, index] = (epoch, offset)
        done(outcome)

    def delete(self, group_id: str, partitions: Mapping[bytes, frozenset[int]], done: Callable[[Any], None]) -> None:
        outcome: dict[tuple[bytes, int], KafkaError | None] = {}
        if self.error is not None:
            done({(topic_id, index): self.error for topic_id, indexes in partitions.items() for index in indexes})
            return
        for topic_id, indexes in partitions.items():
            for index in indexes:
                self.offsets.pop((group_id, topic_id, index), None)
                outcome[topic_id, index] = None
        done(outcome)


@pytest.fixture
def share(world: Any) -> FakeState:
    state = FakeState()
    world.image.share_state = lambda: state
    return state


def beat(
    world: Any,
    member_id: str,
    epoch: int,
    topics: list[str] | None = None,
    group_id: str = "s",
    rack: str | None = None,
) -> Any:
    """The answer, or the code of the error."""
    request = ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics
    )
    try:
        validate(request)
        return world.shard.run(world.shard.share.heartbeat(request, Client("client", "/127.0.0.1", 1)))
    except KafkaError as error:
        return error.code


def owned(answer: Any) -> list[list[int]] | None:
    return None if answer.assignment is None else [each.partitions for each in answer.assignment.topic_partitions]


def assigned(world: Any, member_id: str = "m", topics: tuple[str, ...] = ("t",)) -> Any:
    """A member that has its partitions."""
    answer = beat(world, member_id, 0, list(topics))
    world.clock.advance(1000)
    return beat(world, member_id, answer.member_epoch)


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("", 0, {"topics": ["t"]}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "group_id": " "}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "rack": ""}, InvalidRequest.code),
        ("m", 0, {}, InvalidRequest.code),
        ("m", 0, {"topics": []}, InvalidRequest.code),
        ("m", -2, {"topics": ["t"]}, InvalidRequest.code),
        ("m", 3, {"topics": ["t"]}, GroupIdNotFound.code),
        ("m", -1, {}, GroupIdNotFound.code),
    ],
)
def test_refused_heartbeats_change_nothing(
    world: Any, share: FakeState, member_id: str, epoch: int, fields: Any, code: int
) -> None:
    world.topic("t")
    assert beat(world, member_id, epoch, **fields) == code
    assert not world.writer.batches


def test_partitions_are_assigned_when_their_state_is_initialized(world: Any, share: FakeState) -> None:
    topic = world.topic("t", 2)
    joined = beat(world, "m", 0, ["t"])
    assert (joined.member_epoch, owned(joined), joined.heartbeat_interval_ms) == (2, [], 5000)
    assert share.offsets == {("s", topic.topic_id, index): (2, -1) for index in (0, 1)}
    early = beat(world, "m", 2)
    assert (early.member_epoch, owned(early)) == (2, None), "the last assignment is too recent"
    world.clock.advance(1000)
    got = beat(world, "m", 2)
    assert (got.member_epoch, owned(got)) == (3, [[0, 1]])
    again = beat(world, "m", 3)
    assert (again.member_epoch, owned(again)) == (3, None)
    assert beat(world, "m", 2).member_epoch == 3, "the answer with epoch 3 may have been lost"
    assert beat(world, "m", 1) == FencedMemberEpoch.code
    assert beat(world, "m", 4) == FencedMemberEpoch.code
    assert owned(beat(world, "m", 0, ["t"])) == [[0, 1]]
    assert beat(world, "other", 3) == UnknownMemberId.code


def test_failed_state_requests_are_repeated(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    share.error = CoordinatorNotAvailable()
    beat(world, "m", 0, ["t"])
    beat(world, "m", 2)
    assert share.asked == 1
    share.error = None
    world.clock.advance(30_000)
    beat(world, "m", 2)
    world.clock.advance(1000)
    assert owned(beat(world, "m", 2)) == [[0]]


def test_members_share_a_partition_and_leave(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    assigned(world, "m1")
    world.clock.advance(1000)
    second = beat(world, "m2", 0, ["t"])
    assert (second.member_epoch, owned(second)) == (4, [[0]])
    assert beat(world, "m1", 3).member_epoch == 4
    left = beat(world, "m2", -1)
    assert (left.member_epoch, left.member_id, left.heartbeat_interval_ms) == (-1, "m2", 0)
    assert beat(world, "m2", -1) == UnknownMemberId.code
    assert world.group("s").epoch == 5


def test_a_silent_member_is_removed(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    assigned(world)
    world.clock.advance(SESSION_MS - 1)
    assert world.group("s").state_name == "Stable"
    world.clock.advance(1)
    assert world.group("s").state_name == "Empty"
    world.clock.advance(10 * 24 * 3_600_000)
    assert "s" in world.shard.groups, "share groups do not expire"


def test_a_full_group_refuses_members(share: FakeState, world: Any) -> None:
    world.settings.share_max_size = 1
    world.topic("t", 1)
    assigned(world)
    assert beat(world, "m2", 0, ["t"]) == GroupMaxSizeReached.code
    assert beat(world, "m", 3).member_epoch == 3


def test_new_partitions_of_a_topic_are_assigned(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    assigned(world)
    world.grow("t", 2)
    grown = beat(world, "m", 3)
    assert len(share.offsets) == 2
    world.clock.advance(1000)
    later = beat(world, "m", grown.member_epoch)
    world.clock.advance(1000)
    last = beat(world, "m", later.member_epoch)
    assert [[0, 1]] in (owned(later), owned(last))


def test_a_deleted_topic_is_forgotten(world: Any, share: FakeState) -> None:
    topic = world.topic("t", 1)
    assigned(world)
    world.delete_topic("t")
    world.shard.on_topic_id_deleted(topic.topic_id)
    world.clock.advance(1000)
    assert owned(beat(world, "m", 3)) == []
    assert share_offsets.known_topics(world.shard, "s") == []


def test_a_restart_finds_the_group(world: Any, share: FakeState) -> None:
    world.topic("t", 2)
    assigned(world)
    before = world.group("s")
    fresh = world.fresh().groups["s"]
    for name in ("epoch", "metadata_hash", "members", "target", "target_epoch", "target_timestamp_ms", "topics"):
        assert getattr(fresh, name) == getattr(before, name), name
    world.restart()
    assert beat(world, "m", 3).member_epoch == 3
    world.clock.advance(SESSION_MS)
    assert world.group("s").state_name == "Empty"


def test_groups_of_other_kinds_are_not_changed(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    assigned(world)
    assert world.join("s").error_code == InconsistentGroupProtocol.code
    assert world.sync("x", 1, group_id="s").error_code == UnknownMemberId.code
    assert world.heartbeat("x", 1, group_id="s") == UnknownMemberId.code
    assert [member.error_code for member in world.leave("x", group_id="s").members] == [UnknownMemberId.code]
    request = ConsumerGroupHeartbeatRequest(
        group_id="s",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    with pytest.raises(KafkaError) as caught:
        requests.consumer_heartbeat(world.coordinator, request, Client("c", "/127.0.0.1", 1))
    assert caught.value.code == GroupIdNotFound.code
    world.stable(1, "classic")
    assert beat(world, "m", 0, ["t"], group_id="classic") == GroupIdNotFound.code
    listed = {group.group_id: group for group in describe.list_groups(world.shard, (), ["Share"])}
    assert (listed["s"].protocol_type, listed["s"].group_state, listed["s"].group_type) == ("share", "Stable", "share")
    assert "classic" not in listed
    assert describe_classic(world.shard, "s", 6).error_code == GroupIdNotFound.code


def test_groups_are_described(world: Any, share: FakeState) -> None:
    world.topic("t", 1)
    assigned(world)
    found = describe_share(world.shard, "s")
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (member,) = found.members
    assert (member.member_epoch, member.subscribed_topic_names) == (3, ["t"])
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0])]


def test_deleting_needs_an_empty_group(world: Any, share: FakeState) -> None:
    world.topic("t", 2)
    assigned(world)
    (refused,) = requests.delete_groups(world.coordinator, ["s"])
    assert not isinstance(refused, Reply)
    assert refused.error_code == NonEmptyGroup.code
    beat(world, "m", -1)
    (deleted,) = requests.delete_groups(world.coordinator, ["s"])
    assert not isinstance(deleted, Reply)
    assert deleted.error_code == 0
    assert not share.offsets
    assert "s" not in world.shard.groups and "s" not in world.fresh().groups


def test_a_group_is_deleted_after_its_state(world: Any, share: FakeState) -> None:
    topic = world.topic("t", 2)
    assigned(world)
    beat(world, "m", -1)
    share.error = CoordinatorNotAvailable()
    (failed,) = requests.delete_groups(world.coordinator, ["s"])
    assert (failed.error_code, len(share.offsets)) == (CoordinatorNotAvailable.code, 2)
    kept = world.fresh().groups["s"]
    assert (kept.topics.deleting, kept.topics.initialized) == ({topic.topic_id}, {}), (
        "the group remembers what to delete"
    )
    share.error = None
    (deleted,) = requests.delete_groups(world.coordinator, ["s"])
    assert (deleted.error_code, share.offsets) == (0, {})
    assert "s" not in world.fresh().groups


def alter(world: Any, group_id: str, *places: tuple[str, int, int]) -> Any:
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offset
                    )
                ],
            )
            for name, index, offset in places
        ],
    )
    return world.shard.run(share_offsets.alter(world.shard, request))


def forget(world: Any, group_id: str, *names: str) -> Any:
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[topic(topic_name=name) for name in names])
    return world.shard.run(share_offsets.delete(world.shard, request))


def test_offsets_are_set_and_deleted(world: Any, share: FakeState) -> None:
    topic = world.topic("t", 1)
    answer = alter(world, "s", ("t", 0, 7), ("t", 5, 1), ("absent", 0, 1))
    assert [[each.error_code for each in one.partitions] for one in answer.responses] == [
        [UnknownTopicOrPartition.code],
        [0, UnknownTopicOrPartition.code],
    ]
    assert share.offsets["s", topic.topic_id, 0][1] == 7
    assert [known.partitions for known in share_offsets.known_topics(world.shard, "s")] == [[0]]
    assigned(world)
    with pytest.raises(KafkaError) as caught:
        alter(world, "s", ("t", 0, 1))
    assert caught.value.code == NonEmptyGroup.code
    beat(world, "m", -1)
    gone = forget(world, "s", "t", "absent")
    assert [one.error_code for one in gone.responses] == [0, UnknownTopicOrPartition.code]
    assert not share.offsets
    assert [one.error_message for one in forget(world, "s", "t").responses] == [share_offsets.NOTHING_THERE]
    assert world.fresh().groups["s"].topics == world.group("s").topics


def spec(topics: str, **target: Any) -> MemberSpec:
    return MemberSpec(
        None,
        frozenset(name.encode() for name in topics),
        {topic.encode(): frozenset(indexes) for topic, indexes in target.items()},
    )


@pytest.mark.parametrize(("members", "partitions"), [(1, 1), (1, 5), (2, 5), (3, 3), (5, 2), (7, 3), (4, 1)])
def test_every_member_gets_partitions_and_every_partition_a_member(members: int, partitions: int) -> None:
    found = assign_simple({f"m{number}": spec("t") for number in range(members)}, {b"t": frozenset(range(partitions))})
    sizes = [sum(map(len, target.values())) for target in found.values()]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1
    assert {index for target in found.values() for index in target[b"t"]} == set(range(partitions))


def test_a_balanced_target_does_not_change() -> None:
    found = assign_simple({"a": spec("t", t=[0, 1, 2, 3]), "b": spec("t")}, {b"t": frozenset(range(4))})
    assert found == {"a": {b"t": frozenset({2, 3})}, "b": {b"t": frozenset({0, 1})}}
    assert assign_simple({"a": spec("t", t=[1]), "b": spec("t", t=[0])}, {b"t": frozenset({0, 1})}) == {
        "a": {b"t": frozenset({1})},
        "b": {b"t": frozenset({0})},
    }


def test_topics_are_assigned_only_to_their_subscribers() -> None:
    found = assign_simple({"a": spec("tu"), "b": spec("t")}, {b"t": frozenset({0, 1}), b"u": frozenset({0})})
    assert found["a"][b"u"] == {0}
    assert found["b"].keys() == {b"t"}
    assert assign_simple({"a": spec("t")}, {}) == {"a": {}}
