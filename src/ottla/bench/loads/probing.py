"""Small requests next to long ones: how long they wait while the broker works on a large one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import (
    LIST_OFFSETS_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    Client,
    connect,
    frame,
    receive_frame,
)
from ottla.bench.load import Result, Spec
from ottla.bench.loads.stream import in_threads
from ottla.enums import IsolationLevel
from ottla.wire.messages import ApiVersionsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest

PAUSE_SECONDS = 0.001
OLD_FETCH_VERSION = 3
"""The last version whose answers must use the record format from before Kafka 0.11."""


def _old_fetch(topic: str) -> Any:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=payloads.FETCH_MAX_BYTES)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=payloads.FETCH_MAX_BYTES, topics=topics)


def _times(topic: str, partitions: int) -> Any:
    asked = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(partitions)]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=IsolationLevel.READ_UNCOMMITTED, topics=topics)


def _request(spec: Spec) -> tuple[Any, int, bytes]:
    """The type, version and frame of the long request."""
    topic = spec["topic"]
    if spec["kind"] == "recompress":
        batch = payloads.batch(1024, spec["batch_bytes"], "none").data
        return ProduceRequest, PRODUCE_VERSION, payloads.produce_frame(topic, 0, batch)
    if spec["kind"] == "old-fetch":
        return FetchRequest, OLD_FETCH_VERSION, frame(_old_fetch(topic), OLD_FETCH_VERSION)
    if spec["kind"] == "times":
        return ListOffsetsRequest, LIST_OFFSETS_VERSION, frame(_times(topic, spec["partitions"]), LIST_OFFSETS_VERSION)
    return MetadataRequest, METADATA_VERSION, frame(MetadataRequest(topics=None), METADATA_VERSION)


def probing(spec: Spec) -> Callable[[], Result]:
    """Long requests of one `kind` on one connection, and a small one every millisecond on another."""
    address = (spec["host"], spec["port"])
    request_type, version, long = _request(spec)
    with Client(address) as client:
        client.require(request_type, version)
    working, probe, stop = connect(address), connect(address), threading.Event()
    small, waits = frame(ApiVersionsRequest(), 0), [0.0]

    def work() -> None:
        deadline = time.perf_counter() + spec["limit_seconds"]
        try:
            while time.perf_counter() < deadline:
                working.sendall(long)
                receive_frame(working)
        finally:
            stop.set()

    def ask() -> None:
        while not stop.is_set():
            started = time.perf_counter()
            probe.sendall(small)
            receive_frame(probe)
            waits.append(time.perf_counter() - started)
            time.sleep(PAUSE_SECONDS)

    def timed() -> Result:
        in_threads([work, ask])
        return {"waits": waits}

    return timed
