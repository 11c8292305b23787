"""Which requests only the controller answers: brokers pass them on, as Kafka's do in an envelope (KIP-590)."""

from __future__ import annotations

from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

CHANGING = {
    request.API_KEY
    for request in (
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        AlterUserScramCredentialsRequest,
        CreateAclsRequest,
        CreateDelegationTokenRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteAclsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
        ExpireDelegationTokenRequest,
        IncrementalAlterConfigsRequest,
        RenewDelegationTokenRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
    )
}
"""What may change the metadata."""

ASKED = {DescribeQuorumRequest.API_KEY, ListPartitionReassignmentsRequest.API_KEY}
"""What only the controller knows."""
