"""The channel between workers: requests as bytes over the socket between two processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.answers import Answer, then
from ottla.server.peers import Answered, PeerServer, Unreachable
from ottla.wire.messages import REQUESTS, RESPONSES
from ottla.wire.schema import Message
from ottla.workers.link import Link, LinkLost

PEER_REQUEST = "peer request"


class LinkChannel:
    """From one worker to the others."""

    def __init__(self, links: Mapping[int, Link], is_idle: Callable[[], bool]) -> None:
        """`is_idle` says whether this worker has nothing else to do than to wait for an answer."""
        self._links = links
        self._is_idle = is_idle

    def send(self, broker_id: int, request: Message, answered: Answered, *, at_once: bool = False) -> None:
        version = request.MAX_VERSION
        response_type = RESPONSES[request.API_KEY]

        def received(body: bytes | None, error: Exception | None) -> None:
            if body is None:
                answered(None, Unreachable(f"worker {broker_id} is gone") if isinstance(error, LinkLost) else error)
            else:
                answered(response_type.decode(body, version), None)

        link = self._links[broker_id]
        ask = link.ask_and_look if at_once and self._is_idle() else link.ask
        ask(received, PEER_REQUEST, request.API_KEY, request.encode(version))


def serve_peer(server: PeerServer, peer_id: int, api_key: int, body: bytes) -> Answer[bytes]:
    """The encoded answer to a request that another worker sent, or a reply that gets it; raises KafkaError."""
    request_type = REQUESTS[api_key]
    version = request_type.MAX_VERSION
    response = server.serve(peer_id, request_type.decode(memoryview(bytearray(body)), version), version)
    return then(response, lambda made: made.encode(version))
