"""Logs for coordinators to load, at once or over many turns of an event loop."""

from collections.abc import Callable, Iterable, Iterator

from ottla.clock import Clock, ManualClock
from ottla.coordinator.runtime.loader import SMALL_LOAD, Loader
from ottla.records.batch import Batch, Record, build_batch

SLOW_BATCH = 100


def loader_at_once(clock: Clock) -> Loader:
    """For small logs: none of them may need a second turn of the event loop."""

    def refuse(callback: Callable[[], None]) -> None:
        raise AssertionError("a small log was not loaded at once")

    return Loader(clock, refuse)


def slow_log(clock: ManualClock, record: Callable[[int], tuple[bytes, bytes | None]], count: int) -> Iterator[Batch]:
    """Records from number 0 on. Each batch takes so long that it uses up a whole time slice.

    The first thousand records are loaded in one go, however long they take: `count` comes after those.
    """
    for start in range(0, SMALL_LOAD + count, SLOW_BATCH):
        numbers = range(start, start + SLOW_BATCH)
        clock.advance(10)
        yield Batch(build_batch([Record(number - start, 0, *record(number)) for number in numbers], start))


def run_turns(turns: list[Callable[[], None]]) -> int:
    """Runs turns like an event loop. Returns how many it took until nothing was left to do."""
    count = 0
    while turns:
        count += 1
        turns.pop(0)()
    return count


def all_batches(chunks: Iterable[bytes]) -> Iterator[Batch]:
    return map(Batch, list(chunks))
