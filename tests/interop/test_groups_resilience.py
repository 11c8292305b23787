"""Groups with failures: members that poll too late, members that crash, a coordinator that stops."""

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import (
    NONE,
    FencedMemberEpoch,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from support.batches import batch
from support.interop.drivers import CLIENTS, Client, ClientError, Driver, clients
from support.interop.groups import Group
from support.interop.transacting import committed_offset, find_group
from support.wire import Wire

PARTITIONS = 4
STOPS = (signal.SIGTERM, signal.SIGKILL)


def fill(wire: Wire, topic: str, each: int, label: str) -> set[bytes]:
    values = set()
    for partition in range(PARTITIONS):
        mine = [b"%s %d-%d" % (label.encode(), partition, i) for i in range(each)]
        assert wire.produce(topic, batch(*mine), partition).error_code == NONE
        values |= set(mine)
    return values


def values_of(group: Group) -> set[bytes | None]:
    return {record.value for record in group.records}


def read_all(group: Group, values: set[bytes]) -> None:
    group.until(lambda: values_of(group) >= values, "everything read")


# Polling too late


def lazy_members() -> Iterator[object]:
    """The clients that check their own polls. With the new protocol librdkafka just waits until its session ends."""
    for param in clients(but=("sarama", "franz-go", "kafkajs", "kafka-python-2.0.2")):
        client = param.values[0]
        yield pytest.param(client, "classic", id=client.name, marks=param.marks)
        if client.name == "java":
            yield pytest.param(client, "consumer", id=f"{client.name}-consumer", marks=param.marks)


@pytest.mark.parametrize(("driver", "protocol"), list(lazy_members()), indirect=["driver"])
def test_a_member_that_polls_too_late_is_removed(
    driver: Driver, protocol: str, make_topic, wire: Wire, unique, spawn
) -> None:
    topic = make_topic(PARTITIONS)
    values = fill(wire, topic, 2, "first")
    group = Group(unique("g"), [topic], PARTITIONS, protocol=protocol)
    # librdkafka accepts no interval below the session timeout, and Kafka no shorter session than this.
    limit_ms = 6000 if driver.client.name == "confluent-kafka" else 3000
    classic = {"heartbeat_interval_ms": 300, "session_timeout_ms": 6000} if protocol == "classic" else {}
    group.config |= classic
    late = group.join(driver, max_poll_interval_ms=limit_ms)
    read_all(group, values)
    group.until(lambda: late not in group.pending, "between polls")
    group.records.clear()

    prompt = group.join(spawn(driver.client))
    group.until(lambda: group.assignments[prompt] == group.everything, "taken over", but=late)
    place = {"topic": topic, "partition": 0, "offset": 1, "metadata": "too late"}
    with pytest.raises(ClientError):
        driver.call("consumer_commit", id=late, offsets=[place])
    assert committed_offset(wire, group.name, topic) == (NONE, -1)
    # The other member reads the records again that the late one could not commit.
    group.until(lambda: values_of(group) == values, "read again", but=late)

    if protocol == "consumer":
        return  # a return would take two of the broker's heartbeat intervals, ten seconds
    # With its next polls it is a member again. librdkafka reports once that it was late.
    try:
        driver.call("consumer_poll", id=late, timeout_ms=100)
    except ClientError as error:
        assert error.name == "_MAX_POLL_EXCEEDED" or error.code in (IllegalGeneration.code, UnknownMemberId.code), error
    group.settle()
    more = fill(wire, topic, 2, "second")
    read_all(group, more)
    group.close()


# Crashing


def crashes() -> Iterator[object]:
    """The Go clients with each assignor; the other clients crash in `test_groups_clients`."""
    for param in clients():
        client = param.values[0]
        if client.name in ("sarama", "franz-go"):
            for assignor in client.assignors:
                yield pytest.param(client, assignor, id=f"{client.name}-{assignor}", marks=param.marks)


@pytest.mark.parametrize(("driver", "assignor"), list(crashes()), indirect=["driver"])
def test_a_crash_and_a_newcomer(driver: Driver, assignor: str, make_topic, wire: Wire, unique, spawn) -> None:
    """One of two crashes and another joins: records that the crashed one read but did not commit are read again."""
    topic = make_topic(PARTITIONS)
    group = Group(
        unique("g"),
        [topic],
        PARTITIONS,
        assignors=[assignor],
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
    )
    survivor = group.join(driver)
    victim = group.join(spawn(driver.client))
    group.settle()
    values = fill(wire, topic, 2, "first")
    group.read(2 * PARTITIONS)
    assert values_of(group) >= values
    lost = {r.value for r in group.records if (r.topic, r.partition) in group.assignments[victim]}
    assert lost
    driver.call("consumer_commit", id=survivor)
    group.crash(victim)
    group.records.clear()
    newcomer = group.join(spawn(driver.client))
    more = fill(wire, topic, 2, "second")
    group.settle()
    read_all(group, more | lost)
    # The survivor had committed its own records.
    assert values_of(group) == more | lost
    assert len(group.assignments[newcomer]) == 2
    group.close()


# The coordinator goes down


def restarted_members() -> Iterator[object]:
    for param in clients(but=("kafka-python-2.0.2",)):
        client = param.values[0]
        yield pytest.param(client, {}, id=client.name, marks=param.marks)
        if "cooperative-sticky" in client.assignors:
            given = {"assignors": ["cooperative-sticky"]}
            yield pytest.param(client, given, id=f"{client.name}-cooperative", marks=param.marks)
        if client.can("consumer_protocol"):
            yield pytest.param(client, {"protocol": "consumer"}, id=f"{client.name}-consumer", marks=param.marks)


@pytest.fixture
def members() -> Iterator[Callable[..., Driver]]:
    """Client processes on the test's own broker."""
    made: list[Driver] = []

    def start(client: Client, bootstrap: str) -> Driver:
        made.append(Driver(client, bootstrap))
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.mark.parametrize(("client", "config"), list(restarted_members()))
def test_the_coordinator_restarts(client: Client, config: dict, start_broker, members, tmp_path) -> None:
    """A stop and a crash of the broker: members continue by themselves, from the committed offsets."""
    data = tmp_path / "data"
    broker = start_broker(data)
    with Wire(broker.address) as wire:
        wire.create_topic("t", PARTITIONS)
    group = Group("g", ["t"], PARTITIONS, **config)
    group.passing = {"*kgo.ErrGroupSession"}  # franz-go's message that it could not join, and will retry
    if config.get("protocol") != "consumer":
        group.config |= {"heartbeat_interval_ms": 300}
    for _ in range(2):
        group.join(members(client, broker.bootstrap))
    group.settle()
    with Wire(broker.address) as wire:
        read_all(group, fill(wire, "t", 2, "first"))
        commit_everything(group, wire)
    for how in STOPS:
        group.records.clear()
        broker.stop(how)
        broker = start_broker(data, port=broker.port)
        with Wire(broker.address) as wire:
            values = fill(wire, "t", 2, f"after {how.name}")
            read_all(group, values)
            commit_everything(group, wire)
        # Records that were committed before the restart are not read again.
        assert values_of(group) == values
        group.settle()
    assert sorted(len(owned) for owned in group.assignments.values()) == [2, 2]


def commit_everything(group: Group, wire: Wire) -> None:
    """Members commit the records that they have read until all are committed.

    That may take several turns: a client may rejoin because of the restart (the Java one drops its metadata when no
    broker is available), and then reads the records again that it could not commit in the previous generation.
    """
    ends = {place: wire.list_offsets(place[0], OffsetTimestamp.LATEST, place[1]).offset for place in group.everything}

    def commit() -> bool:
        for member in set(group.members) - group.pending:
            try:
                group.members[member].call("consumer_commit", id=member)
            except ClientError as error:
                group.last_error = error
        return all(committed_offset(wire, group.name, *place) == (NONE, end) for place, end in ends.items())

    group.until(commit, "committed")


class Raw:
    """Raw group requests, with the generations and epochs that the test passes."""

    def __init__(self, wire: Wire, group: str) -> None:
        self.wire = wire
        self.group = group

    def join_request(self, member: str = "", session_ms: int = 30_000) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")
        return JoinGroupRequest(
            group_id=self.group,
            member_id=member,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def new_id(self, session_ms: int = 30_000) -> str:
        refused = self.wire.call(self.join_request(session_ms=session_ms), 9)
        assert refused.error_code == MemberIdRequired.code
        member: str = refused.member_id
        return member

    def sync(self, generation: int, member: str, shares: dict[str, bytes] | None = None) -> tuple[int, bytes]:
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=share)
            for name, share in (shares or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        answer = self.wire.call(request, 5)
        return answer.error_code, bytes(answer.assignment)

    def beat(self, generation: int, member: str) -> int:
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member)
        code: int = self.wire.call(request, 4).error_code
        return code

    def commit(self, generation: int, member: str, offset: int) -> int:
        place = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[place])],
        )
        code: int = self.wire.call(request, 9).topics[0].partitions[0].error_code
        return code

    def committed(self) -> int:
        code, offset = committed_offset(self.wire, self.group, "t")
        assert code == NONE
        return offset

    def state(self) -> str:
        state: str = self.wire.call(DescribeGroupsRequest(groups=[self.group]), 6).groups[0].group_state
        return state

    def modern_beat(self, member: str, epoch: int, **more: object) -> object:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch, **more)
        return self.wire.call(request, 1)


def second_generation(one: Raw, two: Raw, session_ms: int = 30_000) -> tuple[str, str]:
    """Two members, of whom the first leads; generation 2 is not yet synced."""
    first = one.new_id(session_ms)
    assert one.wire.call(one.join_request(first, session_ms), 9).generation_id == 1
    assert one.sync(1, first, {first: b"all"}) == (NONE, b"all")
    second = two.new_id(session_ms)
    two.wire.send(two.join_request(second, session_ms), 9)
    while one.beat(1, first) == NONE:
        pass
    assert one.wire.call(one.join_request(first, session_ms), 9).generation_id == 2
    assert two.wire.receive().generation_id == 2
    return first, second


@pytest.mark.parametrize("how", STOPS, ids=lambda how: how.name)
def test_generations_survive_the_coordinator(how: signal.Signals, start_broker, tmp_path) -> None:
    broker = start_broker(tmp_path / "data", group_min_session_timeout_ms=500)
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.create_topic("t")
        one, two = Raw(wire, find_group(wire, "g")), Raw(other, "g")
        first, second = second_generation(one, two, session_ms=4000)
        assert one.sync(2, first, {first: b"a", second: b"b"}) == (NONE, b"a")
        assert two.sync(2, second) == (NONE, b"b")
        assert one.commit(2, first, 7) == NONE
    broker.stop(how)
    broker = start_broker(tmp_path / "data", group_min_session_timeout_ms=500)
    with Wire(broker.address) as wire:
        one = Raw(wire, find_group(wire, "g"))
        assert one.state() == "Stable"
        assert one.committed() == 7
        # Both are still members, in the same generation.
        assert (one.beat(2, first), one.beat(2, second)) == (NONE, NONE)
        for stale in (1, 3):
            assert one.beat(stale, first) == IllegalGeneration.code
            assert one.commit(stale, first, 100) == IllegalGeneration.code
        assert one.commit(2, "stranger", 100) == UnknownMemberId.code
        assert one.committed() == 7
        assert one.commit(2, second, 8) == NONE
        assert one.sync(2, second) == (NONE, b"b")
        # The second has really left: its session ends after the restart, and then it is unknown.
        deadline = time.monotonic() + 90
        while (code := one.beat(2, first)) == NONE:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert code == RebalanceInProgress.code
        assert one.wire.call(one.join_request(first), 9).generation_id == 3
        assert one.commit(2, second, 100) == UnknownMemberId.code
        assert one.sync(3, first, {first: b"all"}) == (NONE, b"all")
        assert one.commit(2, first, 100) == IllegalGeneration.code
        assert one.committed() == 8
        assert one.commit(3, first, 9) == NONE


@pytest.mark.parametrize("how", STOPS, ids=lambda how: how.name)
def test_a_generation_that_was_never_synced_is_forgotten(how: signal.Signals, start_broker, tmp_path) -> None:
    """The log contains a generation only with its assignment. Members of an unsynced generation have to join again."""
    broker = start_broker(tmp_path / "data")
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.create_topic("t")
        one, two = Raw(wire, find_group(wire, "g")), Raw(other, "g")
        first, second = second_generation(one, two)
    broker.stop(how)
    broker = start_broker(tmp_path / "data")
    with Wire(broker.address) as wire:
        one = Raw(wire, find_group(wire, "g"))
        assert one.state() == "Stable"
        assert one.sync(2, first, {first: b"a", second: b"b"})[0] == IllegalGeneration.code
        assert one.sync(2, second)[0] == UnknownMemberId.code
        assert one.commit(2, first, 100) == IllegalGeneration.code
        assert one.sync(1, first) == (NONE, b"all")
        assert one.commit(1, first, 5) == NONE
        assert one.committed() == 5


@pytest.mark.parametrize("how", STOPS, ids=lambda how: how.name)
def test_epochs_survive_the_coordinator(how: signal.Signals, start_broker, tmp_path) -> None:
    broker = start_broker(tmp_path / "data")
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        one = Raw(wire, find_group(wire, "g"))
        joined = one.modern_beat(
            "me", 0, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        assert joined.error_code == NONE
        epoch = joined.member_epoch
        (share,) = joined.assignment.topic_partitions
        assert one.commit(epoch, "me", 7) == NONE
    broker.stop(how)
    broker = start_broker(tmp_path / "data")
    with Wire(broker.address) as wire:
        one = Raw(wire, find_group(wire, "g"))
        assert one.commit(epoch - 1, "me", 100) == StaleMemberEpoch.code
        assert one.commit(epoch + 1, "me", 100) == StaleMemberEpoch.code
        assert one.commit(epoch, "stranger", 100) == UnknownMemberId.code
        assert one.modern_beat("me", epoch + 5).error_code == FencedMemberEpoch.code
        owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=share.topic_id, partitions=[0])]
        kept = one.modern_beat("me", epoch, topic_partitions=owned)
        assert (kept.error_code, kept.member_epoch) == (NONE, epoch)
        assert one.committed() == 7
        assert one.commit(epoch, "me", 8) == NONE
        assert one.committed() == 8


def test_a_member_and_the_coordinator_crash_together(start_broker, members, tmp_path) -> None:
    broker = start_broker(tmp_path / "data", group_min_session_timeout_ms=1000)
    with Wire(broker.address) as wire:
        wire.create_topic("t", PARTITIONS)
    group = Group("g", ["t"], PARTITIONS, session_timeout_ms=6000, heartbeat_interval_ms=300)
    client = CLIENTS["confluent-kafka"]
    survivor, victim = (group.join(members(client, broker.bootstrap)) for _ in range(2))
    group.settle()
    with Wire(broker.address) as wire:
        read_all(group, fill(wire, "t", 2, "first"))
    lost = {r.value for r in group.records if (r.topic, r.partition) in group.assignments[victim]}
    group.until(lambda: survivor not in group.pending, "between polls")
    group.members[survivor].call("consumer_commit", id=survivor)
    group.records.clear()
    broker.stop(signal.SIGKILL)
    group.crash(victim)
    broker = start_broker(tmp_path / "data", port=broker.port, group_min_session_timeout_ms=1000)
    group.settle()
    read_all(group, lost)
    assert group.assignments[survivor] == group.everything
    assert values_of(group) == lost
