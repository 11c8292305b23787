"""Real clients on a broker of three workers: everything that crosses from one worker to another."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.enums import CoordinatorType
from ottla.wire.messages import FindCoordinatorRequest

SECONDS = 60.0


@pytest.fixture
def create(serving: Any, request: pytest.FixtureRequest) -> Callable[[int], str]:
    def make(partitions: int) -> str:
        name = f"{request.node.name}-{time.monotonic_ns()}".replace("[", "-").replace("]", "")
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": serving.bootstrap})
        admin.create_topics([wanted])[name].result(SECONDS)
        return name

    return make


def consumer(serving: Any, group: str, **settings: Any) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": serving.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def read(source: ck.Consumer, count: int) -> list[ck.Message]:
    got: list[ck.Message] = []
    deadline = time.monotonic() + SECONDS
    while len(got) < count and time.monotonic() < deadline:
        for message in source.consume(count - len(got), 0.2):
            assert message.error() is None, message.error()
            got.append(message)
    assert len(got) == count
    return got


def test_librdkafka_reaches_all_partitions(serving: Any, create: Callable[[int], str]) -> None:
    topic = create(12)
    assert Counter(serving.leaders(topic).values()) == {1: 4, 2: 4, 3: 4}
    failed: list[Any] = []
    producer = ck.Producer({"bootstrap.servers": serving.bootstrap, "enable.idempotence": True})
    for number in range(600):
        producer.produce(
            topic,
            str(number),
            partition=number % 12,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0 and not failed
    reader = consumer(serving, f"{topic}-group")
    reader.subscribe([topic])
    messages = read(reader, 600)
    assert sorted(int(message.value() or b"") for message in messages) == [*range(600)]
    assert Counter(message.partition() for message in messages) == dict.fromkeys(range(12), 50)
    reader.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python uses a deprecated way to read its schemas
def test_kafka_python_reaches_all_partitions(serving: Any, create: Callable[[int], str]) -> None:
    import kafka

    topic = create(6)
    producer = kafka.KafkaProducer(bootstrap_servers=serving.bootstrap)
    sent = [producer.send(topic, b"%d" % number, partition=number % 6) for number in range(120)]
    assert sorted(future.get(SECONDS).offset for future in sent) == sorted([*range(20)] * 6)
    producer.close()
    reader = kafka.KafkaConsumer(
        topic, bootstrap_servers=serving.bootstrap, group_id=f"{topic}-group", auto_offset_reset="earliest"
    )
    values: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < 120 and time.monotonic() < deadline:
        for records in reader.poll(200).values():
            values += [int(record.value) for record in records]
    reader.close()
    assert sorted(values) == [*range(120)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_coordinated_by_every_worker(serving: Any, create: Callable[[int], str], protocol: str) -> None:
    """Six groups have their coordinators on different workers; each reads partitions of all of them, and commits."""
    topic = create(3)
    producer = ck.Producer({"bootstrap.servers": serving.bootstrap})
    for number in range(30):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(SECONDS) == 0
    for number in range(6):
        reader = consumer(serving, f"{topic}-{number}", **{"group.protocol": protocol})
        reader.subscribe([topic])
        read(reader, 30)
        reader.commit(asynchronous=False)
        reader.close()
        again = consumer(serving, f"{topic}-{number}", **{"group.protocol": protocol})
        found = again.committed([ck.TopicPartition(topic, index) for index in range(3)], SECONDS)
        assert [partition.offset for partition in found] == [10, 10, 10]
        again.close()
    admin = AdminClient({"bootstrap.servers": serving.bootstrap})
    listed = {group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid}
    assert {f"{topic}-{number}" for number in range(6)} <= listed


def test_members_of_a_group_share_partitions_of_all_workers(serving: Any, create: Callable[[int], str]) -> None:
    topic = create(6)
    readers = [consumer(serving, f"{topic}-group") for _ in range(3)]
    for reader in readers:
        reader.subscribe([topic])
    deadline = time.monotonic() + SECONDS
    while sorted(len(reader.assignment()) for reader in readers) != [2, 2, 2] and time.monotonic() < deadline:
        for reader in readers:
            reader.poll(0.05)
    assert {p.partition for reader in readers for p in reader.assignment()} == {*range(6)}
    for reader in readers:
        reader.close()


def test_transactions_cross_workers(serving: Any, create: Callable[[int], str]) -> None:
    """Six transactional ids have their coordinators on different workers; each writes to partitions of all of them."""
    topic = create(6)
    producers = [
        ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": f"{topic}-{number}"})
        for number in range(6)
    ]
    for producer in producers:
        producer.init_transactions(SECONDS)
    for round_number in range(4):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            is_committed = (round_number + number) % 2 == 0
            for index in range(6):
                producer.produce(topic, f"{number}-{round_number}" if is_committed else "aborted", partition=index)
            if is_committed:
                producer.commit_transaction(SECONDS)
            else:
                producer.flush(SECONDS)
                producer.abort_transaction(SECONDS)
    reader = consumer(serving, f"{topic}-group", **{"isolation.level": "read_committed"})
    reader.assign([ck.TopicPartition(topic, index, 0) for index in range(6)])
    values = [(message.value() or b"").decode() for message in read(reader, 72)]
    assert Counter(values) == {
        f"{number}-{round_number}": 6 for number in range(6) for round_number in range(number % 2, 4, 2)
    }
    # Every transaction of every partition is decided soon: nothing blocks readers of committed records.
    partitions = [ck.TopicPartition(topic, index) for index in range(6)]
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = [reader.get_watermark_offsets(partition, SECONDS) for partition in partitions]
        if found == [(0, 48)] * 6:
            break
    assert found == [(0, 48)] * 6
    reader.close()


def test_offsets_and_records_commit_together_across_workers(serving: Any, create: Callable[[int], str]) -> None:
    source, sink = create(3), create(3)
    producer = ck.Producer({"bootstrap.servers": serving.bootstrap})
    for number in range(30):
        producer.produce(source, str(number), partition=number % 3)
    assert producer.flush(SECONDS) == 0
    for number in range(4):  # groups and transactional ids on different workers
        reader = consumer(serving, f"{source}-{number}")
        reader.subscribe([source])
        transactional = ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": f"{source}-{number}"})
        transactional.init_transactions(SECONDS)
        messages = read(reader, 30)
        for is_committed in (False, True):
            transactional.begin_transaction()
            for message in messages:
                transactional.produce(sink, message.value(), partition=message.partition())
            transactional.send_offsets_to_transaction(
                reader.position(reader.assignment()), reader.consumer_group_metadata(), SECONDS
            )
            if is_committed:
                transactional.commit_transaction(SECONDS)
            else:
                transactional.abort_transaction(SECONDS)
            found = reader.committed([ck.TopicPartition(source, index) for index in range(3)], SECONDS)
            assert [partition.offset for partition in found] == ([10] * 3 if is_committed else [ck.OFFSET_INVALID] * 3)
        reader.close()
    reader = consumer(serving, f"{sink}-group", **{"isolation.level": "read_committed"})
    reader.subscribe([sink])
    assert Counter(int(message.value() or b"") for message in read(reader, 120)) == dict.fromkeys(range(30), 4)
    reader.close()


def test_transactions_survive_a_restart_with_fewer_workers(serve: Callable[..., Any]) -> None:
    serving = serve(3)
    admin = AdminClient({"bootstrap.servers": serving.bootstrap})
    admin.create_topics([NewTopic("t", 3, 1)])["t"].result(SECONDS)
    for number in range(3):
        producer = ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": f"id-{number}"})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for index in range(3):
            producer.produce("t", f"{number}", partition=index)
        producer.commit_transaction(SECONDS)
        producer.begin_transaction()
        producer.produce("t", "open", partition=number)
        producer.flush(SECONDS)
    assert serving.stop()[0] == 0
    serving = serve(2)
    for number in range(3):  # the same id again: what was open is aborted
        producer = ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": f"id-{number}"})
        producer.init_transactions(SECONDS)
    reader = consumer(serving, "g", **{"isolation.level": "read_committed"})
    reader.assign([ck.TopicPartition("t", index, 0) for index in range(3)])
    assert Counter((message.value() or b"").decode() for message in read(reader, 9)) == {"0": 3, "1": 3, "2": 3}
    assert reader.consume(1, 0.5) == []
    reader.close()


@pytest.mark.parametrize("coordinator", [1, 2])
def test_the_next_start_writes_markers_that_a_kill_prevented(serve: Callable[..., Any], coordinator: int) -> None:
    """One worker has stored the decision, but the worker that leads the partition does not know it."""
    serving = serve(2)
    admin = AdminClient({"bootstrap.servers": serving.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(SECONDS)
    leader = 3 - coordinator
    index = next(index for index, node in serving.leaders("t").items() if node == leader)
    producer = ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": id_at(serving, coordinator)})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("t", "committed", partition=index)
    producer.flush(SECONDS)
    os.kill(serving.pids()[leader - 1], signal.SIGSTOP)
    producer.commit_transaction(SECONDS)
    serving.kill_all()
    serving = serve(2)
    reader = consumer(serving, "g", **{"isolation.level": "read_committed"})
    reader.assign([ck.TopicPartition("t", index, 0)])
    assert [message.value() for message in read(reader, 1)] == [b"committed"]
    reader.close()


def id_at(serving: Any, node: int) -> str:
    """A transactional id that this worker coordinates."""
    for number in itertools.count():
        answer = serving.wire().call(
            FindCoordinatorRequest(key=f"id-{number}", key_type=CoordinatorType.TRANSACTION), 3
        )
        if answer.error_code == 0 and answer.node_id == node:
            return f"id-{number}"
    raise AssertionError
