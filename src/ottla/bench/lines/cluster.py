"""Three brokers in one process: what acks=all costs with three replicas, and how long a fail-over takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import METADATA_VERSION, PRODUCE_VERSION, Client, decode_response, raise_for, receive_frame
from ottla.bench.model import Figure, NotMeasurable, Size, line
from ottla.bench.targets import OttlaMaker, Target, free_port
from ottla.errors import KafkaError
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest, ProduceRequest

BROKERS = 3
TOPIC = "replicated"
RECORD_BYTES = 1024
BATCH_BYTES = 64 << 10
PATIENCE_SECONDS = 60.0


class _Cluster:
    """A child process with three brokers, and its control endpoint."""

    def __init__(self, addresses: list[tuple[str, int]], control: str) -> None:
        self.addresses = addresses
        self._control = control

    def control(self, verb: str, **options: Any) -> None:
        body = json.dumps(options).encode()
        request = urllib.request.Request(f"{self._control}/cluster/{verb}", data=body, method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            answer.read()

    def leader(self) -> tuple[int, tuple[str, int]]:
        """Whoever leads now, by what any of the brokers says."""
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


@contextmanager
def _started(target: Target) -> Iterator[_Cluster]:
    maker = target.fresh()
    if not isinstance(maker, OttlaMaker):
        raise NotMeasurable("concerns Ottla's clusters in one process")
    port = free_port(maker.base_port)
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--brokers", str(BROKERS), "--ephemeral"]
    command += ["--preset", "test", "--port", str(port), "--control", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline().decode()
            if "control at " not in said:
                raise RuntimeError(f"the cluster did not start: {said}")
            control = said.rpartition("control at ")[2].strip()
            cluster = _Cluster([("127.0.0.1", port + n) for n in range(BROKERS)], control)
            _create_topic(cluster)
            yield cluster
        finally:
            child.terminate()
            child.wait(30)


def _create_topic(cluster: _Cluster) -> None:
    config = CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
    wanted = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=BROKERS, configs=[config]
    )
    with Client(cluster.addresses[0]) as client:
        raise_for(client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5).topics[0].error_code)


def _produce(client: Client, frame: bytes) -> None:
    client.sock.sendall(frame)
    response = decode_response(ProduceRequest.API_KEY, PRODUCE_VERSION, receive_frame(client.sock))
    raise_for(response.responses[0].partition_responses[0].error_code)


@line(
    "cluster-acks-all",
    "one producer, acks=all, three replicas in one process, one request at a time",
    Figure("p50_ms", "ms", False, title="median latency"),
    Figure("p99_ms", "ms", False, title="99th percentile"),
    Figure("mb_s", "MB/s", True),
    reference=False,
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
    reference=False,
)
def failover(target: Target, size: Size) -> dict[str, float]:
    frame = payloads.produce_frame(TOPIC, 0, payloads.batch(100, 1, "none").data, acks=-1)
    with _started(target) as cluster:
        leader, address = cluster.leader()
        with Client(address) as client:
            _produce(client, frame)
        began = time.perf_counter()
        cluster.control("kill", broker=leader)
        while True:
            try:
                with Client(cluster.leader()[1], 5.0) as client:
                    _produce(client, frame)
                return {"s": time.perf_counter() - began}
            except (OSError, KafkaError):
                if time.perf_counter() - began > PATIENCE_SECONDS:
                    raise
                time.sleep(0.005)
