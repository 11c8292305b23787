"""InitProducerId for idempotent producers."""

from __future__ import annotations

from ottla.errors import CoordinatorNotAvailable, InvalidRequest
from ottla.server.api import RequestContext, handles
from ottla.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, versions=(0, 5))
def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """v0–v5. v3 lets a producer keep its id after an error (KIP-360); v4 PRODUCER_FENCED; v5 transactions v2 (KIP-890).

    A producer without a transactional id always gets a new id with epoch 0: it bumps its own epoch by itself.
    """
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=ctx.broker.next_producer_id(), producer_epoch=0)
    if not request.transactional_id:
        raise InvalidRequest()
    raise CoordinatorNotAvailable()
