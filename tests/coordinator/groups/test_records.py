"""The records of the offsets log equal those of Apache Kafka 4.3.1 (golden/*.log), and corrupt bytes are noticed."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.groups.classic.records import classic_group_record
from ottla.coordinator.groups.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.groups.records import CommittedOffset, OffsetRecord, decode_record
from ottla.coordinator.runtime.batches import CorruptRecord, encode_batch
from ottla.records.batch import Record, batches, build_batch
from ottla.wire.primitives import uuid_from_base64
from ottla.wire.stored import OffsetCommitKey, OffsetCommitValue

FOO = uuid_from_base64("UBcJxXowSBCtupgq-ldBZw")
BAR = uuid_from_base64("ivnGU7qdRBakeEDapfpRTQ")


def stored_records(path: Path) -> list[Record]:
    return [record for batch in batches(path.read_bytes()) if not batch.is_control for record in batch.records()]


@pytest.mark.parametrize("name", ["consumer-group", "classic-group", "transactional-offsets"])
def test_kafkas_records_are_encoded_to_the_same_bytes(golden: Path, name: str) -> None:
    found = stored_records(golden / f"{name}.log")
    assert found
    for record in found:
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        assert decoded.encode() == (record.key, record.value)


def test_kafkas_consumer_group_is_replayed(golden: Path, make_world: Any) -> None:
    """The final state of golden/consumer-group.log: one member remains, and the static one is away."""
    world = make_world()
    world.load((golden / "consumer-group.log").read_bytes())
    group = world.group("new")
    assert (group.epoch, group.target_epoch, group.metadata_hash) == (4, 3, -4522030746877840079)
    (member,) = group.members.values()
    assert (member.instance_id, member.epoch, member.regex) == ("inst", -2, "(^fo.*)")
    assert member.assigned == {FOO: {1: 0, 2: 0}}
    assert group.target == {member.member_id: {FOO: frozenset({1, 2})}}
    assert group.regexes["(^fo.*)"].topics == {"foo"}
    assert world.shard.offsets.groups["new"]["foo"][0] == (5, CommittedOffset(9, -1, "", 1794802071306, -1, FOO))


def test_records_built_here_are_those_that_kafka_wrote(golden: Path, make_world: Any) -> None:
    world = make_world()
    found = stored_records(golden / "consumer-group.log")
    world.load((golden / "consumer-group.log").read_bytes()[:1301])
    group = world.group("new")
    first = group.members["Vp6rgFDeSOK5deQULPlx2g"]
    regular = group.regexes["(^fo.*)"]
    built = {
        0: member_record("new", first),
        1: epoch_record("new", 2, 1111898311595207997),
        2: target_record("new", first.member_id, {BAR: frozenset({1, 0}), FOO: frozenset({2, 1, 0})}),
        3: target_epoch_record("new", 2, 1794802071215),
        8: regex_record("new", "(^fo.*)", regular),
        13: current_record("new", first),
    }
    for index, record in built.items():
        assert record.encode() == (found[index].key, found[index].value), index


def test_classic_group_built_here_is_what_kafka_wrote(golden: Path, make_world: Any) -> None:
    found = stored_records(golden / "classic-group.log")
    world = make_world()
    world.load((golden / "classic-group.log").read_bytes()[:383])
    group = world.group("cls")
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    assert classic_group_record(group, assignments).encode() == (found[1].key, found[1].value)
    assert group.subscribed_topics == {"foo"}


@pytest.mark.parametrize(
    "value",
    [
        CommittedOffset(1, -1, "", 5),
        CommittedOffset(2**63 - 1, 7, "m" * 200, 2**40, -1, FOO),
        CommittedOffset(3, -1, "ümlaut", 5, 9),
    ],
)
def test_the_handwritten_offset_codec_matches_the_schema(value: CommittedOffset) -> None:
    key, data = OffsetRecord("gröup", "töpic", 12, value).encode()
    assert data is not None
    assert key == b"\x00\x01" + OffsetCommitKey(group="gröup", topic="töpic", partition=12).encode(0)
    version = int.from_bytes(data[:2], "big")
    stored = OffsetCommitValue.decode(data[2:], version)
    assert (stored.offset, stored.metadata, stored.commit_timestamp) == (value.offset, value.metadata, value[3])
    assert stored.encode(version) == data[2:]
    assert version == (1 if value.expire_timestamp_ms != -1 else 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x01\x00\x09abc", b"\x00\x04"),
        (b"\x00\x02\x00\x01g", b"\x00\x63"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\xff"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x07"),
    ],
)
def test_kinds_of_corruption_are_distinguished(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(key, value)


def test_unknown_record_types_are_skipped() -> None:
    assert decode_record(b"\x00\x63rest", b"\x00\x00") is None


def test_a_corrupt_record_is_reported_once_and_the_rest_is_loaded(
    make_world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good = OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "", 1)).encode()
    records = [Record(0, 1, b"\x00\x02\x00\x09", b"x"), Record(1, 1, *good), Record(2, 1, b"", b"")]
    world = make_world()
    with caplog.at_level(logging.ERROR):
        world.load(bytes(build_batch(records)))
    assert len(caplog.records) == 1
    assert world.shard.offsets.groups["g"]["t"][0][1].offset == 5


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (7, 2)])
def test_a_batch_is_what_the_record_layer_builds(codec: int, producer_id: int, producer_epoch: int) -> None:
    records = [
        OffsetRecord("g", "t", 0, CommittedOffset(1, -1, "", 5)),
        OffsetRecord("g", "t", 1, None),
        *(OffsetRecord("g", "t" * 200, index, CommittedOffset(1, -1, "m" * 300, 5)) for index in range(70)),
    ]
    plain = [Record(position, 99, *record.encode()) for position, record in enumerate(records)]
    is_transactional = producer_id != -1
    expected = build_batch(plain, 0, codec, producer_id, producer_epoch, 0, transactional=is_transactional)
    built = encode_batch(records, 99, codec, producer_id, producer_epoch, 0)
    if codec == 0:
        assert built == expected
    assert [(record.key, record.value) for record in next(batches(built)).records()] == [
        (record.key, record.value) for record in plain
    ]
