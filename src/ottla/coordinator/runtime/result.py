"""What an operation hands back: records for the log, an answer, and what to do once the records are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.runtime.runtime import EncodableRecord

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

_UNSET: Any = object()


class Reply(Generic[T]):
    """An answer that an event gives later. Needs an event loop only when somebody awaits it before that."""

    __slots__ = ("_error", "_followers", "_future", "_value")

    def __init__(self) -> None:
        self._followers: list[Reply[T]] = []
        self._value: T = _UNSET
        self._error: KafkaError | None = None
        self._future: asyncio.Future[T] | None = None

    @property
    def done(self) -> bool:
        return self._value is not _UNSET or self._error is not None

    @property
    def value(self) -> T:
        """The answer, once `done`."""
        if self._error is not None:
            raise self._error
        assert self._value is not _UNSET, "the reply was read before it was given"
        return self._value

    def resolve(self, value: T) -> None:
        """Give the answer; a second one is dropped, as the requester is gone by then."""
        if not self.done:
            self._value = value
            self._wake()

    def fail(self, error: KafkaError) -> None:
        if not self.done:
            self._error = error
            self._wake()

    def forward(self, other: Reply[T]) -> None:
        """Whatever this reply gets, `other` gets too."""
        if self._error is not None:
            other.fail(self._error)
        elif self.done:
            other.resolve(self._value)
        else:
            self._followers.append(other)

    def _wake(self) -> None:
        for follower in self._followers:
            self.forward(follower)
        self._followers.clear()
        if self._future is not None and not self._future.done():
            if self._error is not None:
                self._future.set_exception(self._error)
            else:
                self._future.set_result(self._value)

    def future(self) -> asyncio.Future[T]:
        """For code that waits on the event loop."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self.done:
                self._wake()
        return self._future

    def __await__(self) -> Generator[Any, None, T]:
        return self.future().__await__()


def settled(reply: Reply[T]) -> T | Reply[T]:
    """The plain answer if it is there already: most callers then need not wait at all."""
    return reply.value if reply.done else reply


def waitable(answer: T | Reply[T]) -> T | asyncio.Future[T]:
    """An operation's answer as the server takes it: the response itself, or a future of it."""
    return answer.future() if isinstance(answer, Reply) else answer


def when_answered(answer: T | Reply[T], build: Callable[[T], R]) -> R | Awaitable[R]:
    """The response made of an operation's answer, now or once it comes."""
    return _build_later(answer, build) if isinstance(answer, Reply) else build(answer)


async def _build_later(reply: Reply[T], build: Callable[[T], R]) -> R:
    return build(await reply)


def all_answered(
    answers: Sequence[tuple[K, T | Reply[T]]], failed: Callable[[K, KafkaError], T], build: Callable[[list[T]], R]
) -> R | Awaitable[R]:
    """The response made of several answers, in their order; `failed` makes one of an error that came later."""
    if not any(isinstance(answer, Reply) for _, answer in answers):
        return build([answer for _, answer in answers])  # type: ignore[misc]
    return _build_all_later(answers, failed, build)


async def _build_all_later(
    answers: Sequence[tuple[K, T | Reply[T]]], failed: Callable[[K, KafkaError], T], build: Callable[[list[T]], R]
) -> R:
    found: list[T] = []
    for key, answer in answers:
        try:
            found.append(await answer if isinstance(answer, Reply) else answer)
        except KafkaError as error:
            found.append(failed(key, error))
    return build(found)


class Result(NamedTuple, Generic[T]):
    """What an operation returns (Kafka: CoordinatorResult): records to append as one batch, and the response.

    `then` is called after the records are committed, or with the error if they could not be appended.
    """

    records: Sequence[EncodableRecord] = ()
    response: T | Reply[T] = None  # type: ignore[assignment]
    """Without one, T is None."""
    then: Callable[[KafkaError | None], None] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    """Set for offsets that a transaction commits: they count only after its marker."""

    def with_response(self, response: R | Reply[R]) -> Result[R]:
        records, _, then, producer_id, producer_epoch = self
        return Result(records, response, then, producer_id, producer_epoch)


NOTHING: Result[None] = Result()
