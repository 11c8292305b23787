"""The APIs that older Kafka releases advertised, so that a library can be tested against its whole version matrix.

Only the list of APIs and versions changes; a request that is still listed is served as before. Clients choose their
versions by that list, so they talk to this broker as they would to the old release.
"""

from __future__ import annotations

from typing import Final

from ottla.server.api import Api, Registry, RequestContext, registered_apis
from ottla.wire.messages import API_NAMES
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

# The changes of each release compared with the one before, as `API:highest version`, or `API:lowest-highest`.
# The data comes from the ApiVersions answers of these brokers as kafka-python records them (kafka/protocol/
# broker_version_data.py in its 3.0 sources); APIs that only brokers use are left out.
# Up to 3.9 these are brokers with ZooKeeper: a 3.9.1 in KRaft mode listed the same APIs, and also DescribeQuorum,
# UnregisterBroker, ListConfigResources, DescribeTopicPartitions, AddRaftVoter and RemoveRaftVoter.
_CHANGES: Final[dict[str, str]] = {
    "0.10.0": (
        "Produce:2 Fetch:2 ListOffsets:0 Metadata:1 OffsetCommit:2 OffsetFetch:1 FindCoordinator:0 JoinGroup:0 "
        "Heartbeat:0 LeaveGroup:0 SyncGroup:0 DescribeGroups:0 ListGroups:0 SaslHandshake:0 ApiVersions:0"
    ),
    "0.10.1": "Fetch:3 ListOffsets:1 Metadata:2 JoinGroup:1 CreateTopics:0 DeleteTopics:0",
    "0.10.2": "OffsetFetch:2 CreateTopics:1",
    "0.11": (
        "Produce:3 Fetch:5 ListOffsets:2 Metadata:4 OffsetCommit:3 OffsetFetch:3 FindCoordinator:1 JoinGroup:2 "
        "Heartbeat:1 LeaveGroup:1 SyncGroup:1 DescribeGroups:1 ListGroups:1 ApiVersions:1 CreateTopics:2 "
        "DeleteTopics:1 DeleteRecords:0 InitProducerId:0 OffsetForLeaderEpoch:0 AddPartitionsToTxn:0 "
        "AddOffsetsToTxn:0 EndTxn:0 TxnOffsetCommit:0 DescribeAcls:0 CreateAcls:0 DeleteAcls:0 DescribeConfigs:0 "
        "AlterConfigs:0"
    ),
    "1.0": (
        "Produce:5 Fetch:6 Metadata:5 SaslHandshake:1 AlterReplicaLogDirs:0 DescribeLogDirs:0 SaslAuthenticate:0 "
        "CreatePartitions:0"
    ),
    "1.1": (
        "Fetch:7 DescribeConfigs:1 CreateDelegationToken:0 RenewDelegationToken:0 ExpireDelegationToken:0 "
        "DescribeDelegationToken:0 DeleteGroups:0"
    ),
    "2.0": (
        "Produce:6 Fetch:8 ListOffsets:3 Metadata:6 OffsetCommit:4 OffsetFetch:4 FindCoordinator:2 JoinGroup:3 "
        "Heartbeat:2 LeaveGroup:2 SyncGroup:2 DescribeGroups:2 ListGroups:2 ApiVersions:2 CreateTopics:3 "
        "DeleteTopics:2 DeleteRecords:1 InitProducerId:1 OffsetForLeaderEpoch:1 AddPartitionsToTxn:1 "
        "AddOffsetsToTxn:1 EndTxn:1 TxnOffsetCommit:1 DescribeAcls:1 CreateAcls:1 DeleteAcls:1 DescribeConfigs:2 "
        "AlterConfigs:1 AlterReplicaLogDirs:1 DescribeLogDirs:1 CreatePartitions:1 CreateDelegationToken:1 "
        "RenewDelegationToken:1 ExpireDelegationToken:1 DescribeDelegationToken:1 DeleteGroups:1"
    ),
    "2.1": (
        "Produce:7 Fetch:10 ListOffsets:4 Metadata:7 OffsetCommit:6 OffsetFetch:5 DeleteTopics:3 "
        "OffsetForLeaderEpoch:2 TxnOffsetCommit:2"
    ),
    "2.2": "ListOffsets:5 JoinGroup:4 SaslAuthenticate:1 ElectLeaders:0",
    "2.3": (
        "Fetch:11 Metadata:8 OffsetCommit:7 JoinGroup:5 Heartbeat:3 SyncGroup:3 DescribeGroups:3 "
        "OffsetForLeaderEpoch:3 IncrementalAlterConfigs:0"
    ),
    "2.4": (
        "Produce:8 Metadata:9 OffsetCommit:8 OffsetFetch:6 FindCoordinator:3 JoinGroup:6 Heartbeat:4 LeaveGroup:4 "
        "SyncGroup:4 DescribeGroups:5 ListGroups:3 ApiVersions:3 CreateTopics:5 DeleteTopics:4 InitProducerId:2 "
        "CreateDelegationToken:2 DeleteGroups:2 ElectLeaders:2 IncrementalAlterConfigs:1 "
        "AlterPartitionReassignments:0 ListPartitionReassignments:0 OffsetDelete:0"
    ),
    "2.5": (
        "OffsetFetch:7 JoinGroup:7 SyncGroup:5 InitProducerId:3 TxnOffsetCommit:3 DescribeAcls:2 CreateAcls:2 "
        "DeleteAcls:2 SaslAuthenticate:2 CreatePartitions:2 RenewDelegationToken:2 ExpireDelegationToken:2 "
        "DescribeDelegationToken:2"
    ),
    "2.6": (
        "ListGroups:4 DeleteRecords:2 DescribeConfigs:3 DescribeLogDirs:2 DescribeClientQuotas:0 AlterClientQuotas:0"
    ),
    "2.7": (
        "Fetch:12 CreateTopics:6 DeleteTopics:5 InitProducerId:4 AddPartitionsToTxn:2 AddOffsetsToTxn:2 EndTxn:2 "
        "CreatePartitions:3 DescribeUserScramCredentials:0 AlterUserScramCredentials:0 UpdateFeatures:0"
    ),
    "2.8": (
        "Produce:9 ListOffsets:6 Metadata:11 CreateTopics:7 DeleteTopics:6 OffsetForLeaderEpoch:4 "
        "AddPartitionsToTxn:3 AddOffsetsToTxn:3 EndTxn:3 DescribeConfigs:4 AlterConfigs:2 AlterReplicaLogDirs:2 "
        "DescribeClientQuotas:1 AlterClientQuotas:1 DescribeCluster:0 DescribeProducers:0"
    ),
    "3.0": "ListOffsets:7 OffsetFetch:8 FindCoordinator:4 DescribeTransactions:0 ListTransactions:0",
    "3.1": "Fetch:13 Metadata:12",
    "3.2": "JoinGroup:9 LeaveGroup:5 DescribeLogDirs:3",
    "3.3": (
        "DescribeAcls:3 CreateAcls:3 DeleteAcls:3 DescribeLogDirs:4 CreateDelegationToken:3 "
        "DescribeDelegationToken:3 UpdateFeatures:1"
    ),
    "3.4": "",
    "3.5": "Fetch:15 ListOffsets:8",
    "3.6": "AddPartitionsToTxn:4",
    "3.7": "Produce:10 Fetch:16 OffsetCommit:9 OffsetFetch:9 DescribeCluster:1 ConsumerGroupHeartbeat:0",
    "3.8": (
        "Produce:11 FindCoordinator:5 ListGroups:5 InitProducerId:5 AddPartitionsToTxn:5 AddOffsetsToTxn:4 "
        "EndTxn:4 TxnOffsetCommit:4 ListTransactions:1 ConsumerGroupDescribe:0"
    ),
    "3.9": "Fetch:17 ListOffsets:9 FindCoordinator:6 ApiVersions:4",
    "4.0": (
        "Produce:12 Fetch:4-17 ListOffsets:1-10 Metadata:13 OffsetCommit:2-9 OffsetFetch:1-9 JoinGroup:2-9 "
        "DescribeGroups:6 CreateTopics:2-7 DeleteTopics:1-6 OffsetForLeaderEpoch:2-4 EndTxn:5 TxnOffsetCommit:5 "
        "DescribeAcls:1-3 CreateAcls:1-3 DeleteAcls:1-3 DescribeConfigs:1-4 AlterReplicaLogDirs:1-2 "
        "DescribeLogDirs:1-4 CreateDelegationToken:1-3 RenewDelegationToken:1-2 ExpireDelegationToken:1-2 "
        "DescribeDelegationToken:1-3 DescribeQuorum:2 UpdateFeatures:2 DescribeCluster:2 UnregisterBroker:0 "
        "ConsumerGroupHeartbeat:1 ConsumerGroupDescribe:1 ListConfigResources:0 DescribeTopicPartitions:0 "
        "AddRaftVoter:0 RemoveRaftVoter:0"
    ),
    "4.1": (
        "Produce:13 Fetch:4-18 JoinGroup:9 AlterPartitionReassignments:1 ListTransactions:2 ListConfigResources:1 "
        "ShareGroupHeartbeat:1-1 ShareGroupDescribe:1-1 ShareFetch:1-1 ShareAcknowledge:1-1 "
        "InitializeShareGroupState:0 ReadShareGroupState:0 WriteShareGroupState:0 DeleteShareGroupState:0 "
        "ReadShareGroupStateSummary:0 DescribeShareGroupOffsets:0 AlterShareGroupOffsets:0 "
        "DeleteShareGroupOffsets:0"
    ),
    "4.2": (
        "ListOffsets:1-11 OffsetCommit:2-10 OffsetFetch:1-10 ShareFetch:1-2 ShareAcknowledge:1-2 AddRaftVoter:1 "
        "WriteShareGroupState:1 ReadShareGroupStateSummary:1 StreamsGroupHeartbeat:0 StreamsGroupDescribe:0 "
        "DescribeShareGroupOffsets:1"
    ),
    "4.3": "DescribeLogDirs:1-5",
}

_FEATURES_SINCE: Final = "4.0"
"""Before this release, a broker without KRaft advertised no features. A client that sees features assumes a newer
broker.
"""

RELEASES: Final = tuple(_CHANGES)


def canonical(release: str) -> str:
    """The row of the table for a release: "2.8.1" is "2.8", "0.10.2.1" is "0.10.2"."""
    numbers = release.split(".")
    for length in range(len(numbers), 0, -1):
        name = ".".join(numbers[:length])
        if name in _CHANGES:
            return name
    raise ValueError(f"as_version={release!r} is not a release that Ottla knows; choose one of {', '.join(RELEASES)}")


def advertised(release: str) -> dict[int, tuple[int, int]]:
    """{api key: (lowest, highest version)} of a release."""
    wanted = canonical(release)
    keys = {name: key for key, name in API_NAMES.items()}
    found: dict[int, tuple[int, int]] = {}
    for name, changes in _CHANGES.items():
        for change in changes.split():
            api, _, versions = change.partition(":")
            low, dash, high = versions.rpartition("-")
            found[keys[api]] = (int(low) if dash else 0, int(high))
        if name == wanted:
            break
    return found


def registry_of(release: str) -> Registry:
    """The APIs of Ottla that a release also had."""
    ranges = advertised(release)
    apis = []
    for api in registered_apis().apis.values():
        if api.key not in ranges:
            continue
        low, high = ranges[api.key]
        low, high = max(low, api.min_version), min(high, api.max_version)
        if low <= high:
            apis.append(api.replace(min_version=low, max_version=high))
    if RELEASES.index(canonical(release)) < RELEASES.index(_FEATURES_SINCE):
        apis = [_without_features(api) if api.key == ApiVersionsRequest.API_KEY else api for api in apis]
    return Registry(apis)


def _without_features(api: Api) -> Api:
    def handler(ctx: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
        response = api.handler(ctx, request)
        assert isinstance(response, ApiVersionsResponse)
        response.supported_features = []
        response.finalized_features = []
        response.finalized_features_epoch = -1
        return response

    return api.replace(handler=handler)
