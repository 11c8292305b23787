"""The result of an operation: records for the log, a response, and a callback for when the records are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ottla.answers import Answer
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.runtime.interfaces import EncodableRecord


T = TypeVar("T")
R = TypeVar("R")


class Result(NamedTuple, Generic[T]):
    """The result of an operation (Kafka: CoordinatorResult): records to append as one batch, and the response.

    `then` is called after the records are committed, or with the error if they could not be appended.
    """

    records: Sequence[EncodableRecord] = ()
    response: Answer[T] = None  # type: ignore[assignment]
    """If there is none, T is None."""
    then: Callable[[KafkaError | None], None] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    """Set for offsets in a transaction: they are pending until its marker."""

    def with_response(self, response: Answer[R]) -> Result[R]:
        records, _, then, producer_id, producer_epoch = self
        return Result(records, response, then, producer_id, producer_epoch)


NOTHING: Result[None] = Result()
