"""The connection of a broker to the controller: to a single controller, or to the leader of a quorum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.answers import Answer, started
from ottla.errors import KafkaError, RequestTimedOut
from ottla.metadata.controller import Controller
from ottla.metadata.metadata_source import FollowedMetadata, MetadataSource
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.multibroker.network import Answered
from ottla.server.peers import Unreachable

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.multibroker.controller_duties import ControllerDuties
    from ottla.multibroker.node import BrokerNode
    from ottla.server.security.quotas import Quotas
    from ottla.wire.stored import metadata as stored

RETRY_MS = 50


class ActiveController(Protocol):
    """A controller that can answer."""

    @property
    def node_id(self) -> int: ...
    @property
    def duties(self) -> ControllerDuties: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def log(self) -> MetadataSource: ...
    @property
    def quotas(self) -> Quotas | None: ...
    def when_committed(self, value: Any) -> Answer[Any]:
        """Return the value when everything written so far is committed."""


Work = Callable[[ActiveController], Any]


class ControllerLink(Protocol):
    """A broker's connection to the controller."""

    cluster_id: str
    directory_id: str
    """The id of the broker's folder, if it is needed before the folder is opened."""

    def is_ready(self) -> bool:
        """Whether the metadata can be read."""

    def follow(self, followed: FollowedMetadata) -> None:
        """Read the metadata up to its end, and follow it from now on."""

    def register(self, record: stored.RegisterBrokerRecord, previous_epoch: int) -> None:
        """Start the registration; `await registered()` waits until it is complete."""

    async def registered(self) -> None: ...

    def call(self, work: Work, answered: Answered) -> None:
        """Call the controller. `answered` gets its result, a KafkaError or Unreachable."""

    def ask(self, work: Work) -> Answer[Any]:
        """Like `call`, for a client's request, which waits as long as clients do."""

    def controller(self) -> Controller:
        """The controller itself, for direct calls."""

    def way_open(self) -> None:
        """Called when the network was repaired."""

    def metadata_appended(self) -> None:
        """Called when the controller appended records."""

    def close(self) -> None: ...


class MetadataReader:
    """Reads the controller's log, append by append, if the network allows it."""

    def __init__(self, followed: FollowedMetadata, source: ControllerNode) -> None:
        self._followed = followed
        self._source = source
        self._position = 0
        self._batch = 0
        self._reading = False

    def catch_up(self) -> None:
        """Read new records."""
        if self._reading:
            return  # the running call also reads what was appended since
        self._reading = True
        try:
            while self._batch < len(self._source.batches):
                end = self._source.batches[self._batch]
                appended = self._source.image.replayed[self._position : end]
                self._position, self._batch = end, self._batch + 1
                if appended:
                    self._followed.follow(appended, appended[-1][0])
        finally:
            self._reading = False


class LinkToOne:
    """The link to a single controller. Its log is read directly, if the network allows it."""

    def __init__(self, node: BrokerNode, remote: ControllerNode) -> None:
        self._node = node
        self._remote = remote
        self._reader: MetadataReader | None = None
        self.cluster_id = remote.cluster_id
        self.directory_id = ""

    def is_ready(self) -> bool:
        return self._node.network.reaches(self._node.node_id, CONTROLLER_ID)

    def follow(self, followed: FollowedMetadata) -> None:
        followed.leader_epoch = self._remote.leader_epoch
        self._reader = MetadataReader(followed, self._remote)
        self._reader.catch_up()

    def register(self, record: stored.RegisterBrokerRecord, previous_epoch: int) -> None:
        self._node.broker_epoch = self._remote.duties.register(record, previous_epoch)

    async def registered(self) -> None:
        """Nothing to wait for: `register` has already finished."""

    def call(self, work: Work, answered: Answered) -> None:
        node, remote = self._node, self._remote
        if not node.network.is_direct(node.node_id, CONTROLLER_ID):
            node.network.ask(node.node_id, CONTROLLER_ID, lambda: work(remote), answered)
            return
        try:
            result = work(remote)
        except KafkaError as error:
            answered(None, error)
        else:
            answered(result, None)

    def ask(self, work: Work) -> Answer[Any]:
        node, remote = self._node, self._remote

        async def over_network() -> Any:
            try:
                return await node.network.call(node.node_id, CONTROLLER_ID, lambda: work(remote))
            except Unreachable:
                raise RequestTimedOut from None

        if node.network.is_direct(node.node_id, CONTROLLER_ID):
            return work(remote)
        return started(over_network())

    def controller(self) -> Controller:
        if not self._node.network.reaches(self._node.node_id, CONTROLLER_ID):
            raise RequestTimedOut
        return self._remote.controller

    def way_open(self) -> None:
        if self._reader is not None and self._node.network.reaches(CONTROLLER_ID, self._node.node_id):
            self._reader.catch_up()

    def metadata_appended(self) -> None:
        node = self._node
        if self._reader is None:
            return
        if node.network.is_direct(CONTROLLER_ID, node.node_id):
            self._reader.catch_up()
        else:
            node.network.send(CONTROLLER_ID, node.node_id, self._reader.catch_up, lambda: None)

    def close(self) -> None:
        """Do nothing: the link holds no resources."""
