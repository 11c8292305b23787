"""Snapshots and branches of a broker, with real clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.testing import ServedBroker

Served = Callable[..., ServedBroker]


@pytest.fixture(params=["memory", "folder"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"data": tmp_path / "data"}


def produce(broker: ServedBroker, topic: str, *values: str) -> None:
    producer = Producer(broker.client_config("confluent", "producer"))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def commit(broker: ServedBroker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_restore_returns_to_the_snapshot(options: dict[str, Any]) -> None:
    with ottla.serve(**options) as broker:
        produce(broker, "orders", "a", "b")
        commit(broker, "billing", "orders", 1)
        state = broker.snapshot()
        bootstrap = broker.bootstrap
        produce(broker, "orders", "c")
        produce(broker, "other", "x")
        commit(broker, "billing", "orders", 3)
        broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
        for _ in range(2):
            broker.restore(state)
            assert broker.bootstrap == bootstrap
            assert broker.topics() == ["orders"] and broker.topic("orders").texts() == ["a", "b"]
            assert broker.group("billing").committed() == {("orders", 0): 1} and broker.group("billing").lag() == 1
            produce(broker, "orders", "d")
            assert broker.topic("orders").texts() == ["a", "b", "d"]
            commit(broker, "billing", "orders", 2)


def test_a_branch_is_independent(options: dict[str, Any], tmp_path: Path) -> None:
    with ottla.serve(**options, clock="virtual") as broker:
        broker.clock.advance(days=2)
        produce(broker, "orders", "a")
        commit(broker, "billing", "orders", 1)
        with broker.branch() as other:
            assert other.bootstrap != broker.bootstrap
            assert other.clock.ahead_ms >= 2 * 86_400_000
            produce(other, "orders", "in-branch")
            produce(broker, "orders", "in-trunk")
            commit(other, "billing", "orders", 2)
            assert other.topic("orders").texts() == ["a", "in-branch"]
            assert broker.topic("orders").texts() == ["a", "in-trunk"]
            assert [each.group("billing").lag() for each in (broker, other)] == [1, 0]
            with other.branch() as third:
                assert third.topic("orders").texts() == ["a", "in-branch"]
        assert broker.topic("orders").texts() == ["a", "in-trunk"]
    assert [path.name for path in tmp_path.iterdir()] == ([] if not options else ["data"])


def test_a_snapshot_does_not_disturb_clients(options: dict[str, Any]) -> None:
    with ottla.serve(**options) as broker:
        produce(broker, "orders", "a")
        consumer = Consumer(
            {**broker.client_config("confluent", "consumer"), "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(10)
        assert message is not None and message.value() == b"a"
        broker.snapshot()
        produce(broker, "orders", "b")
        message = consumer.poll(10)
        assert message is not None and message.value() == b"b"
        assert broker.requests(api="JoinGroup", client_id="rdkafka")[-1].answered
        assert len(broker.group("g").members()) == 1
        consumer.close()


def test_an_open_transaction_continues_in_a_branch(options: dict[str, Any]) -> None:
    with ottla.serve(**options) as broker:
        producer = Producer({**broker.client_config("confluent", "producer"), "transactional.id": "t"})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("orders", b"open")
        producer.flush(10)
        with broker.branch() as other:
            assert other.topic("orders").texts() == []
            successor = Producer({**other.client_config("confluent", "producer"), "transactional.id": "t"})
            successor.init_transactions(10)  # aborts the open transaction of the branch
            produce(other, "orders", "x")
            other.topic("orders").expect(["x"])
        producer.commit_transaction(10)
        broker.topic("orders").expect(["open"])


def test_large_segments_are_shared_not_copied(tmp_path: Path) -> None:
    with ottla.serve(data=tmp_path / "data") as broker:
        broker.topic("big").create()
        for _ in range(3):
            broker.topic("big").append([b"x" * 900_000])
        with broker.branch() as other:
            produce(other, "big", "more")
            produce(broker, "big", "other")
            branch = next(path for path in tmp_path.iterdir() if path.name.startswith(".data-branch"))
            first = "big-0/00000000000000000000.log"
            assert (tmp_path / "data" / first).stat().st_ino == (branch / first).stat().st_ino
            assert other.topic("big").values()[3:] == [b"more"] and broker.topic("big").values()[3:] == [b"other"]


def test_on_an_event_loop(run: Any) -> None:
    async def scenario() -> None:
        async with ottla.Broker() as broker:
            broker.topic("t").append(["a"])
            state = broker.snapshot()
            async with broker.branch() as other:
                other.topic("t").append(["b"])
                assert other.topic("t").texts() == ["a", "b"]
            broker.topic("t").append(["c"])
            await broker.restore(state)
            assert broker.topic("t").texts() == ["a"]

    run(scenario())


def test_a_snapshot_that_cannot_be_restored_is_refused(tmp_path: Path) -> None:
    with ottla.serve() as memory, ottla.serve(data=tmp_path / "data") as folder:
        memory.topic("t").append(["a"])
        with pytest.raises(ValueError, match="in memory"):
            memory.restore(folder.snapshot())
        with pytest.raises(TypeError, match=r"what snapshot\(\) returned"):
            memory.restore("state")  # type: ignore[arg-type]
        assert memory.topic("t").texts() == ["a"], "it continues unchanged"
        with pytest.raises(ValueError, match="in memory"):
            memory.branch(data=tmp_path / "other")
