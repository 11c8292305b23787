"""Fetch on the wire: versions, limits, waiting, sessions, epochs, and what is out of range."""

import socket

import pytest

from ottla.errors import (
    NONE,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import DeleteTopicsRequest, FetchRequest
from ottla.wire.primitives import ZERO_UUID
from support.batches import batch, batches_of, records_of
from support.wire import Wire

LONG_WAIT_MS = 240_000  # longer than any test waits: only an event can end it


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(version: int, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"a", b"b"))
    wire.produce(topic, batch(b"c", codec=1))
    answer = wire.fetch(topic, 0, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (NONE, 3, 3)
    if version >= 5:
        assert answer.log_start_offset == 0
    if version >= 11:
        assert answer.preferred_read_replica == -1
    assert answer.aborted_transactions in (None, [])
    assert [record.value for record in records_of(answer)] == [b"a", b"b", b"c"]


def test_an_offset_in_the_middle_of_a_batch_gets_the_whole_batch(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"0", b"1", b"2"))
    wire.produce(topic, batch(b"3", b"4", b"5"))
    assert [one.base_offset for one in batches_of(wire.fetch(topic, 2))] == [0, 3]
    assert [one.base_offset for one in batches_of(wire.fetch(topic, 5))] == [3]


def test_out_of_range(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"0", b"1"))
    for offset in (3, 1000, -1, -2):
        answer = wire.fetch(topic, offset, max_wait_ms=LONG_WAIT_MS)
        assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (
            OffsetOutOfRange.code,
            -1,
            b"",
        )
    at_the_end = wire.fetch(topic, 2)
    assert (at_the_end.error_code, at_the_end.high_watermark, bytes(at_the_end.records or b"")) == (NONE, 2, b"")


@pytest.mark.parametrize("version", [4, 12])
def test_unknown_topics_and_partitions(version: int, topic: str, wire: Wire, unique) -> None:
    for name, partition in ((unique("t"), 0), (topic, 9), (topic, -1)):
        answer = wire.fetch(name, 0, partition, version=version, max_wait_ms=LONG_WAIT_MS)
        assert (answer.error_code, answer.high_watermark) == (UnknownTopicOrPartition.code, -1)


def test_unknown_topic_ids(wire: Wire) -> None:
    for topic_id in (b"\x07" * 16, ZERO_UUID):
        request = FetchRequest(
            max_wait_ms=LONG_WAIT_MS,
            min_bytes=1,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        )
        answer = wire.call(request, 13)
        assert answer.error_code == NONE
        assert answer.responses[0].topic_id == topic_id
        assert answer.responses[0].partitions[0].error_code == UnknownTopicId.code


def test_an_error_in_one_partition_answers_at_once(make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    wire.produce(topic, batch(b"x"), 1)
    request = wire.fetch_request([(topic, 0, 0), (topic, 1, 50)], max_wait_ms=LONG_WAIT_MS, min_bytes=1000)
    partitions = wire.call(request, 12).responses[0].partitions
    assert {p.partition_index: p.error_code for p in partitions} == {0: NONE, 1: OffsetOutOfRange.code}


# Limits


def test_the_first_batch_is_complete_at_any_size(make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    size = len(batch(b"x" * 5000))
    for partition in (0, 1):
        wire.produce(topic, batch(b"x" * 5000), partition)
        wire.produce(topic, batch(b"y" * 5000), partition)
    answer = wire.fetch(topic, 0, max_bytes=1, partition_max_bytes=1)
    assert len(answer.records) == size
    # Only the first partition with records may exceed the limits.
    request = wire.fetch_request([(topic, 0, 0), (topic, 1, 0)], max_bytes=1, partition_max_bytes=1)
    partitions = {p.partition_index: len(p.records or b"") for p in wire.call(request, 12).responses[0].partitions}
    assert partitions == {0: size, 1: 0}


def test_partition_limit_cuts_after_the_first_batch(topic: str, wire: Wire) -> None:
    size = len(batch(b"x" * 1000))
    for _ in range(10):
        wire.produce(topic, batch(b"x" * 1000))
    # Bytes, not batches: the last batch of an answer may be cut, and clients drop incomplete batches.
    assert len(wire.fetch(topic, 0, partition_max_bytes=size * 3).records) == size * 3
    assert len(wire.fetch(topic, 0, partition_max_bytes=size * 3 + 10).records) == size * 3 + 10
    assert len(wire.fetch(topic, 0, partition_max_bytes=size - 1).records) == size


def test_total_limit_is_shared_in_request_order(make_topic, wire: Wire) -> None:
    topic = make_topic(3)
    size = len(batch(b"x" * 1000))
    for partition in range(3):
        for _ in range(4):
            wire.produce(topic, batch(b"x" * 1000), partition)
    request = wire.fetch_request([(topic, p, 0) for p in (2, 0, 1)], max_bytes=size * 6)
    partitions = wire.call(request, 12).responses[0].partitions
    assert [(p.partition_index, len(p.records or b"")) for p in partitions] == [(2, size * 4), (0, size * 2), (1, 0)]


# Waiting


def still_waiting(wire: Wire, seconds: float = 0.25) -> bool:
    wire.socket.settimeout(seconds)
    try:
        wire.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        wire.socket.settimeout(30)
    return False


def test_min_bytes_waits_for_enough(make_topic, wire: Wire, connect) -> None:
    topic = make_topic(2)
    writer = connect()
    size = len(batch(b"x" * 100))
    wire.send(wire.fetch_request([(topic, 0, 0), (topic, 1, 0)], max_wait_ms=LONG_WAIT_MS, min_bytes=size * 3), 12)
    writer.produce(topic, batch(b"x" * 100), 0)
    writer.produce(topic, batch(b"x" * 100), 1)
    assert still_waiting(wire)
    writer.produce(topic, batch(b"x" * 100), 0)
    partitions = wire.receive().responses[0].partitions
    assert {p.partition_index: len(p.records or b"") for p in partitions} == {0: size * 2, 1: size}


def test_max_wait_ends_a_long_poll(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"x"))
    answer = wire.fetch(topic, 0, max_wait_ms=20, min_bytes=1 << 20)
    assert [record.value for record in records_of(answer)] == [b"x"]
    assert wire.fetch(topic, 1, max_wait_ms=20).error_code == NONE


def test_min_bytes_zero_does_not_wait(topic: str, wire: Wire) -> None:
    assert not wire.fetch(topic, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=0).records


def test_an_empty_fetch_waits_for_max_wait(wire: Wire) -> None:
    answer = wire.call(FetchRequest(max_wait_ms=LONG_WAIT_MS, min_bytes=1, topics=[]), 12)
    assert (answer.error_code, answer.responses) == (NONE, [])


@pytest.mark.parametrize("version", [12, 13, 17])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_a_deleted_topic_ends_a_long_poll(
    session: tuple[int, int], version: int, make_topic, wire: Wire, connect
) -> None:
    topic = make_topic()
    wire.send(wire.fetch_request([(topic, 0, 0)], version, session=session, max_wait_ms=LONG_WAIT_MS), version)
    assert still_waiting(wire)
    delete(connect(), topic)
    (answer,) = wire.receive().responses[0].partitions
    assert (answer.error_code, answer.aborted_transactions) == (UnknownTopicOrPartition.code, None)


def delete(wire: Wire, topic: str) -> None:
    gone = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10000), 5)
    assert gone.responses[0].error_code == NONE


# Leader epochs


def test_leader_epochs(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"x"))
    epoch = wire.metadata(topic).topics[0].partitions[0].leader_epoch
    assert wire.fetch(topic, 0, current_leader_epoch=epoch).error_code == NONE
    assert wire.fetch(topic, 0, current_leader_epoch=epoch + 1).error_code == UnknownLeaderEpoch.code
    if epoch > 0:
        assert wire.fetch(topic, 0, current_leader_epoch=epoch - 1).error_code == FencedLeaderEpoch.code
    assert wire.fetch(topic, 0, last_fetched_epoch=epoch).error_code == NONE


def test_a_last_fetched_epoch_beyond_the_end_diverges(topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"x", b"y"))
    answer = wire.fetch(topic, 1, last_fetched_epoch=0)
    assert answer.error_code == NONE
    assert records_of(answer)


@pytest.mark.parametrize("configured", ["producer", "zstd"])
def test_zstd_is_sent_to_every_fetcher(configured: str, make_topic, wire: Wire) -> None:
    """Kafka 4 also sends it to versions that did not support it; only producers need the version."""
    topic = make_topic(compression_type=configured)
    wire.produce(topic, batch(b"v", codec=4))
    for version in (4, 9, 10):
        answer = wire.fetch(topic, 0, version=version)
        assert (answer.error_code, batches_of(answer)[0].codec) == (NONE, 4)


# Sessions


def test_a_session_sends_changes_only(make_topic, wire: Wire) -> None:
    topic = make_topic(3)
    for partition in range(3):
        wire.produce(topic, batch(b"0"), partition)
    full = wire.call(wire.fetch_request([(topic, p, 0) for p in range(3)], session=(0, 0)), 12)
    session = full.session_id
    assert session > 0
    assert len(full.responses[0].partitions) == 3
    # All three continue from 1: an answer without partitions.
    quiet = wire.call(wire.fetch_request([(topic, p, 1) for p in range(3)], session=(session, 1)), 12)
    assert (quiet.error_code, quiet.session_id, quiet.responses) == (NONE, session, [])
    # The request need not repeat partitions: the session remembers them.
    wire.produce(topic, batch(b"1"), 2)
    changed = wire.call(wire.fetch_request([], session=(session, 2), max_wait_ms=10000), 12)
    assert [p.partition_index for p in changed.responses[0].partitions] == [2]
    assert records_of(changed.responses[0].partitions[0])[0].value == b"1"
    # A forgotten partition is silent.
    wire.call(wire.fetch_request([(topic, 2, 2)], session=(session, 3), forgotten=[(topic, 0)]), 12)
    for partition in range(3):
        wire.produce(topic, batch(b"2"), partition)
    rest = wire.call(wire.fetch_request([], session=(session, 4), max_wait_ms=10000), 12)
    assert sorted(p.partition_index for p in rest.responses[0].partitions) == [1, 2]


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, 17])
def test_only_the_first_partition_gets_a_batch_above_the_limit(version: int, make_topic, wire: Wire) -> None:
    """The first partition gets a batch that is too large; the next ones get whole batches or nothing."""
    topic = make_topic(2)
    for partition in (0, 1):
        wire.produce(topic, batch(b"x" * 40), partition)
    places = [(topic, 0, 0), (topic, 1, 0)]
    for isolation in (0, 1):
        request = wire.fetch_request(places, version, partition_max_bytes=50, isolation_level=isolation)
        first, second = wire.call(request, version).responses[0].partitions
        assert len(records_of(first)) == 1
        assert (second.error_code, second.high_watermark, bytes(second.records)) == (NONE, 1, b"")
        assert second.aborted_transactions is None


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_new_session_forgets_nothing(version: int, make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    request = wire.fetch_request(
        [(topic, 0, 0), (topic, 1, 0)], version, session=(0, 0), forgotten=[(topic, 0), (topic, 1)]
    )
    full = wire.call(request, version)
    assert [entry.partition_index for entry in full.responses[0].partitions] == [0, 1]
    wire.produce(topic, batch(b"x"))
    changed = wire.call(wire.fetch_request([], version, session=(full.session_id, 1), max_wait_ms=10000), version)
    assert [entry.partition_index for entry in changed.responses[0].partitions] == [0]


def test_session_errors(make_topic, wire: Wire) -> None:
    topic = make_topic()
    places = [(topic, 0, 0)]
    unknown = wire.call(wire.fetch_request(places, session=(123456789, 1)), 12)
    assert (unknown.error_code, unknown.session_id, unknown.responses) == (FetchSessionIdNotFound.code, 0, [])
    session = wire.call(wire.fetch_request(places, session=(0, 0)), 12).session_id
    skipped = wire.call(wire.fetch_request([], session=(session, 5)), 12)
    assert (skipped.error_code, skipped.session_id, skipped.responses) == (InvalidFetchSessionEpoch.code, 0, [])
    assert wire.call(wire.fetch_request([], session=(session, 1)), 12).error_code == NONE


def test_a_session_ends_with_a_final_epoch(make_topic, wire: Wire) -> None:
    topic = make_topic()
    session = wire.call(wire.fetch_request([(topic, 0, 0)], session=(0, 0)), 12).session_id
    final = wire.call(wire.fetch_request([(topic, 0, 0)], session=(session, -1)), 12)
    assert (final.error_code, final.session_id) == (NONE, 0)
    assert wire.call(wire.fetch_request([], session=(session, 1)), 12).error_code == FetchSessionIdNotFound.code


def test_a_sessionless_fetch_has_no_session(topic: str, wire: Wire) -> None:
    assert wire.call(wire.fetch_request([(topic, 0, 0)], session=(0, -1)), 12).session_id == 0


def test_an_unknown_topic_stays_in_the_session(topic: str, wire: Wire, unique) -> None:
    later = unique("t")
    full = wire.call(wire.fetch_request([(topic, 0, 0), (later, 0, 0)], session=(0, 0)), 12)
    assert {t.topic: t.partitions[0].error_code for t in full.responses} == {
        topic: NONE,
        later: UnknownTopicOrPartition.code,
    }
    wire.create_topic(later)
    wire.produce(later, batch(b"x"))
    found = []
    for epoch in range(1, 100):
        answer = wire.call(wire.fetch_request([], session=(full.session_id, epoch), max_wait_ms=100), 12)
        found = [t for t in answer.responses if t.topic == later and t.partitions[0].records]
        if found:
            break
    assert records_of(found[0].partitions[0])[0].value == b"x"


@pytest.mark.parametrize("version", [13, 15, 17])
def test_a_session_keeps_the_name_of_a_deleted_topic(version: int, make_topic, wire: Wire) -> None:
    topic = make_topic()
    old_id = wire.topic_id(topic)
    opened = wire.call(wire.fetch_request([(topic, 0, 0)], version, session=(0, 0)), version)
    epochs = iter(range(1, 1000))

    def news(*places: tuple[str, int, int]) -> dict[bytes, tuple[int, object]]:
        session = opened.session_id, next(epochs)
        answer = wire.call(wire.fetch_request(places, version, session=session, max_wait_ms=100), version)
        assert answer.error_code == NONE
        return {t.topic_id: (p.error_code, p.aborted_transactions) for t in answer.responses for p in t.partitions}

    def until(wanted: int) -> dict[bytes, tuple[int, object]]:
        """Waits: on Apache Kafka a topic is deleted and created a moment after the answer."""
        found = news()
        for _ in range(100):
            if old_id in found and found[old_id][0] == wanted:
                break
            found = news()
        return found

    delete(wire, topic)
    assert until(UnknownTopicOrPartition.code) == {old_id: (UnknownTopicOrPartition.code, [])}
    wire.create_topic(topic)
    wire.produce(topic, batch(b"new"))
    assert until(InconsistentTopicId.code) == {old_id: (InconsistentTopicId.code, None)}
    assert list(news((topic, 0, 0)).items()) == [
        (old_id, (InconsistentTopicId.code, None)),
        (wire.topic_id(topic), (NONE, None)),
    ]
