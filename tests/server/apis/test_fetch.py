"""Fetch: long polls, sessions, limits, and what a consumer may see."""

import asyncio
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, OffsetOutOfRange, UnknownTopicOrPartition
from ottla.records.batch import batches
from ottla.server.fetch_sessions import EVICTION_MS, FetchSessionCache
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.topics import DeleteTopicsRequest

START_MS = 1_700_000_000_000


def fetch(*wanted: tuple[str, int, int], **fields: Any) -> FetchRequest:
    """A fetch of (topic, partition, offset) triples."""
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset in wanted:
        topics.setdefault(topic, []).append(
            FetchRequest.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=fields.get("partition_max_bytes", 1 << 20),
            )
        )
    return FetchRequest(
        max_wait_ms=fields.get("max_wait_ms", 0),
        min_bytes=fields.get("min_bytes", 1),
        max_bytes=fields.get("max_bytes", 1 << 25),
        session_id=fields.get("session_id", 0),
        session_epoch=fields.get("session_epoch", -1),
        isolation_level=fields.get("isolation_level", 0),
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        forgotten_topics_data=fields.get("forgotten", []),
    )


def values(response: Any, topic: int = 0, partition: int = 0) -> list[bytes | None]:
    records = response.responses[topic].partitions[partition].records
    return [record.value for batch in batches(bytes(records)) for record in batch.records()]


def test_an_append_wakes_a_waiting_fetch(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            producer, consumer = await running.connect(), await running.connect()
            await producer.create_topic("t", partitions=2)
            consumer.send(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=3_600_000), 11)
            await running.settle()
            await producer.produce("t", b"news", partition=1)
            response = await consumer.receive()
            assert values(response, partition=1) == [b"news"]
            assert values(response, partition=0) == []

    run(main())


def test_min_bytes_counts_over_partitions_and_appends(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            producer, consumer = await running.connect(), await running.connect()
            await producer.create_topic("t", partitions=2)
            await producer.produce("t", b"x" * 100)
            size = running.broker.replicas.leader("t", 0).log.size_bytes
            consumer.send(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=3_600_000, min_bytes=3 * size), 11)
            await producer.produce("t", b"x" * 100, partition=1)
            await running.settle()
            assert not consumer.reader._buffer  # type: ignore[attr-defined]
            await producer.produce("t", b"x" * 100)
            response = await consumer.receive()
            assert len(values(response, partition=0)) == 2
            assert len(values(response, partition=1)) == 1

    run(main())


def test_a_fetch_ends_empty_when_its_time_is_up(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t")
            client.send(fetch(("t", 0, 0), max_wait_ms=700), 11)
            await running.settle()
            clock.advance(699)
            await running.settle()
            assert not client.reader._buffer  # type: ignore[attr-defined]
            clock.advance(1)
            response = await client.receive()
            assert response.responses[0].partitions[0].high_watermark == 0
            assert values(response) == []

    run(main())


def test_an_error_in_one_partition_answers_at_once(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            client = await running.connect()
            await client.create_topic("t")
            response = await client.call(fetch(("t", 0, 0), ("t", 7, 0), max_wait_ms=3_600_000), 11)
            assert [p.error_code for p in response.responses[0].partitions] == [0, UnknownTopicOrPartition.code]
            response = await client.call(fetch(("t", 0, 5), max_wait_ms=3_600_000), 11)
            assert response.responses[0].partitions[0].error_code == OffsetOutOfRange.code
            assert response.responses[0].partitions[0].high_watermark == -1

    run(main())


def test_a_deleted_topic_ends_the_wait(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            client = await running.connect()
            await client.create_topic("t")
            client.send(fetch(("t", 0, 0), max_wait_ms=3_600_000), 11)
            await running.settle()
            other = await running.connect()
            await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
            assert (await client.receive()).responses[0].partitions[0].error_code == UnknownTopicOrPartition.code

    run(main())


def test_the_first_batch_is_complete_and_the_rest_is_within_the_limit(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", partitions=2)
            for partition in (0, 1):
                await client.produce("t", b"x" * 10_000, partition=partition)
                await client.produce("t", b"y" * 10_000, partition=partition)
            small = await client.call(fetch(("t", 0, 0), ("t", 1, 0), max_bytes=100), 11)
            assert values(small) == [b"x" * 10_000]
            assert len(small.responses[0].partitions[1].records) == 0
            # v2 has no such exception: the answer is cut at the limit.
            strict = await client.call(fetch(("t", 0, 0), partition_max_bytes=100), 2)
            assert len(strict.responses[0].partitions[0].records) <= 100
            half = await client.call(fetch(("t", 0, 0), partition_max_bytes=15_000), 11)
            assert len(half.responses[0].partitions[0].records) == 15_000

    run(main())


def test_an_offset_inside_a_batch_gets_that_batch(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.produce("t", b"a", b"b", b"c")
            assert values(await client.call(fetch(("t", 0, 1)), 11)) == [b"a", b"b", b"c"]

    run(main())


def test_a_session_sends_only_what_changed(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", partitions=3)
            opened = await client.call(fetch(("t", 0, 0), ("t", 1, 0), session_epoch=0), 11)
            assert opened.session_id > 0
            assert len(opened.responses[0].partitions) == 2
            session = {"session_id": opened.session_id}
            nothing = await client.call(fetch(**session, session_epoch=1), 11)
            assert nothing.responses == []
            await client.produce("t", b"news", partition=1)
            news = await client.call(fetch(**session, session_epoch=2), 11)
            assert [p.partition_index for p in news.responses[0].partitions] == [1]
            forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[1])]
            changed = await client.call(fetch(("t", 2, 0), **session, session_epoch=3, forgotten=forgotten), 11)
            assert [p.partition_index for p in changed.responses[0].partitions] == [2]
            wrong_epoch = await client.call(fetch(**session, session_epoch=9), 11)
            assert wrong_epoch.error_code == InvalidFetchSessionEpoch.code
            closed = await client.call(fetch(("t", 0, 0), **session, session_epoch=-1), 11)
            assert closed.session_id == 0
            assert (await client.call(fetch(**session, session_epoch=4), 11)).error_code == FetchSessionIdNotFound.code

    run(main())


def test_a_full_session_cache_keeps_the_recently_used() -> None:
    clock = ManualClock(START_MS)
    numbers = iter(range(100, 200))
    cache = FetchSessionCache(2, clock, lambda limit: next(numbers))
    opened = [cache.plan(fetch(("t", n, 0), session_epoch=0), 11).session for n in range(3)]
    assert opened[0] is not None
    assert opened[1] is not None
    assert opened[2] is None, "no room: the fetch is served without a session"
    clock.advance(EVICTION_MS / 2)
    cache.plan(fetch(session_id=opened[0].session_id, session_epoch=1), 11)
    clock.advance(EVICTION_MS / 2 + 1)
    assert cache.plan(fetch(("t", 4, 0), session_epoch=0), 11).session is not None
    assert cache.plan(fetch(session_id=opened[0].session_id, session_epoch=2), 11).session is opened[0]


def test_sessions_are_bounded_in_partitions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch beyond the limit is served without a session, as if the cache were full. Closed sessions make room
    again."""
    monkeypatch.setattr("ottla.server.fetch_sessions.PARTITIONS_MAX", 10)
    numbers = iter(range(100, 200))
    cache = FetchSessionCache(100, ManualClock(START_MS), lambda limit: next(numbers))

    def wanted(*partitions: int, **session: int) -> Any:
        return fetch(*(("t", n, 0) for n in partitions), **session)

    first = cache.plan(wanted(*range(6), session_epoch=0), 11).session
    assert first is not None
    assert cache.plan(wanted(*range(5), session_epoch=0), 11).session is None
    second = cache.plan(wanted(*range(4), session_epoch=0), 11).session
    assert second is not None
    assert cache.partitions == 10
    more = cache.plan(wanted(7, session_id=second.session_id, session_epoch=1), 11)
    assert (more.session, more.full, len(more.partitions)) == (None, True, 5), "the session is closed"
    assert (cache.partitions, len(cache)) == (6, 1)
    cache.plan(wanted(0, session_id=first.session_id, session_epoch=-1), 11)
    assert (cache.partitions, len(cache)) == (0, 0)


def test_pipelined_fetches_of_a_growing_log_see_every_record_once(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            producer, consumer = await running.connect(), await running.connect()
            await producer.create_topic("t")

            async def produce() -> None:
                for number in range(200):
                    await producer.produce("t", str(number).encode())

            async def consume() -> list[bytes | None]:
                seen: list[bytes | None] = []
                while len(seen) < 200:
                    response = await consumer.call(fetch(("t", 0, len(seen)), max_wait_ms=10_000), 11)
                    seen += values(response)
                return seen

            seen, _ = await asyncio.gather(consume(), produce())
            assert seen == [str(number).encode() for number in range(200)]

    run(main())
