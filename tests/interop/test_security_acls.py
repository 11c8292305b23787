"""ACLs on the wire: what each API answers to a user without rights, or with just enough rights. On both brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.enums import (
    AclOperation,
    AclPermissionType,
    CoordinatorType,
    ElectionType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from ottla.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    NotCoordinator,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.records.batch import Record, build_batch
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.interop.secured import Secured, acls
from support.wire import Wire


def streams_heartbeat(group: str, source: str, *changelogs: str) -> m.StreamsGroupHeartbeatRequest:
    """The heartbeat of a member that joins."""
    request = m.StreamsGroupHeartbeatRequest
    topics = [request.TopicInfo(name=name, partitions=0, replication_factor=1, topic_configs=[]) for name in changelogs]
    subtopology = request.Subtopology(
        subtopology_id="0",
        source_topics=[source],
        source_topic_regex=[],
        state_changelog_topics=topics,
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return request(
        group_id=group,
        member_id="A" * 22,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        topology=request.Topology(epoch=0, subtopologies=[subtopology]),
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("secured") / request.param
    broker = Secured(request.param, folder)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def admin(secured: Secured) -> Iterator[Wire]:
    with secured.wire() as wire:
        for key_type, key in ((0, "g"), (1, "x")):
            while wire.call(m.FindCoordinatorRequest(key_type=key_type, key=key), 2).error_code:
                time.sleep(0.1)  # Apache Kafka creates the topic in the background
        while wire.call(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3).error_code in (
            CoordinatorLoadInProgress.code,
            CoordinatorNotAvailable.code,
            NotCoordinator.code,
        ):
            time.sleep(0.1)
        yield wire


@pytest.fixture(scope="module")
def open_topic(admin: Wire) -> str:
    return admin.create_topic("open-topic")


@pytest.fixture
def alice(secured: Secured) -> Iterator[Wire]:
    with secured.wire("alice") as wire:
        yield wire


@pytest.fixture
def allow(admin: Wire, secured: Secured) -> Iterator[Callable[..., None]]:
    with acls(secured, admin) as add:
        yield add


@pytest.fixture(scope="module")
def topic(admin: Wire) -> str:
    return admin.create_topic("secret-topic")


def records() -> Any:
    return build_batch([Record(0, 1_700_000_000_000, None, b"v")])


def produce(topic: str = "secret-topic", **more: Any) -> Any:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records())
    return m.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        **more,
    )


def fetch(topic: str = "secret-topic") -> Any:
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


def named(name: str) -> Any:
    return m.MetadataRequest.MetadataRequestTopic(name=name)


def offsets_topic(kind: Any, name: str = "secret-topic") -> Any:
    topic_type = getattr(kind, f"{kind.__name__}Topic")
    partition = getattr(kind, f"{kind.__name__}Partition")(partition_index=0)
    if kind is not m.OffsetDeleteRequest:
        partition.committed_offset, partition.committed_metadata = 1, ""
    return topic_type(name=name, partitions=[partition])


def config_resource(kind: Any, resource_type: int, name: str) -> Any:
    return kind(resource_type=resource_type, resource_name=name)


def acl_filter() -> Any:
    return m.DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


DENIED: dict[str, tuple[Callable[[], Any], int, Callable[[Any], Any], Any]] = {
    "Produce": (produce, 9, lambda r: r.responses[0].partition_responses[0].error_code, TopicAuthorizationFailed.code),
    "Fetch": (fetch, 11, lambda r: r.responses[0].partitions[0].error_code, TopicAuthorizationFailed.code),
    "ListOffsets": (
        lambda: m.ListOffsetsRequest(
            topics=[
                m.ListOffsetsRequest.ListOffsetsTopic(
                    name="secret-topic",
                    partitions=[m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
            ]
        ),
        7,
        lambda r: [(p.error_code, p.offset, p.timestamp) for p in r.topics[0].partitions],
        [(TopicAuthorizationFailed.code, -1, -1)],
    ),
    "Metadata by name": (
        lambda: m.MetadataRequest(topics=[named("secret-topic")]),
        12,
        lambda r: [(t.error_code, t.name, t.topic_id, len(t.partitions)) for t in r.topics],
        [(TopicAuthorizationFailed.code, "secret-topic", ZERO_UUID, 0)],
    ),
    "Metadata of all": (lambda: m.MetadataRequest(topics=None), 12, lambda r: r.topics, []),
    "Metadata of all, v0": (lambda: m.MetadataRequest(topics=[]), 0, lambda r: r.topics, []),
    "Metadata that creates": (
        lambda: m.MetadataRequest(topics=[named("brand-new")]),
        9,
        lambda r: [(t.error_code, t.name) for t in r.topics],
        [(TopicAuthorizationFailed.code, "brand-new")],
    ),
    "DescribeTopicPartitions": (
        lambda: m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name="secret-topic")], cursor=None
        ),
        0,
        lambda r: [(t.error_code, t.name, t.topic_id) for t in r.topics],
        [(TopicAuthorizationFailed.code, "secret-topic", ZERO_UUID)],
    ),
    "DescribeTopicPartitions of all": (
        lambda: m.DescribeTopicPartitionsRequest(topics=[], cursor=None),
        0,
        lambda r: r.topics,
        [],
    ),
    "OffsetCommit": (
        lambda: m.OffsetCommitRequest(group_id="g", topics=[offsets_topic(m.OffsetCommitRequest)]),
        8,
        lambda r: r.topics[0].partitions[0].error_code,
        GroupAuthorizationFailed.code,
    ),
    "OffsetFetch": (
        lambda: m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
        lambda r: (r.groups[0].error_code, r.groups[0].topics),
        (GroupAuthorizationFailed.code, []),
    ),
    "OffsetFetch v5": (
        lambda: m.OffsetFetchRequest(
            group_id="g",
            topics=[m.OffsetFetchRequest.OffsetFetchRequestTopic(name="secret-topic", partition_indexes=[0])],
        ),
        5,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "OffsetFetch v1": (
        lambda: m.OffsetFetchRequest(
            group_id="g",
            topics=[m.OffsetFetchRequest.OffsetFetchRequestTopic(name="secret-topic", partition_indexes=[0])],
        ),
        1,
        lambda r: [(p.error_code, p.committed_offset) for p in r.topics[0].partitions],
        [(GroupAuthorizationFailed.code, -1)],
    ),
    "OffsetDelete": (
        lambda: m.OffsetDeleteRequest(group_id="g", topics=[offsets_topic(m.OffsetDeleteRequest)]),
        0,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "FindCoordinator of a group": (
        lambda: m.FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=["g"]),
        4,
        lambda r: (r.coordinators[0].error_code, r.coordinators[0].node_id),
        (GroupAuthorizationFailed.code, -1),
    ),
    "FindCoordinator of a transaction": (
        lambda: m.FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=["x"]),
        4,
        lambda r: r.coordinators[0].error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "FindCoordinator v2": (
        lambda: m.FindCoordinatorRequest(key_type=CoordinatorType.GROUP, key="g"),
        2,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "JoinGroup": (
        lambda: m.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        5,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "SyncGroup": (
        lambda: m.SyncGroupRequest(group_id="g", generation_id=1, member_id="m"),
        3,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "Heartbeat": (
        lambda: m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        3,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "LeaveGroup": (
        lambda: m.LeaveGroupRequest(group_id="g", member_id="m"),
        2,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "DescribeGroups": (
        lambda: m.DescribeGroupsRequest(groups=["g"]),
        5,
        lambda r: (r.groups[0].error_code, r.groups[0].group_state),
        (GroupAuthorizationFailed.code, ""),
    ),
    "ListGroups": (lambda: m.ListGroupsRequest(), 4, lambda r: (r.error_code, r.groups), (0, [])),
    "DeleteGroups": (
        lambda: m.DeleteGroupsRequest(groups_names=["g"]),
        2,
        lambda r: r.results[0].error_code,
        GroupAuthorizationFailed.code,
    ),
    "ConsumerGroupHeartbeat": (
        lambda: m.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
        lambda r: r.error_code,
        GroupAuthorizationFailed.code,
    ),
    "ConsumerGroupDescribe": (
        lambda: m.ConsumerGroupDescribeRequest(group_ids=["g"]),
        0,
        lambda r: r.groups[0].error_code,
        GroupAuthorizationFailed.code,
    ),
    "StreamsGroupHeartbeat": (
        lambda: streams_heartbeat("g", "t"),
        0,
        lambda r: (r.error_code, r.error_message),
        (GroupAuthorizationFailed.code, None),
    ),
    "StreamsGroupDescribe": (
        lambda: m.StreamsGroupDescribeRequest(group_ids=["g"]),
        0,
        lambda r: (r.groups[0].error_code, r.groups[0].error_message),
        (GroupAuthorizationFailed.code, None),
    ),
    "CreateTopics": (
        lambda: m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequest.CreatableTopic(name="mine", num_partitions=1, replication_factor=1)]
        ),
        7,
        lambda r: [(t.error_code, t.name, t.error_message) for t in r.topics],
        [(TopicAuthorizationFailed.code, "mine", "Authorization failed.")],
    ),
    "DeleteTopics": (
        lambda: m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.DeleteTopicState(name="secret-topic")], timeout_ms=5000
        ),
        6,
        lambda r: [(t.error_code, t.name) for t in r.responses],
        [(TopicAuthorizationFailed.code, "secret-topic")],
    ),
    "DeleteRecords": (
        lambda: m.DeleteRecordsRequest(
            topics=[
                m.DeleteRecordsRequest.DeleteRecordsTopic(
                    name="secret-topic",
                    partitions=[m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=5000,
        ),
        2,
        lambda r: [(p.error_code, p.low_watermark) for p in r.topics[0].partitions],
        [(TopicAuthorizationFailed.code, -1)],
    ),
    "CreatePartitions": (
        lambda: m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="secret-topic", count=3, assignments=None)],
            timeout_ms=5000,
        ),
        3,
        lambda r: r.results[0].error_code,
        TopicAuthorizationFailed.code,
    ),
    "InitProducerId": (
        lambda: m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        lambda r: (r.error_code, r.producer_id),
        (ClusterAuthorizationFailed.code, -1),
    ),
    "InitProducerId with a transaction": (
        lambda: m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        4,
        lambda r: r.error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "AddPartitionsToTxn v3": (
        lambda: m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="secret-topic", partitions=[0])
            ],
        ),
        3,
        lambda r: r.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "AddPartitionsToTxn v4": (
        lambda: m.AddPartitionsToTxnRequest(
            transactions=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id="x", producer_id=1)
            ]
        ),
        4,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "AddOffsetsToTxn": (
        lambda: m.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, group_id="g"),
        3,
        lambda r: r.error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "EndTxn": (
        lambda: m.EndTxnRequest(transactional_id="x", producer_id=1, committed=True),
        3,
        lambda r: r.error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "TxnOffsetCommit": (
        lambda: m.TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=1, topics=[offsets_topic(m.TxnOffsetCommitRequest)]
        ),
        3,
        lambda r: r.topics[0].partitions[0].error_code,
        TransactionalIdAuthorizationFailed.code,
    ),
    "WriteTxnMarkers": (
        lambda: m.WriteTxnMarkersRequest(
            markers=[
                m.WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=1,
                    topics=[
                        m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="secret-topic", partition_indexes=[0])
                    ],
                )
            ]
        ),
        1,
        lambda r: r.markers[0].topics[0].partitions[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeTransactions": (
        lambda: m.DescribeTransactionsRequest(transactional_ids=["x"]),
        0,
        lambda r: (r.transaction_states[0].error_code, r.transaction_states[0].transactional_id),
        (TransactionalIdAuthorizationFailed.code, "x"),
    ),
    "ListTransactions": (
        lambda: m.ListTransactionsRequest(),
        0,
        lambda r: (r.error_code, r.transaction_states),
        (0, []),
    ),
    "DescribeProducers": (
        lambda: m.DescribeProducersRequest(
            topics=[m.DescribeProducersRequest.TopicRequest(name="secret-topic", partition_indexes=[0])]
        ),
        0,
        lambda r: r.topics[0].partitions[0].error_code,
        TopicAuthorizationFailed.code,
    ),
    "OffsetForLeaderEpoch": (
        lambda: m.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="secret-topic",
                    partitions=[
                        m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=-1, leader_epoch=0
                        )
                    ],
                )
            ],
        ),
        3,
        lambda r: r.topics[0].partitions[0].error_code,
        TopicAuthorizationFailed.code,
    ),
    "DescribeAcls": (acl_filter, 3, lambda r: (r.error_code, r.resources), (ClusterAuthorizationFailed.code, [])),
    "CreateAcls": (
        lambda: m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequest.AclCreation(
                    resource_type=ResourceType.TOPIC,
                    resource_name="t",
                    resource_pattern_type=PatternType.LITERAL,
                    principal="User:alice",
                    host="*",
                    operation=AclOperation.ALL,
                    permission_type=AclPermissionType.ALLOW,
                )
            ]
        ),
        3,
        lambda r: r.results[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DeleteAcls": (
        lambda: m.DeleteAclsRequest(
            filters=[
                m.DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=ResourceType.ANY,
                    resource_name_filter=None,
                    pattern_type_filter=PatternType.ANY,
                    principal_filter=None,
                    host_filter=None,
                    operation=AclOperation.ANY,
                    permission_type=AclPermissionType.ANY,
                )
            ]
        ),
        3,
        lambda r: r.filter_results[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeConfigs": (
        lambda: m.DescribeConfigsRequest(
            resources=[
                config_resource(m.DescribeConfigsRequest.DescribeConfigsResource, 2, "secret-topic"),
                config_resource(m.DescribeConfigsRequest.DescribeConfigsResource, 4, "1"),
                config_resource(m.DescribeConfigsRequest.DescribeConfigsResource, 32, "g"),
            ]
        ),
        4,
        lambda r: sorted((x.resource_type, x.error_code, len(x.configs)) for x in r.results),
        [
            (2, TopicAuthorizationFailed.code, 0),
            (4, ClusterAuthorizationFailed.code, 0),
            (32, GroupAuthorizationFailed.code, 0),
        ],
    ),
    "AlterConfigs": (
        lambda: m.AlterConfigsRequest(
            resources=[
                config_resource(m.AlterConfigsRequest.AlterConfigsResource, 2, "secret-topic"),
                config_resource(m.AlterConfigsRequest.AlterConfigsResource, 4, "1"),
            ]
        ),
        2,
        lambda r: sorted((x.resource_type, x.error_code) for x in r.responses),
        [(2, TopicAuthorizationFailed.code), (4, ClusterAuthorizationFailed.code)],
    ),
    "IncrementalAlterConfigs": (
        lambda: m.IncrementalAlterConfigsRequest(
            resources=[
                config_resource(m.IncrementalAlterConfigsRequest.AlterConfigsResource, 2, "secret-topic"),
                config_resource(m.IncrementalAlterConfigsRequest.AlterConfigsResource, 4, "1"),
                config_resource(m.IncrementalAlterConfigsRequest.AlterConfigsResource, 32, "g"),
            ]
        ),
        1,
        lambda r: sorted((x.resource_type, x.error_code) for x in r.responses),
        [(2, TopicAuthorizationFailed.code), (4, ClusterAuthorizationFailed.code), (32, GroupAuthorizationFailed.code)],
    ),
    "ListConfigResources": (
        lambda: m.ListConfigResourcesRequest(resource_types=[]),
        1,
        lambda r: (r.error_code, r.config_resources),
        (ClusterAuthorizationFailed.code, []),
    ),
    "AlterReplicaLogDirs": (
        lambda: m.AlterReplicaLogDirsRequest(
            dirs=[
                m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="secret-topic", partitions=[0])],
                )
            ]
        ),
        2,
        lambda r: r.results[0].partitions[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeLogDirs": (
        lambda: m.DescribeLogDirsRequest(topics=None),
        3,
        lambda r: (r.error_code, r.results),
        (ClusterAuthorizationFailed.code, []),
    ),
    "ElectLeaders": (
        lambda: m.ElectLeadersRequest(
            election_type=ElectionType.PREFERRED,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic="secret-topic", partitions=[0])],
            timeout_ms=5000,
        ),
        2,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "AlterPartitionReassignments": (
        lambda: m.AlterPartitionReassignmentsRequest(timeout_ms=5000),
        0,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "ListPartitionReassignments": (
        lambda: m.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None),
        0,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeClientQuotas": (
        lambda: m.DescribeClientQuotasRequest(),
        1,
        lambda r: (r.error_code, r.entries),
        (ClusterAuthorizationFailed.code, None),
    ),
    "AlterClientQuotas": (
        lambda: m.AlterClientQuotasRequest(
            entries=[
                m.AlterClientQuotasRequest.EntryData(
                    entity=[m.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="x")], ops=[]
                )
            ]
        ),
        1,
        lambda r: r.entries[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeUserScramCredentials": (
        # Without a name Apache Kafka fails and never answers.
        lambda: m.DescribeUserScramCredentialsRequest(users=[m.DescribeUserScramCredentialsRequest.UserName(name="u")]),
        0,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "AlterUserScramCredentials": (
        lambda: m.AlterUserScramCredentialsRequest(
            deletions=[
                m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                    name="u", mechanism=ScramMechanism.SCRAM_SHA_256
                )
            ]
        ),
        0,
        lambda r: r.results[0].error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeQuorum": (
        lambda: m.DescribeQuorumRequest(
            topics=[
                m.DescribeQuorumRequest.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)],
                )
            ]
        ),
        1,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "UpdateFeatures": (
        lambda: m.UpdateFeaturesRequest(timeout_ms=5000),
        1,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "UnregisterBroker": (
        lambda: m.UnregisterBrokerRequest(broker_id=99),
        0,
        lambda r: r.error_code,
        ClusterAuthorizationFailed.code,
    ),
    "DescribeCluster": (
        lambda: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        1,
        lambda r: (r.error_code, r.cluster_authorized_operations, len(r.brokers)),
        (0, 0, 1),
    ),
    "ApiVersions": (
        lambda: m.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
        3,
        lambda r: r.error_code,
        0,
    ),
}


@pytest.mark.parametrize("name", DENIED)
def test_every_request_is_denied_without_acls(alice: Wire, topic: str, name: str) -> None:
    request, version, look, expected = DENIED[name]
    assert look(alice.call(request(), version)) == expected


def test_a_transactional_produce_needs_the_transaction(alice: Wire, topic: str, allow: Callable[..., None]) -> None:
    allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    request = produce(transactional_id="x")
    request.topic_data[0].partition_data[0].records = batch
    assert (
        alice.call(request, 9).responses[0].partition_responses[0].error_code == TransactionalIdAuthorizationFailed.code
    )


def test_produce_and_fetch_need_write_and_read(alice: Wire, topic: str, allow: Callable[..., None]) -> None:
    def produced() -> int:
        return int(alice.call(produce(), 9).responses[0].partition_responses[0].error_code)

    def fetched() -> int:
        return int(alice.call(fetch(), 11).responses[0].partitions[0].error_code)

    allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    assert (produced(), fetched()) == (0, TopicAuthorizationFailed.code)
    allow(ResourceType.TOPIC, "secret-", AclOperation.READ, pattern=PatternType.PREFIXED)
    assert (produced(), fetched()) == (0, 0)
    allow(ResourceType.TOPIC, "*", AclOperation.READ, "User:*", permission=AclPermissionType.DENY, host="127.0.0.9")
    assert fetched() == 0
    allow(ResourceType.TOPIC, "*", AclOperation.READ, "User:*", permission=AclPermissionType.DENY, host="127.0.0.1")
    assert (produced(), fetched()) == (0, TopicAuthorizationFailed.code)


def test_one_denied_topic_does_not_fail_the_others(
    alice: Wire, topic: str, open_topic: str, allow: Callable[..., None]
) -> None:
    allow(ResourceType.TOPIC, "open-topic", AclOperation.ALL)
    request = produce()
    request.topic_data += produce("open-topic").topic_data
    codes = {t.name: t.partition_responses[0].error_code for t in alice.call(request, 9).responses}
    assert codes == {topic: TopicAuthorizationFailed.code, "open-topic": 0}
    request = fetch()
    request.topics += fetch("open-topic").topics
    codes = {t.topic: t.partitions[0].error_code for t in alice.call(request, 11).responses}
    assert codes == {topic: TopicAuthorizationFailed.code, "open-topic": 0}
    response = alice.call(m.MetadataRequest(topics=[named(topic), named("open-topic")]), 9)
    assert {t.name: t.error_code for t in response.topics} == {topic: TopicAuthorizationFailed.code, "open-topic": 0}
    assert [t.name for t in alice.call(m.MetadataRequest(topics=None), 9).topics] == ["open-topic"]
    everything = alice.call(m.DescribeTopicPartitionsRequest(topics=[], cursor=None), 0)
    assert [t.name for t in everything.topics] == ["open-topic"]


def test_operations_imply_others(alice: Wire, topic: str, allow: Callable[..., None]) -> None:
    allow(ResourceType.TOPIC, topic, AclOperation.READ)
    request = m.MetadataRequest(topics=[named(topic)], include_topic_authorized_operations=True)
    (described,) = alice.call(request, 9).topics
    assert (described.error_code, described.topic_authorized_operations) == (
        0,
        1 << AclOperation.READ | 1 << AclOperation.DESCRIBE,
    )
    allow(ResourceType.TOPIC, topic, AclOperation.ALTER_CONFIGS)
    (described,) = alice.call(request, 9).topics
    expected = (
        1 << AclOperation.READ
        | 1 << AclOperation.DESCRIBE
        | 1 << AclOperation.ALTER_CONFIGS
        | 1 << AclOperation.DESCRIBE_CONFIGS
    )
    assert described.topic_authorized_operations == expected


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_authorized_operations(
    secured: Secured, admin: Wire, topic: str, allow: Callable[..., None], user: str
) -> None:
    allow(ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE)
    allow(ResourceType.GROUP, "g", AclOperation.DELETE)
    allow(ResourceType.TOPIC, topic, AclOperation.CREATE)
    with secured.wire(user) as wire:
        cluster = wire.call(m.DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        group = wire.call(m.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5).groups[0]
        old = wire.call(m.MetadataRequest(topics=[], include_cluster_authorized_operations=True), 9)
        if user == "admin":
            assert (cluster.cluster_authorized_operations, group.authorized_operations) == (8096, 3400)
        else:
            assert (cluster.cluster_authorized_operations, group.authorized_operations) == (
                1 << AclOperation.DESCRIBE,
                1 << AclOperation.DELETE | 1 << AclOperation.DESCRIBE,
            )
        assert old.cluster_authorized_operations == cluster.cluster_authorized_operations


def test_idempotent_producers_need_any_topic(alice: Wire, allow: Callable[..., None]) -> None:
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert alice.call(request, 4).error_code == ClusterAuthorizationFailed.code
    allow(ResourceType.TOPIC, "some-prefix", AclOperation.WRITE, pattern=PatternType.PREFIXED)
    for _ in range(50):
        if (code := alice.call(request, 4).error_code) != CoordinatorLoadInProgress.code:
            break
        time.sleep(0.1)  # Apache Kafka fetches a block of ids first
    assert code == 0
    allow(
        ResourceType.TOPIC, "some", AclOperation.WRITE, pattern=PatternType.PREFIXED, permission=AclPermissionType.DENY
    )
    assert alice.call(request, 4).error_code == ClusterAuthorizationFailed.code
    allow(ResourceType.CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    assert alice.call(request, 4).error_code == 0


def test_creating_topics_needs_create(
    admin: Wire, alice: Wire, allow: Callable[..., None], unique: Callable[[str], str]
) -> None:
    def create(*names: str) -> dict[str, tuple[int, int, int]]:
        new = [m.CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
        response = alice.call(m.CreateTopicsRequest(topics=new), 7)
        return {t.name: (t.error_code, t.topic_config_error_code, t.num_partitions) for t in response.topics}

    first, second, third = unique("mine-a"), unique("other-b"), unique("other-c")
    allow(ResourceType.TOPIC, "mine-", AclOperation.CREATE, pattern=PatternType.PREFIXED)
    made = create(first, second)
    assert made[first] == (0, TopicAuthorizationFailed.code, -1)
    assert made[second][0] == TopicAuthorizationFailed.code
    allow(ResourceType.TOPIC, "mine-", AclOperation.DESCRIBE_CONFIGS, pattern=PatternType.PREFIXED)
    another = unique("mine-d")
    assert create(another)[another] == (0, 0, 1)
    allow(ResourceType.CLUSTER, "kafka-cluster", AclOperation.CREATE)
    assert create(third)[third][0] == 0


def test_deleting_topics_by_id(
    admin: Wire, alice: Wire, allow: Callable[..., None], unique: Callable[[str], str]
) -> None:
    name = admin.create_topic(unique("doomed"))
    topic_id = admin.topic_id(name)
    request = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=5000
    )

    def delete() -> tuple[int, str | None]:
        (result,) = alice.call(request, 6).responses
        return result.error_code, result.name

    assert delete() == (TopicAuthorizationFailed.code, None)
    allow(ResourceType.TOPIC, name, AclOperation.DESCRIBE)
    assert delete() == (TopicAuthorizationFailed.code, name)
    allow(ResourceType.TOPIC, name, AclOperation.DELETE)
    assert delete() == (0, name)


def test_groups_with_some_topics(
    admin: Wire, alice: Wire, topic: str, open_topic: str, allow: Callable[..., None]
) -> None:
    commit = m.OffsetCommitRequest(
        group_id="half",
        topics=[offsets_topic(m.OffsetCommitRequest), offsets_topic(m.OffsetCommitRequest, "open-topic")],
    )
    for _ in range(20):
        if admin.call(commit, 8).topics[0].partitions[0].error_code == 0:
            break
        admin.call(m.FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=["half"]), 4)
    allow(ResourceType.GROUP, "half", AclOperation.READ)
    allow(ResourceType.TOPIC, "open-topic", AclOperation.READ)
    codes = {t.name: t.partitions[0].error_code for t in alice.call(commit, 8).topics}
    assert codes == {topic: TopicAuthorizationFailed.code, "open-topic": 0}
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopics
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="half",
        topics=[wanted(name=topic, partition_indexes=[0]), wanted(name="open-topic", partition_indexes=[0])],
    )
    (found,) = alice.call(m.OffsetFetchRequest(groups=[group]), 8).groups
    assert {t.name: (t.partitions[0].error_code, t.partitions[0].committed_offset) for t in found.topics} == {
        topic: (TopicAuthorizationFailed.code, -1),
        "open-topic": (0, 1),
    }
    group.topics = None
    (found,) = alice.call(m.OffsetFetchRequest(groups=[group]), 8).groups
    assert [t.name for t in found.topics] == ["open-topic"]
    assert [g.group_id for g in alice.call(m.ListGroupsRequest(), 4).groups] == ["half"]


def test_a_consumer_group_needs_its_topics(alice: Wire, topic: str, allow: Callable[..., None]) -> None:
    allow(ResourceType.GROUP, "new-group", AclOperation.READ)
    request = m.ConsumerGroupHeartbeatRequest(
        group_id="new-group",
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert alice.call(request, 1).error_code == TopicAuthorizationFailed.code
    allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    assert alice.call(request, 1).error_code == 0


def test_a_streams_group_needs_its_topics(
    alice: Wire, admin: Wire, topic: str, allow: Callable[..., None], unique: Callable[[str], str]
) -> None:
    """It must be allowed to see all of them, and to create those that are missing."""
    group = unique("app")
    changelog = f"{group}-changelog"
    allow(ResourceType.GROUP, group, AclOperation.READ)
    allow(ResourceType.GROUP, group, AclOperation.DESCRIBE)
    beat = streams_heartbeat(group, topic, changelog)

    def sent() -> Any:
        while (answer := alice.call(beat, 0)).error_code in (
            CoordinatorLoadInProgress.code,
            CoordinatorNotAvailable.code,
            NotCoordinator.code,
        ):  # Apache Kafka loads its coordinator
            time.sleep(0.05)
        return answer

    refused = sent()
    assert (refused.error_code, refused.error_message) == (TopicAuthorizationFailed.code, None)
    allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    assert sent().error_code == TopicAuthorizationFailed.code
    allow(ResourceType.TOPIC, changelog, AclOperation.DESCRIBE)

    def missing() -> dict[int, str]:
        """The statuses of missing source topics, which Apache Kafka has just created, and of internal topics."""
        return {each.status_code: each.status_detail for each in sent().status if each.status_code in (1, 3)}

    while 1 in (found := missing()):
        time.sleep(0.05)
    assert found == {3: f"Internal topics are missing: {changelog}; Unauthorized to CREATE on topics {changelog}."}
    describe = m.StreamsGroupDescribeRequest(group_ids=[group])
    assert alice.call(describe, 0).groups[0].error_code == 0
    allow(ResourceType.TOPIC, changelog, AclOperation.CREATE)
    deadline = time.monotonic() + 60
    while missing():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert admin.metadata(changelog).topics[0].error_code == 0
    with_hidden = unique("hidden")
    while admin.call(streams_heartbeat(with_hidden, "open-topic"), 0).error_code in (
        CoordinatorLoadInProgress.code,
        CoordinatorNotAvailable.code,
        NotCoordinator.code,
    ):
        time.sleep(0.05)
    allow(ResourceType.GROUP, with_hidden, AclOperation.DESCRIBE)
    seen = alice.call(m.StreamsGroupDescribeRequest(group_ids=[with_hidden]), 0).groups[0]
    assert (seen.error_code, seen.error_message) == (
        TopicAuthorizationFailed.code,
        "The described group uses topics that the client is not authorized to describe.",
    )
    assert (seen.topology, seen.members) == (None, [])


def test_tokens_for_other_users_need_rights(secured: Secured, allow: Callable[..., None]) -> None:
    with secured.wire("alice") as alice, secured.wire("carol") as carol:
        request = m.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
        )
        refused = alice.call(request, 3)
        assert (refused.error_code, refused.token_id) == (DelegationTokenAuthorizationFailed.code, "")
        allow(ResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS)
        made = alice.call(request, 3)
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "alice")
        owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
            principal_type="User", principal_name="bob"
        )
        describe = m.DescribeDelegationTokenRequest(owners=[owner])
        assert carol.call(describe, 3).tokens == []
        allow(ResourceType.USER, "User:bob", AclOperation.DESCRIBE_TOKENS, "User:carol")
        for _ in range(30):
            if tokens := [t.token_id for t in carol.call(describe, 3).tokens]:
                break
            time.sleep(0.1)  # Apache Kafka's brokers learn about a token in the background
        assert tokens == [made.token_id]


def test_a_pattern_shows_no_hidden_topics(
    alice: Wire, admin: Wire, allow: Callable[..., None], unique: Callable[[str], str]
) -> None:
    """The broker resolves a subscription by pattern (KIP-848) to the topics that the member may describe."""
    stem, group = unique("pattern"), unique("g")
    seen, hidden = admin.create_topic(f"{stem}-seen"), admin.create_topic(f"{stem}-hidden")
    allow(ResourceType.GROUP, group, AclOperation.READ)
    allow(ResourceType.TOPIC, seen, AclOperation.DESCRIBE)
    epoch, found = 0, None
    deadline = time.monotonic() + 90
    while not found:
        assert time.monotonic() < deadline, "the pattern was not resolved"
        beat = m.ConsumerGroupHeartbeatRequest(group_id=group, member_id="A" * 22, member_epoch=epoch)
        beat.subscribed_topic_names = beat.topic_partitions = None
        if epoch == 0:
            beat.subscribed_topic_names, beat.topic_partitions, beat.rebalance_timeout_ms = [], [], 60_000
            beat.subscribed_topic_regex = f"{stem}.*"
        answer = alice.call(beat, 1)
        if answer.error_code in (
            CoordinatorLoadInProgress.code,
            CoordinatorNotAvailable.code,
            NotCoordinator.code,
        ):  # Apache Kafka loads its coordinator
            continue
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        found = answer.assignment.topic_partitions if answer.assignment is not None else None
        time.sleep(0.05)
    assert [part.topic_id for part in found] == [admin.topic_id(seen)]
    assert hidden
