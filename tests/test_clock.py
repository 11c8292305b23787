"""Clocks, the timing wheel against a sorted list, and the loop whose time jumps."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.clock import ManualClock, SystemClock, Timer
from support.virtual_loop import VirtualLoop, run_virtual


def test_system_clock_agrees_with_the_machine() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first


def test_a_manual_clock_moves_only_by_advance() -> None:
    clock = ManualClock(1_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0.0)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_250, 250.0)
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1)


def test_callbacks_see_the_time_of_their_deadline() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    seen: list[tuple[str, int]] = []
    for name, delay in [("c", 5_000), ("a", 3), ("b", 70), ("b2", 70)]:
        timer.schedule(delay, lambda name=name: seen.append((name, clock.now_ms())))
    clock.advance(10_000)
    assert seen == [("a", 3), ("b", 70), ("b2", 70), ("c", 5_000)]
    assert len(timer) == 0
    assert clock.now_ms() == 10_000


def test_a_callback_may_schedule_and_cancel() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    fired: list[int] = []
    victim = timer.schedule(20, lambda: fired.append(-1))

    def again() -> None:
        fired.append(clock.now_ms())
        victim.cancel()
        if len(fired) < 3:
            timer.schedule(10, again)

    timer.schedule(10, again)
    clock.advance(100)
    assert fired == [10, 20, 30]
    assert not victim.pending


def test_zero_delay_fires_on_the_next_advance_and_not_within_schedule() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    fired: list[int] = []
    timer.schedule(0, lambda: fired.append(1))
    assert fired == []
    clock.advance(1)
    assert fired == [1]


def test_two_timers_on_one_clock_fire_in_common_order() -> None:
    clock = ManualClock()
    one, two = Timer(clock), Timer(clock)
    seen: list[str] = []
    one.schedule(200, lambda: seen.append("one"))
    two.schedule(100, lambda: seen.append("two"))
    clock.advance(300)
    assert seen == ["two", "one"]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("schedule"), st.integers(0, 500_000)),
            st.tuples(st.just("advance"), st.integers(0, 200_000)),
            st.tuples(st.just("cancel"), st.integers(0, 30)),
        ),
        max_size=60,
    )
)
@example([("schedule", 2), ("advance", 1), ("schedule", 0), ("advance", 0)])
def test_the_timer_wheel_equals_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    timer = Timer(clock)
    fired: list[tuple[int, int]] = []
    expected: list[tuple[int, int]] = []
    waiting: dict[int, int] = {}
    handles = {}
    for number, (step, value) in enumerate(steps):
        if step == "schedule":
            due = int(clock.monotonic_ms()) + max(value, 1)
            waiting[number] = due
            handles[number] = timer.schedule(value, lambda number=number: fired.append((clock.now_ms(), number)))
        elif step == "advance":
            clock.advance(value)
            done = sorted((due, n) for n, due in waiting.items() if due <= clock.monotonic_ms())
            expected += done
            for _, n in done:
                del waiting[n]
        elif waiting:
            victim = sorted(waiting)[value % len(waiting)]
            handles[victim].cancel()
            del waiting[victim]
        assert fired == expected
        assert len(timer) == len(waiting)


def test_the_cost_does_not_grow_with_the_number_of_timers() -> None:
    """Counted, not timed: for the same expiry, a wheel with many timers moves no more of them than one with few."""
    clock = ManualClock()
    timer = Timer(clock)
    for delay in range(50_000, 60_000):
        timer.schedule(delay, lambda: None)
    moved = 0
    place = timer._place

    class Counting(Timer):
        __slots__ = ()

        def _place(self, handle):  # type: ignore[no-untyped-def]
            nonlocal moved
            moved += 1
            place(handle)

    timer.__class__ = Counting
    timer.schedule(10, lambda: None)
    clock.advance(20)
    assert moved == 1


def test_timer_runs_on_an_event_loop_in_virtual_time() -> None:
    async def main() -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        start = loop.now_ms()
        timer = Timer(loop)
        seen: list[tuple[str, int]] = []
        timer.schedule(90_000, lambda: seen.append(("late", loop.now_ms() - start)))
        timer.schedule(5, lambda: seen.append(("early", loop.now_ms() - start)))
        timer.schedule(50, lambda: seen.append(("never", 0))).cancel()
        await asyncio.sleep(120)
        return seen

    before = time.monotonic()
    assert run_virtual(main()) == [("early", 5), ("late", 90_000)]
    assert time.monotonic() - before < 60


def test_a_failing_callback_does_not_stop_the_others() -> None:
    async def main() -> tuple[list[int], list[str]]:
        loop = asyncio.get_running_loop()
        problems: list[str] = []
        loop.set_exception_handler(lambda _loop, context: problems.append(str(context["exception"])))
        timer = Timer(SystemClock() if not isinstance(loop, VirtualLoop) else loop)
        seen: list[int] = []

        def fail() -> None:
            raise RuntimeError("no")

        timer.schedule(1, fail)
        timer.schedule(2, lambda: seen.append(2))
        await asyncio.sleep(1)
        return seen, problems

    assert run_virtual(main()) == ([2], ["no"])


def test_virtual_loop_serves_sockets_and_threads() -> None:
    async def main() -> tuple[bytes, int]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello")
        answer = await asyncio.wait_for(reader.readexactly(5), timeout=3600)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        loop = asyncio.get_running_loop()
        number = await asyncio.wait_for(loop.run_in_executor(None, lambda: 42), timeout=3600)
        return answer, number

    assert run_virtual(main()) == (b"hello", 42)


def test_virtual_loop_ends_when_its_threads_have_ended() -> None:
    ended = threading.Event()

    class Slow(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            time.sleep(0.05)  # real time, in which a loop without work would jump hours ahead
            super().shutdown(wait, cancel_futures=cancel_futures)
            ended.set()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(Slow(1))

    run_virtual(main())
    assert ended.is_set()
