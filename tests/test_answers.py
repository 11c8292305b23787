"""Answers that are available at once, and replies that arrive later."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.answers import Answer, Reply, attempt, gather, settled, started, then
from ottla.errors import KafkaError, NotCoordinator, UnknownServerError
from support.virtual_loop import run_virtual


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(test())


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def refuse(error: KafkaError) -> str:
    return f"refused: {error.name}"


def test_an_available_value_needs_no_event_loop() -> None:
    assert then(2, lambda value: value + 1) == 3
    assert attempt(lambda: "here", refuse) == "here"
    assert gather(["a", "b"]) == ["a", "b"]
    reply: Reply[int] = Reply()
    assert settled(reply) is reply
    reply.resolve(5)
    assert settled(reply) == 5


def test_an_error_at_once_is_raised_or_turned_into_a_value() -> None:
    def fails() -> str:
        raise NotCoordinator

    assert attempt(fails, refuse) == "refused: NOT_COORDINATOR"
    with pytest.raises(NotCoordinator):
        then(1, lambda _: fails())


def test_then_continues_with_a_later_answer() -> None:
    async def test() -> None:
        reply: Reply[int] = Reply()
        inner: Reply[str] = Reply()
        plain, nested = reply.then(lambda value: value + 1), reply.then(lambda _: inner)
        reply.resolve(1)
        assert not plain.done, "no callback runs inside the code that sets the answer"
        await turns()
        assert plain.value == 2
        assert not nested.done
        inner.resolve("inner")
        assert nested.value == "inner"

    run(test)


def test_an_answer_at_once_does_not_wait_for_the_next_iteration() -> None:
    seen: list[str] = []
    reply: Reply[str] = Reply(at_once=True)
    reply.or_else(lambda error: str(error)).when_done(lambda reply: seen.append(reply.value))
    reply.resolve("now")
    assert seen == ["now"]


def test_an_error_passes_then_and_is_caught_by_attempt() -> None:
    async def test() -> None:
        reply: Reply[str] = Reply()
        ran = []
        passed = reply.then(ran.append)
        caught = attempt(lambda: reply, refuse)
        reply.fail(NotCoordinator())
        await turns()
        assert isinstance(passed.error, NotCoordinator)
        assert not ran
        assert isinstance(caught, Reply)
        assert caught.value == "refused: NOT_COORDINATOR"

    run(test)


def test_a_callback_that_raises_fails_the_reply() -> None:
    async def test() -> None:
        def fails(_: int) -> str:
            raise UnknownServerError

        reply: Reply[int] = Reply()
        result = reply.then(fails)
        other = attempt(lambda: reply, lambda _: 0)
        reply.resolve(1)
        with pytest.raises(UnknownServerError):
            await result
        assert await other == 1

    run(test)


def test_gather_keeps_the_order() -> None:
    async def test() -> None:
        first: Reply[str] = Reply()
        last: Reply[str] = Reply()
        answers: list[Answer[str]] = [first, "b", last]
        gathered = gather(answers)
        assert isinstance(gathered, Reply)
        last.resolve("c")
        await turns()
        assert not gathered.done
        first.resolve("a")
        assert await gathered == ["a", "b", "c"]

    run(test)


def test_gather_fails_with_the_first_error() -> None:
    async def test() -> None:
        replies: list[Reply[str]] = [Reply(), Reply()]
        gathered = gather(replies)
        assert isinstance(gathered, Reply)
        replies[1].fail(NotCoordinator())
        with pytest.raises(NotCoordinator):
            await gathered

    run(test)


def test_only_the_first_answer_counts() -> None:
    reply: Reply[int] = Reply()
    reply.resolve(1)
    reply.resolve(2)
    reply.fail(NotCoordinator())
    reply.cancel()
    assert reply.value == 1


def test_cancelling_stops_the_work_that_an_answer_is_made_of() -> None:
    async def test() -> None:
        ended = []

        async def work() -> int:
            try:
                await Reply[int]()
            finally:
                ended.append(True)
            return 1

        result = gather([started(work()).then(lambda value: value), started(work())])
        assert isinstance(result, Reply)
        await turns()
        result.cancel()
        await turns()
        assert ended == [True, True]
        assert isinstance(result.error, asyncio.CancelledError)

    run(test)


def test_work_that_must_end_continues_without_a_waiting_task() -> None:
    async def test() -> None:
        gate: Reply[int] = Reply()
        ended = []

        async def work() -> int:
            ended.append(await gate)
            return 1

        reply = started(work(), stoppable=False)
        await turns()
        reply.cancel()
        gate.resolve(7)
        await turns()
        assert ended == [7]
        assert isinstance(reply.error, asyncio.CancelledError)

    run(test)


def test_an_awaiting_task_that_is_cancelled_cancels_the_reply() -> None:
    async def test() -> None:
        cancelled = []
        reply: Reply[int] = Reply(lambda: cancelled.append(True))

        async def wait() -> int:
            return await reply

        task = asyncio.get_running_loop().create_task(wait())
        await turns()
        task.cancel()
        await turns()
        assert cancelled == [True]

    run(test)


def test_nothing_continues_after_a_cancel() -> None:
    async def test() -> None:
        ran = []
        reply: Reply[int] = Reply()
        result = reply.then(ran.append)
        result.cancel()
        reply.resolve(1)
        await turns()
        assert not ran

    run(test)


def test_a_coroutine_answers_or_fails() -> None:
    async def test() -> None:
        async def fails() -> int:
            raise NotCoordinator

        async def works() -> int:
            return 3

        assert await started(works()) == 3
        with pytest.raises(NotCoordinator):
            await started(fails())

    run(test)
