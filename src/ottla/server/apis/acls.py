"""DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import NONE, KafkaError, SecurityDisabled
from ottla.metadata.acls import AclFilter, create_acls, delete_acls, find_acls
from ottla.metadata.image import Acl
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult

_UNKNOWN = 0
"""A placeholder for unknown future values; requests must not use it."""


def _check_enabled(ctx: RequestContext, message: str = "No Authorizer is configured.") -> None:
    if not ctx.services.config["authorizer.class.name"]:
        raise SecurityDisabled(message)


def _filter(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=wanted.resource_type_filter,
        resource_name=wanted.resource_name_filter,
        pattern_type=wanted.pattern_type_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _has_unknown(wanted: AclFilter) -> bool:
    return _UNKNOWN in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type)


@handles(
    DescribeAclsRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse | None:
    """v0–v3. v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373).

    Kafka closes the connection of a client that asks for UNKNOWN, and finds nothing for numbers that it does not know.
    """
    wanted = _filter(request)
    if _has_unknown(wanted):
        ctx.connection.close("DescribeAcls with an UNKNOWN element")
        return None
    _check_enabled(ctx, "No Authorizer is configured on the broker")
    resource, description = DescribeAclsResponse.DescribeAclsResource, DescribeAclsResponse.AclDescription
    return DescribeAclsResponse(
        error_code=NONE,
        error_message="",
        resources=[
            resource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    description(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in find_acls(ctx.services.metadata, wanted).items()
        ],
    )


def _created(error: KafkaError | None) -> Created:
    if error is None:
        return Created(error_code=NONE, error_message="")
    return Created(error_code=error.code, error_message=own_message(error))


def _create_error(ctx: RequestContext, request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_created(error) for _ in request.creations])


@handles(
    CreateAclsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_create_error,
)
def create_acls_(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse | None:
    """v0–v3. v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373). An existing ACL is not an error."""
    acls = [
        Acl(
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        for creation in request.creations
    ]
    if any(_UNKNOWN in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type) for acl in acls):
        ctx.connection.close("CreateAcls with an UNKNOWN element")
        return None
    _check_enabled(ctx)
    records, outcomes = create_acls(ctx.services.metadata, acls, ctx.services.randomness.uuid)
    ctx.services.controller.commit(records)
    return CreateAclsResponse(results=[_created(outcome) for outcome in outcomes])


def _delete_error(ctx: RequestContext, request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[Deleted(error_code=error.code, error_message=own_message(error)) for _ in request.filters]
    )


@handles(
    DeleteAclsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_delete_error,
)
def delete_acls_(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse | None:
    """v0–v3. v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373). Answers with the removed ACLs."""
    filters = [_filter(wanted) for wanted in request.filters]
    if any(map(_has_unknown, filters)):
        ctx.connection.close("DeleteAcls with an UNKNOWN element")
        return None
    _check_enabled(ctx)
    records, outcomes = delete_acls(ctx.services.metadata, filters)
    ctx.services.controller.commit(records)
    matching = DeleteAclsResponse.DeleteAclsMatchingAcl
    response = DeleteAclsResponse()
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            response.filter_results.append(Deleted(error_code=outcome.code, error_message=own_message(outcome)))
        else:
            removed = [matching(error_code=NONE, error_message=None, **acl._asdict()) for acl in outcome]
            response.filter_results.append(Deleted(error_code=NONE, error_message=None, matching_acls=removed))
    return response
