"""ACLs and SCRAM users: one function per operation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.client.routing import Client
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType, ScramMechanism
from ottla.errors import ResourceNotFound, error_for
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)

SCRAM_ITERATIONS: Final = 4096
MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class Acl(NamedTuple):
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


async def list_acls(client: Client) -> list[Acl]:
    """All ACLs of the cluster."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=PatternType.ANY,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    response = await client.retrying(lambda: client.ask(request))
    if response.error_code:
        raise error_for(response.error_code, response.error_message or None)
    return [
        Acl(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermissionType(acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def create_acl(client: Client, acl: Acl) -> None:
    creation = CreateAclsRequest.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    response = await client.ask_controller(CreateAclsRequest(creations=[creation]))
    for result in response.results:
        if result.error_code:
            raise error_for(result.error_code, result.error_message or None)


async def delete_acl(client: Client, acl: Acl) -> int:
    """Delete one ACL. Returns how many were deleted: 1, or 0 if there is no such ACL."""
    wanted = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    response = await client.ask_controller(DeleteAclsRequest(filters=[wanted]))
    (result,) = response.filter_results
    if result.error_code:
        raise error_for(result.error_code, result.error_message or None)
    return len(result.matching_acls)


async def list_scram_users(client: Client) -> dict[str, dict[ScramMechanism, int]]:
    """{user: {mechanism: iterations}}."""
    response = await client.retrying(lambda: client.ask(DescribeUserScramCredentialsRequest(users=None)))
    if response.error_code:
        raise error_for(response.error_code, response.error_message or None)
    return {
        result.user: {ScramMechanism(each.mechanism): each.iterations for each in result.credential_infos}
        for result in response.results
        if not result.error_code
    }


class SaltedPassword(NamedTuple):
    """A password as it is sent to a cluster: salted, and hashed many times."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes


def salted(mechanism: ScramMechanism, password: str, iterations: int = SCRAM_ITERATIONS) -> SaltedPassword:
    salt = os.urandom(16)
    hashed = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
    return SaltedPassword(mechanism, iterations, salt, hashed)


async def set_scram_password(
    client: Client, user: str, mechanism: ScramMechanism, password: str, iterations: int = SCRAM_ITERATIONS
) -> None:
    """Create a user, or change its password. The password itself is never sent."""
    new = salted(mechanism, password, iterations)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name=user, **new._asdict())
    await _alter(client, {"upsertions": [upsertion]})


async def delete_scram_user(client: Client, user: str, only: ScramMechanism | None = None) -> list[ScramMechanism]:
    """Delete a user's credentials for all mechanisms, or for one, and return those mechanisms.

    Sends one request per mechanism, because Kafka refuses a request that lists a user twice.
    """
    known = [each for each in (await list_scram_users(client)).get(user, ()) if only in (None, each)]
    if not known:
        raise ResourceNotFound(f"there is no SCRAM user {user!r}" + ("" if only is None else f" with {only.name}"))
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    for each in known:
        await _alter(client, {"deletions": [deletion(name=user, mechanism=each)]})
    return known


async def _alter(client: Client, changes: Mapping[str, Any]) -> None:
    response = await client.ask_controller(AlterUserScramCredentialsRequest(**changes))
    for result in response.results:
        if result.error_code:
            raise error_for(result.error_code, result.error_message or None)
