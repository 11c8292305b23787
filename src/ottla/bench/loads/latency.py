"""From produce to consume: a producer that sends at a steady rate, and consumers that always wait in a fetch."""

from __future__ import annotations

import selectors
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

WAKING_WAIT_MS = 30_000
SETTLE_SECONDS = 0.1


def latency(spec: Spec) -> Callable[[], Result]:
    """Send `rate` messages per second for `limit_seconds`; the result is the list of latencies in seconds."""
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


def waking(spec: Spec) -> Callable[[], Result]:
    """`consumers` wait on one partition for one record, `rounds` times; measures when the first and the last get it."""
    with Client((spec["host"], spec["port"])) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        client.require(FetchRequest, FETCH_VERSION)
        (start,) = client.end_offsets(spec["topic"], 1)
        leader = client.leaders(spec["topic"])[0]
    request = payloads.produce_frame(spec["topic"], 0, payloads.batch(100, 1, "none").data)
    fetch, where = payloads.fetch_frame(spec["topic"], 0, max_wait_ms=WAKING_WAIT_MS)
    producer = connect(leader)
    consumers = [connect(leader) for _ in range(spec["consumers"])]

    def one_round(offset: int) -> tuple[float, float]:
        OFFSET.pack_into(fetch, where, offset)
        for consumer in consumers:
            consumer.sendall(fetch)
        time.sleep(SETTLE_SECONDS)  # until all of them wait, which a broker does not report
        sent = time.perf_counter()
        producer.sendall(request)
        arrived = []
        with selectors.DefaultSelector() as selector:
            for consumer in consumers:
                selector.register(consumer, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select()
                arrived.append(time.perf_counter() - sent)
                for key, _ in ready:
                    selector.unregister(key.fileobj)
        receive_frame(producer)
        for consumer in consumers:
            response = FetchResponse.decode(memoryview(receive_frame(consumer))[5:], FETCH_VERSION)
            partition: Any = response.responses[0].partitions[0]
            raise_for(partition.error_code)
            if not partition.records:
                raise RuntimeError("a consumer waited for longer than it had asked for")
        return arrived[0], arrived[-1]

    def timed() -> Result:
        rounds = [one_round(start + number) for number in range(spec["rounds"])]
        return {"first": [first for first, _ in rounds], "last": [last for _, last in rounds]}

    return timed
