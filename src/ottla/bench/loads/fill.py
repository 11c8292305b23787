"""Fills logs for look-ups and for cleaning: batches with distinct timestamps, and repeated keys."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import PRODUCE_VERSION, Client, connect, decode_response, frame, raise_for, receive_frame
from ottla.bench.load import Result, Spec
from ottla.bench.loads.stream import DEPTH, OFFSET
from ottla.enums import IsolationLevel
from ottla.records.batch import ATTRIBUTES_OFFSET, BASE_TIMESTAMP_OFFSET, CRC_OFFSET, TIMESTAMPS, Record, build_batch
from ottla.records.checksum import crc32c
from ottla.wire.messages import ListOffsetsRequest, ProduceRequest

LIST_OFFSETS_VERSION = 6
CRC = struct.Struct(">I")


def _leader(spec: Spec) -> tuple[str, int]:
    with Client((spec["host"], spec["port"])) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        return client.leaders(spec["topic"])[0]


def _send_all(sock: socket.socket, topic: str, frames: Iterable[bytes | bytearray]) -> int:
    """Send produce frames with DEPTH of them in flight; every answer is checked."""
    sent = answered = 0
    for each in frames:
        sock.sendall(each)
        sent += 1
        if sent - answered == DEPTH:
            payloads.check_produced(bytes(4) + receive_frame(sock), topic)
            answered += 1
    for _ in range(sent - answered):
        payloads.check_produced(bytes(4) + receive_frame(sock), topic)
    return sent


def stamped(topic: str, batch: payloads.Batch, first_ms: int, count: int) -> Iterator[bytearray]:
    """The same batch repeatedly, each one a millisecond later. The frame is changed in place."""
    request = bytearray(payloads.produce_frame(topic, 0, batch.data))
    start = request.index(batch.data)
    covered = memoryview(request)[start + ATTRIBUTES_OFFSET : start + len(batch.data)]
    for number in range(count):
        TIMESTAMPS.pack_into(request, start + BASE_TIMESTAMP_OFFSET, first_ms + number, first_ms + number)
        CRC.pack_into(request, start + CRC_OFFSET, crc32c(covered))
        yield request


def fill_stamped(spec: Spec) -> Callable[[], Result]:
    """Produce `limit_bytes` to partition 0; the timestamp increases by one millisecond per batch."""
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], "none")
    sock, count = connect(_leader(spec)), max(1, spec["limit_bytes"] // len(batch.data))
    # Recent, or retention would delete the log.
    first_ms = int(time.time() * 1000) - count
    frames = stamped(spec["topic"], batch, first_ms, count)
    return lambda: {"batches": _send_all(sock, spec["topic"], frames), "first_ms": first_ms}


def _rounds(rng: random.Random, keys: int) -> Iterator[int]:
    numbers = list(range(keys))
    while True:
        rng.shuffle(numbers)
        yield from numbers


def keyed(topic: str, keys: int, count: int, record_bytes: int, batch_bytes: int, codec: str) -> Iterator[bytes]:
    """Frames whose records go through all `keys` keys before any key repeats, in a different order each time."""
    rng, now_ms = random.Random(13), int(time.time() * 1000)
    per_batch = max(1, batch_bytes // record_bytes)
    values = [payloads.value(rng, record_bytes) for _ in range(per_batch)]
    rounds = _rounds(rng, keys)
    for _ in range(count):
        chosen = enumerate(islice(rounds, per_batch))
        records = [Record(n, now_ms, key.to_bytes(16, "big"), values[n], ()) for n, key in chosen]
        batch = build_batch(records, codec=payloads.CODECS[codec])
        yield payloads.produce_frame(topic, 0, bytes(batch))


def fill_keyed(spec: Spec) -> Callable[[], Result]:
    """Produce `limit_bytes` (before compression) with repeated keys to partition 0."""
    sock = connect(_leader(spec))
    frames = keyed(
        spec["topic"],
        spec["keys"],
        max(1, spec["limit_bytes"] // spec["batch_bytes"]),
        spec["record_bytes"],
        spec["batch_bytes"],
        spec["codec"],
    )
    return lambda: {"batches": _send_all(sock, spec["topic"], frames)}


def lookup_time(spec: Spec) -> Callable[[], Result]:
    """Look up the offsets of random timestamps in a log from `fill_stamped`, one request at a time."""
    sentinel, partition = 0x1122334455667788, ListOffsetsRequest.ListOffsetsPartition
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=spec["topic"], partitions=[partition(partition_index=0, timestamp=sentinel)]
            )
        ],
    )
    encoded = bytearray(frame(request, LIST_OFFSETS_VERSION))
    where = encoded.index(OFFSET.pack(sentinel))
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], "none")
    rng, sock = random.Random(17), connect(_leader(spec))
    numbers = [rng.randrange(spec["batches"]) for _ in range(spec["requests"])]

    def timed() -> Result:
        times, answers = [time.perf_counter()], []
        for number in numbers:
            OFFSET.pack_into(encoded, where, spec["first_ms"] + number)
            sock.sendall(encoded)
            answers.append(receive_frame(sock))
            times.append(time.perf_counter())
        for number, answer in zip(numbers, answers, strict=True):
            response: Any = decode_response(ListOffsetsRequest.API_KEY, LIST_OFFSETS_VERSION, answer)
            found = response.topics[0].partitions[0]
            raise_for(found.error_code)
            if found.offset != number * batch.record_count:
                raise RuntimeError(f"batch {number} was found at offset {found.offset}")
        return {"requests": len(numbers), "latencies": [after - before for before, after in pairwise(times)]}

    return timed
