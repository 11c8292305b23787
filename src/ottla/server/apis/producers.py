"""InitProducerId: an id and an epoch for idempotent and transactional producers."""

from __future__ import annotations

from ottla.answers import Answer, then
from ottla.coordinator.transactions.state import NO_EPOCH, NO_ID, Identity
from ottla.enums import AnsweredBy
from ottla.errors import InvalidProducerEpoch, InvalidRequest, KafkaError, ProducerFenced
from ottla.server.api import GuardedBy, RequestContext, handles
from ottla.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

FIRST_FENCED_VERSION = 4


def _init_error(ctx: RequestContext, request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    if isinstance(error, ProducerFenced) and ctx.version < FIRST_FENCED_VERSION:
        error = InvalidProducerEpoch()
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


@handles(
    InitProducerIdRequest,
    versions=(0, 5),
    answered_by=AnsweredBy.TRANSACTION_COORDINATOR,
    permission=GuardedBy(
        "transactions.init_producer_id",
        "WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster or WRITE on any topic",
    ),
    on_error=_init_error,
)
def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> Answer[InitProducerIdResponse]:
    """v0–v5. v3 lets a producer keep its id after an error (KIP-360); v4 PRODUCER_FENCED; v5 transactions v2 (KIP-890).
    v6, two-phase commit (KIP-939), is left out because Kafka 4.3 does not offer it.

    A producer without a transactional id always gets a new id with epoch 0: it bumps its own epoch.
    """
    has_id, has_epoch = request.producer_id != NO_ID, request.producer_epoch != NO_EPOCH
    if has_id != has_epoch:
        raise InvalidRequest()
    return then(ctx.services.producer_ids.wait(), lambda _: _init(ctx, request))


def _init(ctx: RequestContext, request: InitProducerIdRequest) -> Answer[InitProducerIdResponse]:
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=ctx.services.producer_ids.next(), producer_epoch=0)
    has_id = request.producer_id != NO_ID
    expected = Identity(request.producer_id, request.producer_epoch) if has_id else None
    made = ctx.services.transactions.coordinator.init_producer(
        request.transactional_id, request.transaction_timeout_ms, expected
    )
    return then(made, _initialized)


def _initialized(identity: Identity) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
