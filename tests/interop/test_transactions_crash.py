"""Exactly once, although broker and worker are killed: each input is in the output once, in order."""

import random
import signal
import sys
import time

import pytest

from support.batches import batch
from support.interop import toolchains
from support.interop.drivers import Client, Driver
from support.interop.transacting import read_committed
from support.wire import Wire

COUNT = 300
WAIT_S = 80
WORKER = Client(
    "confluent-kafka", lambda: ([sys.executable, str(toolchains.HERE / "python" / "confluent_transactions.py")], {})
)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_input_is_processed_exactly_once(seed: int, start_broker, tmp_path) -> None:
    chance = random.Random(seed)
    data = tmp_path / "data"
    broker = start_broker(data)
    with Wire(broker.address) as wire:
        wire.create_topic("source")
        wire.create_topic("target")
        for number in range(COUNT):
            assert wire.produce("source", batch(b"%d" % number)).error_code == 0
    # The dev preset of the broker has no delay before the first rebalance; the worker assigns by itself anyway.
    job = {"transactional_id": "copy", "source": "source", "target": "target", "group": "g", "wait_s": WAIT_S}
    workers = [Driver(WORKER, broker.bootstrap)]
    try:
        workers[-1].start("transform_all", **job)
        for _ in range(5):
            time.sleep(chance.uniform(0.05, 0.6))
            if chance.random() < 0.7:
                broker.stop(signal.SIGKILL)
                broker = start_broker(data, port=broker.port)
            else:
                workers[-1].kill()
                workers.append(Driver(WORKER, broker.bootstrap))
                workers[-1].start("transform_all", **job)
        assert workers[-1].finish(WAIT_S + 10) >= 1
    finally:
        for worker in workers:
            worker.kill()
    with Wire(broker.address) as wire:
        assert read_committed(wire, "target") == [b"%d" % number for number in range(COUNT)]


@pytest.mark.go
def test_a_group_of_two_workers_of_which_one_is_killed(broker, wire: Wire, make_topic, unique) -> None:
    """franz-go's group transact session: the open transaction of the killed worker is aborted, and the other worker
    takes over."""
    partitions, each = 4, 30
    source, target, group = make_topic(partitions), make_topic(), unique("g")
    expected = {b"%d-%d" % (partition, number) for partition in range(partitions) for number in range(each)}
    for partition in range(partitions):
        for number in range(each):
            wire.produce(source, batch(b"%d-%d" % (partition, number)), partition)
    client = Client("franz-go", lambda: ([str(toolchains.go_binary()), "franz-transactions"], {}))
    workers = [Driver(client, broker.bootstrap) for _ in range(2)]
    try:
        for number, worker in enumerate(workers):
            name = unique(f"tx{number}")
            worker.call("open", id=name, transactional_id=name)
            worker.start(
                "transform", id=name, source=source, target=target, group=group, count=len(expected) + 1, linger_ms=50
            )
        deadline = time.monotonic() + WAIT_S
        killed = False
        while len(done := read_committed(wire, target)) < len(expected):
            assert time.monotonic() < deadline, f"{len(done)} of {len(expected)}"
            if not killed and len(done) >= len(expected) // 4:
                workers[0].kill()
                killed = True
            time.sleep(0.05)
        assert killed
        assert sorted(done) == sorted(expected)
    finally:
        for worker in workers:
            worker.kill()
