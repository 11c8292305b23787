"""Share groups across workers: the share coordinator of a share partition may be another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.enums import CoordinatorType
from ottla.errors import CoordinatorNotAvailable, KafkaError
from ottla.server.api import registered_apis
from ottla.server.share.state import ShareStates
from ottla.wire.messages import RESPONSES, FindCoordinatorRequest
from ottla.wire.schema import Message
from ottla.workers import forwarding

if TYPE_CHECKING:
    from ottla.workers.broker import WorkerBroker

SHARE = "share"
"""A request about share groups that another worker has to answer."""

_FIND_VERSION = 6


class ShareStatesOfWorker(ShareStates):
    def __init__(self, worker: WorkerBroker) -> None:
        self._worker = worker
        super().__init__(worker)

    def send(self, broker_id: int, request: Message, version: int, answered: Callable[[Any], None]) -> None:
        self._call(broker_id, SHARE, request, version, answered)

    def _make_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Only the controller can; it answers when every worker knows the topic."""
        worker = self._worker
        if worker.is_controller:
            super()._make_topic(then)
            return
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.SHARE, coordinator_keys=["-:AAAAAAAAAAAAAAAAAAAAAA:0"]
        )

        def made(response: Any) -> None:
            then(CoordinatorNotAvailable() if response is None else None)

        self._call(worker.controller_id, forwarding.REQUEST, request, _FIND_VERSION, made)

    def _call(self, worker_id: int, name: str, request: Message, version: int, answered: Callable[[Any], None]) -> None:
        def told(body: Any, error: Exception | None) -> None:
            answered(None if body is None else RESPONSES[request.API_KEY].decode(body, version))

        self._worker.links[worker_id].ask(
            told,
            name,
            request.API_KEY,
            version,
            "worker",
            "User:ANONYMOUS",
            False,
            "/127.0.0.1",
            self._worker.config.listeners[0].name,
            "127.0.0.1",
            request.encode(version),
        )


def serve(worker: WorkerBroker, peer_id: int, arguments: tuple[Any, ...]) -> Any:
    """Answer another worker, whatever clients may do."""
    return forwarding.serve(worker, registered_apis(), peer_id, arguments)
