"""Looks for clients that stop: transactions with short time-outs while the workers of their broker are killed.

    python -m support.crashing.stalls --rounds 500 --seed 1

A round kills one worker or the whole broker and starts it again. Then each client has to end transactions,
or be refused, within `STALL_S`. If one does not, its last steps, requests and answers, the state of its transaction
and the broker's log are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError as AioError  # type: ignore[import-untyped]
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.enums import CoordinatorType
from ottla.wire.messages import FindCoordinatorRequest
from support.interop.transacting import describe
from support.ports import free_ports
from support.processes import Broker, start_ottla
from support.wire import Wire

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses a deprecated way to read its schemas
    from kafka import KafkaProducer  # type: ignore[import-untyped]
    from kafka.errors import KafkaError as KafkaPythonError  # type: ignore[import-untyped]
    from kafka.errors import KafkaTimeoutError, ProducerFencedError

WORKERS = 3
PARTITIONS = 6
TOPIC = "t"
TIMEOUT_MS = 1000  # the smallest value that librdkafka accepts
OVERDUE_SHARE = 0.25
"""The share of transactions that are left open until the broker aborts them."""
STALL_S = 150.0
"""A busy machine may take a while to start a broker."""
PATIENCE_S = 300
"""The clients' time-out for calls and answers: longer than a stall, because a retry would hide one."""
KAFKA_PYTHON_PATIENCE_S = 5.0
"""kafka-python 3.0.12 forgets a request for which it cannot connect to the coordinator: `Sender` then looks the
coordinator up and never sends the request. `commit_transaction` waits forever, with Apache Kafka too."""
STEPS_KEPT = 300
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
}


class Working(threading.Thread):
    """One transactional id that works until it is stopped. It gets a new producer if the last one cannot continue."""

    def __init__(self, kind: str, number: int, bootstrap: str, seed: int) -> None:
        super().__init__(name=f"{kind}-{number}", daemon=True)
        self.bootstrap = bootstrap
        self.chance = random.Random(seed * 100 + number)
        self.done = threading.Event()
        self.steps: deque[str] = deque(maxlen=STEPS_KEPT)
        self.ended = 0
        """Transactions that were committed or aborted."""
        self.refused = 0
        """Answers that end a producer, such as PRODUCER_FENCED. On a busy machine most transactions time out."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def note(self, step: str) -> None:
        self.steps.append(f"{time.time():.3f} {step}")

    def places(self) -> list[int]:
        return self.chance.sample(range(PARTITIONS), 2)

    def pause_s(self) -> float:
        """How long the transaction stays open: sometimes longer than its time-out."""
        return (TIMEOUT_MS / 1000) * 1.3 if self.chance.random() < OVERDUE_SHARE else 0.0


class Librdkafka(Working):
    def work(self) -> None:
        producer = None
        while not self.done.is_set():
            try:
                if producer is None:
                    producer = self._new()
                self._transact(producer)
            except KafkaException as error:
                self.note(repr(error))
                self.refused += error.args[0].code() != KafkaError._TIMED_OUT
                if error.args[0].txn_requires_abort() and producer is not None:
                    try:
                        producer.abort_transaction(PATIENCE_S)
                        self.ended += 1
                        self.note("aborted after an error")
                        continue
                    except KafkaException as second:
                        self.note(repr(second))
                producer = None

    def _new(self) -> Any:
        requests = logging.Logger(self.name, logging.DEBUG)
        requests.addHandler(_Kept(self.note))
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                "socket.timeout.ms": PATIENCE_S * 1000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "debug": "eos,protocol",
            },
            logger=requests,
        )
        self.note("init")
        producer.init_transactions(PATIENCE_S)
        return producer

    def _transact(self, producer: Any) -> None:
        self.note("begin")
        producer.begin_transaction()
        for partition in self.places():
            producer.produce(TOPIC, b"x", partition=partition)
        producer.flush(PATIENCE_S)
        time.sleep(self.pause_s())
        if self.chance.random() < 0.8:
            self.note("commit")
            producer.commit_transaction(PATIENCE_S)
        else:
            self.note("abort")
            producer.abort_transaction(PATIENCE_S)
        self.ended += 1


class Aiokafka(Working):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        producer = None
        while not self.done.is_set():
            try:
                if producer is None:
                    self.note("start")
                    producer = AIOKafkaProducer(
                        bootstrap_servers=self.bootstrap,
                        transactional_id=self.name,
                        transaction_timeout_ms=TIMEOUT_MS,
                        request_timeout_ms=PATIENCE_S * 1000,
                        retry_backoff_ms=50,
                    )
                    await producer.start()
                await self._transact(producer)
            except (AioError, OSError, AssertionError) as error:
                self.note(repr(error))
                self.refused += isinstance(error, ProducerFenced)
                await self._closed(producer)
                producer = None
        await self._closed(producer)

    async def _transact(self, producer: Any) -> None:
        self.note("begin")
        await producer.begin_transaction()
        for partition in self.places():
            await producer.send_and_wait(TOPIC, b"x", partition=partition)
        await asyncio.sleep(self.pause_s())
        self.note("end")
        await (producer.commit_transaction() if self.chance.random() < 0.8 else producer.abort_transaction())
        self.ended += 1

    async def _closed(self, producer: Any) -> None:
        """A producer that failed may wait forever to flush records that the broker has refused."""
        if producer is not None:
            self.note("close")
            try:
                await asyncio.wait_for(producer.stop(), 5)
            except (TimeoutError, AioError, OSError, AssertionError) as error:
                self.note(f"close: {error!r}")


class KafkaPython(Working):
    def work(self) -> None:
        requests = logging.getLogger("kafka")
        requests.propagate = False
        requests.setLevel(logging.DEBUG)
        requests.handlers = [_Kept(self.note)]
        producer = None
        while not self.done.is_set():
            try:
                if producer is None:
                    producer = self._new()
                self._transact(producer)
            except (KafkaPythonError, OSError, AssertionError) as error:
                self.note(repr(error))
                self.refused += isinstance(error, ProducerFencedError)
                self._close(producer)
                producer = None
        self._close(producer)

    def _close(self, producer: Any) -> None:
        if producer is not None:
            with suppress(KafkaPythonError):  # it may be unable to send its records
                producer.close(timeout=0.1)

    def _new(self) -> Any:
        self.note("init")
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self.name,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=0,
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            max_block_ms=int(KAFKA_PYTHON_PATIENCE_S * 1000),
        )
        producer.init_transactions()
        return producer

    def _transact(self, producer: Any) -> None:
        self.note("begin")
        producer.begin_transaction()
        for sent in [producer.send(TOPIC, b"x", partition=partition) for partition in self.places()]:
            sent.get(KAFKA_PYTHON_PATIENCE_S)
        time.sleep(self.pause_s())
        self.note("end")
        self._finish(producer.commit_transaction if self.chance.random() < 0.8 else producer.abort_transaction)
        self.ended += 1

    def _finish(self, end: Callable[[], None]) -> None:
        """Call `end`, which has no time-out, in a thread that is abandoned if it never returns."""
        failures: list[BaseException] = []

        def call() -> None:
            try:
                end()
            except (KafkaPythonError, AssertionError) as error:
                failures.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(KAFKA_PYTHON_PATIENCE_S)
        if thread.is_alive():
            raise KafkaTimeoutError("EndTxn was forgotten")
        if failures:
            raise failures[0]


class _Kept(logging.Handler):
    """The lines in which a client reports its requests and their answers."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"{record.levelname} {record.getMessage()}")


KINDS: dict[str, type[Working]] = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "kafka-python": KafkaPython}
CLIENTS = ("librdkafka", "librdkafka", "aiokafka", "kafka-python")


class Stalled(AssertionError):
    """A client did not continue after a restart."""


class Loop:
    """A broker with workers, its clients, and the rounds."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._data = folder / "data"
        self._chance = random.Random(seed)
        self._port = free_ports(WORKERS + 1)[0]
        self.broker = self._start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(STALL_S)
        self.clients = [KINDS[kind](kind, number, self.broker.bootstrap, seed) for number, kind in enumerate(CLIENTS)]
        for client in self.clients:
            client.start()
        self.slowest_s = 0.0

    def _start(self) -> Broker:
        return start_ottla(self._data, dict(SETTINGS), self._port, WORKERS)

    def round(self) -> None:
        """Kill something while transactions time out, start it again, and check that every client is served."""
        time.sleep(self._chance.uniform(0.1, 1.2))
        began = time.monotonic()
        self._kill()
        self.broker = self._start()
        before = {client: client.ended + client.refused for client in self.clients}
        for client in self.clients:
            while client.ended + client.refused < before[client] + 2:
                if client.failure is not None:
                    raise client.failure
                if time.monotonic() - began > STALL_S:
                    raise Stalled(self._story(client))
                time.sleep(0.01)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _kill(self) -> None:
        assert self.broker.process is not None
        supervisor = self.broker.process.pid
        workers = sorted(map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()))
        kind = self._chance.choice(("worker", "worker", "all", "stop"))
        if kind == "stop":
            os.kill(supervisor, signal.SIGTERM)
        elif kind == "worker":
            os.kill(self._chance.choice(workers), signal.SIGKILL)
        else:
            for pid in (*workers, supervisor):
                with suppress(ProcessLookupError):  # it ended with the worker before it
                    os.kill(pid, signal.SIGKILL)
        self.broker.process.wait(STALL_S)

    def _story(self, client: Working) -> str:
        request = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[client.name])
        with Wire(self.broker.address) as wire:
            (found,) = wire.call(request, 4).coordinators
        with Wire((found.host, found.port)) as wire:
            state = describe(wire, client.name)
        steps = "\n".join(client.steps)
        return f"{client.name} stalled.\n{steps}\nits transaction: {state}\nthe broker's log:\n{self.broker.text()}"

    def close(self) -> None:
        for client in self.clients:
            client.done.set()
        for client in self.clients:
            client.join(STALL_S)
        self.broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every connection that a kill ends
    with tempfile.TemporaryDirectory(prefix="ottla-stalls-") as folder:
        loop = Loop(Path(folder), arguments.seed)
        try:
            for number in range(1, arguments.rounds + 1):
                loop.round()
                if number % 10 == 0 or number == arguments.rounds:
                    ended = sum(client.ended for client in loop.clients)
                    print(f"round {number}: {ended} transactions, slowest {loop.slowest_s:.1f} s", flush=True)
        except Stalled as error:
            print(error, flush=True)
            return 1
        finally:
            loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
