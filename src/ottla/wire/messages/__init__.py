"""All requests and responses. A name, or a key of REQUESTS and RESPONSES, imports only the module that defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import import_late

from ..schema import Message

if TYPE_CHECKING:
    from .brokers import *  # noqa: F403
    from .configs import *  # noqa: F403
    from .consumer_groups import *  # noqa: F403
    from .consumer_protocol import *  # noqa: F403
    from .fetch import *  # noqa: F403
    from .groups import *  # noqa: F403
    from .log_dirs import *  # noqa: F403
    from .metadata import *  # noqa: F403
    from .offsets import *  # noqa: F403
    from .partitions import *  # noqa: F403
    from .produce import *  # noqa: F403
    from .quorum import *  # noqa: F403
    from .quotas import *  # noqa: F403
    from .security import *  # noqa: F403
    from .share_groups import *  # noqa: F403
    from .share_state import *  # noqa: F403
    from .streams_groups import *  # noqa: F403
    from .telemetry import *  # noqa: F403
    from .topics import *  # noqa: F403
    from .transactions import *  # noqa: F403

# module -> the APIs it defines, with their keys
FAMILIES: Final[dict[str, dict[str, int]]] = {
    "produce": {"Produce": 0},
    "fetch": {"Fetch": 1, "ListOffsets": 2, "OffsetForLeaderEpoch": 23},
    "metadata": {
        "ApiVersions": 18,
        "Metadata": 3,
        "DescribeTopicPartitions": 75,
        "DescribeCluster": 60,
        "FindCoordinator": 10,
    },
    "groups": {
        "JoinGroup": 11,
        "SyncGroup": 14,
        "Heartbeat": 12,
        "LeaveGroup": 13,
        "DescribeGroups": 15,
        "ListGroups": 16,
        "DeleteGroups": 42,
    },
    "offsets": {"OffsetCommit": 8, "OffsetFetch": 9, "OffsetDelete": 47},
    "consumer_groups": {"ConsumerGroupHeartbeat": 68, "ConsumerGroupDescribe": 69},
    "share_groups": {
        "ShareGroupHeartbeat": 76,
        "ShareGroupDescribe": 77,
        "ShareFetch": 78,
        "ShareAcknowledge": 79,
        "DescribeShareGroupOffsets": 90,
        "AlterShareGroupOffsets": 91,
        "DeleteShareGroupOffsets": 92,
    },
    "share_state": {
        "InitializeShareGroupState": 83,
        "ReadShareGroupState": 84,
        "WriteShareGroupState": 85,
        "DeleteShareGroupState": 86,
        "ReadShareGroupStateSummary": 87,
    },
    "streams_groups": {"StreamsGroupHeartbeat": 88, "StreamsGroupDescribe": 89},
    "transactions": {
        "InitProducerId": 22,
        "AddPartitionsToTxn": 24,
        "AddOffsetsToTxn": 25,
        "EndTxn": 26,
        "WriteTxnMarkers": 27,
        "TxnOffsetCommit": 28,
        "DescribeTransactions": 65,
        "ListTransactions": 66,
        "DescribeProducers": 61,
    },
    "topics": {"CreateTopics": 19, "DeleteTopics": 20},
    "partitions": {
        "CreatePartitions": 37,
        "DeleteRecords": 21,
        "ElectLeaders": 43,
        "AlterPartitionReassignments": 45,
        "ListPartitionReassignments": 46,
    },
    "configs": {"DescribeConfigs": 32, "AlterConfigs": 33, "IncrementalAlterConfigs": 44, "ListConfigResources": 74},
    "log_dirs": {"AlterReplicaLogDirs": 34, "DescribeLogDirs": 35},
    "security": {
        "SaslHandshake": 17,
        "SaslAuthenticate": 36,
        "DescribeAcls": 29,
        "CreateAcls": 30,
        "DeleteAcls": 31,
        "CreateDelegationToken": 38,
        "RenewDelegationToken": 39,
        "ExpireDelegationToken": 40,
        "DescribeDelegationToken": 41,
        "DescribeUserScramCredentials": 50,
        "AlterUserScramCredentials": 51,
    },
    "quotas": {"DescribeClientQuotas": 48, "AlterClientQuotas": 49},
    "telemetry": {"GetTelemetrySubscriptions": 71, "PushTelemetry": 72},
    "quorum": {
        "Vote": 52,
        "BeginQuorumEpoch": 53,
        "EndQuorumEpoch": 54,
        "DescribeQuorum": 55,
        "UpdateFeatures": 57,
        "FetchSnapshot": 59,
        "UnregisterBroker": 64,
        "AddRaftVoter": 80,
        "RemoveRaftVoter": 81,
        "UpdateRaftVoter": 82,
    },
    "brokers": {
        "AlterPartition": 56,
        "Envelope": 58,
        "BrokerRegistration": 62,
        "BrokerHeartbeat": 63,
        "AllocateProducerIds": 67,
        "ControllerRegistration": 70,
        "AssignReplicasToDirs": 73,
    },
}

API_NAMES: Final[dict[int, str]] = {key: name for apis in FAMILIES.values() for name, key in apis.items()}
_MODULES: Final[dict[str, str]] = {name: module for module, apis in FAMILIES.items() for name in apis}


# What travels inside other messages.
EMBEDDED: Final[dict[str, str]] = {
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "DefaultPrincipalData": "brokers",
}


class _Registry(Mapping[int, type[Message]]):
    """API key -> message class, imported when asked for."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: dict[int, type[Message]] = {}

    def __getitem__(self, api_key: int) -> type[Message]:
        found = self._found.get(api_key)
        if found is None:
            name = API_NAMES[api_key]
            found = self._found[api_key] = getattr(_family(name), name + self._suffix)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(API_NAMES))

    def __len__(self) -> int:
        return len(API_NAMES)

    def __contains__(self, api_key: object) -> bool:
        return api_key in API_NAMES


def _family(name: str) -> Any:
    return import_late(f"{__name__}.{_MODULES[name]}")


REQUESTS: Final[Mapping[int, type[Message]]] = _Registry("Request")
RESPONSES: Final[Mapping[int, type[Message]]] = _Registry("Response")


def __getattr__(name: str) -> Any:
    stem = name.removesuffix("Request").removesuffix("Response")
    module = EMBEDDED.get(name) or (_MODULES.get(stem) if stem != name else None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_late(f"{__name__}.{module}"), name)
    return found
