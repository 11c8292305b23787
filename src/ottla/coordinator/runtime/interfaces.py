"""The interfaces through which the coordinator uses the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.errors import KafkaError


class EncodableRecord(Protocol):
    """A record of a coordinator's log."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class TypedSettings(Protocol):
    """Any object that supports `settings["group.max.size"]`."""

    def __getitem__(self, key: str, /) -> Any: ...


class PartitionWriter(Protocol):
    """Writes to one partition of an internal topic, as its leader."""

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed."""
        ...

    def append(self, batch: bytearray) -> int:
        """Append one batch as the coordinator (no sequence checks), and return its base offset. Raises KafkaError."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed at once because there are no followers."""
        ...

    def append_run(self, batches: Sequence[bytearray]) -> Sequence[int]:
        """Append several batches with one write, and return their base offsets; empty if that is not possible."""
        ...

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        """Call back once `offset` is below the high watermark, or with an error if that cannot happen any more."""
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
        """The racks of a partition's replicas, without replicas that have no rack."""
        ...


class MetadataView(Protocol):
    """The part of the cluster's metadata that group coordination reads."""

    @property
    def version(self) -> int:
        """Increases with each change of the metadata (Kafka: the image's offset)."""
        ...

    def topic(self, name: str) -> TopicView | None: ...
    def topic_by_id(self, topic_id: bytes) -> TopicView | None: ...
    def topic_names(self) -> Iterable[str]: ...

    def group_config(self, group_id: str, key: str) -> Any | None:
        """A group's own value of a GROUP resource key such as `consumer.session.timeout.ms`; None if not set."""
        ...

    def share_state(self) -> Any:
        """The share coordinators, for use by share groups."""
        ...


class Client(NamedTuple):
    """The sender of a request."""

    client_id: str
    host: str
    """In Kafka's format: `/127.0.0.1`."""
    version: int
    """The version of the request: a few responses depend on it."""
    may_see: Callable[[str], bool] | None = None
    """Whether the client may see a topic; None means all topics."""
