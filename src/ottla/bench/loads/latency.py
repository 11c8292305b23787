"""From produce to consume: a producer that sends at a steady pace, and a consumer that always waits in a fetch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import FETCH_VERSION, PRODUCE_VERSION, Client, connect, raise_for, receive_frame
from ottla.bench.load import Result, Spec
from ottla.bench.loads.stream import OFFSET, in_threads
from ottla.records.batch import batches
from ottla.wire.messages import FetchRequest, FetchResponse, ProduceRequest


def latency(spec: Spec) -> Callable[[], Result]:
    """`rate` messages a second for `limit_seconds`; the result is the list of latencies in seconds."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        client.require(FetchRequest, FETCH_VERSION)
        (start,) = client.end_offsets(spec["topic"], 1)
        leader = client.leaders(spec["topic"])[0]
    request = payloads.produce_frame(spec["topic"], 0, payloads.batch(100, 1, "none").data)
    fetch, where = payloads.fetch_frame(spec["topic"], 0)
    producer, consumer = connect(leader), connect(leader)
    count = int(spec["rate"] * spec["limit_seconds"])
    sent, arrived = [0.0] * count, [0.0] * count
    go = threading.Event()

    def produce() -> None:
        go.wait()
        first = time.perf_counter()
        for index in range(count):
            pause = first + index / spec["rate"] - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            sent[index] = time.perf_counter()
            producer.sendall(request)
            receive_frame(producer)

    def consume() -> None:
        go.set()
        offset = start
        while offset < start + count:
            OFFSET.pack_into(fetch, where, offset)
            consumer.sendall(fetch)
            payload = receive_frame(consumer)
            now = time.perf_counter()
            response = FetchResponse.decode(memoryview(payload)[5:], FETCH_VERSION)
            partition: Any = response.responses[0].partitions[0]
            raise_for(partition.error_code)
            for batch in batches(partition.records or b""):
                offset = batch.next_offset
                arrived[offset - 1 - start] = now

    def timed() -> Result:
        in_threads([consume, produce])
        return {"latencies": [after - before for before, after in zip(sent, arrived, strict=True)]}

    return timed
