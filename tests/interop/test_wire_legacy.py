"""What Kafka 4 no longer supports: Produce 0–2, Fetch 0–3, ListOffsets 0, CreateTopics 0–1, and messages of format 0
and 1.

The expected answers are those of Apache Kafka 3.9.1. These tests are skipped on a broker that serves none of them.
"""

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import (
    NONE,
    CorruptMessage,
    IllegalGeneration,
    OffsetOutOfRange,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ottla.records.batch import Record
from ottla.records.legacy import any_batches, build_message_set
from ottla.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    OffsetCommitRequest,
)
from support.batches import batch, now_ms, records_of
from support.interop.transacting import find_group
from support.wire import Wire

NOW = now_ms()


@pytest.fixture(autouse=True)
def _old_versions(broker) -> None:
    with Wire(broker.address) as wire:
        versions = {api.api_key: api.min_version for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    if versions[1] > 0:
        pytest.skip("this broker dropped the old versions; Apache Kafka 3.9.1 has them")


def records(*values: bytes | None, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, NOW + i, key, value, ()) for i, value in enumerate(values)]


def old_records(answer) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, magic, key, value) of the fetched messages, without a message that is cut."""
    data = memoryview(bytes(answer.records or b""))
    return [(r.offset, one.magic, r.key, r.value) for one in any_batches(data) for r in one.records()]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (2, 0)])
def test_old_producers(version: int, magic: int, codec: int, topic: str, wire: Wire) -> None:
    data = bytes(build_message_set(records(b"a", b"b", None), magic=magic, codec=codec))
    for base in (0, 3):
        answer = wire.produce(topic, data, version=version)
        assert (answer.error_code, answer.base_offset) == (NONE, base)
    # New readers get the stored messages, converted to the new format.
    found = records_of(wire.fetch(topic, 0))
    assert [(r.offset, r.key, r.value) for r in found] == [
        (base + i, b"k", value) for base in (0, 3) for i, value in enumerate((b"a", b"b", None))
    ]
    if magic == 1:
        assert [r.timestamp for r in found] == [NOW, NOW + 1, NOW + 2] * 2


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_readers(version: int, magic: int, codec: int, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"a", b"b", key=b"k", codec=codec))
    wire.produce(topic, batch(b"c", key=b"k", codec=codec))
    # An answer may end early, because converted records are larger than stored ones; a reader continues from there.
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    while len(found) < 3:
        answer = wire.fetch(topic, len(found), version=version)
        assert (answer.error_code, answer.high_watermark) == (NONE, 3)
        more = [one for one in old_records(answer) if one[0] >= len(found)]
        assert more
        found += more
    assert found == [(i, magic, b"k", value) for i, value in enumerate((b"a", b"b", b"c"))]


def test_old_readers_do_not_see_headers(topic: str, wire: Wire) -> None:
    from ottla.records.batch import build_batch

    wire.produce(topic, build_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),))]))
    assert old_records(wire.fetch(topic, 0, version=2)) == [(0, 1, b"k", b"v")]


@pytest.mark.parametrize("version", range(4))
def test_old_fetch_errors(version: int, topic: str, wire: Wire, unique) -> None:
    assert wire.fetch(topic, 5, version=version).error_code == OffsetOutOfRange.code
    assert wire.fetch(unique("t"), 0, version=version).error_code == UnknownTopicOrPartition.code
    empty = wire.fetch(topic, 0, version=version)
    assert (empty.error_code, empty.high_watermark, bytes(empty.records or b"")) == (NONE, 0, b"")


def test_a_corrupt_old_message(topic: str, wire: Wire) -> None:
    data = bytearray(build_message_set(records(b"some value"), magic=1))
    data[-1] ^= 1
    answer = wire.produce(topic, bytes(data), version=2)
    assert (answer.error_code, answer.base_offset) == (CorruptMessage.code, -1)
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST, version=1).offset == 0


def test_the_limit_of_an_old_fetch_is_the_partitions(topic: str, wire: Wire) -> None:
    """Before version 3, a limit below the size of the first message returned a part of it, and the reader asked again
    for more."""
    wire.produce(topic, batch(b"x" * 5000))
    answer = wire.fetch(topic, 0, version=2, partition_max_bytes=100)
    assert answer.error_code == NONE
    whole = wire.fetch(topic, 0, version=2)
    assert old_records(whole)[0][3] == b"x" * 5000


def test_list_offsets_0(topic: str, wire: Wire) -> None:
    for i in range(4):
        wire.produce(topic, batch(b"%d" % i, timestamp=NOW - 4000 + i * 1000))

    def listed(timestamp: int, most: int = 10) -> list[int]:
        answer = wire.list_offsets(topic, timestamp, version=0, max_num_offsets=most)
        assert answer.error_code == NONE
        return list(answer.old_style_offsets)

    assert listed(OffsetTimestamp.LATEST) == [4, 0]
    assert listed(OffsetTimestamp.LATEST, 1) == [4]
    assert listed(OffsetTimestamp.EARLIEST) == [0]
    # A lookup by time uses the time of the last write of segments, not of records.
    assert listed(NOW - 3_600_000) == []
    # The end of the log counts as written now.
    assert listed(NOW + 86_400_000) == [4, 0]
    assert listed(NOW + 86_400_000, 1) == [4]


def test_fetch_0_has_no_throttle_time_and_2_waits(topic: str, wire: Wire, connect) -> None:
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=240_000,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10000)],
            )
        ],
    )
    wire.send(request, 0)
    connect().produce(topic, batch(b"x"))
    assert old_records(wire.receive().responses[0].partitions[0])[0][3] == b"x"


@pytest.mark.parametrize("version", [0, 1])
def test_old_topic_requests(version: int, wire: Wire, unique) -> None:
    topic = unique("t")
    new = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    made = wire.call(CreateTopicsRequest(topics=[new], timeout_ms=30000), version).topics[0]
    assert (made.name, made.error_code) == (topic, NONE)
    wire.wait_until_ready(topic, 2)
    gone = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30000), 0).responses[0]
    assert (gone.name, gone.error_code) == (topic, NONE)


@pytest.mark.parametrize("version", [1, 2, 8])
@pytest.mark.parametrize("has_name", [True, False], ids=["a group", "a group with an empty name"])
def test_commits_from_outside_a_group_are_refused(version: int, has_name: bool, topic: str, wire: Wire, unique) -> None:
    """A generation of a group that does not exist is illegal; in a group without members every member id is unknown."""
    group = unique("g") if has_name else ""
    find_group(wire, group)
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=1, committed_metadata=""
                )
            ],
        )
    ]

    def commit(generation: int, member: str) -> int:
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        return int(wire.call(request, version).topics[0].partitions[0].error_code)

    if has_name:  # the group with the empty name may exist from an earlier test
        assert commit(3, "m") == IllegalGeneration.code
    assert commit(-1, "m") == NONE
    assert commit(-1, "") == NONE
    assert commit(3, "m") == UnknownMemberId.code
    assert commit(0, "") == UnknownMemberId.code
