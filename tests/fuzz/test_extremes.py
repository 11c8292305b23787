"""Well-formed but unreasonable input: bombs, counts in the billions, offsets at the ends of their range.

Each must be refused cheaply: with its own error or a closed connection, with little memory and time, and without a
change to the log of the partition.
"""

import asyncio
import copy
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard

from ottla.enums import CoordinatorType
from ottla.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    MemberIdRequired,
    MessageTooLarge,
    NotCoordinator,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.records.batch import Record, build_batch, pack_batch
from ottla.records.checksum import crc32c
from ottla.wire.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from support.fuzzing.target import Target
from support.simulating.loop import Lost, SimLoop

MAX_INT64, MIN_INT64 = (1 << 63) - 1, -(1 << 63)
MAX_INT32, MIN_INT32 = (1 << 31) - 1, -(1 << 31)
OFFSETS = (MAX_INT64, MAX_INT64 - 1, MIN_INT64, MIN_INT64 + 1, -1, -7, 1 << 32, 1 << 62)
BOMB_BYTES = 128 << 20
LIMIT_BYTES = 16 << 20
PEAK_BYTES = 3 * LIMIT_BYTES

Test = Callable[[Target], Coroutine[Any, Any, None]]


def with_broker(test: Test) -> None:
    async def run() -> None:
        target = Target()
        await target.start()
        try:
            await test(target)
            assert await target.serves()
            assert not target.unhandled, target.unhandled[0]
            unexpected = target.complaints.unexpected
            assert not unexpected, unexpected[0].exc_info
        finally:
            await target.stop()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(run())


async def produce(target: Target, records: Any, topic: str = "t", version: int = 9) -> int:
    """Returns the error code, or None for a closed connection."""
    client = target.client()
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    entry = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    try:
        answer = await client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[entry]), version)
    finally:
        client.disconnect()
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def with_field(position: int, layout: str, value: int, count: int = 1, **options: Any) -> bytearray:
    """A batch with one changed header field and a correct checksum."""
    data = build_batch([Record(n, 1_700_000_000_000, b"k", b"v") for n in range(count)], **options)
    struct.pack_into(layout, data, position, value)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


HEADER_FIELDS = {
    "length": (8, ">i", (0, -1, MIN_INT32, MAX_INT32, 48, 13)),
    "magic": (16, ">b", (3, -1, 127, -128)),
    "attributes": (21, ">h", (-1, 0x7FFF, 5, 6, 7, 0x20)),
    "last offset delta": (23, ">i", (MAX_INT32, MIN_INT32, -1, 1, 1 << 20)),
    "record count": (57, ">i", (MAX_INT32, MIN_INT32, -1, 0, 2)),
    "producer id": (43, ">q", (MIN_INT64, -2, -3)),
    "base sequence": (53, ">i", (MIN_INT32, -2)),
}


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_false_batch_headers_are_refused(field: str) -> None:
    position, layout, values = HEADER_FIELDS[field]

    async def test(target: Target) -> None:
        log = target.broker.replicas.leader("t", 0).log
        for value in values:
            for codec in (0, 1):
                before = log.log_end_offset
                code = await produce(target, with_field(position, layout, value, codec=codec))
                grown = log.log_end_offset - before
                assert grown == (0 if code else 1), f"{field}={value}: code {code}, {grown} offsets more"
        # Accepted batches can be read, also by time, and after a restart.
        for one in log.batches(0):
            assert len(list(one.records())) == one.record_count == one.last_offset_delta + 1
        log.offset_for_timestamp(1)

    with_broker(test)


def bomb(codec: int) -> bytes:
    """Far more zeros than the limit allows, in few bytes."""
    step = bytes(1 << 20)
    if codec == 1:
        made = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(made.compress(step) for _ in range(BOMB_BYTES >> 20)) + made.flush()
    if codec == 3:
        stream = lz4.frame.LZ4FrameCompressor(block_linked=False)
        return stream.begin() + b"".join(stream.compress(step) for _ in range(BOMB_BYTES >> 20)) + stream.flush()
    if codec == 4:
        chunk = zstandard.ZstdCompressor().compressobj()
        return b"".join(chunk.compress(step) for _ in range(BOMB_BYTES >> 20)) + chunk.flush()
    block = snappy.compress(bytes(32 << 10))
    framed = struct.pack(">i", len(block)) + block
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed * (BOMB_BYTES // (32 << 10))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_bombs(codec: int) -> None:
    payload = bomb(codec)
    assert len(payload) < LIMIT_BYTES

    async def test(target: Target) -> None:
        for topic in ("t", "compacted"):  # a compacted topic reads its records, others need not
            partition = target.broker.replicas.leader(topic, 0)
            options = partition._options = copy.copy(partition._options)
            options.max_message_bytes, options.decompressed_limit = 100 << 20, LIMIT_BYTES
            records = pack_batch(
                payload,
                1,
                base_offset=0,
                leader_epoch=-1,
                attributes=codec,
                last_offset_delta=0,
                base_timestamp=0,
                max_timestamp=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
            )
            began = time.monotonic()
            tracemalloc.start()
            code = await produce(target, records, topic)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert code == (MessageTooLarge.code if topic == "compacted" else 0)
            assert peak < PEAK_BYTES + 2 * len(payload), f"{topic}: {peak >> 20} MB"
            assert time.monotonic() - began < 60

    with_broker(test)


def test_offsets_at_the_ends_of_their_range() -> None:
    async def test(target: Target) -> None:
        assert await produce(target, build_batch([Record(0, 1, None, b"v")])) == 0
        client = target.client()
        for offset in OFFSETS:
            wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
            fetched = await client.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic]), 11)
            assert fetched.responses[0].partitions[0].error_code == OffsetOutOfRange.code, offset
            trimmed = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
            asked = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[trimmed])
            deleted = (
                (await client.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10), 2)).topics[0].partitions[0]
            )
            assert (deleted.error_code, deleted.low_watermark) == ((0, 1) if offset == -1 else (1, -1)), offset
            timed = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=offset)
            listed = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[timed])
            answer = (await client.call(ListOffsetsRequest(replica_id=-1, topics=[listed]), 9)).topics[0].partitions[0]
            assert answer.error_code in (0, UnsupportedVersion.code, InvalidRequest.code), (offset, answer)
            epoch = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=0, current_leader_epoch=-1, leader_epoch=max(min(offset, MAX_INT32), MIN_INT32)
            )
            named = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[epoch])
            ended = await client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[named]), 4)
            assert ended.topics[0].partitions[0].error_code == 0
        client.disconnect()
        log = target.broker.replicas.leader("t", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)

    with_broker(test)


def test_any_committed_offset_is_stored_unchanged() -> None:
    """Kafka does not check a committed offset; it only refuses metadata that is too long."""

    async def test(target: Target) -> None:
        client = target.client()
        await client.call(FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=["g"]), 4)
        for offset in OFFSETS:
            for metadata, expected in (("", 0), ("m" * 5000, 12)):
                entry = OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset, committed_metadata=metadata
                )
                topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[entry])
                answer = await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
                assert answer.topics[0].partitions[0].error_code == expected
        client.disconnect()

    with_broker(test)


def raw(api_key: int, version: int, body: bytes, *, flexible: bool = False, size: int | None = None) -> bytes:
    frame = struct.pack(">hhih", api_key, version, 1, 1) + b"f" + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(frame) if size is None else size) + frame


OVERLONG = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
HUGE = b"\xff\xff\xff\xff\x0f"
MALFORMED = {
    "a count of two billions": raw(3, 1, struct.pack(">i", MAX_INT32)),
    "a negative count where null may not be": raw(3, 0, struct.pack(">i", -2)),
    "a compact count of four billions": raw(3, 9, HUGE, flexible=True),
    "an overlong varint": raw(3, 9, OVERLONG, flexible=True),
    "a varint without an end": raw(3, 9, b"\x80" * 4, flexible=True),
    "a string longer than the frame": raw(3, 1, struct.pack(">ih", 1, 32767) + b"t"),
    "a null string where none may be": raw(11, 0, struct.pack(">h", -1)),
    "a client id longer than the frame": struct.pack(">ihhih", 10, 18, 0, 1, 32767),
    "tagged fields in the billions": struct.pack(">ihhih", 16, 18, 3, 1, 1) + b"f" + HUGE,
    "a frame of two gigabytes": raw(18, 0, b"", size=MAX_INT32),
    "a frame of a negative size": raw(18, 0, b"", size=-5),
    "a frame too short for its header": struct.pack(">ih", 2, 18),
    "an api that is not there": raw(999, 0, b""),
    "a version that is not there": raw(3, 99, b""),
    "records longer than the frame": raw(0, 3, struct.pack(">hhiihi", -1, -1, 1000, 1, 1, MAX_INT32)),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_frames_close_their_connection_without_allocation(what: str) -> None:
    async def test(target: Target) -> None:
        client = target.client()
        tracemalloc.start()
        try:
            client.send_bytes(MALFORMED[what])
            with pytest.raises(Lost):
                await client.receive_frame()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20, f"{peak} bytes"
        client.disconnect()

    with_broker(test)


def test_deep_nesting_and_wide_requests() -> None:
    """Nothing in the protocol is recursive. A request may be wide, and its cost is proportional to its bytes."""

    async def test(target: Target) -> None:
        client = target.client()
        names = [f"n{number}" for number in range(20_000)]
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
            for name in names
        ]
        began = time.monotonic()
        answer = await client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 9)
        assert {topic.partitions[0].error_code for topic in answer.topics} == {UnknownTopicOrPartition.code}
        assert time.monotonic() - began < 60
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=f"p{n}", metadata=b"") for n in range(10_000)]
        joined = await client.call(
            JoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols
            ),
            5,
        )
        assert joined.error_code in (CoordinatorNotAvailable.code, NotCoordinator.code, MemberIdRequired.code)
        client.disconnect()

    with_broker(test)
