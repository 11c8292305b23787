"""Small requests at a steady rate during work that may delay them: large batches on another connection, consumers that
stopped reading their answers, or the log cleaner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from ottla.bench import payloads, proc
from ottla.bench.client import PRODUCE_VERSION, Client, connect, raise_for, receive_frame, retried
from ottla.bench.load import Result, Spec
from ottla.bench.loads.stream import Producing, in_threads
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.wire.messages import IncrementalAlterConfigsRequest, ProduceRequest

ALTER_VERSION = 1
POLL_SECONDS = 0.05
CHECKPOINT = "cleaner-offset-checkpoint"


class Steady:
    """One connection that sends a request of one record `rate` times a second and waits for each answer."""

    def __init__(self, topic: str, partition: int, leader: tuple[str, int], rate: float) -> None:
        self.sock = connect(leader)
        self.topic = topic
        self.frame = payloads.produce_frame(topic, partition, payloads.batch(100, 1, "none").data)
        self.interval_seconds = 1 / rate
        self.latencies: list[float] = []
        retried(self.once)
        self.latencies.clear()

    def once(self) -> None:
        started = time.perf_counter()
        self.sock.sendall(self.frame)
        answer = receive_frame(self.sock)
        self.latencies.append(time.perf_counter() - started)
        payloads.check_produced(bytes(4) + answer, self.topic)

    def run(self, stop: threading.Event, seconds: float) -> None:
        due = time.perf_counter()
        deadline = due + seconds
        while not stop.is_set() and due < deadline:
            pause = due - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            self.once()
            # Do not catch up after a slow answer: a burst would measure this client and not the broker.
            due = max(due + self.interval_seconds, time.perf_counter())


def _steady(spec: Spec, first_partition: int) -> list[Steady]:
    with Client((spec["host"], spec["port"])) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        leaders = client.leaders(spec["topic"])
    partitions = range(first_partition, first_partition + spec["connections"])
    return [Steady(spec["topic"], index, leaders[index], spec["rate"]) for index in partitions]


def _latencies(clients: list[Steady]) -> list[float]:
    return [latency for client in clients for latency in client.latencies]


def steady(spec: Spec) -> Callable[[], Result]:
    """Only `connections` steady clients, for `limit_seconds`."""
    clients, never = _steady(spec, 0), threading.Event()

    def timed() -> Result:
        in_threads([partial(each.run, never, spec["limit_seconds"]) for each in clients])
        return {"latencies": _latencies(clients)}

    return timed


def beside(spec: Spec) -> Callable[[], Result]:
    """Steady clients while one connection sends large batches to partition 0, five in flight."""
    clients, stop = _steady(spec, 1), threading.Event()
    with Client((spec["host"], spec["port"])) as client:
        leader = client.leaders(spec["topic"])[0]
    batch = payloads.batch(1024, spec["batch_bytes"], "none")
    large = Producing(spec, 0, leader, batch)

    def produce_large() -> None:
        try:
            large.run(spec["limit_bytes"] // batch.payload_bytes, spec["limit_seconds"])
        finally:
            stop.set()

    def timed() -> Result:
        started = time.perf_counter()
        in_threads([produce_large, *(partial(each.run, stop, spec["limit_seconds"]) for each in clients)])
        seconds = time.perf_counter() - started
        with Client((spec["host"], spec["port"])) as client:
            (stored,) = client.end_offsets(spec["topic"], 1)
        if stored != large.acked * batch.record_count:
            raise RuntimeError(f"{large.acked * batch.record_count} records acknowledged but {stored} stored")
        return {"seconds": seconds, "latencies": _latencies(clients), "bytes": (large.acked - 1) * batch.payload_bytes}

    return timed


class Deaf:
    """One consumer that keeps sending fetches and never reads an answer."""

    def __init__(self, topic: str, partition: int, leader: tuple[str, int]) -> None:
        self.sock = connect(leader)
        frame, where = payloads.fetch_frame(topic, partition)
        frame[where : where + 8] = bytes(8)
        self.frame = bytes(frame)

    def ask(self, requests: int) -> None:
        """Send as many requests as the socket accepts."""
        self.sock.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(requests):
                self.sock.send(self.frame)


def deaf(spec: Spec) -> Callable[[], Result]:
    """Steady clients while `consumers` connections have fetched partition 0 repeatedly without reading the answers."""
    clients, never = _steady(spec, 1), threading.Event()
    with Client((spec["host"], spec["port"])) as client:
        leader = client.leaders(spec["topic"])[0]
    producing = Producing(spec, 0, leader, payloads.batch(1024, 65536, "none"))
    producing.run(64, spec["limit_seconds"])
    before_mb = proc.resident_mb(spec["pid"])
    consumers = [Deaf(spec["topic"], 0, leader) for _ in range(spec["consumers"])]

    def timed() -> Result:
        for each in consumers:
            each.ask(spec["requests"])
        in_threads([partial(each.run, never, spec["limit_seconds"]) for each in clients])
        return {"latencies": _latencies(clients), "added_mb": proc.resident_mb(spec["pid"]) - before_mb}

    return timed


def _alter(spec: Spec, configs: dict[str, str]) -> None:
    config, resource = (
        IncrementalAlterConfigsRequest.AlterableConfig,
        IncrementalAlterConfigsRequest.AlterConfigsResource,
    )
    altered = [config(name=name, config_operation=AlterConfigOp.SET, value=value) for name, value in configs.items()]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=ConfigResourceType.TOPIC, resource_name=spec["dirty_topic"], configs=altered)]
    )
    with Client((spec["host"], spec["port"])) as client:
        for each in client.call(request, ALTER_VERSION).responses:
            raise_for(each.error_code)


def cleaned_up_to(folder: Path, topic: str) -> int:
    """The cleaner's checkpoint for partition 0 of a topic, from the broker's data folder; 0 if there is none."""
    for file in folder.rglob(CHECKPOINT):
        for row in file.read_text().splitlines():
            if row.startswith(f"{topic} 0 "):
                return int(row.rpartition(" ")[2])
    return 0


def first_dirty(folder: Path, topic: str) -> int:
    """The base offset of the active segment of partition 0. The cleaner is done when it gets there."""
    return max((int(file.stem) for file in folder.rglob(f"{topic}-0/*.log")), default=0)


def compacting(spec: Spec) -> Callable[[], Result]:
    """Steady clients from the moment a full topic becomes compacted until the cleaner is done."""
    clients, stop, folder = _steady(spec, 0), threading.Event(), Path(spec["folder"])
    peak_mb = before_mb = proc.resident_mb(spec["pid"])
    end = first_dirty(folder, spec["dirty_topic"])

    def watch() -> None:
        nonlocal peak_mb
        deadline = time.perf_counter() + spec["limit_seconds"]
        try:
            _alter(spec, {"cleanup.policy": "compact"})
            while cleaned_up_to(folder, spec["dirty_topic"]) < end:
                peak_mb = max(peak_mb, proc.resident_mb(spec["pid"]))
                if time.perf_counter() > deadline:
                    raise TimeoutError(f"not compacted within {spec['limit_seconds']:.0f} s")
                time.sleep(POLL_SECONDS)
        finally:
            stop.set()

    def timed() -> Result:
        in_threads([watch, *(partial(each.run, stop, spec["limit_seconds"]) for each in clients)])
        return {"latencies": _latencies(clients), "added_mb": peak_mb - before_mb}

    return timed
