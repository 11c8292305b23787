"""Three brokers, Ottla's in one process: the cost of acks=all with three replicas, and the time of a failover."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from ottla.bench import payloads
from ottla.bench.client import PRODUCE_VERSION, Client, decode_response, raise_for, receive_frame
from ottla.bench.clusters import BROKERS, PATIENCE_SECONDS, BenchCluster, started_cluster
from ottla.bench.model import Figure, Size, line
from ottla.bench.targets import Target
from ottla.errors import KafkaError
from ottla.wire.messages import CreateTopicsRequest, ProduceRequest

TOPIC = "replicated"
RECORD_BYTES = 1024
BATCH_BYTES = 64 << 10


@contextmanager
def _started(target: Target) -> Iterator[BenchCluster]:
    with started_cluster(target) as cluster:
        _create_topic(cluster)
        yield cluster


def _create_topic(cluster: BenchCluster) -> None:
    config = CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
    wanted = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=BROKERS, configs=[config]
    )
    with Client(cluster.addresses[0]) as client:
        raise_for(client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5).topics[0].error_code)
    frame = payloads.produce_frame(TOPIC, 0, payloads.batch(100, 1, "none").data, acks=-1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        # Metadata may report a broker as the leader before that broker knows it.
        try:
            with Client(cluster.leader(TOPIC)[1], 5.0) as client:
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
    with _started(target) as cluster, Client(cluster.leader(TOPIC)[1]) as client:
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
        leader, address = cluster.leader(TOPIC)
        with Client(address) as client:
            _produce(client, frame)
        began = time.perf_counter()
        cluster.kill(leader)
        while True:
            try:
                with Client(cluster.leader(TOPIC)[1], 5.0) as client:
                    _produce(client, frame)
                return {"s": time.perf_counter() - began}
            except (OSError, KafkaError):
                if time.perf_counter() - began > PATIENCE_SECONDS:
                    raise
                time.sleep(0.005)
