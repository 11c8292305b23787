"""How workers forward requests to their controller, and how the controller handles them.

A forwarded request contains its sender's name and address. The controller answers when every worker has applied
the change: a topic is ready on all of them when CreateTopics returns. This also applies to its own clients. Changes
are made one at a time, so that the old owner of a folder closes it before the new owner opens it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply, started, then
from ottla.enums import ApiKey, CoordinatorType
from ottla.errors import (
    CoordinatorNotAvailable,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    NotController,
)
from ottla.server.api import Api, Handler, Registry, RequestContext, registered_apis
from ottla.server.dispatch import dispatch
from ottla.server.forwarding import forwarding, if_it_may_create
from ottla.server.peers import ForwardedConnection
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    FindCoordinatorRequest,
    UnregisterBrokerRequest,
)
from ottla.workers.link import Link, LinkLost

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.wire.schema import Message
    from ottla.workers.topology import ControllerTopology, FollowerTopology

logger = logging.getLogger(__name__)

REQUEST = "request"
_ANY_SHARE_KEY = "-:AAAAAAAAAAAAAAAAAAAAAA:0"


# -- forwarding requests, and serving forwarded ones
# -------------------------------------------------------------------------


async def pass_on(link: Link, ctx: RequestContext, request: Message, response_type: type[Message]) -> Message | None:
    """Forward a client's request to another worker."""
    connection = ctx.connection
    try:
        answer = await link.call(
            REQUEST,
            ctx.api_key,
            ctx.version,
            ctx.client_id,
            connection.principal,
            connection.token_authenticated,
            connection.client_host,
            connection.listener.name,
            connection.local_host,
            request.encode(ctx.version),
        )
    except LinkLost:
        raise NotController from None
    if answer is None:
        connection.close("the controller has no answer for it")
        return None
    return response_type.decode(answer, ctx.version)


def create_share_state_topic(worker: FollowerTopology, then: Callable[[KafkaError | None], None]) -> None:
    """Let the controller create the topic, with a request for a share coordinator."""
    request = FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=[_ANY_SHARE_KEY])

    def answered(body: bytes | None, error: Exception | None) -> None:
        then(CoordinatorNotAvailable() if body is None else None)

    worker.controller_link.ask(
        answered,
        REQUEST,
        request.API_KEY,
        request.MAX_VERSION,
        "worker",
        "User:ANONYMOUS",
        False,
        "/127.0.0.1",
        worker.broker.config.listeners[0].name,
        "127.0.0.1",
        request.encode(request.MAX_VERSION),
    )


def serve(broker: Broker, registry: Registry, peer_id: int, arguments: Sequence[Any]) -> Answer[bytes | None]:
    """Answer a request that another worker forwarded."""
    api_key, version, client_id, principal, by_token, client_host, listener_name, local_host, body = arguments
    route = registry.route(api_key, version)
    assert route is not None, f"a worker passed on version {version} of API {api_key}, which is not served"
    listener = next(listener for listener in broker.config.listeners if listener.name == listener_name)
    connection = ForwardedConnection(
        broker.services.for_broker(peer_id),
        listener,
        principal=principal,
        token_authenticated=by_token,
        client_host=client_host,
        local_host=local_host,
    )
    ctx = RequestContext(connection, api_key, version, 0, client_id, len(body))
    request, _ = route.decode(memoryview(bytearray(body)), 0)

    def encoded(response: Any) -> bytes | None:
        if response is None:
            return None
        parts: list[Any] = []
        route.encode(response, parts)
        return b"".join(parts)

    return then(dispatch(route.handler, route.api, ctx, request), encoded)


# -- the APIs of each kind of worker -----------------------------------------------------------------------------------


def follower_registry(worker: FollowerTopology) -> Registry:
    """All APIs; requests that need the controller are forwarded to it."""

    def forward(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
        return started(pass_on(worker.controller_link, ctx, request, api.response))

    return forwarding(registered_apis(), forward, worker.broker.metadata)


def controller_registry(worker: ControllerTopology) -> Registry:
    """All APIs; metadata changes are answered when all workers have applied them."""

    def changing(api: Api, handler: Handler) -> Handler:
        async def change(ctx: RequestContext, request: Any) -> Any:
            async with worker.changing:
                answer = handler(ctx, request)
                if isinstance(answer, Reply):
                    answer = await answer
                await worker.all_followed()
            return answer

        def shielded(ctx: RequestContext, request: Any) -> Answer[Message | None]:
            # A client that disconnects must not end the wait: otherwise the next change would start too early.
            return started(change(ctx, request), stoppable=False)

        return shielded

    def serving(api: Api) -> Handler:
        if api.key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return changing(api, _staying(api.handler))
        if api.key == ApiKey.UNREGISTER_BROKER:
            return changing(api, _keeping(worker, api.handler))
        if api.changes_metadata:
            return changing(api, api.handler)
        if api.may_create_topics is None:
            return api.handler
        return if_it_may_create(api, worker.broker.metadata, changing(api, api.handler))

    return registered_apis().wrapped(serving)


def _keeping(worker: ControllerTopology, handler: Handler) -> Handler:
    """Refuse to unregister a worker: workers stay registered as long as they run."""

    def guarded(ctx: RequestContext, request: UnregisterBrokerRequest) -> Any:
        if request.broker_id in worker.worker_ids:
            raise InvalidRequest(f"Broker ID {request.broker_id} is a worker that runs")
        return handler(ctx, request)

    return guarded


def _staying(handler: Handler) -> Handler:
    """Refuse to move a partition: it stays where the start placed it, because a move between workers has no benefit."""
    answered_topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    answered = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

    def guarded(ctx: RequestContext, request: AlterPartitionReassignmentsRequest) -> Any:
        topics = ctx.services.metadata.topics
        error = InvalidReplicaAssignment("All workers share their data folders; partitions do not move between them.")
        refused = []
        for topic in request.topics:
            known = topics[topic.name].partitions if topic.name in topics else {}
            moving = [
                wanted
                for wanted in topic.partitions
                if wanted.replicas and wanted.partition_index in known
                if wanted.replicas != known[wanted.partition_index].replicas
            ]
            if moving:
                topic.partitions = [wanted for wanted in topic.partitions if wanted not in moving]
                results = [
                    answered(partition_index=m.partition_index, error_code=error.code, error_message=error.message)
                    for m in moving
                ]
                refused.append(answered_topic(name=topic.name, partitions=results))
        request.topics = [topic for topic in request.topics if topic.partitions or not refused]
        response: Any = handler(ctx, request)
        response.responses += refused
        return response

    return guarded
