"""librdkafka under kills and a full disk: the checker of histories judges the answers that its clients got.

A full disk is simulated by a file size limit that is set for the running process and removed again.
"""

import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import KafkaStorageError
from support.batches import batch
from support.crashing.history import Commit, History, Outcome, Violation, Write
from support.crashing.reading import read_all
from support.interop.transacting import committed_offset
from support.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")

TROUBLES = ("kill", "full", "kill", "full", "kill")
PARTITIONS = 2
PER_ROUND = 300
GROUP = "g"
PATIENCE_S = 120
CALM = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class Consuming(threading.Thread):
    """A group with one member that reads and commits all the time.

    An offset must always have the same record, and a committed offset must be found after every rebalance.
    """

    def __init__(self, bootstrap: str, history: History) -> None:
        super().__init__(daemon=True)
        self.history = history
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self.assignments = 0
        self._consumer = confluent_kafka.Consumer(
            {
                **CALM,
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            },
            logger=None,
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe(["t"], on_assign=self._assigned)
            while not self.done.is_set():
                messages = [m for m in self._consumer.consume(50, 0.1) if m.error() is None]
                for message in messages:
                    self.history.read(("t", message.partition()), message.offset(), message.value())
                for partition in {message.partition() for message in messages}:
                    self._commit(partition, max(m.offset() for m in messages if m.partition() == partition) + 1)
        except BaseException as error:
            self.failure = error
        finally:
            self._consumer.close()

    def _commit(self, partition: int, offset: int) -> None:
        commit = Commit(GROUP, ("t", partition), offset)
        self.history.commits.append(commit)
        try:
            self._consumer.commit(offsets=[confluent_kafka.TopicPartition("t", partition, offset)], asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # in doubt
        commit.outcome = Outcome.ACKNOWLEDGED

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.assignments += 1
        try:
            for found in consumer.committed(partitions, timeout=10):
                self.history.check_committed(GROUP, ("t", found.partition), max(found.offset, -1))
        except confluent_kafka.KafkaException:
            pass  # the broker is gone again
        except Violation as error:
            self.failure = error


class Trouble:
    """A broker that is killed and started again, or whose disk is full for a while."""

    def __init__(self, start_broker: Callable[..., Any], data: Path) -> None:
        self._start = lambda port: start_broker(data, port=port)
        self.broker = self._start(None)

    def make(self, kind: str, meanwhile: Callable[[], None]) -> None:
        if kind == "kill":
            self.broker.stop(signal.SIGKILL)
            self.broker = self._start(self.broker.port)
            return
        pid = self.broker.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        try:
            with Wire(self.broker.address) as wire:
                assert wire.produce("other", batch(b"x")).error_code == KafkaStorageError.code
            meanwhile()
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, UNLIMITED)


def check(trouble: Trouble, history: History, consuming: Consuming) -> None:
    """Checks what the clients have seen so far, and then the log."""
    deadline = time.monotonic() + PATIENCE_S
    while len(history.seen) < len(history.writes) and consuming.failure is None and time.monotonic() < deadline:
        time.sleep(0.05)
    consuming.done.set()
    consuming.join(60)
    assert not consuming.is_alive()
    if consuming.failure is not None:
        raise consuming.failure
    assert len(history.seen) == len(history.writes)
    with Wire(trouble.broker.address) as wire:
        for partition in range(PARTITIONS):
            history.check_log(("t", partition), read_all(wire, ("t", partition)))
            while (found := committed_offset(wire, GROUP, "t", partition))[0]:
                time.sleep(0.05)
            history.check_committed(GROUP, ("t", partition), found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="changes the limits of another process")
def test_librdkafka_loses_and_duplicates_nothing(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    trouble = Trouble(start_broker, tmp_path / "data")
    with Wire(trouble.broker.address) as wire:
        wire.create_topic("t", PARTITIONS)
        wire.create_topic("other")
    history = History()
    consuming = Consuming(trouble.broker.bootstrap, history)
    consuming.start()
    producer = confluent_kafka.Producer(
        {**CALM, "bootstrap.servers": trouble.broker.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )

    def delivered(write: Write) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is None:
                write.outcome, write.offset = Outcome.ACKNOWLEDGED, message.offset()

        return report

    def send(name: str) -> None:
        for number in range(PER_ROUND // 2):
            partition = number % PARTITIONS
            write = Write("rdkafka", ("t", partition), b"%s-%d" % (name.encode(), number))
            history.writes.append(write)
            producer.produce("t", write.value, partition=partition, on_delivery=delivered(write))
            producer.poll(0)

    for number, kind in enumerate(TROUBLES):
        send(f"{number}-before")
        producer.poll(0.02)
        trouble.make(kind, lambda: producer.poll(0.3))
        send(f"{number}-after")
    assert producer.flush(PATIENCE_S) == 0
    assert {write.outcome for write in history.writes} == {Outcome.ACKNOWLEDGED}
    check(trouble, history, consuming)
    assert consuming.assignments > 0
