"""Every fault has the documented effect on a real client."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import ottla
from ottla import errors
from ottla.embedded.broker import Embedded
from ottla.embedded.faults import KINDS
from ottla.testing import ServedBroker, serve


def records(broker: ServedBroker, topic: str = "t") -> list[str | None]:
    return broker.topic(topic).texts()


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_retriable_error_is_retried(broker: ServedBroker, produce: Any) -> None:
    broker.topic("t").create()
    fault = broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(broker.bootstrap, "t") is None
    fault.expect_fired(2)
    assert not fault.active
    assert records(broker) == ["x"]
    struck = [request for request in broker.requests(api="Produce") if request.fault]
    assert [request.errors for request in struck] == [["NOT_LEADER_OR_FOLLOWER"]] * 2


@pytest.mark.parametrize("error", ["INVALID_RECORD", 87, errors.InvalidRecord, errors.InvalidRecord("no")])
def test_a_fatal_error_reaches_the_caller(broker: ServedBroker, produce: Any, error: Any) -> None:
    broker.topic("t").create()
    with broker.faults.error("Produce", error) as fault:
        assert produce(broker.bootstrap, "t").code() == KafkaError.INVALID_RECORD
    assert fault.fired == 1
    assert records(broker) == []


def test_only_one_partition_fails(broker: ServedBroker) -> None:
    broker.topic("t").create(2)
    broker.topic("u").create()
    fault = broker.faults.error("Produce", "INVALID_RECORD", topic="t", partition=1, times="every")
    outcome: dict[tuple[str, int], Any] = {}
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 0}
    producer = Producer(settings)
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        producer.produce(
            topic,
            b"x",
            partition=partition,
            on_delivery=lambda error, message: outcome.update({(message.topic(), message.partition()): error}),
        )
    assert producer.flush(10) == 0
    assert outcome["t", 0] is None and outcome["u", 0] is None
    assert outcome["t", 1].code() == KafkaError.INVALID_RECORD
    fault.expect_fired()


def test_a_fetch_fails_for_one_topic(broker: ServedBroker, consumer: Any) -> None:
    broker.topic("t").append(["a"])
    broker.topic("u").append(["b"])
    fault = broker.faults.error("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic="t", times="every")
    reader = consumer(broker.bootstrap)
    reader.subscribe(["t", "u"])
    seen: dict[str, Any] = {}
    while len(seen) < 2:
        message = reader.poll(10)
        assert message is not None
        seen[message.topic()] = message.error() or message.value()
    assert seen["u"] == b"b"
    assert seen["t"].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    fault.remove()
    reader.seek(_at("t"))
    message = reader.poll(10)
    assert message is not None and message.value() == b"a"


def _at(topic: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0, 0)


def test_faults_are_limited_to_a_client_or_a_group(broker: ServedBroker, consumer: Any) -> None:
    broker.topic("t").append(["a"])
    fault = broker.faults.error("JoinGroup", "GROUP_AUTHORIZATION_FAILED", group="bad", times="every")
    other = broker.faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", client_id="outsider", times="every")
    good, bad = consumer(broker.bootstrap, "good"), consumer(broker.bootstrap, "bad")
    good.subscribe(["t"])
    bad.subscribe(["t"])
    assert good.poll(10).value() == b"a"
    assert bad.poll(10).error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert fault.fired and not other.fired


def test_offset_fetch_and_commit(broker: ServedBroker, consumer: Any) -> None:
    broker.topic("t").append(["a"])
    fetch = broker.faults.error("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    reader = consumer(broker.bootstrap)
    reader.subscribe(["t"])
    assert reader.poll(10).value() == b"a"
    fetch.expect_fired(2)
    broker.faults.error("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", topic="t")
    with pytest.raises(KafkaException) as caught:
        reader.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def test_admin_calls(broker: ServedBroker) -> None:
    from confluent_kafka.admin import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    broker.faults.error("CreateTopics", "POLICY_VIOLATION", topic="bad")
    futures = admin.create_topics([NewTopic("bad", 1), NewTopic("good", 1)])
    futures["good"].result(10)
    with pytest.raises(KafkaException) as caught:
        futures["bad"].result(10)
    assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert broker.topics() == ["good"]


# -- time and connections ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_delay(broker: ServedBroker, produce: Any, when: str) -> None:
    broker.topic("t").create()
    fault = broker.faults.delay("Produce", ms=80, when=when)
    started = time.monotonic()
    assert produce(broker.bootstrap, "t") is None
    assert time.monotonic() - started >= 0.08
    fault.expect_fired(1)
    assert records(broker) == ["x"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_idempotent_producer_survives_a_dropped_connection(broker: ServedBroker, produce: Any, when: str) -> None:
    broker.topic("t").create()
    fault = broker.faults.drop("Produce", when=when)
    assert produce(broker.bootstrap, "t", enable_idempotence=True) is None
    fault.expect_fired(1)
    assert records(broker) == ["x"]
    assert len(broker.requests(api="Produce")) == 2


def test_without_idempotence_a_drop_after_the_effect_duplicates(broker: ServedBroker, produce: Any) -> None:
    broker.topic("t").create()
    broker.faults.drop("Produce", when="after")
    assert produce(broker.bootstrap, "t") is None
    assert records(broker) == ["x", "x"]


def test_a_join_is_dropped_after_the_effect(broker: ServedBroker, consumer: Any) -> None:
    broker.topic("t").append(["a"])
    fault = broker.faults.drop("SyncGroup", when="after")
    reader = consumer(broker.bootstrap)
    reader.subscribe(["t"])
    assert reader.poll(10).value() == b"a"
    fault.expect_fired(1)


def test_black_hole(broker: ServedBroker, produce: Any) -> None:
    broker.topic("t").create()
    fault = broker.faults.black_hole("Produce", times="every")
    error = produce(broker.bootstrap, "t", message_timeout_ms=300, socket_timeout_ms=100)
    assert error.code() == KafkaError._MSG_TIMED_OUT
    fault.expect_fired()
    assert records(broker) == []


def test_acks_0_fails_by_a_closed_connection(broker: ServedBroker, produce: Any) -> None:
    broker.topic("t").create()
    fault = broker.faults.error("Produce", "INVALID_RECORD")
    assert produce(broker.bootstrap, "t", acks=0) is None
    fault.wait()
    assert records(broker) == []


# -- records and the disk ----------------------------------------------------------------------------------------------


def test_a_corrupt_batch(broker: ServedBroker, consumer: Any) -> None:
    broker.topic("t").append(["a"])
    fault = broker.faults.corrupt(topic="t", times="every")
    reader = consumer(broker.bootstrap, check_crcs=True)
    reader.subscribe(["t"])
    message = reader.poll(10)
    assert message is not None and message.error().code() == KafkaError._BAD_MSG
    fault.remove()
    fault.expect_fired()
    assert records(broker) == ["a"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_full_disk(produce: Any, tmp_path: Path, on_disk: bool) -> None:
    with serve(data=tmp_path if on_disk else None) as broker:
        broker.topic("t").create()
        broker.topic("u").create()
        with broker.faults.disk_full(topic="t") as fault:
            assert produce(broker.bootstrap, "t", retries=0).code() == KafkaError.KAFKA_STORAGE_ERROR
            assert produce(broker.bootstrap, "u") is None
            fault.expect_fired()
        assert produce(broker.bootstrap, "t", b"later") is None
        assert records(broker) == ["later"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_failing_flush(produce: Any, tmp_path: Path, on_disk: bool) -> None:
    settings = {"log.flush.interval.messages": 1}
    with serve(data=tmp_path if on_disk else None, settings=settings) as broker:
        broker.topic("t").create()
        with broker.faults.fsync_fails(topic="t") as fault:
            assert produce(broker.bootstrap, "t", retries=0).code() == KafkaError.KAFKA_STORAGE_ERROR
            fault.expect_fired()


# -- groups, leaders, producers ----------------------------------------------------------------------------------------


class Reader:
    """A consumer that counts its assignments and records."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.assignments = 0
        self.read = 0
        consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def poll_until(self, condition: Any, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the expected state was not reached"
            message = self.consumer.poll(0.02)
            self.read += message is not None and message.error() is None


@pytest.fixture
def reader(broker: ServedBroker, consumer: Any) -> Reader:
    broker.topic("t").append(["a"])
    reader = Reader(consumer(broker.bootstrap, client_id="reader"), "t")
    reader.poll_until(lambda: reader.assignments == 1)
    return reader


def test_a_forced_rebalance(broker: ServedBroker, reader: Reader) -> None:
    assert broker.faults.rebalance("g").fired == 1
    reader.poll_until(lambda: reader.assignments == 2)


def test_a_forced_rebalance_of_the_new_protocol(broker: ServedBroker) -> None:
    broker.topic("t").append(["a"])
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **settings})
    try:
        consumer.subscribe(["t"])
        assert consumer.poll(10).value() == b"a"
        epoch = _epoch(broker)
        broker.faults.rebalance("g")
        deadline = time.monotonic() + 90
        while _epoch(broker) <= epoch and time.monotonic() < deadline:
            consumer.poll(0.02)
        assert _epoch(broker) > epoch
        (member,) = broker.group("g").members()
        broker.faults.evict("g")
        while [each.assignment for each in broker.group("g").members()] != [(("t", 0),)]:
            assert time.monotonic() < deadline
            consumer.poll(0.02)
        assert "FENCED_MEMBER_EPOCH" in {e for r in broker.requests("ConsumerGroupHeartbeat") for e in r.errors} or (
            "UNKNOWN_MEMBER_ID" in {e for r in broker.requests("ConsumerGroupHeartbeat") for e in r.errors}
        )
        assert member.member_id
    finally:
        consumer.close()


def _epoch(broker: ServedBroker) -> int:
    """The epoch that the only member has reached."""
    embedded: Embedded = broker.embedded
    return embedded.call(lambda server: max(m.epoch for m in server.groups.shard_for("g").groups["g"].members.values()))


def test_an_evicted_member_joins_again(broker: ServedBroker, reader: Reader) -> None:
    (before,) = broker.group("g").members()
    assert broker.faults.evict("g", "reader").fired == 1
    assert broker.group("g").members() == []
    reader.poll_until(lambda: reader.assignments == 2)
    (after,) = broker.group("g").members()
    assert after.member_id != before.member_id
    assert ["UNKNOWN_MEMBER_ID"] in [request.errors for request in broker.requests(api="Heartbeat")]


def test_a_coordinator_that_moves(broker: ServedBroker, reader: Reader) -> None:
    reader.poll_until(lambda: reader.read == 1)
    found = len(broker.requests(api="FindCoordinator"))
    fault = broker.faults.move_coordinator(group="g")
    fault_fired = lambda: fault.fired == 1  # noqa: E731
    reader.poll_until(fault_fired)
    reader.poll_until(lambda: len(broker.requests(api="FindCoordinator")) > found)
    reader.consumer.commit(asynchronous=False)
    assert broker.group("g").committed() == {("t", 0): 1}
    assert broker.group("g").state == "Stable"


def test_a_new_leader_epoch(broker: ServedBroker, reader: Reader, produce: Any) -> None:
    fault = broker.faults.bump_leader_epoch("t", times=2)
    assert produce(broker.bootstrap, "t", b"b") is None
    reader.poll_until(lambda: fault.fired == 2)
    broker.topic("t").append(["c"])
    assert [record.text for record in broker.topic("t").records()] == ["a", "b", "c"]
    embedded: Embedded = broker.embedded
    assert embedded.call(lambda server: server.metadata.topics["t"].partitions[0].leader_epoch) == 1


def test_a_fenced_producer(broker: ServedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush(5)
    assert broker.faults.fence_producer("x").fired == 1
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(5)
    assert caught.value.args[0].code() == KafkaError._FENCED and caught.value.args[0].fatal()
    assert records(broker) == []


def test_a_transaction_coordinator_that_moves(broker: ServedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush(5)
    fault = broker.faults.move_coordinator(transactional_id="x")
    producer.commit_transaction(10)
    fault.expect_fired(1)
    assert records(broker) == ["a"]


# -- the broker itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["down", "kill"])
def test_a_producer_continues_after_a_restart_of_the_broker(broker: ServedBroker, how: str) -> None:
    broker.topic("t").append(["a"])
    outcome: list[Any] = []
    settings = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.produce("t", b"b", on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(5) == 0
    getattr(broker, how)()
    producer.produce("t", b"c", on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(0.05) == 1
    broker.up()
    assert producer.flush(10) == 0
    assert outcome == [None, None]
    assert records(broker) == ["a", "b", "c"]


# -- rules -------------------------------------------------------------------------------------------------------------


def test_after_times_and_probability_limit_a_fault(run: Any) -> None:
    async def strikes(**options: Any) -> list[bool]:
        async with ottla.Broker() as broker:
            fault = broker.faults.error("ApiVersions", "INVALID_REQUEST", **options)
            struck = []
            reader, writer = await asyncio.open_connection(*broker.address)
            for _ in range(20):
                before = fault.fired
                writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                struck.append(fault.fired > before)
            writer.close()
            await writer.wait_closed()
            return struck

    assert run(strikes()) == [True] + [False] * 19
    assert run(strikes(after=2, times=3)) == [False] * 2 + [True] * 3 + [False] * 15
    first = run(strikes(chance=0.5, seed=7, times="every"))
    assert first == run(strikes(chance=0.5, seed=7, times="every"))
    assert 0 < sum(first) < 20 and first != run(strikes(chance=0.5, seed=8, times="every"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.error("Produc", "INVALID_RECORD"), "did you mean Produce"),
        (lambda f: f.error([], "INVALID_RECORD"), "name at least one API"),
        (lambda f: f.error("Produce", "INVALID_RECRD"), "did you mean INVALID_RECORD"),
        (lambda f: f.error("Produce", 4711), "error codes"),
        (lambda f: f.error("Produce", "INVALID_RECORD", version=99), "matches no request"),
        (lambda f: f.error("Produce", "INVALID_RECORD", version="new"), "pass a number"),
        (lambda f: f.error("Heartbeat", "NOT_COORDINATOR", topic="t"), "name no topics"),
        (lambda f: f.error("Produce", "INVALID_RECORD", group="g"), "name no groups"),
        (lambda f: f.error("Heartbeat", "NOT_COORDINATOR", transactional_id="x"), "name no transactional ids"),
        (lambda f: f.error("Produce", "INVALID_RECORD", partition=1), "needs the topic="),
        (lambda f: f.error("Produce", "INVALID_RECORD", times=0), "'every'"),
        (lambda f: f.error("Produce", "INVALID_RECORD", chance=2), "share"),
        (lambda f: f.error("Produce", "INVALID_RECORD", after=-1), "let pass"),
        (lambda f: f.delay("Produce"), "say how long"),
        (lambda f: f.drop("Produce", when="during"), "'before' or 'after'"),
        (lambda f: f.rebalance("nobody"), "let its consumer join first"),
        (lambda f: f.evict("nobody"), "let its consumer join first"),
        (lambda f: f.fence_producer("nobody"), "init_transactions"),
        (lambda f: f.move_coordinator(), "either group= or"),
        (lambda f: f.move_coordinator(group="g"), "let a consumer join first"),
        (lambda f: f.move_coordinator(transactional_id="x"), "init_transactions"),
        (lambda f: f.bump_leader_epoch("nothing"), "create the topic first"),
        (lambda f: f.apply("explode"), "choose one of"),
        (lambda f: f.apply("error", api="Produce"), "needs error="),
        (lambda f: f.apply("rebalance", team="g"), "no option 'team'"),
    ],
)
def test_bad_use_says_what_to_do(broker: ServedBroker, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(broker.faults)
    assert len(broker.faults) == 0


def test_waiting_for_a_fault(run: Any, broker: ServedBroker) -> None:
    fault = broker.faults.error("Produce", "INVALID_RECORD")
    with pytest.raises(AssertionError, match="0 of 1 times"):
        fault.wait(timeout=0.01)
    with pytest.raises(AssertionError, match="never fired"):
        fault.expect_fired()
    with pytest.raises(AssertionError, match="0 times, not 2"):
        fault.expect_fired(2)

    async def on_the_loop() -> None:
        async with ottla.Broker() as own:
            with pytest.raises(RuntimeError, match="wait_async"):
                own.faults.error("Produce", "INVALID_RECORD").wait()

    run(on_the_loop())


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}" not in page] == []


def test_a_blocking_wait_is_refused_on_an_event_loop(broker: ServedBroker, run: Any) -> None:
    fault = broker.faults.error("Produce", "INVALID_RECORD")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="wait would block this event loop"):
            fault.wait(timeout=0.01)
        with pytest.raises(AssertionError, match="0 of 1 times"):
            await fault.wait_async(timeout=0.01)

    run(main())


def test_the_text_of_a_fault_has_its_filters(broker: ServedBroker) -> None:
    faults = broker.faults
    fault = faults.error("Produce", "INVALID_RECORD", topic="t", partition=0, client_id="c", times=2, after=3, chance=1)
    assert fault.text == "INVALID_RECORD for Produce, topic=t, partition=0, client_id=c, after=3"
    assert faults.delay("Fetch", ms=5, version="3-5", group=None).text == "5 ms for Fetch, version=3-5"
    assert faults.disk_full(topic="t").text == "no space left on the disk, topic=t"
