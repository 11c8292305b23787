"""Where a broker's metadata comes from: its own log (`metadata_log.py`), or the controller's log, which it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.errors import NotController
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

Subscriber = Callable[[Sequence[Message]], None]
"""Gets the records of each append, after they were replayed."""


class MetadataSource(Protocol):
    """The metadata log as a broker sees it."""

    @property
    def last_offset(self) -> int:
        """The offset of the newest record that the image has; clients see it as the epoch of the features."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the metadata quorum: one more with every start of the controller."""

    @property
    def is_own(self) -> bool:
        """Whether this broker writes the log."""

    def append(self, records: Sequence[Message]) -> None:
        """Write records and replay them; only the controller can."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the records of every append, after they were replayed."""

    def observers(self) -> list[tuple[int, int]]:
        """(id, end offset) of the brokers that follow the log without a vote."""


class FollowedMetadata:
    """The controller's log as another broker has read it: records come in, the image and the subscribers follow."""

    is_own = False

    def __init__(self, image: MetadataImage, leader_epoch: int) -> None:
        self._image = image
        self._subscribers: list[Subscriber] = []
        self.leader_epoch = leader_epoch
        self.last_offset = -1

    def append(self, records: Sequence[Message]) -> None:
        raise NotController

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def observers(self) -> list[tuple[int, int]]:
        return []

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
