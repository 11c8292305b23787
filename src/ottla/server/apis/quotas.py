"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import NONE, KafkaError
from ottla.metadata.quotas import QuotaAlteration, QuotaFilter, alter_quotas, find_quotas, parts_in_order
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Found = DescribeClientQuotasResponse.EntryData
Altered = AlterClientQuotasResponse.EntryData


def _describe_error(
    ctx: RequestContext, request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=own_message(error), entries=None)


@handles(
    DescribeClientQuotasRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.DESCRIBE_CONFIGS),
    on_error=_describe_error,
)
def describe_client_quotas(ctx: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """v0–v1 (KIP-546): the entities that match every component. v1 flexible."""
    components = [QuotaFilter(part.entity_type, part.match_type, part.match) for part in request.components]
    part, value = DescribeClientQuotasResponse.EntityData, DescribeClientQuotasResponse.ValueData
    return DescribeClientQuotasResponse(
        error_code=NONE,
        error_message="",
        entries=[
            Found(
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[value(key=key, value=rate) for key, rate in values.items()],
            )
            for entity, values in find_quotas(ctx.services.metadata, components, request.strict)
        ],
    )


def _alter_error(
    ctx: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    part = AlterClientQuotasResponse.EntityData
    return AlterClientQuotasResponse(
        entries=[
            Altered(
                error_code=error.code,
                error_message=own_message(error),
                entity=[part(entity_type=p.entity_type, entity_name=p.entity_name) for p in entry.entity],
            )
            for entry in request.entries
        ]
    )


@handles(
    AlterClientQuotasRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER_CONFIGS),
    on_error=_alter_error,
)
def alter_client_quotas(ctx: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """v0–v1 (KIP-546). v1 flexible. If a part of an entity appears twice, the last one counts, as in Kafka."""
    records, outcomes = alter_quotas(
        ctx.services.metadata,
        [
            QuotaAlteration(
                parts_in_order({part.entity_type: part.entity_name for part in entry.entity}),
                [(operation.key, None if operation.remove else operation.value) for operation in entry.ops],
            )
            for entry in request.entries
        ],
    )
    if not request.validate_only:
        ctx.services.controller.commit(records)
    part = AlterClientQuotasResponse.EntityData
    return AlterClientQuotasResponse(
        entries=[
            Altered(
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else own_message(error),
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, error in outcomes.items()
        ]
    )
