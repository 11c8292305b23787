"""The causes of rebalances, and the lag of a group in time."""

from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from support.console import Console


def consumer_of(console: Console, client_id: str, **options: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": console.broker.bootstrap,
            "group.id": "billing",
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def kinds(console: Console) -> list[str]:
    return [each["kind"] for each in console.get("/groups/billing/history")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_generation_has_its_cause(own_console: Console, protocol: str) -> None:
    topic = own_console.broker.topic("t")
    topic.create(1)
    topic.append(["v"])
    consumer = consumer_of(own_console, "one", **{"group.protocol": protocol})
    assert len(consumer.consume(1, 30)) == 1
    assert kinds(own_console)[:2] == ["joined", "generation"]
    consumer.close()
    *_, left, generation = own_console.get("/groups/billing/history")
    assert (left["kind"], generation["kind"], generation["members"]) == ("left", "generation", 0)
    assert left["member_id"]


def test_a_member_that_sends_no_heartbeat_timed_out(own_console: Console) -> None:
    topic = own_console.broker.topic("t")
    topic.create(1)
    topic.append(["v"])
    consumer = consumer_of(own_console, "one", **{"session.timeout.ms": 6000, "heartbeat.interval.ms": 5000})
    assert len(consumer.consume(1, 30)) == 1
    own_console.broker.clock.advance(minutes=1)
    found = own_console.get("/groups/billing/history")
    consumer.close()
    assert ("timed out", "no heartbeat within its session") in [(each["kind"], each["detail"]) for each in found]


def test_lag_is_also_shown_as_time(own_console: Console) -> None:
    topic = own_console.broker.topic("t")
    topic.create(1)
    topic.append(["a", "b"])
    consumer = consumer_of(own_console, "one")
    (first,) = consumer.consume(1, 30)
    consumer.commit(first, asynchronous=False)
    consumer.close()
    own_console.broker.clock.advance(seconds=90)
    found = own_console.get("/groups/billing")
    assert found["lag"] == 1
    assert 90_000 <= found["lag_ms"] < 150_000


def test_a_deleted_group_has_no_history(own_console: Console) -> None:
    topic = own_console.broker.topic("t")
    topic.create(1)
    topic.append(["v"])
    consumer = consumer_of(own_console, "one")
    assert len(consumer.consume(1, 30)) == 1
    consumer.close()
    assert "left" in kinds(own_console)
    admin = AdminClient({"bootstrap.servers": own_console.broker.bootstrap})
    admin.delete_consumer_groups(["billing"])["billing"].result(30)
    consumer = consumer_of(own_console, "two")
    assert len(consumer.consume(1, 30)) == 1
    found = kinds(own_console)
    consumer.close()
    assert "left" not in found
