"""Consumer groups of every client: sharing, joining, leaving, crashing, committing, administration."""

import pytest

from ottla.errors import GroupIdNotFound, NonEmptyGroup
from support.batches import batch
from support.interop.drivers import CLIENTS, ClientError, Driver, clients
from support.interop.groups import Group
from support.wire import Wire

ASSIGNORS = [
    pytest.param(*param.values, assignor, id=f"{param.id}-{assignor}", marks=param.marks)
    for param in clients()
    for assignor in param.values[0].assignors
]


def fill(wire: Wire, topic: str, partitions: int, each: int, label: str = "") -> set[bytes]:
    values = set()
    for partition in range(partitions):
        mine = [b"%s%d-%d" % (label.encode(), partition, i) for i in range(each)]
        assert wire.produce(topic, batch(*mine), partition).error_code == 0
        values |= set(mine)
    return values


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_a_member_continues_at_the_committed_offset(driver: Driver, make_topic, wire: Wire, unique) -> None:
    topic = make_topic(2)
    values = fill(wire, topic, 2, 5)
    group = Group(unique("g"), [topic], 2)
    first = group.join(driver)
    group.read(10)
    assert {record.value for record in group.records} == values
    driver.call("consumer_commit", id=first)
    group.leave(first)
    group.records.clear()
    more = fill(wire, topic, 2, 3, "more ")
    second = group.join(driver)
    group.read(6)
    assert {record.value for record in group.records} == more
    group.leave(second)


@pytest.mark.parametrize(("driver", "assignor"), ASSIGNORS, indirect=["driver"])
def test_members_come_and_go(driver: Driver, assignor: str, make_topic, wire: Wire, unique, spawn) -> None:
    topic = make_topic(4)
    group = Group(unique("g"), [topic], 4, assignors=[assignor], heartbeat_interval_ms=300)
    first = group.join(driver)
    group.settle()
    second = group.join(spawn(driver.client))
    group.settle()
    assert sorted(len(owned) for owned in group.assignments.values()) == [2, 2]
    values = fill(wire, topic, 4, 3)
    group.read(12)
    assert {record.value for record in group.records} >= values
    group.leave(second)
    group.settle()
    assert group.assignments[first] == group.everything
    group.leave(first)


@pytest.mark.parametrize("driver", clients(but=("kafka-python-2.0.2", "kafkajs", "sarama")), indirect=True)
def test_a_crashed_members_partitions_are_taken_over(driver: Driver, make_topic, wire: Wire, unique, spawn) -> None:
    """Records that it read but did not commit are read again: a survivor sees every uncommitted record."""
    topic = make_topic(2)
    values = fill(wire, topic, 2, 4)
    group = Group(unique("g"), [topic], 2, session_timeout_ms=6000, heartbeat_interval_ms=500)
    survivor = group.join(driver)
    victim = group.join(spawn(driver.client))
    group.settle()
    group.read(8)
    group.crash(victim)
    group.records.clear()
    more = fill(wire, topic, 2, 2, "more ")
    group.settle()
    group.until(lambda: {r.value for r in group.records} >= more, "everything read")
    assert {record.value for record in group.records} <= values | more
    group.leave(survivor)


@pytest.mark.parametrize("driver", clients("static"), indirect=True)
def test_a_static_member_comes_back_to_its_partitions(driver: Driver, make_topic, unique, spawn) -> None:
    topic = make_topic(4)
    group = Group(unique("g"), [topic], 4, session_timeout_ms=40000, heartbeat_interval_ms=500)
    other = group.join(driver, instance_id="one")
    away = spawn(driver.client)
    member = group.join(away, instance_id="two")
    group.settle()
    owned, kept = group.assignments[member], group.assignments[other]
    # A crash and a return within the session: no other member notices.
    group.crash(member)
    for _ in range(4):
        group.poll()
        assert group.assignments[other] == kept
    back = group.join(spawn(driver.client), instance_id="two")
    group.settle()
    assert group.assignments[back] == owned
    assert group.assignments[other] == kept
    group.leave(other)


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_commits_overwrite_and_keep_their_metadata(driver: Driver, make_topic, wire: Wire, unique) -> None:
    topic = make_topic(2)
    fill(wire, topic, 2, 10)
    group = Group(unique("g"), [topic], 2)
    member = group.join(driver)
    group.settle()

    def committed(partition: int) -> dict | None:
        return driver.call("consumer_committed", id=member, group=group.name, topic=topic, partition=partition)

    def commit(offset: int, metadata: str) -> None:
        place = {"topic": topic, "partition": 0, "offset": offset, "metadata": metadata}
        driver.call("consumer_commit", id=member, offsets=[place])

    assert committed(0) is None
    for offset, note in ((7, "seven"), (3, "lower is fine"), (0, "")):
        commit(offset, note)
        found = committed(0)
        assert found["offset"] == offset
        if driver.client.can("commit_metadata"):
            assert found["metadata"] == note
    assert committed(1) is None
    group.leave(member)


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_describe_list_delete(driver: Driver, topic: str, wire: Wire, unique) -> None:
    group = Group(unique("g"), [topic], 1, client_id="described-client")
    member = group.join(driver)
    group.settle()
    found = driver.call("group_describe", group=group.name)
    assert found["state"].lower() == "stable"
    (described,) = found["members"]
    assert described["client_id"] == "described-client"
    # librdkafka, the Go clients and the others return the broker's answer.
    assert described["host"] == "/127.0.0.1"
    assert described.get("assignment", [[topic, 0]]) == [[topic, 0]]
    assert group.name in driver.call("groups_list")
    if not driver.client.can("group_delete"):
        group.leave(member)
        return
    with pytest.raises(ClientError) as caught:
        driver.call("group_delete", group=group.name)
    assert caught.value.code == NonEmptyGroup.code
    wire.produce(topic, batch(b"x"))
    group.read(1)
    driver.call("consumer_commit", id=member)
    group.leave(member)
    assert driver.call("group_describe", group=group.name)["state"].lower() == "empty"
    driver.call("group_delete", group=group.name)
    assert group.name not in driver.call("groups_list")
    with pytest.raises(ClientError) as caught:
        driver.call("group_delete", group=group.name)
    assert caught.value.code == GroupIdNotFound.code


# franz-go waits until another client commits. kafka-python 3 sometimes loses the error in its own thread and polls
# forever without an assignment, on Apache Kafka as well.
@pytest.mark.parametrize("driver", clients("assign", but=("franz-go", "kafka-python")), indirect=True)
def test_no_committed_offset_and_no_reset_policy(driver: Driver, topic: str, wire: Wire, unique) -> None:
    wire.produce(topic, batch(b"x"))
    group = Group(unique("g"), [topic], 1, offset_reset="none")
    member = group.join(driver)
    with pytest.raises((ClientError, AssertionError)) as caught:
        group.read(1)
    assert isinstance(caught.value, ClientError), caught.value
    group.leave(member)


@pytest.mark.parametrize("driver", clients("pattern"), indirect=True)
def test_pattern_subscription(driver: Driver, wire: Wire, unique) -> None:
    stem = unique("t")
    for suffix in ("a", "b", "other"):
        wire.create_topic(f"{stem}.{suffix}")
    group = Group(unique("g"), [f"{stem}.a", f"{stem}.b"], 1)
    member = group.join(driver, pattern=f"^{stem}\\.[ab]$")
    group.settle()
    assert group.assignments[member] == group.everything
    group.leave(member)


@pytest.mark.parametrize("driver", clients("assign"), indirect=True)
def test_groups_are_independent(driver: Driver, topic: str, wire: Wire, unique) -> None:
    values = fill(wire, topic, 1, 5)
    groups = [Group(unique("g"), [topic], 1) for _ in range(2)]
    for group in groups:
        member = group.join(driver)
        group.read(5)
        assert {record.value for record in group.records} == values
        group.leave(member)


def test_more_members_than_partitions(drive, spawn, topic: str, unique) -> None:
    group = Group(unique("g"), [topic], 1, heartbeat_interval_ms=300)
    group.join(drive("confluent-kafka"))
    group.join(spawn("confluent-kafka"))
    group.join(spawn("confluent-kafka"))
    group.settle(idle=2)
    group.close()


def test_clients_of_many_kinds_share_a_group(drive, make_topic, wire: Wire, unique) -> None:
    topic = make_topic(12)
    group = Group(unique("g"), [topic], 12, assignors=["range"], heartbeat_interval_ms=300)
    for name, client in CLIENTS.items():
        if "range" in client.assignors:
            try:
                group.join(drive(name))
            except pytest.skip.Exception:
                continue
    group.settle()
    values = fill(wire, topic, 12, 3)
    group.read(36)
    assert {record.value for record in group.records} == values
    group.close()
