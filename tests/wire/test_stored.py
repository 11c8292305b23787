"""Framing of stored records, with bytes that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import pytest

from ottla.wire.primitives import MalformedMessage
from ottla.wire.stored import (
    METADATA_RECORDS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    ConsumerGroupMemberMetadataValue,
    ControlRecordTypeSchema,
    EndTxnMarker,
    FeatureLevelRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    NoOpRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareSnapshotKey,
    TopicRecord,
    TransactionLogKey,
    TransactionLogValue,
    UnknownRecordType,
    decode_metadata_record,
    decode_versioned,
    encode_metadata_record,
    encode_versioned,
    peek_int16,
)


def test_a_committed_offset() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=1, metadata="m", commit_timestamp=9)
    key_bytes = OFFSETS_TOPIC.encode_key(key)
    value_bytes = OFFSETS_TOPIC.encode_value(value, 3)
    assert key_bytes == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    assert value_bytes == bytes.fromhex("0003 0000000000000007 00000001 0001") + b"m" + (9).to_bytes(8, "big")
    assert OFFSETS_TOPIC.decode(key_bytes, value_bytes) == (key, value)
    assert OFFSETS_TOPIC.decode(key_bytes, None) == (key, None)
    assert OFFSETS_TOPIC.decode_key(key_bytes) == key


def test_the_versions_of_a_value_live_side_by_side() -> None:
    key = OFFSETS_TOPIC.encode_key(GroupMetadataKey(group="g"))
    for version in range(5):
        value = GroupMetadataValue(protocol_type="consumer", generation=version)
        assert OFFSETS_TOPIC.decode(key, OFFSETS_TOPIC.encode_value(value, version))[1] == value


def test_a_member_that_is_not_classic_sends_null() -> None:
    """Kafka declares the field with a JSON null, which makes a struct the default and null something to be sent."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert value.encode(0).endswith(b"\x01\x00\x01\xff")


def test_record_types_of_the_topics() -> None:
    assert set(OFFSETS_TOPIC.types) == {*range(9), *range(10, 18), *range(19, 24)}
    assert set(TRANSACTION_TOPIC.types) == {0}
    assert set(SHARE_STATE_TOPIC.types) == {0, 1}
    assert SHARE_STATE_TOPIC.types[0][0] is ShareSnapshotKey
    for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC):
        for record_type, (key, value) in topic.types.items():
            assert key.API_KEY == value.API_KEY == record_type
            assert (key.MIN_VERSION, key.MAX_VERSION) == (0, 0)


def test_unknown_and_malformed_records() -> None:
    with pytest.raises(UnknownRecordType) as caught:
        OFFSETS_TOPIC.decode_key(b"\x00\x63rest")
    assert caught.value.record_type == 99
    with pytest.raises(MalformedMessage):
        OFFSETS_TOPIC.decode_key(b"\x00")
    with pytest.raises(MalformedMessage):
        OFFSETS_TOPIC.decode_key(b"\x00\x02\x00\x01g-")
    key = OFFSETS_TOPIC.encode_key(GroupMetadataKey(group="g"))
    with pytest.raises(MalformedMessage, match="no version 99"):
        OFFSETS_TOPIC.decode(key, b"\x00\x63")


def test_transaction_state() -> None:
    key = TransactionLogKey(transactional_id="tx")
    partition = TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[1, 2])
    value = TransactionLogValue(producer_id=5, next_producer_id=6, transaction_partitions=[partition])
    encoded = TRANSACTION_TOPIC.encode_value(value, 1)
    assert peek_int16(encoded) == 1
    assert TRANSACTION_TOPIC.decode(TRANSACTION_TOPIC.encode_key(key), encoded) == (key, value)


def test_control_records() -> None:
    assert encode_versioned(ControlRecordTypeSchema(type=1), 0) == b"\x00\x00\x00\x01"
    assert encode_versioned(EndTxnMarker(coordinator_epoch=3), 0) == b"\x00\x00\x00\x00\x00\x03"
    assert decode_versioned(EndTxnMarker, b"\x00\x00\x00\x00\x00\x03") == (EndTxnMarker(coordinator_epoch=3), 0)


def test_metadata_records() -> None:
    record = TopicRecord(name="t", topic_id=bytes(range(16)))
    encoded = encode_metadata_record(record, 0)
    assert encoded == b"\x01\x02\x00" + b"\x02t" + bytes(range(16)) + b"\x00"
    assert decode_metadata_record(encoded) == (record, 0)
    assert encode_metadata_record(NoOpRecord(), 0) == b"\x01\x14\x00\x00"
    assert len(METADATA_RECORDS) == 26


def test_a_metadata_record_of_apache_kafka() -> None:
    """The first record of a log that `kafka-storage format` made: metadata.version at level 30."""
    encoded = bytes.fromhex("010c00 116d657461646174612e76657273696f6e 001e 00")
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert decode_metadata_record(encoded) == (record, 0)
    assert encode_metadata_record(record, 0) == encoded


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\x02", b"\x00\x02\x00\x01", b"\x02\x02\x00", b"\x01\x02\x63", b"\x01\x14\x00\x00\x00"]
)
def test_malformed_metadata_records(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(data)


def test_an_unknown_metadata_record() -> None:
    with pytest.raises(UnknownRecordType, match="99"):
        decode_metadata_record(b"\x01\x63\x00")
