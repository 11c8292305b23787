"""Where a broker's metadata comes from: its own log (`metadata_log.py`), or the controller's log, which it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.answers import Answer
from ottla.errors import NotController
from ottla.raft.voters import Voter
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

Subscriber = Callable[[Sequence[Message]], None]
"""Gets the records of each append, after they were replayed."""


class QuorumReplica(NamedTuple):
    """The progress of a replica of the metadata log; times are wall-clock times, -1 if unknown."""

    node_id: int
    directory_id: bytes
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumView(NamedTuple):
    """The metadata quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, list[tuple[str, str, int]]]
    """(listener, host, port) of each voter; empty if controllers do not have their own addresses."""


class MetadataSource(Protocol):
    """The metadata log as a broker sees it."""

    @property
    def last_offset(self) -> int:
        """The offset of the newest record in the image; clients see it as the epoch of the features."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the metadata quorum; it increases with every start of the controller."""

    @property
    def leader_id(self) -> int:
        """The controller that leads the quorum; -1 if it is not known."""

    @property
    def is_own(self) -> bool:
        """Whether this broker writes the log."""

    def append(self, records: Sequence[Message]) -> None:
        """Write records and replay them; only the controller can."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the records of every append, after they were replayed."""

    def describe_quorum(self) -> QuorumView:
        """The replicas of the log."""

    def upgrade_kraft_version(self) -> None:
        """Upgrade to kraft.version 1, in which voters can be added and removed (KIP-853)."""

    def add_voter(self, voter: Voter) -> Answer[None]:
        """Add a controller as a voter; answered when the change is committed."""

    def remove_voter(self, voter: Voter) -> Answer[None]:
        """Remove a controller from the voters; answered when the change is committed."""

    def serve(self, request: Message) -> Answer[Message]:
        """Answer a request from another node of the cluster, as a controller of the quorum."""


class FollowedMetadata:
    """The controller's log on another broker: received records update the image and the subscribers."""

    is_own = False

    def __init__(self, image: MetadataImage, leader_epoch: int) -> None:
        self._image = image
        self._subscribers: list[Subscriber] = []
        self.leader_epoch = leader_epoch
        self.leader_id = -1
        self.last_offset = -1

    def append(self, records: Sequence[Message]) -> None:
        raise NotController

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def describe_quorum(self) -> QuorumView:
        raise NotController

    def upgrade_kraft_version(self) -> None:
        raise NotController

    def add_voter(self, voter: Voter) -> Answer[None]:
        raise NotController

    def remove_voter(self, voter: Voter) -> Answer[None]:
        raise NotController

    def serve(self, request: Message) -> Answer[Message]:
        raise NotController

    def follow(self, appended: Iterable[tuple[int, Message]], last_offset: int) -> None:
        """Replay one append of the controller, which ends at `last_offset`, and call the subscribers."""
        records = []
        for offset, record in appended:
            self._image.replay(record, offset)
            records.append(record)
        if records:
            for subscriber in self._subscribers:
                subscriber(records)
        self.last_offset = last_offset
