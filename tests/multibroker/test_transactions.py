"""Transactions of a cluster with slow replicas: writes have a time limit, and decisions are carried out."""

from typing import Any

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import NONE, CoordinatorLoadInProgress, CoordinatorNotAvailable, RequestTimedOut
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)

SETTINGS = {
    "request.timeout.ms": 1000,
    # Slow replicas stay in sync: their leaders wait for them.
    "replica.lag.time.max.ms": 60_000,
    "transaction.state.log.num.partitions": 1,
}
SLOW_MS = 3000


async def coordinator_of(cluster: Any, wire: Any, transactional_id: str) -> int:
    request = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[transactional_id])
    while True:
        found = (await wire.ask(cluster, 1, request, 6)).coordinators[0]
        if found.error_code == NONE:
            await cluster.wait_in_sync()
            node_id: int = found.node_id
            return node_id
        await cluster.nodes.pause(100)


async def initialized(cluster: Any, wire: Any, broker: int, transactional_id: str) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    while True:
        answer = await wire.ask(cluster, broker, request, 5)
        if answer.error_code != CoordinatorLoadInProgress.code:
            return answer
        await cluster.nodes.pause(100)


def slow(cluster: Any, leader: int, followers: list[int], ms: float = SLOW_MS) -> None:
    for follower in followers:
        cluster.slow_link(follower, leader, ms=ms)


def test_a_write_of_the_coordinator_has_a_time_limit(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        coordinator = await coordinator_of(cluster, wire, "payments")
        followers = [broker for broker in (1, 2, 3) if broker != coordinator]
        assert (await initialized(cluster, wire, coordinator, "payments")).error_code == NONE
        slow(cluster, coordinator, followers)
        assert (await initialized(cluster, wire, coordinator, "payments")).error_code == CoordinatorNotAvailable.code
        slow(cluster, coordinator, followers, ms=0)
        while (await initialized(cluster, wire, coordinator, "payments")).error_code:
            await cluster.nodes.pause(100)  # messages on the slow link arrive late

    run(scenario, settings=SETTINGS)


@pytest.mark.parametrize("late", ["the decision", "a marker"])
def test_a_decision_is_carried_out_although_its_client_gave_up(run: Any, wire: Any, late: str) -> None:
    async def scenario(cluster: Any) -> None:
        coordinator = await coordinator_of(cluster, wire, "payments")
        other, third = [broker for broker in (1, 2, 3) if broker != coordinator]
        cluster.create_topic("t", assignments=[[other, third]])
        await cluster.wait_in_sync()
        made = await initialized(cluster, wire, coordinator, "payments")
        producer: dict[str, Any] = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
        added = await wire.ask(
            cluster,
            coordinator,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="payments",
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[topic],
            ),
            3,
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == NONE
        if late == "the decision":
            slow(cluster, coordinator, [other, third])
        else:
            slow(cluster, other, [third])
        ended = await wire.ask(
            cluster, coordinator, EndTxnRequest(transactional_id="payments", committed=True, **producer), 3
        )
        # The end is answered when it is decided; the markers are retried until they are written.
        assert ended.error_code == (CoordinatorNotAvailable.code if late == "the decision" else NONE)
        cluster.heal()
        slow(cluster, coordinator, [other, third], ms=0)
        slow(cluster, other, [third], ms=0)
        partition = cluster.broker(other).server.replicas.replica("t", 0)
        await cluster.wait_until(lambda _: any(batch.is_control for batch in partition.log.batches(0)))
        coordinating = cluster.broker(coordinator).server.transactions.coordinator
        (shard,) = coordinating.shards()
        await cluster.wait_until(lambda _: shard.seen("payments").state.name.startswith("COMPLETE"))

    run(scenario, settings=SETTINGS)


def test_markers_that_an_operator_writes_have_a_time_limit(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2]])
        await cluster.wait_in_sync()
        slow(cluster, 1, [2])
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=5, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
        )
        answer = await wire.ask(cluster, 1, WriteTxnMarkersRequest(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == RequestTimedOut.code

    run(scenario, settings=SETTINGS)
