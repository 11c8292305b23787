"""High watermark, in-sync replicas, acks=all, and what followers do when leaders change."""

import asyncio
from typing import Any

import pytest

from ottla.enums import ConfigResourceType
from ottla.errors import FencedLeaderEpoch, NotEnoughReplicas, NotLeaderOrFollower, RequestTimedOut, UnknownLeaderEpoch
from ottla.wire.messages import FetchRequest, OffsetForLeaderEpochRequest
from ottla.wire.stored.metadata import ConfigRecord


def partition_on(cluster: Any, broker_id: int, topic: str = "t") -> Any:
    return cluster.broker(broker_id).server.replicas.replica(topic, 0)


def ends(cluster: Any) -> dict[int, int]:
    found: dict[int, int] = cluster.partition("t").end_offsets
    return found


def watermarks(cluster: Any) -> dict[int, int]:
    found: dict[int, int] = cluster.partition("t").high_watermarks
    return found


def values_on(cluster: Any, broker_id: int) -> list[bytes]:
    log = partition_on(cluster, broker_id).log
    return [record.value for batch in log.batches(0) if not batch.is_control for record in batch.records()]


def make(cluster: Any, *replicas: int, **config: Any) -> None:
    cluster.create_topic("t", assignments=[replicas], config={k.replace("_", "."): v for k, v in config.items()})


async def settle(cluster: Any) -> None:
    await cluster.wait_until(lambda c: len(set(watermarks(c).values()) | set(ends(c).values())) == 1)


def test_the_high_watermark_follows_one_fetch_later(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await cluster.wait_in_sync()
        cluster.slow_link(2, 1, ms=50)
        acknowledged = asyncio.ensure_future(wire.produce(cluster, 1, b"a"))
        await asyncio.sleep(0.01)
        assert ends(cluster)[1] == 1
        assert watermarks(cluster) == {1: 0, 2: 0, 3: 0}, "broker 2 has not yet confirmed the record"
        assert not acknowledged.done()
        answer = await acknowledged
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert watermarks(cluster)[1] == 1
        await settle(cluster)
        assert watermarks(cluster) == {1: 1, 2: 1, 3: 1}

    run(scenario)


def test_consumers_see_committed_records_only(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2)
        await cluster.wait_in_sync()
        cluster.pause(2)
        assert (await wire.produce(cluster, 1, b"a", acks=1)).error_code == 0
        assert cluster.topic("t").records() == []
        cluster.resume(2)
        await settle(cluster)
        assert cluster.topic("t").values() == [b"a"]

    run(scenario)


def test_acks_all_times_out_while_a_replica_in_sync_is_away(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await cluster.wait_in_sync()
        cluster.pause(3)
        answer = await wire.produce(cluster, 1, b"a", timeout_ms=300)
        assert (answer.error_code, answer.base_offset) == (RequestTimedOut.code, 0)

    run(scenario)


def test_too_few_in_sync_replicas_refuse_acks_all_only(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3, min_insync_replicas=2)
        await cluster.wait_in_sync()
        cluster.shrink_isr("t", remove=[2, 3])
        assert (await wire.produce(cluster, 1, b"a")).error_code == NotEnoughReplicas.code
        assert (await wire.produce(cluster, 1, b"b", acks=1)).error_code == 0
        assert watermarks(cluster)[1] == 0, "too few replicas commit nothing"
        cluster.heal()
        await cluster.wait_in_sync()
        await settle(cluster)
        assert values_on(cluster, 3) == [b"b"]

    run(scenario)


def test_an_isr_that_shrinks_after_the_append(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3, min_insync_replicas=3)
        await cluster.wait_in_sync()
        cluster.slow_link(2, 1, ms=200)
        waiting = asyncio.ensure_future(wire.produce(cluster, 1, b"a", timeout_ms=60_000))
        await asyncio.sleep(0.05)
        cluster.shrink_isr("t", remove=[3])
        await asyncio.sleep(1)
        assert not waiting.done(), "under min.insync.replicas the high watermark stands still"
        cluster.heal()
        assert (await waiting).error_code == 0

    run(scenario)


def test_a_lagging_replica_leaves_the_isr_and_returns(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await cluster.wait_in_sync()
        cluster.partition_network([3], [1, 2])
        waiting = asyncio.ensure_future(wire.produce(cluster, 1, b"a", timeout_ms=60_000))
        await cluster.wait_until(lambda c: sorted(c.isr("t")) == [1, 2])
        assert (await waiting).error_code == 0
        epoch = cluster.partition("t").leader_epoch
        cluster.heal()
        await cluster.wait_in_sync()
        assert cluster.partition("t").leader_epoch == epoch, "a change of the ISR is not an election"
        assert values_on(cluster, 3) == [b"a"]

    # Its session outlives its lag: the leader drops it, not the controller.
    run(scenario, settings={"broker.session.timeout.ms": 3_600_000, "replica.lag.time.max.ms": 500})


def test_a_failed_leader_is_replaced_and_truncates_when_it_returns(run: Any, wire: Any) -> None:
    """KIP-101: records that only the old leader had are truncated by epoch, not by its high watermark."""

    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await wire.produce(cluster, 1, b"a")
        cluster.partition_network([1], [2, 3])
        assert (await wire.produce(cluster, 1, b"lost", acks=1)).error_code == 0
        await cluster.wait_until(lambda c: c.leader("t") == 2)
        assert (await wire.produce(cluster, 2, b"b")).error_code == 0
        assert values_on(cluster, 1) == [b"a", b"lost"]
        cluster.heal()
        await cluster.wait_in_sync()
        await settle(cluster)
        for broker_id in (1, 2, 3):
            assert values_on(cluster, broker_id) == [b"a", b"b"]
        epochs = {tuple(partition_on(cluster, n).log.epochs.entries) for n in (1, 2, 3)}
        assert epochs == {((0, 0), (1, 1))}

    run(scenario)


def test_a_follower_that_missed_several_leaders_truncates_by_epoch(run: Any, wire: Any) -> None:
    """KIP-279: with entries of an epoch that the leader never had, it steps back epoch by epoch."""

    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await wire.produce(cluster, 1, b"a")
        await settle(cluster)
        for leader, other in ((1, 2), (2, 1)) * 2:
            cluster.move_leader("t", to=leader)
            cluster.partition_network([leader], [3 - leader, 3])
            await wire.produce(cluster, leader, b"only on %d" % leader, acks=1)
            await cluster.wait_until(lambda c, other=other, leader=leader: c.leader("t") not in (-1, leader))
            cluster.heal()
            await cluster.wait_in_sync()
        await settle(cluster)
        found = [values_on(cluster, n) for n in (1, 2, 3)]
        assert found[0] == found[1] == found[2]
        assert found[0][0] == b"a"

    run(scenario)


def test_an_epoch_without_records_is_forgotten(run: Any, wire: Any) -> None:
    """A leader that was replaced before it wrote anything has an epoch that its successor does not know."""

    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await wire.produce(cluster, 1, b"a")
        for leader in (2, 3, 1, 2):
            cluster.move_leader("t", to=leader)
        assert (await wire.produce(cluster, 2, b"b")).error_code == 0
        await settle(cluster)
        assert {tuple(partition_on(cluster, n).log.epochs.entries) for n in (1, 2, 3)} == {((0, 0), (4, 1))}

    run(scenario)


def test_a_new_replica_starts_where_the_leaders_log_starts(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2)
        for value in (b"a", b"b", b"c"):
            await wire.produce(cluster, 1, value)
        for broker_id in (1, 2):
            await cluster.wait_until(lambda c, n=broker_id: watermarks(c)[n] == 3)
            partition_on(cluster, broker_id).log.roll()
        partition_on(cluster, 1).delete_records(2)
        partition_on(cluster, 1).log.delete_old_segments()
        cluster.reassign("t", 0, [1, 2, 3])
        await cluster.wait_in_sync()
        await cluster.wait_until(lambda c: partition_on(c, 3).log.log_start_offset >= 2)
        assert values_on(cluster, 3)[-1:] in ([b"c"], []) and ends(cluster)[3] == 3

    run(scenario)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, FencedLeaderEpoch.code), (1, 0), (2, UnknownLeaderEpoch.code)],
    ids=["none", "old", "now", "new"],
)
def test_epochs_fence_readers(run: Any, wire: Any, epoch: int, code: int) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        cluster.move_leader("t", to=2)
        wanted = FetchRequest.FetchPartition(
            partition=0, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1000
        )
        topic_id = cluster.nodes.controller.image.topics["t"].topic_id
        topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])
        answer = await wire.ask(cluster, 2, FetchRequest(max_wait_ms=0, topics=[topic]), 16)
        data = answer.responses[0].partitions[0]
        assert data.error_code == code
        if code == FencedLeaderEpoch.code:
            assert [node.node_id for node in answer.node_endpoints] == [2]
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)

    run(scenario)


def test_end_offsets_of_leader_epochs(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, 3)
        await wire.produce(cluster, 1, b"a", b"b")
        cluster.move_leader("t", to=2)
        await wire.produce(cluster, 2, b"c")

        async def end_of(epoch: int, broker_id: int) -> tuple[int, int, int]:
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
            answer = await wire.ask(cluster, broker_id, OffsetForLeaderEpochRequest(topics=[topic]), 4)
            found = answer.topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert await end_of(0, 2) == (0, 0, 2)
        assert await end_of(1, 2) == (0, 1, 3)
        assert await end_of(7, 2) == (0, -1, -1)
        assert await end_of(0, 1) == (NotLeaderOrFollower.code, -1, -1)

    run(scenario)


def fetch_as(replica_id: int, replica_epoch: int, leader_epoch: int = 0) -> Any:
    wanted = FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, current_leader_epoch=leader_epoch, partition_max_bytes=1000
    )
    return lambda topic_id: FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait_ms=0,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )


def test_a_fetch_of_an_old_broker_epoch_is_refused(run: Any, wire: Any) -> None:
    """KIP-903. A broker that is not a replica gets an error that makes it refresh its metadata."""

    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2)
        await cluster.wait_in_sync()
        topic_id = partition_on(cluster, 1).topic_id
        epoch = cluster.broker(2).node.broker_epoch

        async def code(request: Any) -> int:
            answer = await wire.ask(cluster, 1, request(topic_id), 17)
            return int(answer.responses[0].partitions[0].error_code)

        assert await code(fetch_as(2, epoch)) == 0
        assert await code(fetch_as(2, epoch - 1)) == NotLeaderOrFollower.code
        assert await code(fetch_as(3, 5)) == UnknownLeaderEpoch.code
        assert await code(fetch_as(3, 5, leader_epoch=-1)) == NotLeaderOrFollower.code

    run(scenario)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_catch_up_can_be_throttled(run: Any, wire: Any, side: str) -> None:
    """KIP-73: a new replica catches up at the throttled rate; replicas in sync are not throttled."""

    async def scenario(cluster: Any) -> None:
        make(cluster, 1, 2, **{f"{side}.replication.throttled.replicas": "*"})
        rate = ConfigRecord(
            resource_type=ConfigResourceType.BROKER,
            resource_name="",
            name=f"{side}.replication.throttled.rate",
            value="10000",
        )
        cluster.call(lambda server: server.controller.commit([rate]))
        for _ in range(40):
            await wire.produce(cluster, 1, bytes(5_000), timeout_ms=60_000)
        began = asyncio.get_running_loop().time()
        cluster.reassign("t", 0, [1, 2, 3])
        await cluster.wait_in_sync(timeout=3600)
        took_s = asyncio.get_running_loop().time() - began
        assert (await wire.produce(cluster, 1, b"x")).error_code == 0
        # 200,000 bytes at 10,000 per second; the bytes of the first ten seconds are sent at once.
        assert 5 < took_s < 60

    run(scenario, settings={"replica.fetch.max.bytes": 6_000})
