"""Record batches and request frames, encoded once before a load starts."""

from __future__ import annotations

import json
import random
import struct
import time
from dataclasses import dataclass
from functools import cache

from ottla.bench.client import FETCH_VERSION, PRODUCE_VERSION, frame
from ottla.errors import error_for
from ottla.records.batch import Record, build_batch
from ottla.wire.messages import FetchRequest, ProduceRequest

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ERROR = struct.Struct(">h")
_SENTINEL_OFFSET = 0x1122334455667788
FETCH_MAX_BYTES = 50 * 2**20  # the default of fetch.max.bytes
PARTITION_MAX_BYTES = 2**20  # the default of max.partition.fetch.bytes
WORDS = ("order", "payment", "user", "click", "view", "cart", "ship", "return", "refund", "search", "page", "mobile")
COUNTRIES = ("AT", "CZ", "DE", "FR", "GB", "IT", "NL", "PL", "SE", "US")
DEVICES = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)", "api/3.2")


@dataclass(frozen=True, slots=True)
class Batch:
    data: bytes
    record_count: int
    payload_bytes: int  # from the application's view: the uncompressed batch


def value(rng: random.Random, size: int) -> bytes:
    """JSON events of a shop, cut to size: names and structure repeat; identifiers, amounts and times do not."""
    parts, length = [], 0
    while length < size:
        part = json.dumps(
            {
                "event": rng.choice(WORDS),
                "id": f"{rng.getrandbits(64):016x}",
                "customer": {
                    "id": rng.randrange(10**7),
                    "country": rng.choice(COUNTRIES),
                    "segment": rng.choice(WORDS),
                },
                "device": rng.choice(DEVICES),
                "page": f"/{rng.choice(WORDS)}/{rng.choice(WORDS)}/{rng.randrange(10**5)}",
                "amount": rng.randrange(10**6) / 100,
                "currency": "EUR",
                "at": f"2026-01-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:{rng.randrange(60):02}:00.000Z",
            }
        )
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size].encode()


@cache
def batch(record_bytes: int, batch_bytes: int, codec: str) -> Batch:
    """A batch of about `batch_bytes` before compression, with values of `record_bytes`."""
    rng, now_ms = random.Random(7), int(time.time() * 1000)
    count = max(1, batch_bytes // (record_bytes + 8))
    records = [Record(index, now_ms, None, value(rng, record_bytes), ()) for index in range(count)]
    plain = build_batch(records)
    data = plain if codec == "none" else build_batch(records, codec=CODECS[codec])
    return Batch(bytes(data), count, len(plain))


def produce_frame(topic: str, partition: int, records: bytes, acks: int = 1, version: int = PRODUCE_VERSION) -> bytes:
    topic_data, partition_data = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[topic_data(name=topic, partition_data=[partition_data(index=partition, records=records)])],
    )
    return frame(request, version)


def check_produced(answer: bytes | bytearray, topic: str) -> None:
    """Raise the error in a produce answer, which includes its length prefix, without decoding all of it."""
    # The error follows length, correlation id, tags, topics, the name, partitions and partition.
    error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    (code,) = ERROR.unpack_from(answer, error_at)
    if code:
        raise error_for(code)


def fetch_frame(
    topic: str,
    partition: int,
    *,
    max_wait_ms: int = 500,
    partition_max_bytes: int = PARTITION_MAX_BYTES,
    isolation_level: int = 0,
) -> tuple[bytearray, int]:
    """A fetch frame and the position of the fetch offset in it, so that the next fetch is one `pack_into`."""
    fetch_topic, fetch_partition = FetchRequest.FetchTopic, FetchRequest.FetchPartition
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_MAX_BYTES,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[
            fetch_topic(
                topic=topic,
                partitions=[
                    fetch_partition(
                        partition=partition,
                        fetch_offset=_SENTINEL_OFFSET,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    encoded = bytearray(frame(request, FETCH_VERSION))
    return encoded, encoded.index(_SENTINEL_OFFSET.to_bytes(8, "big"))
