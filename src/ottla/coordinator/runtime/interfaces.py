"""What the coordinator needs from the rest of the broker, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.errors import KafkaError


class EncodableRecord(Protocol):
    """A record of a coordinator's log."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class TypedSettings(Protocol):
    """Anything that answers `settings["group.max.size"]`."""

    def __getitem__(self, key: str, /) -> Any: ...


class PartitionWriter(Protocol):
    """The leader's end of one partition of an internal topic."""

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed."""
        ...

    def append(self, batch: bytearray) -> int:
        """Append one batch as the coordinator (no sequence checks), and return its base offset. Raises KafkaError."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed at once, as there are no followers to wait for."""
        ...

    def append_run(self, batches: Sequence[bytearray]) -> Sequence[int]:
        """Append several batches with one write, and return their base offsets; none if that is not possible."""
        ...

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        """Call back once `offset` is below the high watermark, or with an error when it cannot get there any more."""
        ...


class TopicView(Protocol):
    """A topic as an assignor sees it."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition_count(self) -> int: ...

    def racks(self, partition: int) -> Sequence[str]:
        """The racks of a partition's replicas, those without a rack left out."""
        ...


class ClusterView(Protocol):
    """The part of the cluster's metadata that group coordination reads."""

    @property
    def version(self) -> int:
        """Grows with each change of the metadata (Kafka: the image's offset)."""
        ...

    def topic(self, name: str) -> TopicView | None: ...
    def topic_by_id(self, topic_id: bytes) -> TopicView | None: ...
    def topic_names(self) -> Iterable[str]: ...

    def group_config(self, group_id: str, key: str) -> Any | None:
        """A group's own value of a GROUP resource key such as `consumer.session.timeout.ms`; None where not set."""
        ...

    def share_state(self) -> Any:
        """The share coordinators, as share groups ask them."""
        ...


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str
    """As Kafka shows it: `/127.0.0.1`."""
    version: int
    """The version of the request, for the few answers that depend on it below the handler."""
    may_see: Callable[[str], bool] | None = None
    """Which topics may be shown to it; None: all of them."""
