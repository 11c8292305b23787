"""Guards of InitProducerId, AddPartitionsToTxn, DescribeTransactions and ListTransactions."""

from __future__ import annotations

from typing import Any

from ottla.enums import AclOperation, ResourceType
from ottla.errors import ClusterAuthorizationFailed
from ottla.server.api import Api, RequestContext
from ottla.server.security.guards.parts import GuardAnswer, handled, need


def init_producer_id(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """A producer without transactions needs IDEMPOTENT_WRITE, or WRITE on any topic."""
    if request.transactional_id is not None:
        need(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    else:
        is_trusted = ctx.may(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, audit=False)
        if not is_trusted and not ctx.may_any(AclOperation.WRITE, ResourceType.TOPIC):
            raise ClusterAuthorizationFailed()
    return api.handler(ctx, request)


def add_partitions_to_txn(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """Clients use up to v3; later versions are for brokers. The handler refuses the topics one by one."""
    if ctx.version >= 4:
        if not ctx.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed()
    else:
        need(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    return api.handler(ctx, request)


def described_topics(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """A transaction is shown with those of its topics that the sender may describe."""

    def hide(response: Any) -> None:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]

    return handled(api, ctx, request, hide)


def list_transactions(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """Only transactions that the sender may describe are listed."""

    def hide(response: Any) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if ctx.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id, audit=False)
        ]

    return handled(api, ctx, request, hide)
