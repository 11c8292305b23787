"""Many producers and as many consumers at once, all in one thread: producer i writes what consumer i reads.

Each has one request in flight, so that the progress of each shows how fairly the broker serves them.
"""

from __future__ import annotations

import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ottla.bench import payloads, proc
from ottla.bench.client import FETCH_VERSION, PRODUCE_VERSION, SIZE, Client, connect
from ottla.bench.load import Result, Spec
from ottla.bench.loads.stream import HEAD_BYTES, OFFSET, fetched_record_bytes
from ottla.wire.messages import FetchRequest, ProduceRequest

ANSWER_BYTES = 65536
DRAIN_SECONDS = 30.0
MEMORY_SAMPLES = 40


class Participant(ABC):
    """One connection; `records` counts its progress."""

    def __init__(self, leader: tuple[str, int]) -> None:
        self.sock = connect(leader)
        self.received = bytearray()
        self.records = 0

    @abstractmethod
    def ask(self) -> None:
        """Send the next request."""

    @abstractmethod
    def on_answer(self, answer: bytearray) -> None:
        """Count the records of a complete answer, which includes its length prefix."""

    def on_readable(self) -> bool:
        """Read the available bytes; returns whether an answer is complete."""
        chunk = self.sock.recv(ANSWER_BYTES * 2)
        if not chunk:
            raise ConnectionError(f"the broker closed the connection of a {type(self).__name__.lower()}")
        self.received += chunk
        if len(self.received) < 4 or len(self.received) < 4 + SIZE.unpack_from(self.received)[0]:
            return False
        answer, self.received = self.received, bytearray()
        self.on_answer(answer)
        return True


class Producer(Participant):
    def __init__(self, topic: str, partition: int, leader: tuple[str, int], batch: payloads.Batch) -> None:
        super().__init__(leader)
        self.topic = topic
        self.frame = payloads.produce_frame(topic, partition, batch.data)
        self.batch_records = batch.record_count

    def ask(self) -> None:
        self.sock.sendall(self.frame)

    def on_answer(self, answer: bytearray) -> None:
        payloads.check_produced(answer, self.topic)
        self.records += self.batch_records


class Consumer(Participant):
    def __init__(self, topic: str, partition: int, leader: tuple[str, int], batch: payloads.Batch) -> None:
        super().__init__(leader)
        self.frame, self.offset_at = payloads.fetch_frame(topic, partition, partition_max_bytes=ANSWER_BYTES)
        self.batch_bytes, self.batch_records = len(batch.data), batch.record_count

    def ask(self) -> None:
        OFFSET.pack_into(self.frame, self.offset_at, self.records)
        self.sock.sendall(self.frame)

    def on_answer(self, answer: bytearray) -> None:
        self.records += fetched_record_bytes(answer[:HEAD_BYTES]) // self.batch_bytes * self.batch_records


class Memory:
    """Samples the broker's resident memory at regular intervals; no samples without a process id."""

    def __init__(self, pid: int | None, seconds: float) -> None:
        self.pid = pid
        self.step_seconds = seconds / MEMORY_SAMPLES
        self.due = time.perf_counter() + self.step_seconds
        self.samples_mb: list[float] = []

    def sample(self, now: float) -> None:
        if self.pid is not None and now >= self.due:
            self.due += self.step_seconds
            self.samples_mb.append(proc.resident_mb(self.pid))


def crowd(spec: Spec) -> Callable[[], Result]:
    """Run `pairs` producers and consumers for `limit_seconds`, or until `limit_bytes` are stored if that is sooner.

    With `records_each`, a producer stops when it has sent that many.
    """
    topic, pairs = spec["topic"], spec["pairs"]
    with Client((spec["host"], spec["port"])) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        client.require(FetchRequest, FETCH_VERSION)
        leaders = client.leaders(topic)
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], "none")
    producers = [Producer(topic, index, leaders[index], batch) for index in range(pairs)]
    consumers = [Consumer(topic, index, leaders[index], batch) for index in range(pairs)]
    requests_left = spec["limit_bytes"] // len(batch.data)
    records_each = spec.get("records_each", float("inf"))

    def timed() -> Result:
        nonlocal requests_left
        memory = Memory(spec.get("pid"), spec["limit_seconds"])
        started = time.perf_counter()
        deadline, now = started + spec["limit_seconds"], started
        fair: dict[str, list[int]] = {}
        with selectors.DefaultSelector() as selector:
            for each in (*producers, *consumers):
                selector.register(each.sock, selectors.EVENT_READ, each)
                each.ask()
            producing, behind = pairs, pairs
            while producing or behind:
                for key, _ in selector.select(1.0):
                    each = key.data
                    if not each.on_readable():
                        continue
                    if isinstance(each, Producer):
                        requests_left -= 1
                        if now >= deadline or requests_left <= 0 or each.records >= records_each:
                            producing -= 1
                            selector.unregister(each.sock)
                            continue
                    each.ask()
                now = time.perf_counter()
                memory.sample(min(now, deadline))
                if producing < pairs or now >= deadline:
                    fair = fair or progress(producers, consumers)
                    behind = sum(a.records > b.records for a, b in zip(producers, consumers, strict=True))
                if now > deadline + DRAIN_SECONDS:
                    raise TimeoutError(f"{producing} producers without an answer, {behind} consumers behind")
        return {
            "seconds": time.perf_counter() - started,
            "records": sum(each.records for each in producers),
            "memory_mb": memory.samples_mb,
            **fair,
        }

    return timed


def progress(producers: list[Producer], consumers: list[Consumer]) -> dict[str, list[int]]:
    return {"produced": [each.records for each in producers], "consumed": [each.records for each in consumers]}
