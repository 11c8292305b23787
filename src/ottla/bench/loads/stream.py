"""Loads that move many bytes: large batches in, large fetches out. One thread per connection, blocking sockets.

On Linux neither direction copies a byte in this process: frames are sent from a memory file with `sendfile`, and
fetched records are dropped inside the kernel (`MSG_TRUNC`). So the cores of a small machine are free for the broker.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import FETCH_VERSION, PRODUCE_VERSION, Client, connect, raise_for, receive_frame, retried
from ottla.bench.load import Result, Spec
from ottla.records.batch import batches
from ottla.wire.messages import FetchRequest, FetchResponse, ProduceRequest

OFFSET = struct.Struct(">q")
SIZE = struct.Struct(">i")
DROP = socket.MSG_TRUNC if sys.platform == "linux" else 0
DEPTH = 5  # the producers' default of max.in.flight.requests.per.connection
HEAD_BYTES = 4096
SCRATCH_BYTES = 2**20


def in_threads(workers: list[Callable[[], None]]) -> None:
    """Run all workers at once; an error in any of them is raised here."""
    errors: list[BaseException] = []

    def guarded(worker: Callable[[], None]) -> None:
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class FrameSender:
    """Sends the same frame again and again, from a file in memory where the system can do that without a copy."""

    def __init__(self, sock: socket.socket, frame: bytes) -> None:
        self.sock = sock
        self.frame = frame
        self.size = len(frame)
        self.file = -1
        if sys.platform == "linux":
            self.file = os.memfd_create("frame")
            os.write(self.file, frame)

    def send(self) -> None:
        if self.file < 0:
            self.sock.sendall(self.frame)
            return
        out, position = self.sock.fileno(), 0
        while position < self.size:
            position += os.sendfile(out, self.file, position, self.size - position)


class Producing:
    """One connection that keeps DEPTH produce requests to one partition in flight."""

    def __init__(self, spec: Spec, partition: int, leader: tuple[str, int], batch: payloads.Batch) -> None:
        self.sock = connect(leader, None)
        self.sender = FrameSender(self.sock, payloads.produce_frame(spec["topic"], partition, batch.data))
        # The first answer shows how long every answer is, so that later ones are only counted. Apache Kafka
        # reports the leader of a new topic a moment before that broker knows about it.
        self.response_bytes = retried(lambda: self._first(spec["topic"]))
        self.acked = 1

    def _first(self, topic: str) -> int:
        self.sender.send()
        answer = bytes(4) + receive_frame(self.sock)
        payloads.check_produced(answer, topic)
        return len(answer)

    def run(self, requests: int, seconds: float) -> None:
        sock, send, response_bytes = self.sock, self.sender.send, self.response_bytes
        received_bytes, sent, scratch = 0, 0, bytearray(4096)
        deadline = time.perf_counter() + seconds
        while sent < requests and time.perf_counter() < deadline:
            if sent - received_bytes // response_bytes < DEPTH:
                send()
                sent += 1
            else:
                received_bytes += self._receive(scratch)
        while received_bytes < sent * response_bytes:
            received_bytes += self._receive(scratch)
        self.acked += sent
        sock.close()

    def _receive(self, scratch: bytearray) -> int:
        received = self.sock.recv_into(scratch)
        if not received:
            raise ConnectionError("the broker closed the connection of a producer")
        return received


def produce(spec: Spec) -> Callable[[], Result]:
    """Produce with `connections` connections, each to its own partition, until this many bytes or seconds."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        leaders = client.leaders(spec["topic"])
    connections = spec["connections"]
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], spec["codec"])
    producers = [Producing(spec, index, leaders[index], batch) for index in range(connections)]
    requests = max(1, spec["limit_bytes"] // batch.payload_bytes // connections)

    def timed() -> Result:
        started = time.perf_counter()
        in_threads([lambda each=each: each.run(requests, spec["limit_seconds"]) for each in producers])  # type: ignore[misc]
        seconds = time.perf_counter() - started
        acked = sum(each.acked for each in producers)
        with Client(address) as client:
            stored = sum(client.end_offsets(spec["topic"], connections))
        if stored != acked * batch.record_count:
            raise RuntimeError(f"{acked * batch.record_count} records acknowledged but {stored} stored")
        timed_requests = acked - connections
        return {"seconds": seconds, "requests": timed_requests, "bytes": timed_requests * batch.payload_bytes}

    return timed


def read_uvarint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def fetched_record_bytes(head: bytes | bytearray) -> int:
    """The size of the records in a Fetch v12 answer of one partition, from the answer's first bytes."""
    # Frame size, correlation id and its tags; throttle time, error, session id; then the array of topics.
    (error,) = struct.unpack_from(">h", head, 13)
    raise_for(error)
    topics, position = read_uvarint(head, 19)
    if topics < 2:
        return 0
    name_size, position = read_uvarint(head, position)
    position += name_size - 1
    _, position = read_uvarint(head, position)
    (error,) = struct.unpack_from(">h", head, position + 4)
    raise_for(error)
    position += 30  # partition, error, high watermark, last stable offset, log start offset
    aborted, position = read_uvarint(head, position)
    position += 17 * max(0, aborted - 1) + 4  # producer id, first offset, tags; then the preferred replica
    return max(0, read_uvarint(head, position)[0] - 1)


class Fetching:
    """One consumer that reads its partition from the start to the end, over and over."""

    def __init__(
        self, spec: Spec, partition: int, leader: tuple[str, int], batch: payloads.Batch, end_offset: int
    ) -> None:
        self.sock = connect(leader, None)
        self.frame, self.offset_position = payloads.fetch_frame(spec["topic"], partition)
        self.batch = batch
        self.end_offset = end_offset
        self.fetched_bytes = 0
        self.requests = 0

    def run(self, limit_bytes: int, seconds: float) -> None:
        sock, frame, where = self.sock, self.frame, self.offset_position
        batch_bytes, batch_records = len(self.batch.data), self.batch.record_count
        head, scratch = bytearray(HEAD_BYTES), bytearray(SCRATCH_BYTES)
        offset, deadline = 0, time.perf_counter() + seconds
        while self.fetched_bytes < limit_bytes and time.perf_counter() < deadline:
            OFFSET.pack_into(frame, where, offset)
            sock.sendall(frame)
            received = self._head(head)
            left = 4 + SIZE.unpack_from(head)[0] - received
            while left > 0:
                dropped = sock.recv_into(scratch, min(left, SCRATCH_BYTES), DROP)
                if not dropped:
                    raise ConnectionError("the broker closed the connection of a consumer")
                left -= dropped
            whole_batches = fetched_record_bytes(head) // batch_bytes
            if not whole_batches:
                raise RuntimeError(f"an empty fetch at offset {offset} of {self.end_offset}")
            self.fetched_bytes += whole_batches * batch_bytes
            self.requests += 1
            offset += whole_batches * batch_records
            if offset >= self.end_offset:
                offset = 0

    def _head(self, head: bytearray) -> int:
        view, received = memoryview(head), 0
        while received < 4 or received < min(HEAD_BYTES, 4 + SIZE.unpack_from(head)[0]):
            count = self.sock.recv_into(view[received:])
            if not count:
                raise ConnectionError("the broker closed the connection of a consumer")
            received += count
        return received


def fetch(spec: Spec) -> Callable[[], Result]:
    """Fetch the records that `produce` stored with the same batch shape; consumer number i reads partition i."""
    connections = spec["connections"]
    with Client((spec["host"], spec["port"])) as client:
        client.require(FetchRequest, FETCH_VERSION)
        ends = client.end_offsets(spec["topic"], connections)
        leaders = client.leaders(spec["topic"])
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], spec["codec"])
    consumers = [Fetching(spec, index, leaders[index], batch, end) for index, end in enumerate(ends)]

    def timed() -> Result:
        limit_bytes = spec["limit_bytes"] // connections
        in_threads([lambda each=each: each.run(limit_bytes, spec["limit_seconds"]) for each in consumers])  # type: ignore[misc]
        return {
            "requests": sum(each.requests for each in consumers),
            "bytes": sum(each.fetched_bytes for each in consumers),
        }

    return timed


def walk(spec: Spec) -> Callable[[], Result]:
    """Read one partition from start to end once, batch by batch, at an isolation level (read_committed is 1)."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(FetchRequest, FETCH_VERSION)
        (end,) = client.end_offsets(spec["topic"], 1)
        leader = client.leaders(spec["topic"])[0]
    frame, where = payloads.fetch_frame(spec["topic"], 0, isolation_level=spec["isolation_level"])
    sock = connect(leader)

    def timed() -> Result:
        offset = size = aborted = 0
        for _ in range(spec.get("rounds", 1)):
            offset = 0
            while offset < end:
                OFFSET.pack_into(frame, where, offset)
                sock.sendall(frame)
                response = FetchResponse.decode(memoryview(receive_frame(sock))[5:], FETCH_VERSION)
                partition: Any = response.responses[0].partitions[0]
                raise_for(partition.error_code)
                for batch in batches(partition.records):
                    offset = batch.next_offset
                size += len(partition.records)
                aborted += len(partition.aborted_transactions or ())
        return {"bytes": size, "aborted": aborted}

    return timed


def lookup(spec: Spec) -> Callable[[], Result]:
    """Fetch one batch at random offsets, one request at a time: the cost of finding a position in the log."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(FetchRequest, FETCH_VERSION)
        (end,) = client.end_offsets(spec["topic"], 1)
        leader = client.leaders(spec["topic"])[0]
    frame, where = payloads.fetch_frame(spec["topic"], 0, partition_max_bytes=1)
    rng = random.Random(11)
    offsets = [rng.randrange(end) for _ in range(spec["requests"])]
    sock = connect(leader)

    def timed() -> Result:
        times = [time.perf_counter()]
        for offset in offsets:
            OFFSET.pack_into(frame, where, offset)
            sock.sendall(frame)
            head = receive_frame(sock)
            times.append(time.perf_counter())
            if not fetched_record_bytes(b"\0\0\0\0" + head[:HEAD_BYTES]):
                raise RuntimeError(f"nothing found at offset {offset} of {end}")
        return {"requests": len(offsets), "latencies": [after - before for before, after in pairwise(times)]}

    return timed
