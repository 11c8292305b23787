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
    LeaderChangeMessage,
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
    """Kafka declares the field with a JSON null, so the default is a struct, and null has to be sent."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert value.encode(0).endswith(b"\x01\x00\x01\x00")


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


# Values of `__cluster_metadata-0` as Apache Kafka 4.3.1 wrote them.
METADATA_BYTES = {
    "BeginTransactionRecord v0": "01170001001212426f6f747374726170207265636f726473",
    "EndTransactionRecord v0": "01180000",
    "NoOpRecord v0": "01140000",
    "FeatureLevelRecord v0": "010c00116d657461646174612e76657273696f6e001e00",
    "BrokerRegistrationChangeRecord v0": "011100000000010000000000000010010001ff",
    "BrokerRegistrationChangeRecord v3": "01110300000001000000000000001001030101",
    "ClearElrRecord v0": "011c00145f5f73686172655f67726f75705f737461746500",
    "ConfigRecord v0": "0104000401146d696e2e696e73796e632e7265706c69636173023100",
    "ProducerIdsRecord v0": "010f0000000001000000000000001000000000000003e800",
    "TopicRecord v0": "010200135f5f636f6e73756d65725f6f6666736574733f8d44a0a2b64390a003fe0028066be300",
    "PartitionRecord v2": (
        "010302000000003f8d44a0a2b64390a003fe0028066be302000000010200000001010100000001000000000000000002b620e5f5da70"
        "97f9f170d5f56a96924000"
    ),
    "PartitionChangeRecord v2": (
        "010502000000008f1662b481564b6b8077fa6e6876e7cf040001010104ffffffff0605020000000107050200000001"
    ),
}


@pytest.mark.parametrize("name", sorted(METADATA_BYTES))
def test_metadata_records_of_apache_kafka(name: str) -> None:
    encoded = bytes.fromhex(METADATA_BYTES[name])
    record, version = decode_metadata_record(encoded)
    assert f"{type(record).__name__} v{version}" == name
    assert encode_metadata_record(record, version) == encoded


def test_a_metadata_record_of_apache_kafka_is_decoded() -> None:
    record, _ = decode_metadata_record(bytes.fromhex(METADATA_BYTES["FeatureLevelRecord v0"]))
    assert record == FeatureLevelRecord(name="metadata.version", feature_level=30)


# Keys and values of `__consumer_offsets` (and one of `__share_group_state`) as Apache Kafka 4.3.1 wrote them.
MEMBER = "0016" + b"AAAAAAAAAAAAAAAAAAAAAQ".hex()
COORDINATOR_BYTES = {
    "OffsetCommitValue v4": (
        "0001000673696d706c650006746f7069633500000000",
        "00040000000000000005ffffffff026d000001a1e2a3ecc4010010e69639ae954144f9bb10ebbe3160b183",
    ),
    "GroupMetadataValue v3": ("00020003636730", "0003000000000000ffffffff000001a1e2a3f30e00000000"),
    "ConsumerGroupMetadataValue v0": ("000300036e6730", "000000000002010008b16fbfa0ddf7ab48"),
    "ConsumerGroupMemberMetadataValue v0": (
        "000500036e67300016676b73433079563251334b69385655335a2d68463077",
        "0000000005776972650b2f3132372e302e302e310207746f7069633501000003e80001000100",
    ),
    "ConsumerGroupTargetAssignmentMetadataValue v0": ("000600036e6730", "000000000002010008000001a1e2a23141"),
    "ConsumerGroupCurrentMemberAssignmentValue v0": (
        "000800036e67300016676b73433079563251334b69385655335a2d68463077",
        "000000000002000000000002e69639ae954144f9bb10ebbe3160b1830300000000000000010100090300000002000000020100",
    ),
    "ShareGroupMemberMetadataValue v0": (
        "000a0003736731" + MEMBER,
        "00000005776972650b2f3132372e302e302e310207746f7069633500",
    ),
    "ShareGroupStatePartitionMetadataValue v0": (
        "000f0003736731",
        "000002e69639ae954144f9bb10ebbe3160b18307746f7069633503000000000000000100010100",
    ),
    "StreamsGroupMetadataValue v0": (
        "001100027374",
        "000000000002b16fbfa0ddf7ab4802000400000000011902156e756d2e7374616e6462792e7265706c69636173023000",
    ),
    "StreamsGroupMemberMetadataValue v0": (
        "001300027374" + MEMBER,
        "0000000005776972650b2f3132372e302e302e31000003e8000000000270ff0100",
    ),
    "StreamsGroupTopologyValue v0": ("001700027374", "0000000000000202300207746f7069633501010101010000"),
    "ShareSnapshotValue v0": (
        "00000003736731e69639ae954144f9bb10ebbe3160b18300000001",
        "0000000000000000000200000000ffffffffffffffff000001a1e2a23b62000001a1e2a23b620100",
    ),
}


@pytest.mark.parametrize("name", sorted(COORDINATOR_BYTES))
def test_coordinator_records_of_apache_kafka(name: str) -> None:
    key_bytes, value_bytes = map(bytes.fromhex, COORDINATOR_BYTES[name])
    topic = SHARE_STATE_TOPIC if name.startswith("ShareSnapshot") else OFFSETS_TOPIC
    key, value = topic.decode(key_bytes, value_bytes)
    assert value is not None
    version = peek_int16(value_bytes)
    assert f"{type(value).__name__} v{version}" == name
    assert topic.encode_key(key) == key_bytes
    assert topic.encode_value(value, version) == value_bytes


def test_a_member_record_of_apache_kafka_is_decoded() -> None:
    _, value = OFFSETS_TOPIC.decode(*map(bytes.fromhex, COORDINATOR_BYTES["ConsumerGroupMemberMetadataValue v0"]))
    assert value == ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="wire",
        client_host="/127.0.0.1",
        subscribed_topic_names=["topic5"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=1000,
        server_assignor=None,
        classic_member_metadata=None,
    )


def test_a_leader_change_of_apache_kafka() -> None:
    encoded = bytes.fromhex("00000000000102000000010002000000010000")
    voter = LeaderChangeMessage.Voter(voter_id=1)
    message = LeaderChangeMessage(leader_id=1, voters=[voter], granting_voters=[voter])
    assert LeaderChangeMessage.decode(encoded, 0) == message
    assert message.encode(0) == encoded


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\x02", b"\x00\x02\x00\x01", b"\x02\x02\x00", b"\x01\x02\x63", b"\x01\x14\x00\x00\x00"]
)
def test_malformed_metadata_records(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(data)


def test_an_unknown_metadata_record() -> None:
    with pytest.raises(UnknownRecordType, match="99"):
        decode_metadata_record(b"\x01\x63\x00")
