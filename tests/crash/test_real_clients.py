"""librdkafka under kills: what its delivery reports and its consumers say, put before the checker of histories."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crashing.history import History, Outcome, Write
from crashing.reading import read_all
from interop.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")

KILLS = 3
PARTITIONS = 2
CALM = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


class Consuming(threading.Thread):
    """A group of one that reads all the time; an offset must always hold the same record."""

    def __init__(self, bootstrap: str, history: History) -> None:
        super().__init__(daemon=True)
        self.history = history
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self._consumer = confluent_kafka.Consumer(
            {**CALM, "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"},
            logger=None,
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe(["t"])
            while not self.done.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self.history.read(("t", message.partition()), message.offset(), message.value())
        except BaseException as error:
            self.failure = error
        finally:
            self._consumer.close()


def test_librdkafka_loses_and_repeats_nothing(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data")
    with Wire(broker.address) as wire:
        wire.make("t", PARTITIONS)
    history = History()
    consuming = Consuming(broker.bootstrap, history)
    consuming.start()
    producer = confluent_kafka.Producer(
        {**CALM, "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )

    def delivered(write: Write) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is None:
                write.outcome, write.offset = Outcome.ACKNOWLEDGED, message.offset()

        return report

    for kill in range(KILLS):
        for number in range(300):
            partition = number % PARTITIONS
            write = Write("rdkafka", ("t", partition), b"%d-%d" % (kill, number))
            history.writes.append(write)
            producer.produce("t", write.value, partition=partition, on_delivery=delivered(write))
            producer.poll(0)
            if number == 150:
                producer.poll(0.02)
                broker.stop(signal.SIGKILL)
                broker = start_broker(tmp_path / "data", port=broker.port)
    assert producer.flush(30) == 0
    assert {write.outcome for write in history.writes} == {Outcome.ACKNOWLEDGED}
    deadline = time.monotonic() + 90
    while len(history.seen) < len(history.writes) and consuming.failure is None and time.monotonic() < deadline:
        time.sleep(0.05)
    consuming.done.set()
    consuming.join(20)
    if consuming.failure is not None:
        raise consuming.failure
    assert len(history.seen) == len(history.writes)
    with Wire(broker.address) as wire:
        for partition in range(PARTITIONS):
            history.check_log(("t", partition), read_all(wire, ("t", partition)))
