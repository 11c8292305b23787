"""Produce on the wire: every version, and the error code for everything that can be wrong with a request."""

import struct

import lz4.frame
import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import (
    NONE,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from ottla.records.batch import Record, build_batch, pack_batch
from ottla.wire.messages import ProduceRequest
from ottla.wire.primitives import ZERO_UUID
from support.batches import batch, batches_of, now_ms, records_of
from support.wire import Wire

HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(version: int, topic: str, wire: Wire) -> None:
    for expected in (0, 2):
        answer = wire.produce(topic, batch(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (NONE, expected, -1)
        if version >= 5:
            assert answer.log_start_offset == 0
        if version >= 8:
            assert (answer.record_errors, answer.error_message) == ([], None)
    assert [record.value for record in records_of(wire.fetch(topic, 0))] == [b"a", b"b"] * 2


def test_the_stored_batch_is_the_one_sent_with_offset_and_epoch_stamped(topic: str, wire: Wire) -> None:
    sent = batch(b"x", b"y", codec=1)
    wire.produce(topic, batch(b"before"))
    wire.produce(topic, sent)
    stored = bytes(wire.fetch(topic, 1).records)
    assert struct.unpack(">q", stored[:8]) == (1,)
    assert struct.unpack(">i", stored[12:16]) == (0,)
    assert stored[8:12] + stored[16:] == bytes(sent[8:12] + sent[16:])


@pytest.mark.parametrize("acks", [2, -2, 5])
def test_acks_out_of_range(acks: int, topic: str, wire: Wire) -> None:
    answer = wire.produce(topic, batch(b"x"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (InvalidRequiredAcks.code, -1)
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


def test_acks_0_gets_no_answer(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"x"), acks=0)
    # The next answer on this connection is that of the next request.
    assert wire.produce(topic, batch(b"y")).base_offset == 1


def test_an_error_without_acks_closes_the_connection(topic: str, wire: Wire, connect) -> None:
    wire.produce(topic, b"\0" * 80, acks=0)
    assert wire.is_closed()
    assert connect().list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


def corrupted() -> bytes:
    data = batch(b"some value")
    data[-1] ^= 1
    return bytes(data)


def with_magic(magic: int) -> bytes:
    data = batch(b"x")
    data[16] = magic
    return bytes(data)


def with_count(count: int) -> bytes:
    """A batch whose header has this record count and a correct CRC, but which contains two records."""
    two = build_batch([Record(i, now_ms(), None, b"v", ()) for i in range(2)])
    return bytes(
        pack_batch(
            bytes(two[61:]),
            count,
            base_offset=0,
            leader_epoch=-1,
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp=now_ms(),
            max_timestamp=now_ms(),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
    )


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(corrupted, CorruptMessage.code, id="crc"),
        pytest.param(lambda: with_magic(7), CorruptMessage.code, id="magic-7"),
        pytest.param(lambda: with_magic(1), InvalidRecord.code, id="magic-1-header"),
        pytest.param(lambda: bytes(batch(b"x"))[:-1], InvalidRecord.code, id="cut"),
        pytest.param(lambda: batch(b"x") + batch(b"y"), InvalidRecord.code, id="two-batches"),
        pytest.param(
            lambda: build_batch([Record(5, now_ms(), None, b"v", ())], base_offset=5), InvalidRecord.code, id="base"
        ),
        pytest.param(lambda: with_count(3), InvalidRecord.code, id="count-3"),
        pytest.param(lambda: with_count(1), InvalidRecord.code, id="count-1"),
        pytest.param(lambda: b"", InvalidRecord.code, id="empty"),
        pytest.param(lambda: build_batch([]), InvalidRecord.code, id="no-records"),
        pytest.param(lambda: batch(b"v", control=True), InvalidRecord.code, id="control"),
        pytest.param(lambda: batch(b"v", timestamp=now_ms() + 2 * HOUR_MS), InvalidTimestamp.code, id="future"),
        pytest.param(lambda: batch(b"x" * 1_048_600), MessageTooLarge.code, id="large"),
    ],
)
def test_refused_batches(make, code: int, topic: str, wire: Wire) -> None:
    answer = wire.produce(topic, make())
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0
    # The connection and the partition continue.
    assert wire.produce(topic, batch(b"good")).base_offset == 0


def test_a_batch_cut_short_after_a_whole_one_is_dropped(topic: str, wire: Wire) -> None:
    answer = wire.produce(topic, bytes(batch(b"x", b"y")) + b"\0" * 10)
    assert (answer.error_code, answer.base_offset) == (NONE, 0)
    assert len(bytes(wire.fetch(topic, 0).records)) == len(batch(b"x", b"y"))


def test_null_records_are_refused(topic: str, wire: Wire, broker) -> None:
    if not broker.is_ottla:
        pytest.skip("Apache Kafka 4.3.1 never answers this one")
    assert wire.produce(topic, None).error_code == InvalidRecord.code
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


def test_invalid_records_are_listed_in_the_answer(make_topic, wire: Wire) -> None:
    topic = make_topic(cleanup_policy="compact")
    records = [Record(i, now_ms(), key, b"v", ()) for i, key in enumerate([b"k", None, b"k", None])]
    answer = wire.produce(topic, build_batch(records))
    assert (answer.error_code, answer.base_offset) == (InvalidRecord.code, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all(error.batch_index_error_message for error in answer.record_errors)
    assert answer.error_message
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


def test_early_and_missing_timestamps_are_accepted(topic: str, wire: Wire) -> None:
    assert wire.produce(topic, batch(b"v", timestamp=0)).error_code == NONE
    assert wire.produce(topic, batch(b"v", timestamp=now_ms() + HOUR_MS // 2)).error_code == NONE
    assert wire.produce(topic, batch(b"v", timestamp=-1)).error_code == NONE


def test_timestamp_limits_of_a_topic(make_topic, wire: Wire) -> None:
    topic = make_topic(message_timestamp_before_max_ms=1000)
    answer = wire.produce(topic, batch(b"v", b"w", timestamp=now_ms() - HOUR_MS))
    assert answer.error_code == InvalidTimestamp.code
    assert [error.batch_index for error in answer.record_errors] == [0, 1]


def test_lz4_with_linked_blocks(topic: str, wire: Wire) -> None:
    payload = lz4.frame.compress(b"\x10\x00\x00\x00\x01\x02v\x00" * 40000, block_linked=True, block_size=4)
    answer = wire.produce(
        topic,
        bytes(
            pack_batch(
                payload,
                1,
                base_offset=0,
                leader_epoch=-1,
                attributes=3,
                last_offset_delta=0,
                base_timestamp=now_ms(),
                max_timestamp=now_ms(),
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
            )
        ),
    )
    assert answer.error_code == UnknownServerError.code


def test_zstd_needs_version_7(topic: str, wire: Wire) -> None:
    assert wire.produce(topic, batch(b"v", codec=4), version=6).error_code == UnsupportedCompressionType.code
    assert wire.produce(topic, batch(b"v", codec=4), version=7).error_code == NONE


@pytest.mark.parametrize("name", ["nowhere", "bad name", ""])
def test_unknown_topics(name: str, wire: Wire, unique) -> None:
    # An invalid name is treated as an unknown one; nothing is created in either case.
    answer = wire.produce(unique(name) if name == "nowhere" else name, batch(b"x"))
    assert (answer.error_code, answer.base_offset) == (UnknownTopicOrPartition.code, -1)


def test_unknown_partitions(topic: str, wire: Wire) -> None:
    for partition in (1, -1):
        answer = wire.produce(topic, batch(b"x"), partition=partition)
        assert (answer.error_code, answer.base_offset) == (UnknownTopicOrPartition.code, -1)


def test_unknown_topic_id(wire: Wire) -> None:
    for topic_id in (b"\x07" * 16, ZERO_UUID):
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=topic_id,
                    partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))],
                )
            ],
        )
        answer = wire.call(request, 13).responses[0]
        assert answer.topic_id == topic_id
        assert answer.partition_responses[0].error_code == UnknownTopicId.code


def test_one_bad_partition_does_not_fail_the_others(make_topic, wire: Wire) -> None:
    topic = make_topic(3)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=data)
                    for index, data in ((0, batch(b"x")), (1, corrupted()), (7, batch(b"x")), (2, batch(b"y")))
                ],
            )
        ],
    )
    answers = wire.call(request, 12).responses[0].partition_responses
    assert {a.index: (a.error_code, a.base_offset) for a in answers} == {
        0: (NONE, 0),
        1: (CorruptMessage.code, -1),
        7: (UnknownTopicOrPartition.code, -1),
        2: (NONE, 0),
    }


# Idempotent producers


def sequenced(producer: tuple[int, int], sequence: int, *values: bytes) -> bytearray:
    return batch(*values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)


def test_duplicates_get_the_first_offset(topic: str, wire: Wire) -> None:
    me = wire.producer_id()
    for sequence in range(5):
        assert wire.produce(topic, sequenced(me, sequence * 2, b"a", b"b")).base_offset == sequence * 2
    for sequence in range(5):
        answer = wire.produce(topic, sequenced(me, sequence * 2, b"a", b"b"))
        assert (answer.error_code, answer.base_offset) == (NONE, sequence * 2)
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 10


def test_a_duplicate_older_than_five_batches(topic: str, wire: Wire) -> None:
    me = wire.producer_id()
    for sequence in range(6):
        wire.produce(topic, sequenced(me, sequence, b"x"))
    answer = wire.produce(topic, sequenced(me, 0, b"x"))
    assert (answer.error_code, answer.base_offset) == (OutOfOrderSequenceNumber.code, -1)
    assert wire.produce(topic, sequenced(me, 1, b"x")).base_offset == 1


def test_gaps_in_sequences_are_refused(topic: str, wire: Wire) -> None:
    me = wire.producer_id()
    # A producer that the partition has not seen may start anywhere.
    assert wire.produce(topic, sequenced(me, 7, b"x")).error_code == NONE
    assert wire.produce(topic, sequenced(me, 9, b"x")).error_code == OutOfOrderSequenceNumber.code
    assert wire.produce(topic, sequenced(me, 8, b"x")).error_code == NONE
    # A new epoch starts at zero.
    newer = (me[0], me[1] + 1)
    assert wire.produce(topic, sequenced(newer, 9, b"x")).error_code == OutOfOrderSequenceNumber.code
    assert wire.produce(topic, sequenced(newer, 0, b"x")).error_code == NONE
    assert wire.produce(topic, sequenced(me, 9, b"x")).error_code == InvalidProducerEpoch.code
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 3


def test_the_sequence_wraps(topic: str, wire: Wire) -> None:
    me = wire.producer_id()
    last = 2**31 - 1
    assert wire.produce(topic, sequenced(me, last - 1, b"a", b"b")).error_code == NONE
    assert wire.produce(topic, sequenced(me, 0, b"c")).error_code == NONE
    assert wire.produce(topic, sequenced(me, 1, b"d")).base_offset == 3


def test_producer_ids_are_assigned_once(wire: Wire, connect) -> None:
    other = connect()
    ids = [one.producer_id(version)[0] for version in range(5) for one in (wire, other)]
    assert len(set(ids)) == len(ids)


# What the topic's configuration does to a batch


def test_log_append_time(make_topic, wire: Wire) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before = now_ms() - 5
    answer = wire.produce(topic, batch(b"v", b"w", timestamp=now_ms() - HOUR_MS))
    assert before <= answer.log_append_time_ms <= now_ms() + 1000
    (stored,) = batches_of(wire.fetch(topic, 0))
    assert stored.crc_ok()
    assert (stored.timestamp_type, stored.max_timestamp) == (1, answer.log_append_time_ms)
    assert {record.timestamp for record in stored.records()} == {answer.log_append_time_ms}


@pytest.mark.parametrize(
    ("sent", "configured", "stored"),
    [(0, "producer", 0), (1, "producer", 1), (0, "gzip", 1), (1, "uncompressed", 0), (2, "lz4", 3), (3, "zstd", 4)],
)
def test_compression_of_a_topic(sent: int, configured: str, stored: int, make_topic, wire: Wire) -> None:
    topic = make_topic(compression_type=configured)
    values = [b"some value %d" % i for i in range(20)]
    assert wire.produce(topic, batch(*values, codec=sent)).error_code == NONE
    (found,) = batches_of(wire.fetch(topic, 0))
    assert found.codec == stored
    assert found.crc_ok()
    assert [record.value for record in found.records()] == values


def test_error_messages_of_bad_records(topic: str, wire: Wire, make_topic) -> None:
    compacted = make_topic(cleanup_policy="compact")
    found = wire.produce(compacted, batch(*[b"v"] * 4))
    words = f"Compacted topic cannot accept message without key in topic partition {compacted}-0"
    assert [(one.batch_index, one.batch_index_error_message) for one in found.record_errors] == [
        (index, words) for index in range(4)
    ]
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{words}')" for index in range(3))
    assert (found.error_code, found.error_message) == (
        InvalidRecord.code,
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three "
        f"errors at most: [{shown}]",
    )
    late = now_ms() + 2 * HOUR_MS
    found = wire.produce(topic, batch(b"v", timestamp=late))
    assert (found.error_code, found.error_message) == (
        InvalidTimestamp.code,
        "One or more records have been rejected due to invalid timestamp",
    )
    (one,) = found.record_errors
    words = f"Timestamp {late} of message with offset 0 is out of range. The timestamp should be within ["
    assert one.batch_index_error_message.startswith(words)
