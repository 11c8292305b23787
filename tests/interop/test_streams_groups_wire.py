"""Streams groups on the wire (KIP-1071): joining, topologies, tasks, errors and their messages."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import ConfigResourceType
from ottla.errors import (
    NONE,
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidConfig,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    StreamsInvalidTopology,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.wire.messages import (
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    ListGroupsRequest,
    StreamsGroupDescribeRequest,
)
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.interop import streams
from support.interop.streams import Member, configure, described, tasks
from support.streams import info, subtopology, together, topology
from support.waiting import wait_for
from support.wire import Wire

STALE, MISSING_SOURCES, WRONGLY_PARTITIONED, MISSING_INTERNAL, SHUTDOWN, DELAYED = range(6)


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> str:
    """A group name whose coordinator is ready, and whose assignments have no delay."""
    name = unique("app")
    streams.find_coordinator(wire, name)
    configure(wire, name, streams.NO_WAITING)
    return name


@pytest.fixture
def topic(wire: Wire, unique: Callable[[str], str]) -> str:
    name = unique("in")
    made(wire, name, 3)
    return name


def made(wire: Wire, name: str, partitions: int) -> None:
    assert wire.create_topic_result(name, partitions).error_code == NONE
    wait_for(lambda: len(wire.metadata(name).topics[0].partitions) == partitions)


def statuses(answer: Any) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in answer.status]


def told(member: Member, missing: tuple[int, ...] = (MISSING_SOURCES,)) -> list[tuple[int, str]]:
    """The statuses in heartbeats once the coordinator knows the new topics, which takes Apache Kafka a moment."""

    def look() -> list[tuple[int, str]]:
        found = statuses(member.beat())
        return [] if any(code in missing for code, _ in found) else found

    found: list[tuple[int, str]] = wait_for(look)
    return found


def refused(make: Callable[[], Member]) -> tuple[int, str | None]:
    """The error of a join, once the coordinator knows the new topics."""

    def look() -> Any:
        answer = make().send()
        return answer if answer.error_code else None

    answer = wait_for(look)
    return answer.error_code, answer.error_message


def listed(wire: Wire, group: str, states: list[str] | None = None, types: list[str] | None = None) -> list[Any]:
    request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
    return [
        (each.protocol_type, each.group_state, each.group_type)
        for each in wire.call(request, 5).groups
        if each.group_id == group
    ]


def run_alone(wire: Wire, group: str, topic: str, partitions: int = 3, **joining: Any) -> Member:
    member = Member(wire, group, topology(subtopology("0", topic)), **joining)
    member.follow(lambda: member.active == {"0": list(range(partitions))})
    return member


# -- what a heartbeat must look like

SHAPE = topology(subtopology("0", "some-topic"))
REGEX = topology(subtopology("0", source_topic_regex=["a.*"]))
COUNTED = topology(subtopology("0", "some-topic", state_changelog_topics=[info("store-changelog", 3)]))
OFFSETS = [Beat.TaskOffset(subtopology_id="0", partition=0, offset=1)]
TASKS = [Beat.TaskIds(subtopology_id="0", partitions=[0])]
ONE_TYPE = "If one task-type is non-null, all must be non-null."

INVALID = {
    "static member": ({"instance_id": "i"}, "Static membership is not yet supported."),
    "task offsets": ({"task_offsets": OFFSETS}, "TaskOffsets are not supported yet."),
    "no task offsets": ({"task_offsets": []}, "TaskOffsets are not supported yet."),
    "end offsets": ({"task_end_offsets": OFFSETS}, "TaskEndOffsets are not supported yet."),
    "warm-up": ({"warmup_tasks": TASKS}, "WarmupTasks are not supported yet."),
    "regex": ({"topology": REGEX}, "Regular expressions for source topics are not supported yet."),
    "no member": ({"member_id": ""}, "MemberId can't be empty."),
    "blank member": ({"member_id": " "}, "MemberId can't be empty."),
    "trimmed member": ({"member_id": "\0"}, "MemberId can't be empty."),
    "blank rack": ({"rack_id": " "}, "RackId can't be empty."),
    "no timeout": ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    "null active": ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
    "active": ({"active_tasks": TASKS}, "ActiveTasks must be empty when (re-)joining."),
    "standby": ({"standby_tasks": TASKS}, "StandbyTasks must be empty when (re-)joining."),
    "null warm-up": ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
    "no topology": ({"topology": None}, "Topology must be non-null when (re-)joining."),
    "static leave": ({"member_epoch": -2}, "InstanceId can't be null."),
    "odd epoch": ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
    "one type": ({"member_epoch": 5, "active_tasks": []}, ONE_TYPE),
    "two types": ({"member_epoch": 5, "active_tasks": [], "standby_tasks": []}, ONE_TYPE),
    "late topology": ({"member_epoch": 5, "topology": SHAPE}, "Topology can only be provided when (re-)joining."),
    "leave with topology": (
        {"member_epoch": -1, "topology": SHAPE},
        "Topology can only be provided when (re-)joining.",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_heartbeat_is_refused(wire: Wire, group: str, name: str) -> None:
    fields, message = INVALID[name]
    answer = Member(wire, group, SHAPE).send(**fields)
    assert (answer.error_code, answer.error_message) == (InvalidRequest.code, message)
    assert answer.member_id == ""
    assert answer.status == []


def test_the_first_of_several_errors_is_answered(wire: Wire, group: str) -> None:
    member = Member(wire, group, SHAPE)
    answer = member.send(member_id="", rack_id="", task_offsets=OFFSETS, rebalance_timeout_ms=-1)
    assert answer.error_message == "TaskOffsets are not supported yet."
    answer = member.send(member_id="", rack_id="", rebalance_timeout_ms=-1)
    assert answer.error_message == "MemberId can't be empty."
    answer = member.send(rack_id="", rebalance_timeout_ms=-1, topology=None)
    assert answer.error_message == "RackId can't be empty."


@pytest.mark.parametrize(
    "shape, message",
    [
        (COUNTED, "Changelog topic store-changelog must have an undefined partition count, but it is set to 3."),
        (
            topology(subtopology("0", "__consumer_offsets", "ok", "__transaction_state")),
            "Use of Kafka internal topics __consumer_offsets,__transaction_state in a Kafka Streams topology is "
            "prohibited.",
        ),
        (
            topology(subtopology("0", "ok", repartition_sink_topics=["not ok", "a/b"])),
            "Topic names not ok,a/b are not valid topic names.",
        ),
        (topology(subtopology("0")), "No source topics found for subtopology 0"),
    ],
    ids=["counted-changelog", "internal", "illegal", "no-source"],
)
def test_an_impossible_topology_is_refused(wire: Wire, group: str, shape: Any, message: str) -> None:
    answer = Member(wire, group, shape).send()
    assert (answer.error_code, answer.error_message) == (StreamsInvalidTopology.code, message)


def test_unwritten_or_circular_repartition_topics_are_refused(
    wire: Wire, group: str, topic: str, unique: Callable[[str], str]
) -> None:
    unwritten = topology(subtopology("0", topic, repartition_source_topics=[info(f"{group}-r")]))
    assert refused(lambda: Member(wire, unique("app"), unwritten)) == (
        StreamsInvalidTopology.code,
        "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
        "never used as a sink topic.",
    )
    circle = topology(
        subtopology("0", repartition_source_topics=[info(f"{group}-a")], repartition_sink_topics=[f"{group}-a"]),
    )
    answer = Member(wire, group, circle).send()
    assert answer.error_code == StreamsInvalidTopology.code
    assert answer.error_message == (
        "Failed to compute number of partitions for all repartition topics. "
        "There may be loops in the topology that cannot be resolved."
    )


def test_unknown_groups_and_members(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topology(subtopology("0", topic)))
    answer = member.send(member_epoch=4)
    assert (answer.error_code, answer.error_message) == (GroupIdNotFound.code, f"Streams group {group} not found.")
    answer = member.leave()
    assert (answer.error_code, answer.error_message) == (GroupIdNotFound.code, f"Group {group} not found.")
    run_alone(wire, group, topic)
    message = f"Member {member.member_id} is not a member of group {group}."
    for epoch in (4, -1):
        answer = member.send(member_epoch=epoch)
        assert (answer.error_code, answer.error_message) == (UnknownMemberId.code, message)


# -- one member


def test_a_member_joins_works_and_leaves(wire: Wire, group: str, topic: str) -> None:
    member = Member(
        wire,
        group,
        topology(subtopology("0", topic), epoch=3),
        rack_id="r1",
        client_tags=[Beat.KeyValue(key="zone", value="z"), Beat.KeyValue(key="a", value="b")],
    )
    answer = member.beat()
    assert answer.heartbeat_interval_ms == 5000
    assert (answer.acceptable_recovery_lag, answer.task_offset_interval_ms) == (0, 0)
    member.follow(lambda: member.active == {"0": [0, 1, 2]})
    quiet = member.send(active_tasks=streams.ids(member.active), standby_tasks=[], warmup_tasks=[])
    assert (quiet.active_tasks, quiet.standby_tasks, quiet.warmup_tasks) == (None, None, None)
    assert (quiet.member_id, quiet.member_epoch, statuses(quiet)) == (member.member_id, member.epoch, [])
    found = described(wire, group)
    assert (found.error_code, found.error_message, found.group_state) == (NONE, None, "Stable")
    assert found.group_epoch == found.assignment_epoch == member.epoch
    assert found.topology.epoch == 3
    (shape,) = found.topology.subtopologies
    assert (shape.subtopology_id, shape.source_topics) == ("0", [topic])
    assert shape.repartition_sink_topics == shape.repartition_source_topics == shape.state_changelog_topics == []
    (seen,) = found.members
    assert (seen.member_id, seen.member_epoch, seen.topology_epoch) == (member.member_id, member.epoch, 3)
    assert (seen.instance_id, seen.rack_id, seen.client_id, seen.process_id) == (None, "r1", "wire", member.process)
    assert seen.client_host == "/127.0.0.1"
    assert {tag.key: tag.value for tag in seen.client_tags} == {"zone": "z", "a": "b"}
    assert (seen.user_endpoint, seen.is_classic, seen.task_offsets, seen.task_end_offsets) == (None, False, [], [])
    assert tasks(seen.assignment.active_tasks) == tasks(seen.target_assignment.active_tasks) == {"0": [0, 1, 2]}
    assert seen.assignment.standby_tasks == seen.assignment.warmup_tasks == seen.target_assignment.standby_tasks == []
    assert listed(wire, group) == [("streams", "Stable", "streams")]
    left = member.leave()
    assert (left.error_code, left.member_id, left.member_epoch) == (NONE, member.member_id, -1)
    assert (left.active_tasks, left.heartbeat_interval_ms, left.status) == (None, 0, [])
    found = described(wire, group)
    assert (found.group_state, found.members) == ("Empty", [])
    assert found.group_epoch == member.epoch + 1
    assert found.assignment_epoch == member.epoch


def test_groups_are_listed_by_state_and_type(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    entry = [("streams", "Stable", "streams")]
    assert listed(wire, group, types=["Streams"]) == listed(wire, group, ["stable"], ["streams", "classic"]) == entry
    assert listed(wire, group, types=["consumer"]) == listed(wire, group, ["Empty"]) == []
    member.leave()
    assert listed(wire, group, ["Empty"], ["streams"]) == [("streams", "Empty", "streams")]


def test_unknown_groups_have_no_description(wire: Wire, group: str) -> None:
    found = wire.call(StreamsGroupDescribeRequest(group_ids=[group, ""], include_authorized_operations=True), 0)
    by_name = {each.group_id: each for each in found.groups}
    assert (by_name[group].error_code, by_name[group].error_message) == (
        GroupIdNotFound.code,
        f"Group {group} not found.",
    )
    assert (by_name[group].topology, by_name[group].members) == (None, [])
    assert by_name[group].authorized_operations == -(2**31)
    assert by_name[""].error_code == InvalidGroupId.code


def test_authorized_operations_of_a_group(wire: Wire, group: str, topic: str) -> None:
    run_alone(wire, group, topic)
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    assert wire.call(request, 0).groups[0].authorized_operations == 3400


def test_epochs_are_checked(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    greater = member.send(member_epoch=member.epoch + 1)
    assert (greater.error_code, greater.error_message) == (
        FencedMemberEpoch.code,
        f"The streams group member has a greater member epoch ({member.epoch + 1}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
    second = Member(wire, group, member.shape)
    second.beat()
    # The first one has to revoke tasks at the old epoch, and then continues.
    wait_for(lambda: member.own() and len(member.active["0"]) == 2)
    wait_for(lambda: member.own() and member.epoch == second.epoch)
    before = member.epoch - 1
    smaller = member.send(member_epoch=before)
    assert (smaller.error_code, smaller.error_message) == (
        FencedMemberEpoch.code,
        f"The streams group member has a smaller member epoch ({before}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def test_a_heartbeat_can_be_repeated_after_a_lost_answer(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topology(subtopology("0", topic)))
    member.follow(lambda: member.active == {"0": [0, 1, 2]})
    previous = member.epoch
    member.beat(rack_id="elsewhere")
    assert member.epoch == previous + 1
    again = member.send(member_epoch=previous, active_tasks=streams.ids({"0": [0]}), standby_tasks=[], warmup_tasks=[])
    assert (again.error_code, again.member_epoch) == (NONE, member.epoch)
    wrong = member.send(member_epoch=previous, active_tasks=streams.ids({"1": [0]}), standby_tasks=[], warmup_tasks=[])
    assert wrong.error_code == FencedMemberEpoch.code


def test_a_member_that_joins_again_gets_its_tasks_again(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    again = member.send(member_epoch=0)
    assert (again.error_code, again.member_epoch, tasks(again.active_tasks)) == (NONE, member.epoch, {"0": [0, 1, 2]})


def test_tasks_that_do_not_exist(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    for owned, message in (
        ({"7": [0]}, "Subtopology 7 does not exist in the topology."),
        ({"0": [3]}, "Task 3 for subtopology 0 is invalid. Number of tasks for this subtopology: 3"),
        ({"0": [-1]}, "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 3"),
    ):
        answer = member.send(active_tasks=streams.ids(owned), standby_tasks=[], warmup_tasks=[])
        assert (answer.error_code, answer.error_message) == (InvalidRequest.code, message)


# -- topologies


def test_the_topology_of_a_group_does_not_change(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    for shape in (
        topology(subtopology("0", topic), epoch=1),
        topology(subtopology("1", topic)),
        topology(subtopology("0", topic, repartition_sink_topics=["more"])),
    ):
        answer = Member(wire, group, shape).send()
        assert (answer.error_code, answer.error_message) == (
            InvalidRequest.code,
            "Topology updates are not supported yet.",
        )
    assert member.send().error_code == NONE


def test_a_stale_topology_is_reported(wire: Wire, group: str, topic: str) -> None:
    first = Member(wire, group, topology(subtopology("0", topic), epoch=2))
    first.follow(lambda: first.active == {"0": [0, 1, 2]})
    late = Member(wire, group, topology(subtopology("9", "other"), epoch=1))
    behind = (STALE, "The member's topology epoch 1 is behind the group's topology epoch 2.")
    assert behind in statuses(late.beat())
    assert behind in statuses(late.own())


def test_missing_source_topics(wire: Wire, group: str, unique: Callable[[str], str]) -> None:
    names = sorted(unique(f"src{index}") for index in range(5))
    member = Member(wire, group, topology(subtopology("0", *names[:2]), subtopology("1", *names[2:])))
    answer = member.beat()
    told = f"Source topics {', '.join(names[:3])} and 2 additional topics are missing."
    assert statuses(answer) == [(MISSING_SOURCES, told)]
    assert (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) == ([], [], [])
    found = described(wire, group)
    assert found.group_state == "NotReady"
    assert [each.subtopology_id for each in found.topology.subtopologies] == ["0", "1"]
    assert listed(wire, group, ["not_ready"]) == [("streams", "NotReady", "streams")]
    assert listed(wire, group, ["NotReady"]) == []
    for name in names:
        made(wire, name, 2)
    member.follow(lambda: member.active == {"0": [0, 1], "1": [0, 1]})
    assert described(wire, group).group_state == "Stable"


def test_internal_topics_are_created(wire: Wire, group: str, topic: str) -> None:
    repartition, wide, changelog = f"{group}-re", f"{group}-wide", f"{group}-store-changelog"
    shape = topology(
        subtopology("0", topic, repartition_sink_topics=[repartition, wide]),
        subtopology("1", repartition_source_topics=[info(repartition, cleanup_policy="delete", retention_ms="-1")]),
        subtopology(
            "2",
            repartition_source_topics=[info(wide, 5)],
            state_changelog_topics=[info(changelog, cleanup_policy="compact")],
        ),
    )
    member = Member(wire, group, shape)
    ((code, detail),) = told(member)
    assert code == MISSING_INTERNAL
    assert detail.startswith("Internal topics are missing: ")
    assert set(detail.partition(": ")[2].split(", ")) == {repartition, wide, changelog}
    member.follow(lambda: member.active == {"0": [0, 1, 2], "1": [0, 1, 2], "2": [0, 1, 2, 3, 4]})
    counts = [len(wire.metadata(name).topics[0].partitions) for name in (repartition, wide, changelog)]
    assert counts == [3, 5, 5]
    found = described(wire, group)
    assert found.group_state == "Stable"
    first, second, third = found.topology.subtopologies
    assert first.repartition_sink_topics == sorted([repartition, wide])
    (inner,) = second.repartition_source_topics
    assert (inner.name, inner.partitions, inner.replication_factor) == (repartition, 3, 0)
    assert {each.key: each.value for each in inner.topic_configs} == {"cleanup.policy": "delete", "retention.ms": "-1"}
    (store,) = third.state_changelog_topics
    assert (store.name, store.partitions) == (changelog, 5)
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=changelog, configuration_keys=["cleanup.policy"]
    )
    assert wire.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value == "compact"


def test_an_internal_topic_that_cannot_be_created(wire: Wire, group: str, topic: str) -> None:
    changelog = f"{group}-store-changelog"
    shape = topology(subtopology("0", topic, state_changelog_topics=[info(changelog, retention_ms="soon")]))
    member = Member(wire, group, shape)
    text = "Invalid value soon for configuration retention.ms: Not a number of type LONG"
    detail = f"Internal topics are missing: {changelog}; Creation failed: {changelog} ({text})."
    wait_for(lambda: statuses(member.beat()) == [(MISSING_INTERNAL, detail)])


def test_an_internal_topic_of_the_wrong_size(wire: Wire, group: str, topic: str) -> None:
    changelog = f"{group}-store-changelog"
    made(wire, changelog, 2)
    shape = topology(subtopology("0", topic, state_changelog_topics=[info(changelog)]))
    detail = f"Existing topic {changelog} has different number of partitions: expected 3, found 2"
    assert told(Member(wire, group, shape), (MISSING_SOURCES, MISSING_INTERNAL)) == [(WRONGLY_PARTITIONED, detail)]
    assert described(wire, group).group_state == "NotReady"


def test_topics_that_are_read_together(wire: Wire, group: str, topic: str, unique: Callable[[str], str]) -> None:
    other = unique("narrow")
    made(wire, other, 2)
    shape = topology(subtopology("0", topic, other, copartition_groups=[together([0, 1])]))
    ((code, detail),) = told(Member(wire, group, shape))
    assert code == WRONGLY_PARTITIONED
    sizes = ", ".join(f"{name}={size}" for name, size in sorted({topic: 3, other: 2}.items()))
    assert detail == f"Following topics do not have the same number of partitions: [{{{sizes}}}]"


def test_a_repartition_topic_gets_the_partitions_of_its_join_partner(wire: Wire, group: str, topic: str) -> None:
    free = f"{group}-free"
    shape = topology(
        subtopology(
            "0",
            topic,
            repartition_source_topics=[info(free)],
            repartition_sink_topics=[free],
            copartition_groups=[together([0], [0])],
        )
    )
    member = Member(wire, group, shape)
    member.follow(lambda: member.active == {"0": [0, 1, 2]})
    assert len(wire.metadata(free).topics[0].partitions) == 3


def test_a_fixed_repartition_topic_that_does_not_fit(wire: Wire, group: str, topic: str) -> None:
    fixed = f"{group}-fixed"
    shape = topology(
        subtopology(
            "0",
            topic,
            repartition_source_topics=[info(fixed, 7)],
            repartition_sink_topics=[fixed],
            copartition_groups=[together([0], [0])],
        )
    )
    detail = (
        f"Number of partitions [7] of repartition topic [{fixed}] doesn't match number of partitions [3] of the "
        "source topic."
    )
    assert told(Member(wire, group, shape)) == [(WRONGLY_PARTITIONED, detail)]


def test_a_copartition_group_with_unknown_topics(wire: Wire, group: str, topic: str) -> None:
    shape = topology(subtopology("0", topic, copartition_groups=[together([4])]))
    answer = Member(wire, group, shape).send()
    assert (answer.error_code, answer.error_message) == (UnknownServerError.code, None)


# -- several members


def test_tasks_move_after_they_were_revoked(wire: Wire, group: str, topic: str) -> None:
    first = run_alone(wire, group, topic)
    second = Member(wire, group, first.shape)
    answer = second.beat()
    assert answer.active_tasks == []  # still with the first
    assert described(wire, group).group_state == "Reconciling"
    told = wait_for(lambda: (found := first.beat()).active_tasks is not None and found)
    assert len(tasks(told.active_tasks)["0"]) == 2
    assert second.own().active_tasks is None  # the first has not reported the revocation
    first.own()
    wait_for(lambda: second.own() and len(second.active.get("0", [])) == 1)
    assert sorted(first.active["0"] + second.active["0"]) == [0, 1, 2]
    first.follow(lambda: first.epoch == second.epoch)
    assert described(wire, group).group_state == "Stable"
    second.leave()
    first.follow(lambda: first.active == {"0": [0, 1, 2]})


def test_standby_tasks(wire: Wire, group: str, topic: str) -> None:
    configure(wire, group, {"streams.num.standby.replicas": "1"})
    changelog = f"{group}-store-changelog"
    shape = topology(subtopology("0", topic, state_changelog_topics=[info(changelog)]))
    first, second = Member(wire, group, shape, "p1"), Member(wire, group, shape, "p2")
    first.follow(lambda: first.active == {"0": [0, 1, 2]})
    assert first.standby == {}
    second.beat()

    def is_balanced() -> bool:
        first.own(), second.own()
        active = sorted(first.active.get("0", []) + second.active.get("0", []))
        copies = sorted(first.standby.get("0", []) + second.standby.get("0", []))
        return active == copies == [0, 1, 2]

    wait_for(is_balanced)
    assert sorted(first.active["0"] + first.standby.get("0", [])) == [0, 1, 2]
    # The standby copies become active in place when the other member leaves.
    second.leave()
    first.follow(lambda: first.active == {"0": [0, 1, 2]} and first.standby == {})


def test_a_changed_number_of_standby_copies_is_a_rebalance(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    before = member.epoch
    configure(wire, group, {"streams.num.standby.replicas": "2"})
    wait_for(lambda: member.own() and member.epoch == before + 1)


def test_a_shutdown_request_reaches_every_member(wire: Wire, group: str, topic: str) -> None:
    first = run_alone(wire, group, topic)
    second = Member(wire, group, first.shape)
    second.beat()
    message = (
        f"Streams group member {first.member_id} encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    assert (SHUTDOWN, message) in statuses(first.beat(shutdown_application=True))
    assert (SHUTDOWN, message) in statuses(second.beat(shutdown_application=True))
    first.leave()
    assert (SHUTDOWN, message) in statuses(second.beat())
    second.leave()
    fresh = Member(wire, group, first.shape)
    assert SHUTDOWN not in [code for code, _ in statuses(fresh.beat())]


def test_a_leaving_member_can_request_a_shutdown(wire: Wire, group: str, topic: str) -> None:
    first = run_alone(wire, group, topic)
    second = Member(wire, group, first.shape)
    second.beat()
    assert first.send(member_epoch=-1, shutdown_application=True).error_code == NONE
    assert SHUTDOWN in [code for code, _ in statuses(second.beat())]


def test_the_first_assignment_waits(wire: Wire, group: str, topic: str) -> None:
    configure(wire, group, {"streams.initial.rebalance.delay.ms": "600000"})
    member = Member(wire, group, topology(subtopology("0", topic)))
    delayed = (DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
    answer = member.beat()
    assert delayed in statuses(answer)
    assert answer.active_tasks == []
    wait_for(lambda: delayed in statuses(member.own()) and described(wire, group).group_state == "Assigning")
    assert member.epoch == described(wire, group).assignment_epoch < described(wire, group).group_epoch


def test_assignments_wait_for_the_assignment_interval(wire: Wire, group: str, topic: str) -> None:
    first = run_alone(wire, group, topic)
    configure(wire, group, {"streams.assignment.interval.ms": "15000"})
    second = Member(wire, group, first.shape)
    answer = second.beat()
    assert statuses(answer) == [(DELAYED, "Assignment delayed due to the configured assignment interval.")]
    assert answer.member_epoch == first.epoch
    assert described(wire, group).group_state == "Assigning"


def test_partitions_by_user_endpoint(wire: Wire, group: str, topic: str) -> None:
    first = Member(wire, group, topology(subtopology("0", topic)), user_endpoint=Beat.Endpoint(host="h1", port=8080))
    wait_for(lambda: first.send().error_code == NONE)  # the coordinator has to know the topic
    first.follow(lambda: first.active == {"0": [0, 1, 2]})
    answer = first.beat(endpoint_information_epoch=-1)
    epoch = answer.endpoint_information_epoch
    (entry,) = answer.partitions_by_user_endpoint
    assert (entry.user_endpoint.host, entry.user_endpoint.port) == ("h1", 8080)
    assert [(each.topic, list(each.partitions)) for each in entry.active_partitions] == [(topic, [0, 1, 2])]
    assert entry.standby_partitions == []
    known = first.beat(endpoint_information_epoch=epoch)
    assert (known.partitions_by_user_endpoint, known.endpoint_information_epoch) == (None, epoch)
    second = Member(wire, group, first.shape)  # without an endpoint
    assert len(second.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint) == 1
    (seen,) = [each for each in described(wire, group).members if each.member_id == first.member_id]
    assert (seen.user_endpoint.host, seen.user_endpoint.port) == ("h1", 8080)


def test_an_endpoint_without_a_valid_topology(wire: Wire, group: str, unique: Callable[[str], str]) -> None:
    member = Member(
        wire, group, topology(subtopology("0", unique("none"))), user_endpoint=Beat.Endpoint(host="h", port=1)
    )
    assert member.send().error_code == UnknownServerError.code


# -- creation and deletion of groups


def test_groups_with_members_cannot_be_deleted(wire: Wire, group: str, topic: str) -> None:
    member = run_alone(wire, group, topic)
    delete = DeleteGroupsRequest(groups_names=[group])
    assert wire.call(delete, 2).results[0].error_code == NonEmptyGroup.code
    member.leave()
    assert wire.call(delete, 2).results[0].error_code == NONE
    wait_for(lambda: described(wire, group).error_code == GroupIdNotFound.code)
    assert listed(wire, group) == []
    assert wire.call(delete, 2).results[0].error_code == GroupIdNotFound.code


def test_a_new_topology_after_a_deletion(wire: Wire, group: str, topic: str) -> None:
    run_alone(wire, group, topic).leave()
    assert wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == NONE
    member = Member(wire, group, topology(subtopology("5", topic), epoch=9))
    member.follow(lambda: member.active == {"5": [0, 1, 2]})


@pytest.mark.parametrize(
    "name, value, message",
    [
        (
            "streams.session.timeout.ms",
            "1",
            "streams.session.timeout.ms must be greater than or equal to group.streams.min.session.timeout.ms",
        ),
        (
            "streams.heartbeat.interval.ms",
            "60000",
            "streams.heartbeat.interval.ms must be less than or equal to group.streams.max.heartbeat.interval.ms",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_group_configs_have_bounds(wire: Wire, group: str, name: str, value: str, message: str) -> None:
    answer = configure(wire, group, {name: value})
    assert (answer.error_code, answer.error_message) == (InvalidConfig.code, message)


def test_the_configs_of_a_group(wire: Wire, group: str, topic: str) -> None:
    configure(wire, group, {"streams.heartbeat.interval.ms": "7000"})
    found = {name: value for name, value in streams.group_configs(wire, group).items() if name.startswith("streams.")}
    assert found == {
        "streams.session.timeout.ms": "45000",
        "streams.heartbeat.interval.ms": "7000",
        "streams.num.standby.replicas": "0",
        "streams.initial.rebalance.delay.ms": "0",
        "streams.assignment.interval.ms": "0",
    }
    assert run_alone(wire, group, topic).beat().heartbeat_interval_ms == 7000
