"""Three brokers with a quorum of three controllers: failover, many partitions, and the cost of an idle quorum."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from ottla.bench import proc
from ottla.bench.client import METADATA_VERSION, Client, raise_for
from ottla.bench.clusters import PATIENCE_SECONDS, BenchCluster, started_cluster
from ottla.bench.model import Figure, Size, line
from ottla.bench.targets import Target
from ottla.errors import KafkaError, TopicAlreadyExists
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest

CONTROLLERS = 3
PARTITIONS_PER_TOPIC = 1000
_CREATE_TOPICS_VERSION = 5


def _create(client: Client, name: str, partitions: int = 1) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
    code = client.call(request, _CREATE_TOPICS_VERSION).topics[0].error_code
    if code != TopicAlreadyExists.code:  # a broker that lost its controller repeats a request that already succeeded
        raise_for(code)


def _create_until_done(cluster: BenchCluster, names: Iterator[str]) -> None:
    """Try until one attempt succeeds, each with a new name: a failed attempt may still have created its topic."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with Client(cluster.addresses[0], PATIENCE_SECONDS) as client:
                _create(client, next(names))
            return
        except (OSError, KafkaError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@line(
    "quorum-failover",
    "from the kill of the active controller of three to the next topic that a client has created",
    Figure("s", "s", False),
)
def failover(target: Target, size: Size) -> dict[str, float]:
    names = (f"t{number}" for number in itertools.count())
    with started_cluster(target, controllers=CONTROLLERS, settings={}) as cluster:
        _create_until_done(cluster, names)
        began = time.perf_counter()
        cluster.kill_controller()
        _create_until_done(cluster, names)
        return {"s": time.perf_counter() - began}


@line(
    "quorum-partitions",
    "topics with 10,000 partitions in all, created through a quorum of three controllers, one request at a time",
    Figure("s", "s", False, title="until all are acknowledged"),
    Figure("seen_s", "s", False, title="until a broker names a leader for each"),
    repeats=1,
)
def partitions(target: Target, size: Size) -> dict[str, float]:
    topics = [f"many-{number}" for number in range(size.pick(10, 1))]
    with started_cluster(target, controllers=CONTROLLERS, settings={}) as cluster:
        _create_until_done(cluster, iter(("first", "second", "third")))
        with Client(cluster.addresses[0], 4 * PATIENCE_SECONDS) as client:
            began = time.perf_counter()
            for name in topics:
                _create(client, name, PARTITIONS_PER_TOPIC)
            took = time.perf_counter() - began
            while _led(client, topics) < len(topics) * PARTITIONS_PER_TOPIC:
                if time.perf_counter() - began > 4 * PATIENCE_SECONDS:
                    raise TimeoutError("some partitions have no leader")
                time.sleep(0.05)
            return {"s": took, "seen_s": time.perf_counter() - began}


def _led(client: Client, topics: list[str]) -> int:
    """How many partitions have a leader, according to one broker."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    answer = client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION)
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


@line(
    "quorum-idle",
    "CPU of three brokers and three controllers that nobody uses, and of the same brokers with one controller",
    Figure("three_ms_s", "ms/s", False, title="with three controllers"),
    Figure("one_ms_s", "ms/s", False, title="with one controller"),
    repeats=1,
)
def idle(target: Target, size: Size) -> dict[str, float]:
    return {
        "three_ms_s": _idle_ms_per_second(target, CONTROLLERS, size),
        "one_ms_s": _idle_ms_per_second(target, 1, size),
    }


def _idle_ms_per_second(target: Target, controllers: int, size: Size) -> float:
    seconds = size.pick(30.0, 1.0)
    with started_cluster(target, controllers=controllers, settings={}) as cluster:
        time.sleep(seconds / 6)  # work left over from the start is not a cost of being idle
        began, before = time.perf_counter(), sum(map(proc.cpu_seconds, cluster.pids))
        time.sleep(seconds)
        used = sum(map(proc.cpu_seconds, cluster.pids)) - before
        return 1000 * used / (time.perf_counter() - began)
