"""Three brokers, Ottla's in one process: what acks=all costs with three replicas, and how long a fail-over takes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles

from ottla.bench import payloads
from ottla.bench.client import METADATA_VERSION, PRODUCE_VERSION, Client, decode_response, raise_for, receive_frame
from ottla.bench.model import Figure, NotMeasurable, Size, line
from ottla.bench.targets import START_SECONDS, KafkaMaker, OttlaMaker, Target, free_port
from ottla.errors import KafkaError
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest, ProduceRequest

BROKERS = 3
CONTROLLER = 3000
TOPIC = "replicated"
RECORD_BYTES = 1024
BATCH_BYTES = 64 << 10
PATIENCE_SECONDS = 60.0
SETTINGS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "100"}
"""Both notice after a second that a broker is gone; Kafka's own nine would only make the wait longer."""


class _Cluster(ABC):
    def __init__(self, port: int) -> None:
        self.addresses = [("127.0.0.1", port + n) for n in range(BROKERS)]

    @abstractmethod
    def kill(self, broker: int) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    def leader(self) -> tuple[int, tuple[str, int]]:
        """The current leader, as any of the brokers sees it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        while True:
            for address in self.addresses:
                try:
                    with Client(address, 5.0) as client:
                        answer = client.call(wanted, METADATA_VERSION)
                except OSError:
                    continue
                brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
                leader = answer.topics[0].partitions[0].leader_id if answer.topics[0].partitions else -1
                if leader in brokers:
                    return leader, brokers[leader]
            if time.monotonic() > deadline:
                raise TimeoutError("no broker names a leader")
            time.sleep(0.005)


class _OttlaCluster(_Cluster):
    """A child process with three brokers, and its control endpoint."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(port)
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--brokers", str(BROKERS), "--preset", "kafka"]
        command += ["--data", str(folder), "--port", str(port), "--control", "0"]
        command += [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._child.stdout is not None
        said = self._child.stdout.readline().decode()
        if "control at " not in said:
            self.end()
            raise RuntimeError(f"the cluster did not start: {said}")
        self._control = said.rpartition("control at ")[2].strip()

    def kill(self, broker: int) -> None:
        body = json.dumps({"broker": broker}).encode()
        request = urllib.request.Request(f"{self._control}/cluster/kill", data=body, method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            answer.read()

    def end(self) -> None:
        self._child.terminate()
        self._child.wait(30)
        assert self._child.stdout is not None
        self._child.stdout.close()


class _KafkaCluster(_Cluster):
    """Three brokers and a controller, a JVM each."""

    def __init__(self, folder: Path, port: int, script: Path) -> None:
        super().__init__(port)
        self._folder = folder
        settings = [f"{key}={value}" for key, value in SETTINGS.items()]
        subprocess.run(
            [str(script), str(port), str(folder), *settings],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=START_SECONDS * (BROKERS + 1),
        )

    def _pid(self, node: int) -> int:
        return int((self._folder / f"node-{node}" / "pid").read_text())

    def kill(self, broker: int) -> None:
        os.kill(self._pid(broker), signal.SIGKILL)

    def end(self) -> None:
        for node in (*range(1, BROKERS + 1), CONTROLLER):
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self._pid(node), signal.SIGKILL)


@contextmanager
def _started(target: Target) -> Iterator[_Cluster]:
    maker = target.fresh()
    port = free_port(maker.base_port, BROKERS)
    folder = maker.data / f"{maker.name}-cluster"
    cluster: _Cluster
    try:
        if isinstance(maker, OttlaMaker):
            cluster = _OttlaCluster(folder, port)
        elif isinstance(maker, KafkaMaker):
            cluster = _KafkaCluster(folder, port, maker.script.with_name("kafka-cluster-start"))
        else:
            raise NotMeasurable("needs a cluster that the benchmark can start")
        try:
            _create_topic(cluster)
            yield cluster
        finally:
            cluster.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_topic(cluster: _Cluster) -> None:
    config = CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
    wanted = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=BROKERS, configs=[config]
    )
    with Client(cluster.addresses[0]) as client:
        raise_for(client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5).topics[0].error_code)
    frame = payloads.produce_frame(TOPIC, 0, payloads.batch(100, 1, "none").data, acks=-1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        # A broker may say that it leads before it knows itself.
        try:
            with Client(cluster.leader()[1], 5.0) as client:
                _produce(client, frame)
            return
        except (OSError, KafkaError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _produce(client: Client, frame: bytes) -> None:
    client.sock.sendall(frame)
    response = decode_response(ProduceRequest.API_KEY, PRODUCE_VERSION, receive_frame(client.sock))
    raise_for(response.responses[0].partition_responses[0].error_code)


@line(
    "cluster-acks-all",
    "one producer, acks=all, three brokers (Ottla's in one process), one request of 64 KB at a time",
    Figure("p50_ms", "ms", False, title="median latency"),
    Figure("p99_ms", "ms", False, title="99th percentile"),
    Figure("mb_s", "MB/s", True),
)
def acks_all(target: Target, size: Size) -> dict[str, float]:
    batch = payloads.batch(RECORD_BYTES, BATCH_BYTES, "none").data
    frame = payloads.produce_frame(TOPIC, 0, batch, acks=-1)
    took: list[float] = []
    with _started(target) as cluster, Client(cluster.leader()[1]) as client:
        for _ in range(20):
            _produce(client, frame)
        for _ in range(size.pick(2000, 50)):
            began = time.perf_counter()
            _produce(client, frame)
            took.append(time.perf_counter() - began)
    cuts = quantiles(took, n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3, "mb_s": len(batch) * len(took) / sum(took) / 1e6}


@line(
    "cluster-failover",
    "from the kill of a leader to the next acknowledged produce (sessions of one second)",
    Figure("s", "s", False),
)
def failover(target: Target, size: Size) -> dict[str, float]:
    frame = payloads.produce_frame(TOPIC, 0, payloads.batch(100, 1, "none").data, acks=-1)
    with _started(target) as cluster:
        leader, address = cluster.leader()
        with Client(address) as client:
            _produce(client, frame)
        began = time.perf_counter()
        cluster.kill(leader)
        while True:
            try:
                with Client(cluster.leader()[1], 5.0) as client:
                    _produce(client, frame)
                return {"s": time.perf_counter() - began}
            except (OSError, KafkaError):
                if time.perf_counter() - began > PATIENCE_SECONDS:
                    raise
                time.sleep(0.005)
