"""Elections of leaders: fencing, preferred and unclean elections, eligible leaders, shutdowns, reassignments."""

import asyncio
from typing import Any

import pytest

from ottla.enums import ElectionType
from ottla.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    ElectLeadersRequest,
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
)

ONE = {"min.insync.replicas": 1}
TWO = {"min.insync.replicas": 2}


def values_on(cluster: Any, broker_id: int, topic: str = "t") -> list[bytes]:
    log = cluster.broker(broker_id).server.replicas.replica(topic, 0).log
    return [record.value for batch in log.batches(0) if not batch.is_control for record in batch.records()]


async def led_by(cluster: Any, leader: int) -> Any:
    await cluster.wait_until(lambda c: c.leader("t") == leader)
    return cluster.partition("t")


def test_a_killed_leader_is_replaced_when_its_session_is_over(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        began = asyncio.get_running_loop().time()
        await cluster.kill(1)
        found = await led_by(cluster, 2)
        assert 0.9 < asyncio.get_running_loop().time() - began < 1.5
        assert (found.leader_epoch, found.isr, found.replicas) == (1, [2, 3], [1, 2, 3])

    run(scenario)


def test_a_stopped_broker_hands_over_first(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await wire.produce(cluster, 1, b"a")
        await cluster.stop(1)
        found = cluster.partition("t")
        assert (found.leader, found.isr) == (2, [2, 3])
        await cluster.start(1)
        await cluster.wait_in_sync()
        assert cluster.leader("t") == 2, "it has to be elected again"
        cluster.elect_preferred()
        assert cluster.leader("t") == 1

    run(scenario)


def test_preferred_leaders_are_restored_automatically(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.move_leader("t", to=3)
        await asyncio.sleep(310)
        assert cluster.leader("t") == 1

    run(scenario)


def test_a_cut_off_leader_is_replaced_and_follows_later(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]], config=TWO)
        await cluster.wait_in_sync()
        cluster.partition_network([1], [2, 3])
        late = asyncio.ensure_future(wire.produce(cluster, 1, b"nobody else has it", timeout_ms=3_600_000))
        await led_by(cluster, 2)
        assert cluster.broker(1).server.directory.leader_of(("t", 0)) == (1, 0), "it does not know"
        cluster.heal()
        answer = await late
        assert answer.error_code == NotLeaderOrFollower.code
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
        await cluster.wait_in_sync()
        assert values_on(cluster, 1) == []

    run(scenario)


def test_eligible_leaders_have_what_was_committed(run: Any, wire: Any) -> None:
    """KIP-966: below min.insync.replicas nothing is committed, so a replica that left the ISR then may lead again."""

    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]], config=TWO)
        assert (await wire.produce(cluster, 1, b"a")).error_code == 0
        await cluster.stop(3)
        await cluster.stop(2)
        found = cluster.partition("t")
        assert (found.isr, found.eligible_leader_replicas, found.leader) == ([1], [2], 1)
        await cluster.stop(1)
        found = cluster.partition("t")
        assert (found.isr, found.eligible_leader_replicas, found.leader) == ([], [1, 2], -1)
        await cluster.start(3)
        assert cluster.leader("t") == -1, "it may have missed something"
        await cluster.start(2)
        found = cluster.partition("t")
        assert (found.leader, found.isr, found.eligible_leader_replicas) == (2, [2], [1])
        await cluster.wait_until(lambda c: 3 in c.isr("t"))
        assert cluster.partition("t").eligible_leader_replicas == []
        assert values_on(cluster, 2) == [b"a"]

    run(scenario)


def test_after_a_crash_only_the_last_leader_is_elected(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2]], config=TWO)
        await wire.produce(cluster, 1, b"a")
        await cluster.kill(2)
        await cluster.wait_until(lambda c: c.isr("t") == [1])
        await cluster.kill(1)
        await cluster.wait_until(lambda c: c.leader("t") == -1)
        await cluster.start(2)
        assert cluster.leader("t") == -1, "after a crash its remaining records are unknown"
        await cluster.start(1)
        found = cluster.partition("t")
        assert found.leader == 1
        await cluster.wait_in_sync()

    run(scenario)


@pytest.mark.parametrize("unclean", [False, True])
def test_unclean_elections_depend_on_the_setting(run: Any, wire: Any, unclean: bool) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic(
            "t", assignments=[[1, 2]], config={**ONE, "unclean.leader.election.enable": str(unclean).lower()}
        )
        await wire.produce(cluster, 1, b"a")
        cluster.shrink_isr("t", remove=[2])
        cluster.partition_network([1, "controller"], [2])
        await wire.produce(cluster, 1, b"only here")
        cluster.heal()
        cluster.shrink_isr("t", remove=[2])
        await cluster.kill(1)
        await cluster.wait_until(lambda c: c.leader("t") != 1)
        assert cluster.leader("t") == (2 if unclean else -1)

    run(scenario)


def test_the_controller_refuses_isr_changes_of_other_brokers(run: Any) -> None:
    """AlterPartition (KIP-497, KIP-903)."""

    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        controller = cluster.nodes.controller.duties
        state = controller.image.topics["t"].partitions[0]
        epochs = {number: cluster.broker(number).node.broker_epoch for number in (1, 2, 3)}

        def alter(broker: int, isr: list[int], *, leader_epoch: int = 0, epoch: int = 0, stale: bool = False) -> int:
            member = AlterPartitionRequest.BrokerState
            change = AlterPartitionRequest.PartitionData(
                partition_index=0,
                leader_epoch=leader_epoch,
                partition_epoch=epoch,
                new_isr_with_epochs=[
                    member(broker_id=each, broker_epoch=epochs.get(each, 1) - (each == 3 and stale)) for each in isr
                ],
            )
            topic = AlterPartitionRequest.TopicData(topic_id=state.topic_id, partitions=[change])
            request = AlterPartitionRequest(broker_id=broker, broker_epoch=epochs[broker], topics=[topic])
            return int(controller.alter_partition(request).topics[0].partitions[0].error_code)

        assert alter(2, [2, 3]) == 42
        assert alter(1, [2, 3]) == 42
        assert alter(1, [1, 9]) == 42
        assert alter(1, [1, 2], leader_epoch=1) == 41
        assert alter(1, [1, 2, 3], stale=True) == 107
        assert alter(1, [1, 2]) == 0
        assert alter(1, [1, 2]) == 95
        cluster.move_leader("t", to=2)
        assert alter(1, [1], epoch=2) == 74

    run(scenario)


def test_placement(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        async def create(name: str, partitions: int, factor: int, **more: Any) -> Any:
            topic = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=factor, **more
            )
            return (await wire.ask(cluster, 2, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)).topics[0]

        assert (await create("spread", 6, 2)).error_code == 0
        image = cluster.nodes.controller.image
        placed = [state.replicas for state in image.topics["spread"].partitions.values()]
        racks = {1: "a", 2: "a", 3: "b"}
        assert all({racks[replica] for replica in replicas} == {"a", "b"} for replicas in placed)
        leaders = [racks[replicas[0]] for replicas in placed]
        assert leaders.count("a") == leaders.count("b") == 3, "leaders rotate through the racks, as in Kafka"
        refused = await create("many", 1, 4)
        assert (
            refused.error_code == InvalidReplicationFactor.code
            and "only 3 broker(s) are registered" in refused.error_message
        )
        chosen = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[3, 9])
        refused = await create("who", -1, -1, assignments=[chosen])
        assert (
            refused.error_code == InvalidReplicaAssignment.code
            and "broker 9, but no such broker is registered" in refused.error_message
        )

    run(scenario, racks=["a", "a", "b"])


async def metadata(cluster: Any, wire: Any, broker_id: int) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(name="t")
    answer = await wire.ask(cluster, broker_id, MetadataRequest(topics=[wanted]), 12)
    return MetadataResponse.decode(answer.encode(12), 12)


def test_metadata_shows_what_clients_need(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        await cluster.kill(1)
        await led_by(cluster, 2)
        answer = await metadata(cluster, wire, 3)
        assert [broker.node_id for broker in answer.brokers] == [2, 3]
        found = answer.topics[0].partitions[0]
        assert (found.leader_id, found.leader_epoch, found.isr_nodes) == (2, 1, [2, 3])
        assert (found.replica_nodes, found.offline_replicas) == ([1, 2, 3], [1])

    run(scenario)


def test_a_move_adds_catches_up_and_removes(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2]])
        await wire.produce(cluster, 1, b"a")
        cluster.partition_network([3], [1, 2])

        async def reassign(replicas: list[int] | None) -> Any:
            part = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
            topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[part])
            request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
            handler = cluster.broker(2).server.registry.route(request.API_KEY, 1).handler
            connection = cluster.broker(2).server.peer_server._peers[1]
            from ottla.server.api import RequestContext

            return handler(RequestContext(connection, request.API_KEY, 1, 0, "", 0), request)

        cluster.broker(2).server.peer_server.serve(1, MetadataRequest(topics=[]), 12)
        assert (await reassign([3, 2])).responses[0].partitions[0].error_code == 0
        found = cluster.partition("t")
        assert (found.replicas, found.adding, found.removing) == ([3, 2, 1], [3], [1])
        assert (await reassign([3, 9])).responses[0].partitions[0].error_code == InvalidReplicaAssignment.code
        assert (await reassign(None)).responses[0].partitions[0].error_code == 0
        assert (await reassign(None)).responses[0].partitions[0].error_code == NoReassignmentInProgress.code
        await reassign([3, 2])
        cluster.heal()
        found = await led_by(cluster, 3)
        assert (found.replicas, found.adding, found.removing) == ([3, 2], [], [])
        assert values_on(cluster, 3) == [b"a"]
        assert ("t", 0) not in cluster.broker(1).server.logs.partitions(), "its folder is gone"

    run(scenario)


def test_elections_on_request(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()

        async def elect() -> int:
            topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
            request = ElectLeadersRequest(
                election_type=ElectionType.PREFERRED, topic_partitions=[topic], timeout_ms=1000
            )
            answer = await wire.ask(cluster, 3, request, 2)
            return int(answer.replica_election_results[0].partition_result[0].error_code)

        assert await elect() == 84
        cluster.move_leader("t", to=2)
        assert await elect() == 0
        assert cluster.leader("t") == 1
        cluster.move_leader("t", to=2)
        cluster.shrink_isr("t", remove=[1])
        assert await elect() == 80

    run(scenario)


def test_deleted_records_are_gone_from_every_replica(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        for value in (b"a", b"b", b"c"):
            await wire.produce(cluster, 1, value)

        async def delete(offset: int, timeout_ms: int = 10_000) -> Any:
            part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
            topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[part])
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
            return (await wire.ask(cluster, 1, request, 2)).topics[0].partitions[0]

        done = await delete(2)
        assert (done.error_code, done.low_watermark) == (0, 2)
        starts = [cluster.broker(n).server.replicas.get("t", 0).log.log_start_offset for n in (1, 2, 3)]
        assert starts == [2, 2, 2]
        cluster.pause(3)
        assert (await delete(3, 200)).error_code == RequestTimedOut.code

    run(scenario)


def test_consumers_read_from_the_nearest_replica(run: Any, wire: Any) -> None:
    """KIP-392."""

    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        await wire.produce(cluster, 1, b"a")
        await cluster.wait_until(lambda c: set(c.partition("t").high_watermarks.values()) == {1})
        await asyncio.sleep(1)

        async def fetch(broker_id: int, rack: str, version: int = 12) -> Any:
            wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
            request = FetchRequest(max_wait_ms=0, topics=[topic], rack_id=rack)
            return (await wire.ask(cluster, broker_id, request, version)).responses[0].partitions[0]

        sent_on = await fetch(1, "c")
        assert (sent_on.preferred_read_replica, len(sent_on.records)) == (3, 0)
        assert (await fetch(1, "a")).preferred_read_replica == -1
        assert (await fetch(1, "elsewhere")).preferred_read_replica == -1
        near = await fetch(3, "c")
        assert near.error_code == 0 and near.high_watermark == 1 and len(near.records) > 0
        assert (await fetch(3, "", version=10)).error_code == NotLeaderOrFollower.code, (
            "older consumers read only from leaders"
        )

    settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    run(scenario, racks=["a", "b", "c"], settings=settings)
