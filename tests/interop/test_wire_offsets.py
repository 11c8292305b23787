"""ListOffsets and OffsetForLeaderEpoch on the wire."""

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import NONE, InvalidRequest, UnknownLeaderEpoch, UnknownTopicOrPartition
from ottla.records.batch import Record, build_batch
from ottla.wire.messages import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from support.batches import batch, now_ms
from support.wire import Wire


def answer(found) -> tuple[int, int, int]:
    return found.error_code, found.offset, found.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(version: int, topic: str, wire: Wire) -> None:
    now = now_ms()
    for i in range(3):
        wire.produce(topic, batch(b"%d" % i, timestamp=now - 3000 + i * 1000))
    assert answer(wire.list_offsets(topic, OffsetTimestamp.EARLIEST, version=version)) == (NONE, 0, -1)
    assert answer(wire.list_offsets(topic, OffsetTimestamp.LATEST, version=version)) == (NONE, 3, -1)
    assert answer(wire.list_offsets(topic, now - 2500, version=version)) == (NONE, 1, now - 2000)
    assert answer(wire.list_offsets(topic, now + 1000, version=version)) == (NONE, -1, -1)
    if version >= 4:
        assert wire.list_offsets(topic, OffsetTimestamp.LATEST, version=version).leader_epoch == 0
        assert wire.list_offsets(topic, OffsetTimestamp.EARLIEST, version=version).leader_epoch == 0


def test_a_lookup_by_time_finds_the_first_offset_of_unordered_times(topic: str, wire: Wire) -> None:
    """The answer is the first record, by offset, that is at or after the time."""
    now = now_ms()
    ages = [5000, 1000, 4000, 2000]
    records = [Record(i, now - age, None, b"v", ()) for i, age in enumerate(ages)]
    wire.produce(topic, build_batch(records, codec=1))
    wire.produce(topic, batch(b"later", timestamp=now - 500))
    assert answer(wire.list_offsets(topic, now - 4500)) == (NONE, 1, now - 1000)
    assert answer(wire.list_offsets(topic, now - 1000)) == (NONE, 1, now - 1000)
    assert answer(wire.list_offsets(topic, now - 999)) == (NONE, 4, now - 500)
    assert answer(wire.list_offsets(topic, 0)) == (NONE, 0, now - 5000)


def test_special_timestamps(topic: str, wire: Wire) -> None:
    now = now_ms()
    assert answer(wire.list_offsets(topic, OffsetTimestamp.MAX_TIMESTAMP)) == (NONE, -1, -1)
    records = [Record(i, now - age, None, b"v", ()) for i, age in enumerate([500, 100, 100, 900])]
    wire.produce(topic, build_batch(records))
    assert answer(wire.list_offsets(topic, OffsetTimestamp.MAX_TIMESTAMP)) == (NONE, 1, now - 100)
    assert answer(wire.list_offsets(topic, OffsetTimestamp.EARLIEST_LOCAL)) == (NONE, 0, -1)
    assert answer(wire.list_offsets(topic, OffsetTimestamp.LATEST_TIERED)) == (NONE, -1, -1)


def test_the_largest_timestamp_of_records_that_are_deleted(topic: str, wire: Wire) -> None:
    """The largest timestamp is that of the files, even of deleted records. A lookup by time finds only records that can
    be read."""
    now = now_ms()
    for age, values in ((3000, (b"a",)), (1000, (b"b", b"c")), (2000, (b"d",))):
        wire.produce(topic, batch(*values, timestamp=now - age))
    entry, part = DeleteRecordsRequest.DeleteRecordsTopic, DeleteRecordsRequest.DeleteRecordsPartition
    for start, first in ((2, (NONE, 2, now - 1000)), (3, (NONE, 3, now - 2000)), (4, (NONE, -1, -1))):
        asked = entry(name=topic, partitions=[part(partition_index=0, offset=start)])
        done = wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2).topics[0].partitions[0]
        assert (done.error_code, done.low_watermark) == (NONE, start)
        assert answer(wire.list_offsets(topic, 0)) == first
        assert answer(wire.list_offsets(topic, OffsetTimestamp.MAX_TIMESTAMP)) == (NONE, 1, now - 1000)


def test_an_empty_partition(topic: str, wire: Wire) -> None:
    assert answer(wire.list_offsets(topic, OffsetTimestamp.EARLIEST)) == (NONE, 0, -1)
    assert answer(wire.list_offsets(topic, OffsetTimestamp.LATEST)) == (NONE, 0, -1)
    assert answer(wire.list_offsets(topic, 0)) == (NONE, -1, -1)
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).leader_epoch in (0, -1)


def test_unknown_places(topic: str, wire: Wire, unique) -> None:
    assert answer(wire.list_offsets(unique("t"), OffsetTimestamp.LATEST)) == (UnknownTopicOrPartition.code, -1, -1)
    assert answer(wire.list_offsets(topic, OffsetTimestamp.LATEST, partition=5)) == (
        UnknownTopicOrPartition.code,
        -1,
        -1,
    )


def test_a_partition_named_twice(topic: str, wire: Wire) -> None:
    entry = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=OffsetTimestamp.LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[entry, entry])]
    )
    partitions = wire.call(request, 5).topics[0].partitions
    assert {p.error_code for p in partitions} == {InvalidRequest.code}


def test_leader_epochs(topic: str, wire: Wire) -> None:
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST, current_leader_epoch=0).error_code == NONE
    assert (
        wire.list_offsets(topic, OffsetTimestamp.LATEST, current_leader_epoch=9).error_code == UnknownLeaderEpoch.code
    )


def epoch_end(wire: Wire, topic: str, version: int, epoch: int, current: int = -1, partition: int = 0):
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ],
    )
    found = wire.call(request, version).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(version: int, topic: str, wire: Wire, unique) -> None:
    wire.produce(topic, batch(b"a", b"b"))
    assert epoch_end(wire, topic, version, 0) == (NONE, 0, 2)
    assert epoch_end(wire, topic, version, 5) == (NONE, -1, -1)
    assert epoch_end(wire, topic, version, 0, current=3) == (UnknownLeaderEpoch.code, -1, -1)
    assert epoch_end(wire, topic, version, 0, partition=4)[0] == UnknownTopicOrPartition.code
    assert epoch_end(wire, unique("t"), version, 0)[0] == UnknownTopicOrPartition.code


@pytest.mark.parametrize("version", range(4, 12))
def test_the_start_of_an_empty_partition_is_in_its_leaders_epoch(version: int, topic: str, wire: Wire) -> None:
    for timestamp in (
        (OffsetTimestamp.EARLIEST, OffsetTimestamp.LATEST)
        if version < 8
        else (OffsetTimestamp.EARLIEST, OffsetTimestamp.LATEST, OffsetTimestamp.EARLIEST_LOCAL)
    ):
        found = wire.list_offsets(topic, timestamp, version=version)
        assert (*answer(found), found.leader_epoch) == (NONE, 0, -1, 0)
