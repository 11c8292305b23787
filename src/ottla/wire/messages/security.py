"""Authentication, ACLs, delegation tokens and SCRAM users."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, int8, int16, int32, int64, octets, string


class SaslHandshakeRequest(Message, key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """v0 is followed by raw tokens, v1 by SaslAuthenticate (KIP-152). Never became flexible, because old clients
    negotiate it incorrectly.
    """

    mechanism: str = string()


class SaslHandshakeResponse(Message, key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The enabled mechanisms, even if there is an error."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslAuthenticateRequest(Message, key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """One token of the mechanism's exchange (KIP-152)."""

    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Message, key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """v1 session lifetime, for re-authentication (KIP-368)."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")


class DescribeAclsRequest(Message, key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """v1 pattern types (KIP-290); v3 user resources (KIP-373)."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResponse(Message, key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """v1 pattern types."""

    class AclDescription(Struct):
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    class DescribeAclsResource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8("1+", default=3)
        acls: list[DescribeAclsResponse.AclDescription] = array("AclDescription")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


class CreateAclsRequest(Message, key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    """v1 pattern types (KIP-290); v3 user resources (KIP-373)."""

    class AclCreation(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[AclCreation] = array(AclCreation)


class CreateAclsResponse(Message, key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    """One error for each entry, in the order of the request."""

    class AclCreationResult(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsRequest(Message, key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    """v1 pattern types (KIP-290); v3 user resources (KIP-373)."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsResponse(Message, key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    """The ACLs that each filter matched and deleted."""

    class DeleteAclsMatchingAcl(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8("1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    class DeleteAclsFilterResult(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = array("DeleteAclsMatchingAcl")

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


class CreateDelegationTokenRequest(Message, key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"):
    """v3 for another owner (KIP-373)."""

    class CreatableRenewers(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"):
    """v3 the requester."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = int32()


class RenewDelegationTokenRequest(Message, key=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+"):
    """By the token's HMAC (KIP-48)."""

    hmac: bytes = octets()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, key=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+"):
    """The new expiry time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class ExpireDelegationTokenRequest(Message, key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"):
    """A negative period expires the token immediately (KIP-48)."""

    hmac: bytes = octets()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"):
    """The new expiry time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class DescribeDelegationTokenRequest(Message, key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"):
    """Null owners mean all tokens that the principal may see (KIP-48)."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


class DescribeDelegationTokenResponse(Message, key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"):
    """v3 the requester of each token (KIP-373)."""

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = string()
        principal_name: str = string()

    class DescribedDelegationToken(Struct):
        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = octets()
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = array(
            "DescribedDelegationTokenRenewer"
        )

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()


class DescribeUserScramCredentialsRequest(
    Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Null or no users mean all (KIP-554)."""

    class UserName(Struct):
        name: str = string()

    users: list[UserName] | None = array(UserName, nullable="0+")


class DescribeUserScramCredentialsResponse(
    Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Mechanisms and iterations, never a secret."""

    class CredentialInfo(Struct):
        mechanism: int = int8()
        iterations: int = int32()

    class DescribeUserScramCredentialsResult(Struct):
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = array("CredentialInfo")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class AlterUserScramCredentialsRequest(Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"):
    """The client salts the password itself (KIP-554)."""

    class ScramCredentialDeletion(Struct):
        name: str = string()
        mechanism: int = int8()

    class ScramCredentialUpsertion(Struct):
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = octets()
        salted_password: bytes = octets()

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResponse(Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"):
    """One error for each user."""

    class AlterUserScramCredentialsResult(Struct):
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
