"""How a request is answered: with a response immediately, or with a `Reply` that gets its response later.

A call of a handler or a coordinator returns an `Answer`: the value itself, which is the common case and costs
nothing, or a `Reply`. These functions accept both:

    then(answer, go_on)        continue with the value
    attempt(call, on_error)    turn an error of the call, now or later, into a value
    gather(answers)            wait for several, in their order
    in_slices(items, …)        work on many items without keeping others waiting
    paced(steps)               work that may be long, in steps between which others are served
    started(coroutine)         the reply of code that awaits something

A reply that is no longer needed is cancelled, which stops the work for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ottla.errors import KafkaError

T = TypeVar("T")
R = TypeVar("R")

_UNSET: Any = object()


class Reply(Generic[T]):
    """A value or an error that arrives later. Giving it needs no event loop; waiting for it does."""

    __slots__ = ("_at_once", "_error", "_listeners", "_value", "on_cancel", "on_hurry")

    def __init__(self, on_cancel: Callable[[], object] | None = None, *, at_once: bool = False) -> None:
        self._value: T = _UNSET
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Reply[T]], object]] = []
        self._at_once = at_once
        """Whether the code that gives the answer does nothing after that, so that `when_done` need not wait for its
        end."""
        self.on_cancel = on_cancel
        """Stops the work for the reply when nobody waits for it."""
        self.on_hurry: Callable[[], object] | None = None
        """Ends a wait for more data, so that the answer comes soon with what is available."""

    @property
    def done(self) -> bool:
        return self._value is not _UNSET or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """The error, once `done`; CancelledError after `cancel`."""
        return self._error

    @property
    def value(self) -> T:
        """The value, once `done`; raises the error if there is one."""
        if self._error is not None:
            raise self._error
        assert self._value is not _UNSET, "the reply was read before it was given"
        return self._value

    # -- giving the answer -------------------------------------------------------------------------------------

    def resolve(self, value: T) -> None:
        """Give the value. A second answer is ignored: the first one is already being sent, or the requester is gone."""
        if not self.done:
            self._value = value
            self._tell()

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._tell()

    def complete(self, make: Callable[[], Answer[T]]) -> None:
        """Give the result of `make`, or the error that it raises. If it returns a reply, give the result of that
        reply."""
        if self.done:
            return
        try:
            answer = make()
        except (Exception, asyncio.CancelledError) as error:
            self.fail(error)
            return
        if isinstance(answer, Reply):
            self.on_cancel = answer.cancel
            answer.forward(self)
        else:
            self.resolve(answer)

    def cancel(self) -> None:
        """The reply is no longer needed."""
        if not self.done:
            self.fail(asyncio.CancelledError())
            if self.on_cancel is not None:
                self.on_cancel()

    def hurry(self) -> None:
        """The caller wants the answer now. Most replies cannot arrive sooner."""
        if not self.done and self.on_hurry is not None:
            self.on_hurry()

    def _tell(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    # -- waiting for it ----------------------------------------------------------------------------------------

    def forward(self, other: Reply[T]) -> None:
        """Give `other` the same answer, at the same moment."""
        self.listen(lambda _: other.fail(self._error) if self._error is not None else other.resolve(self._value))

    def when_done(self, callback: Callable[[Reply[T]], object]) -> None:
        """Call back after the answer: in the loop's next iteration, so never from inside the code that gives it,
        unless that code allows it with `at_once`."""
        if self._at_once:
            self.listen(callback)
            return
        call_soon = asyncio.get_running_loop().call_soon
        self.listen(lambda reply: call_soon(callback, reply))

    def then(self, go_on: Callable[[T], Answer[R]]) -> Reply[R]:
        """The result of `go_on` for the value, when it arrives. An error is passed on."""
        result: Reply[R] = Reply(self.cancel)
        self.when_done(lambda reply: result.complete(lambda: go_on(reply.value)))
        return result

    def or_else(self, recover: Callable[[Exception], Answer[T]]) -> Reply[T]:
        """The same answer, with an error replaced by the result of `recover`, which runs immediately and must only
        build a value."""
        result: Reply[T] = Reply(self.cancel, at_once=self._at_once)
        result.on_hurry = self.hurry

        def answered(reply: Reply[T]) -> None:
            error = reply._error
            result.complete(lambda: recover(error) if isinstance(error, Exception) else reply.value)

        self.listen(answered)
        return result

    def listen(self, listener: Callable[[Reply[T]], object]) -> None:
        """Call back when the answer is given, from inside the code that gives it; immediately if it was already
        given."""
        if self.done:
            listener(self)
        else:
            self._listeners.append(listener)

    def future(self) -> asyncio.Future[T]:
        """A future for code that awaits; if it is cancelled, so is the reply."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply[T]) -> None:
            if future.done():
                return
            if isinstance(reply._error, asyncio.CancelledError):
                future.cancel()
            elif reply._error is not None:
                future.set_exception(reply._error)
            else:
                future.set_result(reply._value)

        self.listen(settle)
        future.add_done_callback(lambda ended: self.cancel() if ended.cancelled() else None)
        return future

    def __await__(self) -> Generator[Any, None, T]:
        return self.future().__await__()


Answer: TypeAlias = T | Reply[T]
"""A value, or a reply that will get one."""


def settled(answer: Answer[T]) -> Answer[T]:
    """The plain value if it is already known: most callers then do not have to wait."""
    return answer.value if isinstance(answer, Reply) and answer.done else answer


def then(answer: Answer[T], go_on: Callable[[T], Answer[R]]) -> Answer[R]:
    """The result of `go_on` for the value, now or when it arrives."""
    return answer.then(go_on) if isinstance(answer, Reply) else go_on(answer)


def attempt(call: Callable[[], Answer[T]], on_error: Callable[[KafkaError], Answer[T]]) -> Answer[T]:
    """The answer of `call`; a KafkaError that it raises, now or later, is converted by `on_error`."""
    try:
        answer = call()
    except KafkaError as error:
        return on_error(error)
    if not isinstance(answer, Reply):
        return answer
    result: Reply[T] = Reply(answer.cancel)

    def answered(reply: Reply[T]) -> None:
        error = reply.error
        result.complete(lambda: on_error(error) if isinstance(error, KafkaError) else reply.value)

    answer.when_done(answered)
    return result


def gather(answers: Sequence[Answer[T]]) -> Answer[list[T]]:
    """All values, in order, as soon as the last one is known, or the first error."""
    replies = [answer for answer in answers if isinstance(answer, Reply)]
    if not replies:
        return [answer for answer in answers if not isinstance(answer, Reply)]

    def cancel_all() -> None:
        for reply in replies:
            reply.cancel()

    result: Reply[list[T]] = Reply(cancel_all)
    missing = len(replies)

    def answered(reply: Reply[T]) -> None:
        nonlocal missing
        missing -= 1
        if reply.error is not None:
            result.fail(reply.error)
        elif not missing:
            result.resolve([answer.value if isinstance(answer, Reply) else answer for answer in answers])

    for reply in replies:
        reply.when_done(answered)
    return result


_running: set[asyncio.Task[Any]] = set()
"""The event loop itself does not keep tasks alive."""


def in_slices(items: Sequence[T], size: int, work: Callable[[Sequence[T]], list[R]]) -> Answer[list[R]]:
    """The results of `work` for all items. More than `size` items are passed in slices, and others are served in
    between.
    """
    if len(items) <= size:
        return work(items)

    async def go_on() -> list[R]:
        results: list[R] = []
        for start in range(0, len(items), size):
            results += work(items[start : start + size])
            await asyncio.sleep(0)
        return results

    return started(go_on())


SLICE_BYTES: Final = 256 << 10
"""How many bytes steps may process before others are served: a few milliseconds of work."""

Step: TypeAlias = int | Callable[[], Any]
Steps: TypeAlias = Generator[Step, Any, T]
"""Work that may be long. It yields wherever it can be interrupted: either the number of bytes that it processed, or a
function to call in a thread, whose result is sent back. It returns the outcome."""


def finished(steps: Steps[T]) -> T:
    """Run all steps without a pause and return the outcome: for callers with no one else to serve."""
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            result = None if isinstance(step, int) else step()
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def paced(steps: Steps[T], before_pause: Callable[[], object] | None = None) -> Answer[T]:
    """The outcome: immediately if there is little work, otherwise a reply.

    Others are served between slices of the work.

    `before_pause` is called once, before the first pause: afterwards, other requests may overwrite the frame of this
    one.
    """
    left = SLICE_BYTES
    try:
        while left > 0:
            step = next(steps)
            if not isinstance(step, int):
                break
            left -= step
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    if before_pause is not None:
        before_pause()
    return started(_in_slices_of_work(steps, step))


async def _in_slices_of_work(steps: Steps[T], step: Step) -> T:
    loop = asyncio.get_running_loop()
    left = 0
    try:
        while True:
            result: Any = None
            if not isinstance(step, int):
                try:
                    result = await loop.run_in_executor(None, step)
                except Exception as error:
                    step = steps.throw(error)
                    continue
                left = SLICE_BYTES
            elif (left := left - step) <= 0:
                await asyncio.sleep(0)
                left = SLICE_BYTES
            step = steps.send(result)
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def started(work: Coroutine[Any, Any, T], *, stoppable: bool = True) -> Reply[T]:
    """A reply with the result of a coroutine, which runs as a task. If it is not `stoppable`, it finishes its work in
    any case."""
    task = asyncio.get_running_loop().create_task(work)
    reply: Reply[T] = Reply(task.cancel if stoppable else None)
    _running.add(task)

    def ended(task: asyncio.Task[T]) -> None:
        _running.discard(task)
        if task.cancelled():
            reply.cancel()
        elif (error := task.exception()) is not None:
            reply.fail(error)
        else:
            reply.resolve(task.result())

    task.add_done_callback(ended)
    return reply
