"""A broker whose clock is advanced while its clients run in real time."""

from typing import Any

import pytest
from confluent_kafka import Producer

import ottla
from ottla.embedded.clock import HOPS_MAX
from ottla.testing import VirtualClock, serve


def test_timestamps_follow_the_clock(produce: Any) -> None:
    with serve(clock="virtual", settings={"log.message.timestamp.type": "LogAppendTime"}) as broker:
        assert produce(broker.bootstrap, "t") is None
        broker.clock.advance(hours=2)
        assert produce(broker.bootstrap, "t") is None
        first, second = broker.topic("t").records()
        assert 7_200_000 <= second.timestamp_ms - first.timestamp_ms < 7_260_000


def test_sessions_and_offsets_expire(consumer: Any) -> None:
    with serve(clock="virtual") as broker:
        broker.topic("t").append(["a"])
        reader = consumer(broker.bootstrap, session_timeout_ms=45_000, heartbeat_interval_ms=40_000)
        reader.subscribe(["t"])
        assert reader.poll(10).value() == b"a"
        reader.commit(asynchronous=False)
        group = broker.group("g")
        assert len(group.members()) == 1
        broker.clock.advance(seconds=40)
        assert len(group.members()) == 1
        broker.clock.advance(seconds=6)
        assert group.members() == [] and group.state == "Empty"
        assert group.committed() == {("t", 0): 1}
        broker.clock.advance(days=8)
        assert group.committed() == {} and group.state == "Dead"


def test_transactions_time_out() -> None:
    with serve(clock="virtual") as broker:
        settings = {"transactional.id": "x", "transaction.timeout.ms": 60_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        producer.init_transactions(5)
        producer.begin_transaction()
        producer.produce("t", b"a")
        producer.flush(5)
        broker.topic("t").append(["behind it"])
        broker.clock.advance(seconds=50)
        assert broker.topic("t").texts() == []
        broker.clock.advance(seconds=12)
        assert broker.topic("t").texts() == ["behind it"]


def test_retention() -> None:
    with serve(clock="virtual") as broker:
        topic = broker.topic("t").create(config={"retention.ms": 60_000, "segment.ms": 10_000})
        topic.append(["old"])
        broker.clock.advance(seconds=30)
        topic.append(["new"])
        assert topic.texts() == ["old", "new"]
        broker.clock.advance(seconds=40)
        assert topic.texts() == ["new"]


def test_compaction_is_done_when_advance_returns() -> None:
    with serve(clock="virtual") as broker:
        topic = broker.topic("t").create(
            50, config={"cleanup.policy": "compact", "segment.ms": 1000, "min.cleanable.dirty.ratio": 0}
        )
        for index in range(50):
            topic.append([("k", f"{number}") for number in range(1000)], partition=index)
        broker.clock.advance(seconds=2)
        for index in range(50):
            topic.append([("other", "x")], partition=index)
        broker.clock.advance(minutes=1)
        assert topic.texts() == ["999", "x"] * 50


def test_retention_of_many_partitions_is_done_when_advance_returns() -> None:
    with serve(clock="virtual") as broker:
        topic = broker.topic("t").create(100, config={"retention.ms": 60_000, "segment.ms": 10_000})
        for index in range(100):
            topic.append(["old"], partition=index)
        broker.clock.advance(seconds=90)
        assert topic.texts() == []


def test_clients_in_real_time_are_served(consumer: Any, produce: Any) -> None:
    with serve(clock="virtual") as broker:
        broker.topic("t").create()
        reader = consumer(broker.bootstrap, fetch_wait_max_ms=10_000)
        reader.subscribe(["t"])
        reader.poll(0.2)
        broker.clock.advance(minutes=10)
        assert produce(broker.bootstrap, "t") is None
        message = reader.poll(10)
        assert message is not None and message.value() == b"x"


def test_a_clock_does_not_go_back(run: Any) -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match="fresh broker"):
        clock.advance(seconds=-1)
    with pytest.raises(ValueError, match="fresh broker"):
        clock.advance(hours=1, minutes=-1)
    clock.advance(minutes=1)
    assert clock.ahead_ms == 60_000

    async def main() -> None:
        async with ottla.Broker(clock=clock) as broker:
            assert broker.clock is clock

    run(main())


def test_a_long_advance_is_made_in_bounded_steps(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker(clock="virtual") as broker:
            runs = []

            def again() -> None:
                runs.append(broker.clock.monotonic_ms())
                broker.server.timer.schedule(1, again)

            broker.server.timer.schedule(1, again)
            broker.clock.advance(days=7)
            assert len(runs) <= HOPS_MAX + 1
            assert runs == sorted(runs)

    run(main())
