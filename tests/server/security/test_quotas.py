"""Quotas and limits: which clients they affect, how long these wait, and that no other client waits."""

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.config import Config
from ottla.errors import ThrottlingQuotaExceeded
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import CLIENT_ID
from ottla.server.security.quotas import METER_CHARACTERS_MAX, METERS_MAX, Quotas
from ottla.server.security.rates import TokenBucket, WindowedRate
from ottla.wire.messages import FindCoordinatorRequest
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.partitions import CreatePartitionsRequest
from ottla.wire.messages.quotas import AlterClientQuotasRequest
from ottla.wire.messages.share_groups import AlterShareGroupOffsetsRequest, ShareFetchRequest
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest

START = 1_700_000_000_000


async def set_quota(client: Any, key: str, value: float | None, **entity: str | None) -> None:
    part = AlterClientQuotasRequest.EntityData
    entry = AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    response = await client.call(AlterClientQuotasRequest(entries=[entry]), 1)
    assert response.entries[0].error_code == 0, response


async def is_muted(client: Any) -> bool:
    """Whether the broker does not read the next request."""
    client.send(ApiVersionsRequest(), 0)
    try:
        await asyncio.wait_for(asyncio.shield(_answer(client)), 0.05)
    except TimeoutError:
        return True
    return False


_waiting: dict[int, "asyncio.Task[Any]"] = {}


def _answer(client: Any) -> "asyncio.Task[Any]":
    task = asyncio.ensure_future(client.receive())
    _waiting[id(client)] = task
    return task


async def answered(client: Any) -> None:
    await asyncio.wait_for(_waiting.pop(id(client)), 5)


# -- measuring


def test_a_rate_is_measured_over_windows() -> None:
    rate = WindowedRate(1000, 11)
    rate.record(1000, 0)
    assert rate.measure(0) == (100.0, 10_000)  # counts as if ten windows had passed
    assert rate.excess_ms(100, 0) == 0
    assert rate.excess_ms(50, 0) == 10_000
    rate.record(1000, 5_000)
    assert rate.measure(5_000)[0] == 200.0
    assert rate.measure(11_000)[0] == 100.0  # the first window is over
    assert rate.measure(17_000)[0] == 0.0


def test_a_token_bucket_limits_bursts() -> None:
    bucket = TokenBucket()
    assert bucket.debt_ms(1, 10, 0) == 0
    bucket.take(15)
    assert bucket.debt_ms(1, 10, 0) == 5_000
    assert bucket.debt_ms(1, 10, 4_000) == 1_000
    assert bucket.debt_ms(1, 10, 5_000) == 0
    bucket.take(1)
    assert bucket.debt_ms(1, 10, 5_000) == 1_000


# -- bytes


def test_produced_bytes_are_throttled(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            await client.create_topic("t")
            await set_quota(other, "producer_byte_rate", 1000, client_id="test")
            client.send(_produce("t", 30_000), 9)
            response = await client.receive()
            assert response.responses[0].partition_responses[0].error_code == 0
            assert 19_000 < response.throttle_time_ms < 21_500  # 30 KB at 1 KB/s exceed the 10 s of history by 20 s
            assert await is_muted(client)
            assert (await other.call(ApiVersionsRequest(), 0, "another")).error_code == 0
            clock.advance(response.throttle_time_ms)
            await answered(client)
            await set_quota(other, "producer_byte_rate", None, client_id="test")
            assert running.broker.services.quotas is None
            client.send(_produce("t", 30_000), 9)
            assert (await client.receive()).throttle_time_ms == 0

    run(main())


def _produce(topic: str, size: int, acks: int = -1) -> Any:
    from ottla.records.batch import Record, build_batch
    from ottla.wire.messages.produce import ProduceRequest

    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(0, START, None, b"x" * size)]))
    return ProduceRequest(
        acks=acks, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def test_acks_0_is_throttled_too(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            await client.create_topic("t")
            await set_quota(other, "producer_byte_rate", 1000, client_id="test")
            client.send(_produce("t", 30_000, acks=0), 9, answered=False)
            assert await is_muted(client)
            clock.advance(30_000)
            await answered(client)

    run(main())


def test_fetched_bytes_are_throttled(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            await client.create_topic("t")
            for _ in range(4):
                await client.call(_produce("t", 5_000), 9)
            await set_quota(other, "consumer_byte_rate", 1000, client_id="test")
            first = await client.fetch("t")
            # At most what all windows except one allow, which is 10 KB.
            assert 5_000 < len(first.responses[0].partitions[0].records) <= 10_000
            assert first.throttle_time_ms == 0
            throttled = await client.fetch("t", 1)
            assert throttled.responses == []
            assert throttled.throttle_time_ms > 0
            assert await is_muted(client)
            clock.advance(throttled.throttle_time_ms + 12_000)
            await answered(client)
            again = await client.fetch("t", 1)
            assert again.throttle_time_ms == 0
            assert len(again.responses[0].partitions[0].records) > 5_000

    run(main())


def test_bytes_for_share_groups_are_throttled(run: Any, run_broker: Any) -> None:
    """Bytes sent to a member of a share group count: the records are sent, and then the member waits."""

    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            await client.create_topic("t")
            for _ in range(4):
                await client.call(_produce("t", 5_000), 9)
            found = await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert found.coordinators[0].error_code == 0, found
            place = AlterShareGroupOffsetsRequest
            start = place.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
            topic = place.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[start])
            altered = await client.call(place(group_id="g", topics=[topic]), 0)
            assert altered.error_code == altered.responses[0].partitions[0].error_code == 0, altered
            await set_quota(other, "consumer_byte_rate", 1000, client_id="test")
            wanted = ShareFetchRequest.FetchTopic(
                topic_id=altered.responses[0].topic_id,
                partitions=[ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])],
            )
            answers = [
                await client.call(
                    ShareFetchRequest(
                        group_id="g",
                        member_id="m",
                        share_session_epoch=epoch,
                        max_wait_ms=0,
                        min_bytes=1,
                        max_bytes=1 << 20,
                        max_records=500,
                        batch_size=500,
                        topics=[] if epoch else [wanted],
                        forgotten_topics_data=[],
                    ),
                    2,
                )
                for epoch in range(2)
            ]
            sizes = [len(answer.responses[0].partitions[0].records) for answer in answers]
            assert all(5_000 < size <= 10_000 for size in sizes)
            assert answers[0].throttle_time_ms == 0 < answers[1].throttle_time_ms
            assert await is_muted(client)
            clock.advance(answers[1].throttle_time_ms + 12_000)
            await answered(client)

    run(main())


def test_a_stop_does_not_wait_for_throttled_clients(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client, other = await running.connect(), await running.connect()
            await client.create_topic("t")
            await set_quota(other, "producer_byte_rate", 1, client_id="test")
            assert (await client.call(_produce("t", 30_000), 9)).throttle_time_ms > 10_000
            started = asyncio.get_running_loop().time()
            await running.broker.stop()
            assert asyncio.get_running_loop().time() - started < 1

    run(main())


# -- whom


@pytest.mark.parametrize(
    ("quotas", "limit", "tags"),
    [
        ([{"user": "u", "client_id": "c"}, {"user": "u"}, {"client_id": "c"}], 0, ("u", "c")),
        ([{"user": "u", "client_id": None}, {"user": "u"}], 0, ("u", "c")),
        ([{"user": "u"}, {"user": None, "client_id": "c"}], 0, ("u", "")),
        ([{"user": None, "client_id": "c"}, {"user": None, "client_id": None}], 0, ("u", "c")),
        ([{"user": None, "client_id": None}, {"user": None}], 0, ("u", "c")),
        ([{"user": None}, {"client_id": "c"}], 0, ("u", "")),
        ([{"client_id": "c"}, {"client_id": None}], 0, ("", "c")),
        ([{"client_id": None}], 0, ("", "c")),
        ([{"user": "v"}], None, ("", "")),
    ],
)
def test_the_most_specific_quota_counts(
    run: Any, run_broker: Any, quotas: list[dict[str, str | None]], limit: int | None, tags: tuple[str, str]
) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            for n, entity in enumerate(quotas):
                await set_quota(client, "producer_byte_rate", 1000 + n, **entity)
            found, meter = running.broker.services.quotas._look_up("producer_byte_rate", "u", "c")
            assert found == (None if limit is None else 1000 + limit)
            assert meter == ("producer_byte_rate", *tags)

    run(main())


def _metered(client_ids: Iterable[str]) -> Quotas:
    """Separate quotas for each client id, after one request of each of these ids."""
    image = MetadataImage()
    image.quotas = {((CLIENT_ID, None),): {"producer_byte_rate": 1000.0}}
    quotas = Quotas(image, Config.load(), ManualClock(START))
    for client_id in client_ids:
        ctx: Any = SimpleNamespace(connection=SimpleNamespace(principal="User:u"), client_id=client_id)
        quotas._record("producer_byte_rate", ctx, 1)
    return quotas


def test_meters_are_bounded_and_the_least_recently_used_one_is_dropped() -> None:
    """More client ids than meters, and one client that stays active: each new one costs the same, and the active one
    stays."""
    many = [name for n in range(METERS_MAX + 2_000) for name in (f"new-{n}", "busy")]
    quotas = _metered(many)
    assert len(quotas._rates) == len(quotas._found) == METERS_MAX
    busy = quotas._rates.get(("producer_byte_rate", "", "busy"))
    assert busy is not None
    assert busy.measure(quotas._clock.monotonic_ms())[0] * 10 == METERS_MAX + 2_000  # all its requests are counted
    assert quotas._rates.get(("producer_byte_rate", "", "new-0")) is None


def test_meters_of_long_client_ids_are_bounded_by_their_size() -> None:
    quotas = _metered(f"{n:032767}" for n in range(200))
    assert quotas._rates.characters <= METER_CHARACTERS_MAX
    assert quotas._found.characters <= METER_CHARACTERS_MAX
    assert len(quotas._rates) == METER_CHARACTERS_MAX // (32_767 + len("producer_byte_rate"))


def test_sasl_users_have_their_own_quotas(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock, settings=sasl_settings()) as running:
            alice, bob, admin = [await running.as_user(name) for name in ("alice", "bob", "admin")]
            await admin.create_topic("t")
            await set_quota(admin, "producer_byte_rate", 1000, user="alice")
            assert (await alice.call(_produce("t", 30_000), 9)).throttle_time_ms > 0
            assert (await bob.call(_produce("t", 30_000), 9)).throttle_time_ms == 0

    run(main())


# -- time and changes


def test_request_time_is_throttled(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            await set_quota(other, "request_percentage", 0.001, client_id="test")
            response = await client.call(ApiVersionsRequest(), 1)
            for _ in range(200):
                if response.throttle_time_ms:
                    break
                response = await client.call(ApiVersionsRequest(), 1)
            assert 0 < response.throttle_time_ms <= 1000  # never longer than a window
            assert await is_muted(client)
            clock.advance(1000)
            await answered(client)

    run(main())


def test_changes_to_topics_are_throttled(run: Any, run_broker: Any) -> None:
    def new(name: str, partitions: int) -> Any:
        return CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)

    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client, other = await running.connect(), await running.connect()
            # A burst of 11 is allowed; the last request that fits may exceed it.
            await set_quota(other, "controller_mutation_rate", 1, client_id="test")
            response = await client.call(CreateTopicsRequest(topics=[new("a", 5), new("b", 8), new("c", 1)]), 6)
            assert [topic.error_code for topic in response.topics] == [0, 0, ThrottlingQuotaExceeded.code]
            assert response.throttle_time_ms == 2_000
            clock.advance(2_000)
            grow = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=9, assignments=None)
            response = await client.call(CreatePartitionsRequest(topics=[grow], timeout_ms=1000), 3)
            assert (response.results[0].error_code, response.throttle_time_ms) == (0, 0)
            response = await client.call(
                DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="b")], timeout_ms=1000), 6
            )
            assert (response.responses[0].error_code, response.throttle_time_ms) == (
                ThrottlingQuotaExceeded.code,
                4_000,
            )
            clock.advance(4_000)
            # Older clients do not know the error: they are served, and then have to wait.
            response = await client.call(CreateTopicsRequest(topics=[new("d", 3)]), 5)
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 3_000)
            assert await is_muted(client)
            clock.advance(3_000)
            await answered(client)

    run(main())


# -- connections


def test_connections_of_one_address_are_limited(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"max.connections.per.ip": 2}) as running:
            first, second = await running.connect(), await running.connect()
            await first.call(ApiVersionsRequest(), 0)
            await second.call(ApiVersionsRequest(), 0)
            third = await running.connect()
            assert await third.is_closed()
            await first.close()
            while len(running.broker.connections) > 1:  # noqa: ASYNC110 - the broker has no event for that
                await asyncio.sleep(0)
            fourth = await running.connect()
            assert (await fourth.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


def test_an_address_may_have_its_own_limit(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        settings = {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:1"}
        async with run_broker(settings=settings) as running:
            assert (await (await running.connect()).call(ApiVersionsRequest(), 0)).error_code == 0
            assert await (await running.connect()).is_closed()

    run(main())


def test_connections_above_the_total_limit_wait(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"max.connections": 1}) as running:
            first = await running.connect()
            assert (await first.call(ApiVersionsRequest(), 0)).error_code == 0
            second = await running.connect()  # the kernel accepts it, the broker does not yet
            assert await is_muted(second)
            await first.close()
            await answered(second)

    run(main())


def test_the_inter_broker_listener_closes_an_idle_connection_for_room(
    run: Any, run_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "max.connections": 2,
    }

    async def main() -> None:
        clock = ManualClock()
        async with run_broker(settings=settings, clock=clock) as running:
            quiet, busy = await running.connect(1), await running.connect(1)
            for client in (quiet, busy):
                clock.advance(1)
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            inside = await running.connect(0)
            assert (await inside.call(ApiVersionsRequest(), 0)).error_code == 0
            assert await quiet.is_closed()
            assert (await busy.call(ApiVersionsRequest(), 0)).error_code == 0
            assert len(running.broker.connections) == 2

    with caplog.at_level(logging.WARNING, "ottla.server"):
        run(main())
    line = next(text for text in caplog.messages if "a connection was needed on INSIDE" in text)
    assert line.startswith("closing connection from 127.0.0.1:")


def test_the_rate_of_new_connections_of_an_address_is_limited(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await set_quota(client, "connection_creation_rate", 1, ip="127.0.0.1")
            for _ in range(10):
                assert (await (await running.connect()).call(ApiVersionsRequest(), 0)).error_code == 0
            late = await running.connect()
            assert await is_muted(late)
            clock.advance(1000)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await answered(late)
            clock.advance(11_000)
            assert (await (await running.connect()).call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


def test_the_rate_of_all_new_connections_is_limited(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"max.connection.creation.rate": 1, "quota.window.num": 2}) as running:
            assert (await (await running.connect()).call(ApiVersionsRequest(), 0)).error_code == 0
            second = await running.connect()
            second_answer = asyncio.ensure_future(second.call(ApiVersionsRequest(), 0))
            third = await running.connect()
            assert await is_muted(third)
            await asyncio.wait_for(second_answer, 5)
            await asyncio.wait_for(answered(third), 8)

    run(main())


def test_an_idle_connection_is_closed(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with run_broker(clock=clock, settings={"connections.max.idle.ms": 1000}) as running:
            client, busy = await running.connect(), await running.connect()
            await client.call(ApiVersionsRequest(), 0)
            await busy.call(ApiVersionsRequest(), 0)
            clock.advance(900)
            await busy.call(ApiVersionsRequest(), 0)
            clock.advance(200)
            assert await client.is_closed()
            await busy.call(ApiVersionsRequest(), 0)

    run(main())
