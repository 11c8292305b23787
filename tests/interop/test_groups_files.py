"""Kafka's reader of the offsets topic: `kafka-dump-log --offsets-decoder` on Ottla's files."""

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
)
from support.batches import batch
from support.interop.drivers import clients
from support.interop.groups import Group
from support.interop.transacting import Transacting, find_group
from support.wire import Wire

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]
ROW = re.compile(r"key: (\{.*?\}\}) payload: (.*)")
# The types of keys in the offsets topic.
OFFSET, CLASSIC_GROUP, GROUP_EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 1, 2, 3, 5, 6, 7, 8, 16
Entries = list[tuple[int, dict[str, Any], dict[str, Any] | None]]


def java_hash(text: str) -> int:
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@pytest.fixture
def dump(driver, broker) -> Callable[[str], Entries]:
    """(key type, key, value or None for a tombstone) of every record of a group, in the order of the log."""
    if broker.data is None:
        pytest.skip("needs the data folder of the broker")

    def run(group: str) -> Entries:
        # Java's hash of the name decides the partition: no other one may have records of the group.
        home = f"__consumer_offsets-{abs(java_hash(group)) % 50}"
        logs = [f for f in Path(broker.data).glob("__consumer_offsets-*/*.log") if group.encode() in f.read_bytes()]
        assert [log.parent.name for log in logs] == [home]
        args = ["--offsets-decoder", "--deep-iteration", "--files", str(logs[0])]
        done = driver.call("tool", name="org.apache.kafka.tools.DumpLogSegments", args=args)
        assert done["status"] == 0, done
        assert "isvalid: false" not in done["stdout"]
        entries: Entries = []
        for line in done["stdout"].splitlines():
            found = ROW.search(line)
            if found is None:
                assert "payload" not in line, line
                continue
            key = json.loads(found[1])
            if key["data"].get("group", key["data"].get("groupId")) == group:
                value = None if found[2] == "<DELETE>" else json.loads(found[2])["data"]
                entries.append((int(key["type"]), key["data"], value))
        return entries

    return run


def of_type(entries: Entries, kind: int) -> list[dict[str, Any] | None]:
    return [value for found, _, value in entries if found == kind]


def forget(wire: Wire, group: str, topic: str, partition: int) -> None:
    entry = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)]
    )
    answer = wire.call(OffsetDeleteRequest(group_id=group, topics=[entry]), 0)
    assert answer.error_code == answer.topics[0].partitions[0].error_code == 0, answer


def delete(wire: Wire, group: str) -> None:
    (answer,) = wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert answer.error_code == 0, answer


def commit(wire: Wire, group: str, topic: str, partition: int, offset: int, metadata: str) -> None:
    place = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=0
    )
    entry = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[place])
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[entry])
    assert wire.call(request, 9).topics[0].partitions[0].error_code == 0


def test_a_classic_group(dump, drive, make_topic, wire: Wire, unique) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        wire.produce(topic, batch(b"x"), partition)
    group = Group(unique("g"), [topic], 2, client_id="written", session_timeout_ms=7000, max_poll_interval_ms=8000)
    member = group.join(drive("kafka-python"))
    group.read(2)
    drive("kafka-python").call("consumer_commit", id=member)
    place = {"topic": topic, "partition": 0, "offset": 0, "metadata": "a note"}
    drive("kafka-python").call("consumer_commit", id=member, offsets=[place])
    group.leave(member)
    forget(wire, group.name, topic, 1)
    entries = dump(group.name)

    generations = [value for value in of_type(entries, CLASSIC_GROUP) if value]
    # kafka-python may have joined once before it knew the topic's partitions.
    stable = [value for value in generations if value["members"]][-1]
    assert (stable["protocolType"], stable["protocol"]) == ("consumer", "range")
    (described,) = stable["members"]
    assert stable["leader"] == described["memberId"]
    assert described["memberId"].startswith("written-")
    assert (described["clientId"], described["clientHost"]) == ("written", "/127.0.0.1")
    assert (described["sessionTimeout"], described["rebalanceTimeout"]) == (7000, 8000)
    assert described["subscription"]["topics"] == [topic]
    assert described["assignment"]["assignedPartitions"] == [{"topic": topic, "partitions": [0, 1]}]
    # The member left: the next generation is empty.
    empty = generations[-1]
    assert (empty["generation"], empty["members"], empty["leader"]) == (stable["generation"] + 1, [], None)

    offsets = [(key["topic"], key["partition"], value) for kind, key, value in entries if kind == OFFSET]
    assert {name for name, _, _ in offsets} == {topic}
    first = [value for _, partition, value in offsets if partition == 0]
    assert [(value["offset"], value["metadata"]) for value in first] == [(1, ""), (0, "a note")]
    assert all(value["commitTimestamp"] > 0 for value in first)
    second = [value for _, partition, value in offsets if partition == 1]
    assert [value and value["offset"] for value in second] == [1, None]

    delete(wire, group.name)
    gone = dump(group.name)[len(entries) :]
    assert sorted((kind, value) for kind, _, value in gone) == [(OFFSET, None), (CLASSIC_GROUP, None)]


def test_a_simple_consumer(dump, topic: str, wire: Wire, unique) -> None:
    group = find_group(wire, unique("g"))
    commit(wire, group, topic, 0, 5, "five")
    commit(wire, group, topic, 0, 3, "three, ünïcode")
    values = [value for value in of_type(dump(group), OFFSET) if value]
    assert [(value["offset"], value["leaderEpoch"], value["metadata"]) for value in values] == [
        (5, 0, "five"),
        (3, 0, "three, ünïcode"),
    ]


def test_a_consumer_group(dump, make_topic, wire: Wire, unique) -> None:
    topic, group, me = make_topic(2), find_group(wire, unique("g")), uuid.uuid4().hex

    def beat(epoch: int, **more: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=me, member_epoch=epoch, **more)
        answer = wire.call(request, 1)
        assert answer.error_code == 0, answer
        return answer

    joined = beat(0, rebalance_timeout_ms=30_000, subscribed_topic_names=[topic], topic_partitions=[])
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=wire.topic_id(topic), partitions=[0, 1])]
    beat(joined.member_epoch, topic_partitions=owned)
    entries = dump(group)
    (member,) = of_type(entries, MEMBER)
    assert (member["clientId"], member["clientHost"]) == ("wire", "/127.0.0.1")
    assert (member["subscribedTopicNames"], member["rebalanceTimeoutMs"]) == ([topic], 30_000)
    epochs = [value["epoch"] for value in of_type(entries, GROUP_EPOCH)]
    assert epochs == sorted(epochs)
    assert epochs[-1] == joined.member_epoch
    assert of_type(entries, TARGET_EPOCH)[-1]["assignmentEpoch"] == joined.member_epoch
    (target,) = of_type(entries, TARGET)[-1]["topicPartitions"]
    assert sorted(target["partitions"]) == [0, 1]
    current = of_type(entries, CURRENT)[-1]
    assert current["memberEpoch"] == joined.member_epoch
    (assigned,) = current["assignedPartitions"]
    assert (assigned["topicId"], sorted(assigned["partitions"])) == (target["topicId"], [0, 1])

    # A new expression is stored with its matches, and a leave writes a tombstone for each record of the member.
    beat(joined.member_epoch, subscribed_topic_names=[], subscribed_topic_regex=f"{topic}.*")
    assert of_type(dump(group), MEMBER)[-1]["subscribedTopicRegex"] == f"{topic}.*"
    before = len(dump(group))
    beat(-1)
    gone = dump(group)[before:]
    assert {MEMBER, TARGET, CURRENT} <= {kind for kind, _, value in gone if value is None}
    assert all(key.get("memberId", me) == me for _, key, _ in gone)
    before = len(dump(group))
    delete(wire, group)
    gone = dump(group)[before:]
    assert {GROUP_EPOCH, TARGET_EPOCH} <= {kind for kind, _, _ in gone}
    assert all(value is None for _, _, value in gone)


def test_offsets_of_transactions(dump, topic: str, wire: Wire, unique) -> None:
    """They are in the log, followed by the transaction's marker, and the reader reads both."""
    group = find_group(wire, unique("g"))
    one = Transacting(wire, unique("tx")).start()
    assert one.commit_offsets(group, topic, {0: 4}) == {0: 0}
    one.finish(True)
    assert [value["offset"] for value in of_type(dump(group), OFFSET) if value] == [4]
