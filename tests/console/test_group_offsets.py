"""Offsets of groups: which groups read a topic, and all ways to move the offsets."""

from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition

from support.console import Console
from support.streams import beat
from support.waiting import wait_for


@pytest.fixture
def billing(console: Console) -> Console:
    """A group without members at offset 4 of 10."""
    topic = console.broker.topic("t")
    topic.create(1)
    for number in range(10):
        topic.append([f"v{number}"], timestamp_ms=1_700_000_000_000 + number * 1000)
    consumer = Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    consumer.close()
    return console


def test_a_topic_knows_the_groups_that_read_it(billing: Console) -> None:
    (found,) = billing.get("/topics/t/groups")
    assert (found["group"], found["state"], found["partitions"], found["lag"]) == ("billing", "Empty", 1, 6)
    (listed,) = billing.get("/groups")
    assert (listed["group"], listed["lag"]) == ("billing", 6)


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("current", 4),
        ("offset:7", 7),
        ("offset:99", 10),
        ("shift:-3", 1),
        ("shift:2", 6),
        ("time:1700000005000", 5),
        ("ago:1000", 10),
    ],
)
def test_offsets_are_reset_in_every_way_of_kafka(billing: Console, to: str, wanted: int) -> None:
    preview = billing.ask("POST", "/groups/billing/offsets", {"to": to}).data
    assert preview == {"preview": True, "offsets": [{"topic": "t", "partition": 0, "from": 4, "to": wanted}]}
    assert billing.get("/groups/billing")["offsets"][0]["committed"] == 4
    assert billing.ask("POST", "/groups/billing/offsets", {"to": to, "preview": False}).status == 200
    assert billing.get("/groups/billing")["offsets"][0]["committed"] == wanted


def test_offsets_can_be_given_one_by_one(billing: Console) -> None:
    body = {"to": "given", "offsets": [{"topic": "t", "partition": 0, "offset": 3}], "preview": False}
    assert billing.ask("POST", "/groups/billing/offsets", body).status == 200
    assert billing.get("/groups/billing")["offsets"][0]["committed"] == 3
    for wrong in (None, [], [{"topic": "t"}], [{"topic": "t", "partition": "0", "offset": 1}]):
        assert billing.ask("POST", "/groups/billing/offsets", {**body, "offsets": wrong}).status == 400


def test_a_group_forgets_a_topic(billing: Console) -> None:
    assert billing.ask("DELETE", "/groups/billing/offsets/t").data["partitions"] == [0]
    assert billing.ask("DELETE", "/groups/billing/offsets/t").status == 404


def test_lag_in_time_is_unknown_if_it_is_unknown_for_one_partition(console: Console) -> None:
    topic = console.broker.topic("t")
    topic.create(2)
    topic.append(["read", "unread"], partition=0)
    consumer = Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("t", 0, 1), TopicPartition("t", 1, 0)], asynchronous=False)
    consumer.close()
    found = console.get("/groups/billing")
    assert [each["lag"] for each in found["offsets"]] == [1, 0]
    assert found["lag_ms"] == found["offsets"][0]["lag_ms"], "only the broker's own console knows the time"


def test_the_start_of_a_share_group_is_moved(console: Console) -> None:
    """Its members get the records again after a move back."""
    topic = console.broker.topic("jobs")
    topic.create(1)
    topic.append([f"v{number}" for number in range(10)])
    options = {"bootstrap.servers": console.broker.bootstrap, "group.id": "workers"}
    reset = {"to": "earliest", "topic": "jobs", "preview": False}

    def offsets() -> list[dict[str, object]]:
        found = console.ask("GET", "/groups/workers")
        return list(found.data["offsets"]) if found.status == 200 else []

    with ShareConsumer(options) as consumer:
        consumer.subscribe(["jobs"])
        wait_for(lambda: consumer.poll(0.2) or offsets())
        assert [each["committed"] for each in offsets()] == [None], "it started at the end and has read nothing"
        refused = console.ask("POST", "/groups/workers/offsets", reset)
        assert (refused.status, refused.data["code"]) == (409, "NON_EMPTY_GROUP")
    preview = console.ask("POST", "/groups/workers/offsets", {"to": "offset:7", "topic": "jobs"}).data
    assert preview["offsets"] == [{"topic": "jobs", "partition": 0, "from": None, "to": 7}]
    assert offsets()[0]["committed"] is None
    assert console.ask("POST", "/groups/workers/offsets", reset).status == 200
    assert (offsets()[0]["committed"], offsets()[0]["end"], offsets()[0]["lag"]) == (0, 10, 10)
    wait_for(lambda: [each["lag"] for each in console.get("/groups")] == [10])
    found: list[bytes | None] = []
    with ShareConsumer(options) as consumer:
        consumer.subscribe(["jobs"])
        wait_for(lambda: found.extend(each.value() for each in consumer.poll(0.2)) or len(found) >= 10)
    assert found == [f"v{number}".encode() for number in range(10)]


def test_the_offsets_of_a_streams_group_are_moved(console: Console) -> None:
    topic = console.broker.topic("t")
    topic.create(2)
    topic.append(["a", "b", "c"], partition=1)
    bootstrap = console.broker.bootstrap
    answer = beat(bootstrap, "app", "t", 0)

    def has_tasks() -> bool:
        nonlocal answer
        answer = beat(bootstrap, "app", "t", answer.member_epoch)
        return bool(answer.active_tasks)

    wait_for(lambda: answer.active_tasks or has_tasks())
    body = {"to": "latest", "topic": "t", "preview": False}
    refused = console.ask("POST", "/groups/app/offsets", body)
    assert (refused.status, refused.data["error"][:24]) == (409, "group 'app' has members;")
    beat(bootstrap, "app", "t", -1)
    assert console.ask("POST", "/groups/app/offsets", body).status == 200
    found = console.get("/groups/app")
    assert (found["kind"], [each["committed"] for each in found["offsets"]]) == ("streams", [0, 3])
    assert console.ask("POST", "/groups/app/offsets", {"to": "shift:-2", "preview": False}).status == 200
    assert [each["committed"] for each in console.get("/groups/app")["offsets"]] == [0, 1]


@pytest.mark.parametrize("name", ["billing/eu west", "a%2Fb", "<b>g</b>", "grüppe?x=1#y", "100%"])
def test_a_group_may_have_any_name(console: Console, name: str) -> None:
    console.broker.topic("t").create(1)
    consumer = Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    consumer.close()
    path = f"/groups/{quote(name, safe='')}"
    assert console.get(path)["group"] == name
    moved = console.ask("POST", f"{path}/offsets", {"to": "latest", "preview": False})
    assert (moved.status, [each["to"] for each in moved.data["offsets"]]) == (200, [0])
    assert console.ask("DELETE", f"{path}/offsets/t").data["group"] == name
    assert console.ask("DELETE", path).data == {"group": name}
