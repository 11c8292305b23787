"""What is served, and the handlers, one module a family: it is imported when one of its requests first comes.

A broker that starts has to say at once what it serves, and has no time to import all that serves it. So the versions
stand here, too; a handler that is registered with others than its line says is refused, and a test registers all.
"""

from __future__ import annotations

from typing import Final

from ottla.lazy_imports import import_late

FAMILIES: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "versions": {"ApiVersions": (0, 4)},
    "metadata": {"Metadata": (0, 13), "DescribeCluster": (0, 2), "DescribeTopicPartitions": (0, 0)},
    "topics": {"CreateTopics": (0, 7), "DeleteTopics": (0, 6)},
    "partitions": {
        "CreatePartitions": (0, 3),
        "ElectLeaders": (0, 2),
        "AlterPartitionReassignments": (0, 1),
        "ListPartitionReassignments": (0, 0),
    },
    "records": {"DeleteRecords": (0, 2), "DescribeProducers": (0, 0)},
    "configs": {
        "DescribeConfigs": (0, 4),
        "AlterConfigs": (0, 2),
        "IncrementalAlterConfigs": (0, 1),
        "ListConfigResources": (0, 1),
    },
    "log_dirs": {"AlterReplicaLogDirs": (0, 2), "DescribeLogDirs": (0, 5)},
    "quotas": {"DescribeClientQuotas": (0, 1), "AlterClientQuotas": (0, 1)},
    "scram": {"DescribeUserScramCredentials": (0, 0), "AlterUserScramCredentials": (0, 0)},
    "acls": {"DescribeAcls": (0, 3), "CreateAcls": (0, 3), "DeleteAcls": (0, 3)},
    "security": {
        "SaslHandshake": (0, 1),
        "SaslAuthenticate": (0, 2),
        "CreateDelegationToken": (0, 3),
        "RenewDelegationToken": (0, 2),
        "ExpireDelegationToken": (0, 2),
        "DescribeDelegationToken": (0, 3),
    },
    "features": {"UpdateFeatures": (0, 2)},
    "quorum": {
        "DescribeQuorum": (0, 2),
        "UnregisterBroker": (0, 0),
        "AddRaftVoter": (0, 1),
        "RemoveRaftVoter": (0, 0),
    },
    "telemetry": {"GetTelemetrySubscriptions": (0, 0), "PushTelemetry": (0, 0)},
    "produce": {"Produce": (0, 13)},
    "fetch": {"Fetch": (0, 18)},
    "offsets_lookup": {"ListOffsets": (0, 11), "OffsetForLeaderEpoch": (0, 4)},
    "producers": {"InitProducerId": (0, 5)},
    "coordinators": {"FindCoordinator": (0, 6)},
    "groups": {
        "JoinGroup": (0, 9),
        "SyncGroup": (0, 5),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "DeleteGroups": (0, 2),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
    },
    "share_groups": {
        "ShareGroupHeartbeat": (1, 1),
        "ShareGroupDescribe": (1, 1),
        "ShareFetch": (1, 2),
        "ShareAcknowledge": (1, 2),
        "DescribeShareGroupOffsets": (0, 1),
        "AlterShareGroupOffsets": (0, 0),
        "DeleteShareGroupOffsets": (0, 0),
    },
    "share_state": {
        "InitializeShareGroupState": (0, 0),
        "ReadShareGroupState": (0, 0),
        "WriteShareGroupState": (0, 1),
        "DeleteShareGroupState": (0, 0),
        "ReadShareGroupStateSummary": (0, 1),
    },
    "streams_groups": {"StreamsGroupHeartbeat": (0, 0), "StreamsGroupDescribe": (0, 0)},
    "offsets": {"OffsetCommit": (0, 10), "OffsetFetch": (0, 10), "OffsetDelete": (0, 0)},
    "transactions": {
        "AddPartitionsToTxn": (0, 5),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (0, 2),
        "TxnOffsetCommit": (0, 5),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
    },
}
"""By module: the APIs with the oldest and the newest version that is served."""

UNADVERTISED: Final = frozenset({"GetTelemetrySubscriptions", "PushTelemetry"})
"""Served to who asks, but not named by ApiVersions."""


def load(family: str) -> None:
    """Import a family, so that its handlers are registered."""
    import_late(f"{__name__}.{family}")
