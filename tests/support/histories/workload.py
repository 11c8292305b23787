"""Clients that send and poll in transactions, and record what they did and saw.

Every process has a transactional producer and a consumer of committed records that reads all partitions on its own.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as Place
from aiokafka.errors import KafkaError as AioError  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.histories.events import FAIL, INFO, OK, Operation, Poll, Send, read_history
from support.histories.nemesis import PARTITIONS, TOPIC
from support.interop import toolchains

TRANSACTION_TIMEOUT_MS = 8_000
CALM = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 5_000}
ABORTED_SHARE = 0.2
POLLED_SHARE = 0.5
FINAL_READ_S = 90.0


class Recorder:
    """The history, and unique values. Safe to use from several threads."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._values: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)
        self._lock = threading.Lock()

    def new_value(self, partition: int) -> int:
        with self._lock:
            return next(self._values[partition])

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    @property
    def ended(self) -> int:
        """The number of transactions that were certainly committed or aborted."""
        return sum(1 for operation in self.operations if operation.sends and operation.outcome != INFO)


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **CALM})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result(60)


def encoded(value: int) -> bytes:
    return b"%d" % value


class LibrdkafkaProcess(threading.Thread):
    """confluent-kafka, which is librdkafka."""

    def __init__(self, number: int, bootstrap: str, recorder: Recorder, stop: threading.Event, seed: int) -> None:
        super().__init__(name=f"history-{number}", daemon=True)
        self.failure: BaseException | None = None
        self._number = number
        self._servers = bootstrap
        self._recorder = recorder
        self._stop_event = stop
        self._chance = random.Random(seed)
        self._producer: Any = None
        self._consumer: Any = None
        self._moved = True

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                if self._producer is None and not self._connect():
                    continue
                self._transact()
        except BaseException as error:
            self.failure = error
        finally:
            if self._consumer is not None:
                self._consumer.close()

    def _connect(self) -> bool:
        producer = Producer(
            {
                **CALM,
                "bootstrap.servers": self._servers,
                "transactional.id": f"history-{self._number}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            },
            logger=None,
        )
        try:
            producer.init_transactions(10)
        except KafkaException:
            return False
        self._producer = producer
        if self._consumer is None:
            self._consumer = new_consumer(self._servers, f"history-{self._number}")
            self._consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        return True

    def _transact(self) -> None:
        operation = Operation(self._number, INFO, moves=self._moved)
        self._moved = False
        commits = self._chance.random() >= ABORTED_SHARE
        commit_was_sent = False
        try:
            self._producer.begin_transaction()
            for _ in range(self._chance.randint(1, 3)):
                if self._chance.random() < POLLED_SHARE:
                    operation.steps.append(polled(self._consumer))
                self._send(operation)
            self._producer.flush(20)
            if commits:
                commit_was_sent = True
                self._producer.commit_transaction(20)
                operation.outcome = OK
            else:
                self._producer.abort_transaction(20)
                operation.outcome = FAIL
        except (KafkaException, BufferError) as error:
            operation.outcome = self._recover(error, commit_was_sent)
        finally:
            self._recorder.add(operation)

    def _send(self, operation: Operation) -> None:
        partition = self._chance.randrange(PARTITIONS)
        send = Send(partition, self._recorder.new_value(partition))
        operation.steps.append(send)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                send.offset = message.offset()

        self._producer.produce(TOPIC, encoded(send.value), partition=partition, on_delivery=delivered)

    def _recover(self, error: Exception, commit_was_sent: bool) -> str:
        """The outcome of the transaction, as far as the client can tell."""
        reason = error.args[0] if error.args else None
        producer = self._producer
        if isinstance(reason, KafkaError) and reason.txn_requires_abort():
            try:
                producer.abort_transaction(20)
                return FAIL
            except KafkaException:
                pass
        # A new producer with the same id ends what the old one left open: it is aborted, unless its commit was in
        # progress.
        self._producer = None
        return INFO if commit_was_sent else FAIL


def new_consumer(bootstrap: str, group: str) -> Any:
    return Consumer(
        {
            **CALM,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
        },
        logger=None,
    )


def polled(consumer: Any, count: int = 50, timeout_s: float = 0.02) -> Poll:
    records: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for message in consumer.consume(count, timeout_s):
        if message.error() is None:
            records[message.partition()].append((message.offset(), int(message.value())))
    return Poll(dict(records))


class AiokafkaProcess(threading.Thread):
    """aiokafka, in its own event loop."""

    def __init__(self, number: int, bootstrap: str, recorder: Recorder, stop: threading.Event, seed: int) -> None:
        super().__init__(name=f"history-{number}", daemon=True)
        self.failure: BaseException | None = None
        self._number = number
        self._servers = bootstrap
        self._recorder = recorder
        self._stop_event = stop
        self._chance = random.Random(seed)

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self.failure = error

    async def _work(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=20,
            retry_backoff_ms=50,
        )
        await patiently(consumer.start, self._stop_event, AioError)
        places = [Place(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        producer: Any = None
        moved = True
        try:
            while not self._stop_event.is_set():
                if producer is None:
                    producer = AIOKafkaProducer(
                        bootstrap_servers=self._servers,
                        transactional_id=f"history-{self._number}",
                        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                        request_timeout_ms=5_000,
                        retry_backoff_ms=50,
                    )
                    try:
                        await asyncio.wait_for(producer.start(), 20)
                    except (TimeoutError, AioError, OSError):
                        await closed(producer)
                        producer = None
                        continue
                operation = Operation(self._number, INFO, moves=moved)
                moved = False
                operation.outcome = await self._transact(producer, consumer, operation, AioError)
                self._recorder.add(operation)
                if operation.outcome == INFO or any(send.offset is None for send in operation.sends):
                    await closed(producer)
                    producer = None
        finally:
            await closed(producer)
            await closed(consumer)

    async def _transact(self, producer: Any, consumer: Any, operation: Operation, client_error: type[Exception]) -> str:
        commit_was_sent = False
        try:
            await asyncio.wait_for(producer.begin_transaction(), 20)
            for _ in range(self._chance.randint(1, 3)):
                if self._chance.random() < POLLED_SHARE:
                    found = await consumer.getmany(timeout_ms=20, max_records=50)
                    operation.steps.append(
                        Poll(
                            {
                                place.partition: [(record.offset, int(record.value)) for record in records]
                                for place, records in found.items()
                            }
                        )
                    )
                partition = self._chance.randrange(PARTITIONS)
                send = Send(partition, self._recorder.new_value(partition))
                operation.steps.append(send)
                metadata = await asyncio.wait_for(
                    producer.send_and_wait(TOPIC, encoded(send.value), partition=partition), 20
                )
                send.offset = metadata.offset
            if self._chance.random() < ABORTED_SHARE:
                await asyncio.wait_for(producer.abort_transaction(), 20)
                return FAIL
            commit_was_sent = True
            await asyncio.wait_for(producer.commit_transaction(), 20)
            return OK
        except (TimeoutError, client_error, OSError, AssertionError):
            return INFO if commit_was_sent else FAIL


async def patiently(start: Callable[[], Any], stop: threading.Event, client_error: type[Exception]) -> None:
    while not stop.is_set():
        try:
            await start()
            return
        except (client_error, OSError):
            await asyncio.sleep(0.1)


async def closed(client: Any) -> None:
    if client is not None:
        with suppress(Exception):  # any error is fine: it is not used any more
            await asyncio.wait_for(client.stop(), 10)


class ChildProcess(threading.Thread):
    """A client of another language: a program that writes one operation per line until its standard input is closed."""

    def __init__(
        self,
        command: list[str],
        number: int,
        bootstrap: str,
        recorder: Recorder,
        stop: threading.Event,
        seed: int,
    ) -> None:
        super().__init__(name=f"history-{number}", daemon=True)
        self.failure: BaseException | None = None
        self._command = [*command, bootstrap, TOPIC, str(PARTITIONS), str(number), str(seed)]
        self._recorder = recorder
        self._stop_event = stop

    def run(self) -> None:
        with subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            threading.Thread(target=self._end, args=[child.stdin], daemon=True).start()
            for operation in read_history(child.stdout):
                self._recorder.add(operation)
        if not self._stop_event.is_set():
            self.failure = AssertionError(f"{self._command[0]} ended by itself, with {child.returncode}")

    def _end(self, stdin: Any) -> None:
        self._stop_event.wait()
        stdin.close()


def franz_process(*arguments: Any) -> ChildProcess:
    return ChildProcess([str(toolchains.go_binary()), "history"], *arguments)


def java_process(*arguments: Any) -> ChildProcess:
    classes, jars = toolchains.java_classes()
    return ChildProcess([*toolchains.JAVA, "-cp", f"{classes}:{jars}/*", "History"], *arguments)


CLIENTS: dict[str, Callable[..., Any]] = {
    "librdkafka": LibrdkafkaProcess,
    "aiokafka": AiokafkaProcess,
    "franz-go": franz_process,
    "java": java_process,
}


def read_to_the_end(bootstrap: str) -> Operation:
    """All committed records, once every open transaction has ended."""
    consumer = new_consumer(bootstrap, "history-final")
    deadline = time.monotonic() + FINAL_READ_S
    records: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    try:
        places = [TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
        consumer.assign(places)
        ends = {}
        while time.monotonic() < deadline:
            for partition, found in polled(consumer, 1000, 0.3).records.items():
                records[partition] += found
            try:
                for place in places:
                    ends[place.partition] = uncommitted_end(bootstrap, place.partition)
                positions = {place.partition: place.offset for place in consumer.position(places)}
            except KafkaException:
                continue
            if all(max(positions[index], 0) >= ends[index] for index in range(PARTITIONS)):
                return Operation(-1, OK, [Poll(dict(records))], moves=True)
        raise AssertionError(f"the final read is stuck at {positions}; the log ends at {ends}")
    finally:
        consumer.close()


def uncommitted_end(bootstrap: str, partition: int) -> int:
    settings = {**CALM, "bootstrap.servers": bootstrap, "group.id": "history-end"}
    # By default librdkafka would return the last stable offset, which an open transaction holds back.
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"}, logger=None)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10, cached=False)[1])
    finally:
        consumer.close()
