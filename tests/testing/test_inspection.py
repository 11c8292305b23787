"""Topics, groups and requests, inspected without a client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import ottla
from ottla.embedded.report import report
from ottla.testing import NotFoundError, Record, ServedBroker


def test_records_of_a_client_are_read(broker: ServedBroker, produce: Any) -> None:
    assert produce(broker.bootstrap, "t", b'{"n": 1}', compression_type="lz4") is None
    record = broker.topic("t").wait_for(lambda record: record.json["n"] == 1)
    assert (record.topic, record.partition, record.offset, record.text) == ("t", 0, 0, '{"n": 1}')
    assert broker.topic("t").end_offsets() == {0: 1}
    broker.topic("t").append(["plain"])
    with pytest.raises(ValueError, match="the value of t-0@1 is not JSON: b'plain'"):
        broker.topic("t").jsons()


def test_appended_records_reach_a_client(broker: ServedBroker, consumer: Any) -> None:
    topic = broker.topic("t").create(3)
    done = topic.append(["a", ("key", b"\xff", {"h": "v"}), {"n": 1}, None], timestamp_ms=1_700_000_000_000)
    assert [record.value for record in done if record.key is None] == [b"a", b'{"n": 1}', None]
    reader = consumer(broker.bootstrap)
    reader.subscribe(["t"])
    found = {}
    while len(found) < 4:
        message = reader.poll(5)
        assert message is not None and message.error() is None
        found[message.partition(), message.offset()] = (message.key(), message.value(), message.headers())
    assert found == {
        (record.partition, record.offset): (record.key, record.value, list(record.headers) or None)
        for record in topic.records()
    }


def test_keys_are_partitioned_as_clients_do(broker: ServedBroker) -> None:
    mine, theirs = broker.topic("mine").create(7), broker.topic("theirs").create(7)
    keys = [f"key-{number}".encode() for number in range(20)]
    mine.append([(key, "x") for key in keys])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random", "log_level": 0})
    for key in keys:
        producer.produce("theirs", b"x", key)
    assert producer.flush(5) == 0
    assert [(r.partition, r.key) for r in mine.records()] == [(r.partition, r.key) for r in theirs.records()]


def test_a_wait_ends_with_the_append(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker() as broker:
            waiting = asyncio.create_task(broker.topic("t").wait_for(lambda record: record.text == "b", timeout=10))
            await asyncio.sleep(0)
            broker.topic("t").append(["a"])
            await asyncio.sleep(0)
            assert not waiting.done()
            broker.topic("t").append(["b"])
            assert (await waiting).offset == 1

    run(main())


def test_a_wait_that_fails_shows_the_records(run: Any, broker: ServedBroker) -> None:
    broker.topic("t").append(["apple"])
    with pytest.raises(AssertionError, match=r'(?s)no record in topic t .* it holds:\n  t-0@0: "apple"'):
        broker.topic("t").wait_for(lambda record: False, timeout=0.01)
    with pytest.raises(AssertionError, match="1 of 2 records"):
        broker.topic("t").wait_for_all(count=2, timeout=0.01)
    with pytest.raises(AssertionError, match="does not exist"):
        broker.topic("other").wait_for(timeout=0.01)

    async def on_a_loop() -> None:
        with pytest.raises(RuntimeError, match="wait_for_async"):
            broker.topic("t").wait_for()
        with pytest.raises(RuntimeError, match="wait_for_all_async"):
            broker.topic("t").wait_for_all(count=1)
        assert (await broker.topic("t").wait_for_async()).text == "apple"
        assert [record.text for record in await broker.topic("t").wait_for_all_async(count=1)] == ["apple"]

    run(on_a_loop())


def test_expect_shows_a_diff(broker: ServedBroker) -> None:
    topic = broker.topic("t")
    topic.append(["a", ("k", "b"), "c"])
    topic.expect(["a", ("k", "b"), "c"])
    topic.expect(["a", "b", "c"])
    with pytest.raises(AssertionError) as caught:
        topic.expect(["a", ("k", "x"), "c"])
    assert '- "k" → "x"' in str(caught.value) and '+ "k" → "b"' in str(caught.value)
    with pytest.raises(AssertionError, match=r'(?m)^- "d"$'):
        topic.expect(["a", "b", "c", "d"])
    with pytest.raises(AssertionError, match=r'(?m)^\+ "c"$'):
        topic.expect(["a", "b"])


def test_transactions_hide_what_consumers_do_not_see(broker: ServedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"aborted")
    producer.flush(5)
    assert broker.topic("t").texts() == []
    producer.abort_transaction(5)
    producer.begin_transaction()
    producer.produce("t", b"committed")
    producer.commit_transaction(5)
    assert broker.topic("t").texts() == ["committed"]
    everything = broker.topic("t").records(committed_only=False)
    assert [record.text for record in everything] == ["aborted", "committed"]


def test_a_report_marks_what_consumers_do_not_see(broker: ServedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(5)
    for value, end in ((b"dropped", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush(5)
        end(5)
    producer.begin_transaction()
    producer.produce("t", b"pending")
    producer.flush(5)
    broker.topic("t").append(["later"])
    lines = report(broker.embedded).splitlines()
    assert [line.partition(": ")[2] for line in lines if line.startswith("  t-0@")] == [
        '"dropped" (aborted)',
        '"kept"',
        '"pending" (open transaction)',
        '"later" (behind an open transaction)',
    ]


def test_json_lines(broker: ServedBroker, tmp_path: Path) -> None:
    topic = broker.topic("t").create(2)
    topic.append([("k", "v", {"h": b"\xfe"}), {"n": 1}, None, b"\xff"], partition=1, timestamp_ms=1_700_000_000_000)
    path = tmp_path / "t.jsonl"
    assert topic.save(path) == 4
    first = json.loads(path.read_text().splitlines()[0])
    assert first["key"] == "k" and first["headers"] == [["h", {"base64": "/g=="}]]
    copy = broker.topic("copy")
    copy.load(path)
    assert [(r.partition, r.timestamp_ms, r.key, r.value, r.headers) for r in copy.records()] == [
        (r.partition, r.timestamp_ms, r.key, r.value, r.headers) for r in topic.records()
    ]
    path.write_text("{}\nnonsense\n")
    with pytest.raises(ValueError, match="line 2"):
        copy.load(path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group(broker: ServedBroker, consumer: Any, protocol: str) -> None:
    broker.topic("t").create(2).append(["a", "b"], partition=1)
    group = broker.group("g")
    assert (group.state, group.members(), group.committed(), group.lag(of="t")) == ("Dead", [], {}, 2)
    settings = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 50} if protocol == "classic" else {}
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    try:
        reader.subscribe(["t"])
        message = reader.poll(10)
        assert message is not None and message.value() == b"a"
        reader.commit(message, asynchronous=False)
        assert group.state == "Stable"
        (member,) = group.members()
        assert member.client_id == "reader" and member.assignment == (("t", 0), ("t", 1))
        assert group.committed() == {("t", 1): 1}
        assert group.lag() == group.lag(of="t") == 1
        assert broker.groups() == ["g"]
    finally:
        reader.close()
    group.delete()
    assert broker.groups() == []


def test_the_lag_of_a_group_that_never_committed_is_an_error(broker: ServedBroker, consumer: Any) -> None:
    orders = broker.topic("orders").create(2)
    orders.append(["a", "b"], partition=1)
    with pytest.raises(NotFoundError, match=r"there is no group 'never' \(there are no groups\), .* lag\(of=topic\)"):
        broker.group("never").lag()
    assert broker.group("never").lag(of=orders) == 2
    reader = consumer(broker.bootstrap, "reads")
    reader.subscribe(["orders"])
    assert reader.poll(10) is not None
    with pytest.raises(NotFoundError, match="group 'reads' has not committed an offset yet"):
        broker.group("reads").lag()
    with pytest.raises(
        NotFoundError, match=r"there is no topic 'ordes'; the topics are orders; did you mean 'orders'\?"
    ):
        broker.group("reads").lag(of="ordes")


def test_a_topic_that_does_not_exist_is_not_an_empty_one(broker: ServedBroker, tmp_path: Path) -> None:
    broker.topic("orders").create().expect([])
    typo = broker.topic("ordres")
    for look in (
        typo.records,
        typo.texts,
        typo.end_offsets,
        lambda: typo.expect([]),
        lambda: typo.save(tmp_path / "x"),
    ):
        with pytest.raises(NotFoundError, match=r"there is no topic 'ordres'; .* did you mean 'orders'\?"):
            look()
    assert not typo.exists and typo.partitions == 0


def test_requests(broker: ServedBroker, produce: Any) -> None:
    assert produce(broker.bootstrap, "t", client_id="writer") is None
    (seen,) = broker.requests(api="Produce", client_id="writer")
    assert seen.topics == ["t"] and seen.answered and seen.errors == []
    assert broker.requests(topic="t")[-1] is seen
    assert broker.requests(client_id="nobody") == []
    with pytest.raises(ValueError, match="serves no API"):
        broker.requests(api="Teleport")


def test_reset(broker: ServedBroker, produce: Any, consumer: Any) -> None:
    assert produce(broker.bootstrap, "t") is None
    reader = consumer(broker.bootstrap)
    reader.subscribe(["t"])
    assert reader.poll(10) is not None
    reader.commit(asynchronous=False)
    fault = broker.faults.error("Produce", "INVALID_RECORD")
    broker.reset()
    assert (broker.topics(), broker.groups(), broker.requests(api="Produce"), len(broker.faults)) == ([], [], [], 0)
    assert not fault.active
    assert produce(broker.bootstrap, "t", b"again") is None
    assert [record.offset for record in broker.topic("t").records()] == [0]


def test_bad_use_says_what_to_do(broker: ServedBroker) -> None:
    topic = broker.topic("t").create()
    with pytest.raises(ValueError, match="already exists"):
        topic.create()
    with pytest.raises(ValueError, match="cannot be created"):
        broker.topic("a/b").create()
    with pytest.raises(TypeError, match=r"put the value into \[ \]"):
        topic.append("text")
    with pytest.raises(TypeError, match="neither bytes, text nor JSON"):
        topic.append([object()])
    with pytest.raises(ValueError, match="tuple of 4"):
        topic.append([(1, 2, 3, 4)])
    with pytest.raises(ValueError, match="partitions 0 to 0"):
        topic.append(["x"], partition=5)
    with pytest.raises(ValueError, match="partitions 0 to 0"):
        topic.records(5)


def test_a_record() -> None:
    record = Record("t", 0, 3, 5, b"k", b"\xff\xfe", (("a", b"1"), ("a", None)))
    assert str(record) == 't-0@3: "k" → ff fe a="1" a=null'
    assert record.header("a") is None and record.header("b") is None
    assert Record.from_dict("t", json.loads(json.dumps(record.to_dict()))) == record
