"""The one place where a handler is called: for connections, for other brokers, and for forwarded requests.

A handler returns its response, None if the client expects no response, or a `Reply`; or it raises. `dispatch` turns an
error, raised now or reported later, into the error response of the API.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply
from ottla.errors import KafkaError, UnknownServerError

if TYPE_CHECKING:
    from ottla.server.api import Api, Handler, RequestContext
    from ottla.wire.schema import Message

logger = logging.getLogger(__name__)


def dispatch(handler: Handler, api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """The answer of `handler`, which is the handler of `api` or a guard before it."""
    try:
        answer = handler(ctx, request)
    except Exception as error:
        return error_response(api, ctx, request, error)
    if isinstance(answer, Reply):
        return answer.or_else(lambda error: error_response(api, ctx, request, error))
    return answer


def error_response(api: Api, ctx: RequestContext, request: Any, error: Exception) -> Message | None:
    """The answer that shows an error to a client. None if even that fails; then the connection is closed."""
    if not isinstance(error, KafkaError):
        logger.error("%s v%d from %s failed", api.name, ctx.version, ctx.connection.peer, exc_info=error)
        error = UnknownServerError()
    try:
        return api.on_error(ctx, request, error)
    except Exception as second:
        give_up(api, ctx, second)
        return None


def give_up(api: Api, ctx: RequestContext, error: Exception) -> None:
    """A bug in the broker: there is no answer, so do not let the client wait for one."""
    logger.error("%s v%d from %s has no answer", api.name, ctx.version, ctx.connection.peer, exc_info=error)
    ctx.connection.close("its request cannot be answered")
