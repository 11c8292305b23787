"""Transactions of real clients: commit, abort, fencing of zombies, and consume-transform-produce.

Each client has a separate driver for these tests, in a child process, with the operations
open (id, transactional_id), begin, send (topic, values), commit, abort, transform (source, target, group, count), read.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.batches import batch
from support.interop import toolchains
from support.interop.drivers import Client, ClientError, Driver
from support.interop.transacting import Transacting, committed_offset, describe, read_committed
from support.wire import TIMEOUT_S, Wire


def _java() -> tuple[list[str], dict[str, str]]:
    source = toolchains.HERE / "java" / "Transactions.java"
    return [*toolchains.JAVA, "-cp", f"{toolchains.kafka_jars()}/*", str(source)], {}


def _python(script: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    return lambda: ([sys.executable, str(toolchains.HERE / "python" / script)], {})


def _go(name: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    return lambda: ([str(toolchains.go_binary()), name], {})


def _node() -> tuple[list[str], dict[str, str]]:
    program = toolchains.HERE / "node" / "transactions.js"
    return ["node", str(program)], {"NODE_PATH": str(toolchains.node_modules())}


CLIENTS = [
    Client("confluent-kafka", _python("confluent_transactions.py")),
    Client("aiokafka", _python("aiokafka_transactions.py")),
    Client("franz-go", _go("franz-transactions"), marks=("go",)),
    Client("sarama", _go("sarama-transactions"), marks=("go",)),
    Client("java", _java, marks=("jvm",)),
    Client("kafkajs", _node, marks=("node",)),
]

FENCED_AS = {
    # The error that a producer gets at its next send after another one took over its id; the same on both brokers.
    "confluent-kafka": ("KafkaException", -144),  # librdkafka's own number for "fenced"
    "aiokafka": ("ProducerFenced", None),
    "franz-go": ("INVALID_PRODUCER_EPOCH", 47),
    "sarama": ("sarama.KError", 47),
    "java": ("InvalidProducerEpochException", 47),
    "kafkajs": ("INVALID_PRODUCER_EPOCH", 47),
}


@pytest.fixture(scope="module")
def _running(broker: Any) -> Iterator[dict[str, Driver]]:
    running: dict[str, Driver] = {}
    yield running
    for driver in running.values():
        driver.close()


@pytest.fixture(
    params=[
        pytest.param(client, id=client.name, marks=[getattr(pytest.mark, mark) for mark in client.marks])
        for client in CLIENTS
    ]
)
def client(request: pytest.FixtureRequest, broker: Any, _running: dict[str, Driver]) -> Driver:
    wanted: Client = request.param
    if wanted.name not in _running:
        _running[wanted.name] = Driver(wanted, broker.bootstrap)
    return _running[wanted.name]


def settle(wire: Wire, name: str) -> str:
    """Waits for the markers, which Apache Kafka writes after it has answered."""
    deadline = time.monotonic() + TIMEOUT_S
    while (state := describe(wire, name).transaction_state).startswith("Prepare"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return str(state)


def test_commit_and_abort(client: Driver, make_topic, wire: Wire, unique) -> None:
    topic, name = make_topic(2), unique("tx")
    client.call("open", id=name, transactional_id=name)
    client.call("begin", id=name)
    client.call("send", id=name, topic=topic, values=["a", "b"])
    client.call("send", id=name, topic=topic, values=["other"], partition=1)
    assert read_committed(wire, topic) == []
    client.call("commit", id=name)
    assert settle(wire, name) == "CompleteCommit"
    client.call("begin", id=name)
    client.call("send", id=name, topic=topic, values=["dropped"])
    client.call("abort", id=name)
    assert settle(wire, name) == "CompleteAbort"
    wire.produce(topic, batch(b"plain"))
    client.call("begin", id=name)
    client.call("send", id=name, topic=topic, values=["c"])
    client.call("commit", id=name)
    settle(wire, name)
    assert read_committed(wire, topic) == [b"a", b"b", b"plain", b"c"]
    assert read_committed(wire, topic, 1) == [b"other"]
    assert client.call("read", topic=topic, count=4) == ["a", "b", "plain", "c"]


def test_a_zombie_is_fenced(client: Driver, topic: str, wire: Wire, unique) -> None:
    name = unique("tx")
    zombie, living = f"{name}-zombie", f"{name}-living"
    client.call("open", id=zombie, transactional_id=name)
    client.call("begin", id=zombie)
    client.call("send", id=zombie, topic=topic, values=["zombie"])
    client.call("open", id=living, transactional_id=name)
    client.call("begin", id=living)
    client.call("send", id=living, topic=topic, values=["living"])
    with pytest.raises(ClientError) as refused:
        client.call("send", id=zombie, topic=topic, values=["late"])
        client.call("commit", id=zombie)
    assert (refused.value.name, refused.value.code) == FENCED_AS[client.client.name]
    client.call("commit", id=living)
    assert settle(wire, name) == "CompleteCommit"
    assert read_committed(wire, topic) == [b"living"]


def test_consume_transform_produce_is_exactly_once(client: Driver, make_topic, wire: Wire, unique) -> None:
    source, target, name, group = make_topic(), make_topic(), unique("tx"), unique("g")
    feeder = Transacting(wire, unique("feeder")).start()
    expected = []
    for number in range(6):
        # Every second transaction is aborted: its records must not be in the output.
        feeder.produce(source, *(b"%d-%d" % (number, i) for i in range(3)))
        feeder.finish(number % 2 == 0)
        expected += [b"%d-%d" % (number, i) for i in range(3)] if number % 2 == 0 else []
    client.call("open", id=name, transactional_id=name)
    client.call("transform", id=name, source=source, target=target, group=group, count=len(expected))
    settle(wire, name)
    assert read_committed(wire, target) == [value.upper() for value in expected]
    error, offset = committed_offset(wire, group, source)
    # At most 5 transactions of 3 records and a marker each are before the offset after the last committed record.
    assert error == 0 and 4 * 4 + 3 <= offset <= 24
