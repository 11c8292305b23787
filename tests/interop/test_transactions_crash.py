"""Exactly once although broker and worker are killed: each input comes out once, in order."""

import random
import signal
import sys
import time

import pytest
from interop.drivers import Client, Driver
from interop.transacting import read_committed
from interop.wire import Wire, batch

from interop import toolchains

COUNT = 300
WAIT_S = 80
WORKER = Client(
    "confluent-kafka", lambda: ([sys.executable, str(toolchains.HERE / "python" / "confluent_transactions.py")], {})
)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_input_comes_out_once(seed: int, start_broker, tmp_path) -> None:
    chance = random.Random(seed)
    data = tmp_path / "data"
    broker = start_broker(data)
    with Wire(broker.address) as wire:
        wire.make("source")
        wire.make("target")
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
