"""The channel between workers: requests as bytes over the socket between two processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.answers import Answer, Reply, then
from ottla.server.peers import Channel, PeerServer, Unreachable
from ottla.wire.messages import REQUESTS, RESPONSES
from ottla.wire.schema import Message
from ottla.workers.link import Link, LinkLost

PEER_REQUEST = "peer request"


class LinkChannel:
    """The channel from one worker to the others."""

    def __init__(self, links: Mapping[int, Link], local: Channel, is_idle: Callable[[], bool]) -> None:
        """`local` reaches this worker itself. `is_idle` returns whether it has nothing else to do."""
        self._links = links
        self._local = local
        self._is_idle = is_idle

    def send(self, broker_id: int, request: Message, *, at_once: bool = False) -> Reply[Any]:
        if broker_id not in self._links:
            return self._local.send(broker_id, request)
        version = request.MAX_VERSION
        response_type = RESPONSES[request.API_KEY]
        reply: Reply[Any] = Reply()

        def received(body: bytes | None, error: Exception | None) -> None:
            if body is not None:
                reply.resolve(response_type.decode(body, version))
            else:
                assert error is not None
                reply.fail(Unreachable(f"worker {broker_id} is gone") if isinstance(error, LinkLost) else error)

        link = self._links[broker_id]
        ask = link.ask_and_look if at_once and self._is_idle() else link.ask
        ask(received, PEER_REQUEST, request.API_KEY, request.encode(version))
        return reply


def serve_peer(server: PeerServer, peer_id: int, api_key: int, body: bytes) -> Answer[bytes]:
    """The encoded answer to another worker's request, or a reply that will get the answer. Raises KafkaError."""
    request_type = REQUESTS[api_key]
    version = request_type.MAX_VERSION
    response = server.serve(peer_id, request_type.decode(memoryview(bytearray(body)), version), version)
    return then(response, lambda made: made.encode(version))
