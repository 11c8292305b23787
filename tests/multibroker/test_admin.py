"""Administration of a cluster: configs of one broker and of all, log dirs, the quorum, groups and transactions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import ottla
from ottla.client import admin
from ottla.client.routing import Client
from ottla.enums import ConfigResourceType
from ottla.errors import InvalidRequest, NotCoordinator, error_for
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.wire.messages import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    UnregisterBrokerRequest,
)

BROKERS = (1, 2, 3)


def on_cluster(scenario: Callable[[ottla.Cluster, Client], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with ottla.Cluster(3, **options) as cluster, Client(cluster.bootstrap) as client:
            await client.refresh()
            await scenario(cluster, client)

    asyncio.run(main())


async def alter(client: Client, asked: int, name: str, **changes: str) -> tuple[int, str | None]:
    config = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name=name,
        configs=[config(name=key.replace("_", "."), value=value) for key, value in changes.items()],
    )
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), asked)
    return answer.responses[0].error_code, answer.responses[0].error_message


async def described(client: Client, asked: int, name: str, *keys: str) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=name, configuration_keys=list(keys)
    )
    answer = (await client.ask(DescribeConfigsRequest(resources=[resource]), asked)).results[0]
    if answer.error_code:
        return answer.error_code, answer.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in answer.configs}


async def initialized(client: Client, transactional_id: str) -> None:
    """Like a producer, retries as long as the coordinator is not ready."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    async def attempt() -> None:
        answer = await client.ask(request, await client.coordinator(transactional_id, 1))
        if answer.error_code:
            raise error_for(answer.error_code)

    await client.retrying(attempt)


def test_settings_apply_to_one_broker_or_to_all() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        assert await alter(client, 2, "2", log_cleaner_threads="2") == (0, None)
        assert await alter(client, 3, "", log_retention_ms="12345") == (0, None)
        for broker in BROKERS:
            found = await described(client, broker, str(broker), "log.cleaner.threads", "log.retention.ms")
            assert found["log.cleaner.threads"] == (("2", 2) if broker == 2 else ("1", 5))
            assert found["log.retention.ms"] == ("12345", 3)
            config = cluster.broker(broker).server.config
            assert config["log.cleaner.threads"] == (2 if broker == 2 else 1), "the setting is applied"
            assert config["log.retention.ms"] == 12345
        code, message = await alter(client, 1, "2", log_cleaner_threads="1")
        assert (code, message) == (
            InvalidRequest.code,
            "Unexpected broker id, expected 1, but received 2",
        )
        assert (await described(client, 1, "2"))[0] == InvalidRequest.code
        # A broker that was away knows the change after its restart.
        await cluster.stop(2)
        assert (await alter(client, 1, "", log_retention_ms="999"))[0] == 0
        await cluster.start(2)
        assert cluster.broker(2).server.config["log.retention.ms"] == 999
        assert cluster.broker(2).server.config["log.cleaner.threads"] == 2

    on_cluster(scenario)


def test_each_broker_describes_its_own_replicas() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        cluster.create_topic("t", assignments=[[1, 2], [2, 3]])
        await cluster.wait_in_sync()
        held = {}
        for broker in BROKERS:
            answer = await client.ask(DescribeLogDirsRequest(topics=None), broker)
            (folder,) = answer.results
            held[broker] = {
                (topic.name, partition.partition_index) for topic in folder.topics for partition in topic.partitions
            }
        assert held == {1: {("t", 0)}, 2: {("t", 0), ("t", 1)}, 3: {("t", 1)}}

    on_cluster(scenario)


def test_the_controller_leads_the_quorum_and_brokers_observe() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        topic = DescribeQuorumRequest.TopicData(
            topic_name=CLUSTER_METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
        )

        async def observers(asked: int) -> dict[int, int]:
            answer = await client.ask(DescribeQuorumRequest(topics=[topic]), asked)
            (partition,) = answer.topics[0].partitions
            assert partition.leader_id == 3000
            assert [voter.replica_id for voter in partition.current_voters] == [3000]
            return {each.replica_id: each.log_end_offset - partition.high_watermark for each in partition.observers}

        for broker in BROKERS:
            assert await observers(broker) == {1: 0, 2: 0, 3: 0}
        await cluster.kill(2)
        assert await observers(1) == {1: 0, 3: 0}
        cluster.slow_link(3, "controller", ms=3_600_000)
        cluster.create_topic("t", 1, 1)
        behind = await observers(1)
        assert behind[1] == 0 and behind[3] < 0, "the metadata of the topic is in flight"
        cluster.heal()

    on_cluster(scenario, preset="kafka")


def test_groups_and_transactions_are_listed_by_their_coordinator() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        cluster.create_topic("t")
        await cluster.wait_in_sync()
        groups = [f"group-{number}" for number in range(9)]
        for group in groups:
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
            request = OffsetCommitRequest(group_id=group, topics=[topic])
            answer = await client.ask_coordinator(group, request, highest=9)
            assert answer.topics[0].partitions[0].error_code == 0
            await initialized(client, group)
            assert await client.coordinator(group, 1) == cluster.transaction_coordinator(group)
        coordinators = {group: cluster.coordinator(group) for group in groups}
        assert len(set(coordinators.values())) > 1
        for broker in BROKERS:
            own = {group for group, coordinator in coordinators.items() if coordinator == broker}
            listed = await client.ask(ListGroupsRequest(), broker)
            assert {group.group_id for group in listed.groups} == own
            states = (await client.ask(ListTransactionsRequest(), broker)).transaction_states
            assert {each.transactional_id for each in states} == {
                group for group in groups if cluster.transaction_coordinator(group) == broker
            }
            shown = await client.ask(DescribeGroupsRequest(groups=groups), broker)
            errors = {group.group_id: group.error_code for group in shown.groups}
            assert errors == {group: 0 if group in own else NotCoordinator.code for group in groups}
        assert sorted(listing.group for listing in await admin.list_groups(client)) == groups

    on_cluster(scenario)


def test_an_unregistered_broker_returns_with_a_restart() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        cluster.create_topic("t", assignments=[[2, 3, 1]])
        await cluster.wait_in_sync()
        answer = await client.ask(UnregisterBrokerRequest(broker_id=2), 2)
        assert answer.error_code == 0
        assert cluster.leader("t") == 3 and cluster.isr("t") == [3, 1]
        assert set((await client.refresh()).nodes) == {1, 3}
        await cluster.restart(2)
        await cluster.wait_in_sync()
        assert set((await client.refresh()).nodes) == set(BROKERS)

    on_cluster(scenario)


def test_an_offset_is_visible_when_the_followers_have_it() -> None:
    async def scenario(cluster: ottla.Cluster, client: Client) -> None:
        cluster.create_topic("t")

        async def commit(offset: int) -> Any:
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
            return await client.ask_coordinator("g", OffsetCommitRequest(group_id="g", topics=[topic]), highest=9)

        async def fetch(*, stable: bool) -> int:
            topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
            request = OffsetFetchRequest(groups=[group], require_stable=stable)
            # On separate connections: requests of one connection are answered one after another.
            async with Client(cluster.broker(coordinator).bootstrap) as other:
                answer = await other.ask(request, highest=9)
            offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
            return offset

        await commit(1)
        await cluster.wait_in_sync()
        coordinator = cluster.coordinator("g")
        others = [broker for broker in BROKERS if broker != coordinator]
        for other in others:
            cluster.pause(other)
        committing = asyncio.create_task(commit(2))
        await cluster.wait_until(lambda c: cluster.broker(coordinator).group("g").committed() == {("t", 0): 2})
        assert await fetch(stable=False) == 1
        waiting = asyncio.create_task(fetch(stable=True))
        for other in others:
            cluster.resume(other)
        assert await waiting == 2
        assert (await committing).topics[0].partitions[0].error_code == 0
        assert await fetch(stable=False) == 2

    on_cluster(
        scenario,
        settings={
            "offsets.commit.timeout.ms": 600_000,
            "broker.session.timeout.ms": 600_000,
            "replica.lag.time.max.ms": 600_000,
        },
    )
