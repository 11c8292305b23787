"""Logs with something to find or to clean in them: batches with a time of their own, keys that come again."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
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
KEYED_BATCHES = 512


def _leader(spec: Spec) -> tuple[str, int]:
    with Client((spec["host"], spec["port"])) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        return client.leaders(spec["topic"])[0]


def _send_all(sock: socket.socket, topic: str, frames: Iterable[bytes | bytearray]) -> int:
    """Send produce frames with DEPTH of them under way; every answer is checked."""
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
    """The same batch again and again, each a millisecond later. The frame is changed in place."""
    request = bytearray(payloads.produce_frame(topic, 0, batch.data))
    start = request.index(batch.data)
    covered = memoryview(request)[start + ATTRIBUTES_OFFSET : start + len(batch.data)]
    for number in range(count):
        TIMESTAMPS.pack_into(request, start + BASE_TIMESTAMP_OFFSET, first_ms + number, first_ms + number)
        CRC.pack_into(request, start + CRC_OFFSET, crc32c(covered))
        yield request


def fill_stamped(spec: Spec) -> Callable[[], Result]:
    """Produce `limit_bytes` to partition 0, one millisecond of record time a batch."""
    batch = payloads.batch(spec["record_bytes"], spec["batch_bytes"], "none")
    sock, count = connect(_leader(spec)), max(1, spec["limit_bytes"] // len(batch.data))
    # Recent, or retention would take the log away.
    first_ms = int(time.time() * 1000) - count
    frames = stamped(spec["topic"], batch, first_ms, count)
    return lambda: {"batches": _send_all(sock, spec["topic"], frames), "first_ms": first_ms}


def _keyed(spec: Spec) -> list[bytes]:
    """Frames whose records have keys that no other of these frames has."""
    rng, now_ms = random.Random(13), int(time.time() * 1000)
    per_batch = max(1, spec["batch_bytes"] // spec["record_bytes"])
    value = payloads.value(rng, spec["record_bytes"])
    keys = [number.to_bytes(16, "big") for number in range(KEYED_BATCHES * per_batch)]
    rng.shuffle(keys)
    return [
        payloads.produce_frame(
            spec["topic"],
            0,
            bytes(
                build_batch(
                    [Record(index, now_ms, key, value, ()) for index, key in enumerate(keys[first : first + per_batch])]
                )
            ),
        )
        for first in range(0, len(keys), per_batch)
    ]


def fill_keyed(spec: Spec) -> Callable[[], Result]:
    """Produce `limit_bytes` to partition 0, in which the same keys come round and round."""
    frames, sock = _keyed(spec), connect(_leader(spec))
    count = max(1, spec["limit_bytes"] // len(frames[0]))
    chosen = (frames[number % len(frames)] for number in range(count))
    return lambda: {"batches": _send_all(sock, spec["topic"], chosen)}


def lookup_time(spec: Spec) -> Callable[[], Result]:
    """Ask for the offset of random times in a log that `fill_stamped` made, one request at a time."""
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
