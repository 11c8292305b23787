"""Properties of the server-side assignors: each partition is assigned once, fairly, stickily, and only to
subscribers."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.consumer.assignors import ASSIGNORS, MemberSpec, Target, assign_range, assign_uniform

TOPICS = [bytes([number]) * 16 for number in range(4)]

counts = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
subscriptions = st.frozensets(st.sampled_from(TOPICS), max_size=4)
names = st.text("abcdefgh", min_size=1, max_size=4)
groups = st.dictionaries(names, subscriptions, min_size=1, max_size=8)


def specs(group: dict[str, frozenset[bytes]], targets: dict[str, Target] | None = None) -> dict[str, MemberSpec]:
    return {name: MemberSpec(None, topics, (targets or {}).get(name, {})) for name, topics in group.items()}


def owners(assignment: dict[str, Target]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for name, target in assignment.items():
        for topic, indexes in target.items():
            assert indexes, "no empty topics in a target"
            for index in indexes:
                assert (topic, index) not in found, "a partition has two owners"
                found[topic, index] = name
    return found


def load(assignment: dict[str, Target]) -> dict[str, int]:
    return {name: sum(map(len, target.values())) for name, target in assignment.items()}


@given(st.sampled_from(sorted(ASSIGNORS)), groups, counts)
def test_every_subscribed_partition_has_one_subscribed_owner(
    name: str, group: dict[str, frozenset[bytes]], partitions: dict[bytes, int]
) -> None:
    assignment = ASSIGNORS[name](specs(group), partitions)
    assert assignment.keys() == group.keys()
    found = owners(assignment)
    wanted = {topic for topics in group.values() for topic in topics}
    assert found.keys() == {(topic, index) for topic in wanted for index in range(partitions[topic])}
    assert all(topic in group[owner] for (topic, _), owner in found.items())


@given(groups, counts)
def test_uniform_assignments_are_balanced(group: dict[str, frozenset[bytes]], partitions: dict[bytes, int]) -> None:
    """No partition could move to a subscriber that has two partitions fewer than its owner."""
    assignment = assign_uniform(specs(group), partitions)
    loads = load(assignment)
    for (topic, _), owner in owners(assignment).items():
        assert all(loads[owner] - loads[name] < 2 for name, topics in group.items() if topic in topics)


@given(st.lists(names, min_size=1, max_size=8, unique=True), names, counts)
def test_uniform_moves_no_more_than_it_must(members: list[str], joining: str, partitions: dict[bytes, int]) -> None:
    topics = frozenset(TOPICS)
    group = dict.fromkeys(members, topics)
    before = assign_uniform(specs(group), partitions)
    assert assign_uniform(specs(group, before), partitions) == before
    group[joining] = topics
    after = assign_uniform(specs(group, before), partitions)
    moved = sum(owners(before)[partition] != owner for partition, owner in owners(after).items())
    excess = {name: max(0, count - load(after)[name]) for name, count in load(before).items()}
    assert moved == sum(excess.values())


@given(groups, counts, st.data())
def test_uniform_reassigns_the_partitions_of_a_member_that_left(
    group: dict[str, frozenset[bytes]], partitions: dict[bytes, int], data: st.DataObject
) -> None:
    before = assign_uniform(specs(group), partitions)
    gone = data.draw(st.sampled_from(sorted(group)))
    left = {name: topics for name, topics in group.items() if name != gone}
    after = assign_uniform(specs(left, before), partitions)
    wanted = {topic for topics in left.values() for topic in topics}
    assert owners(after).keys() == {(topic, index) for topic in wanted for index in range(partitions[topic])}


@given(groups, counts)
def test_range_assigns_contiguous_slices(group: dict[str, frozenset[bytes]], partitions: dict[bytes, int]) -> None:
    for target in assign_range(specs(group), partitions).values():
        for indexes in target.values():
            assert sorted(indexes) == list(range(min(indexes), max(indexes) + 1))


def test_range_assigns_equal_partitions_of_topics_to_the_same_member() -> None:
    topics = frozenset(TOPICS[:2])
    assignment = assign_range(specs({"b": topics, "a": topics}), dict.fromkeys(TOPICS, 3))
    assert assignment == {
        "a": {topic: frozenset({0, 1}) for topic in topics},
        "b": {topic: frozenset({2}) for topic in topics},
    }


def test_range_orders_static_members_first() -> None:
    topics = frozenset(TOPICS[:1])
    members = {"a": MemberSpec(None, topics, {}), "z": MemberSpec("i", topics, {})}
    assert assign_range(members, dict.fromkeys(TOPICS, 1))["z"] == {TOPICS[0]: frozenset({0})}


def test_deleted_partitions_are_dropped() -> None:
    """A topic cannot be recreated with its old id, but it can have fewer partitions."""
    for topics in (frozenset(TOPICS[:1]), frozenset(TOPICS[:2])):
        members = {
            "a": MemberSpec(None, frozenset(TOPICS[:1]), {TOPICS[0]: frozenset({0, 5}), TOPICS[3]: frozenset({1})}),
            "b": MemberSpec(None, topics, {TOPICS[0]: frozenset({0})}),
        }
        found = owners(assign_uniform(members, dict.fromkeys(TOPICS[:2], 2)))
        assert found.keys() == {(topic, index) for topic in topics for index in range(2)}
