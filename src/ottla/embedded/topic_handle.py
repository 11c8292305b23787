"""The methods of every topic handle, built on a few methods that differ by kind of broker."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from ottla.embedded.records import Given, Record
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio

    from ottla.embedded import matching
else:
    asyncio = lazy("asyncio")
    matching = lazy("ottla.embedded.matching")

Condition: TypeAlias = Callable[[Record], bool]
DEFAULT_TIMEOUT_S: Final = 5.0
_SHOWN_RECORDS: Final = 20


def any_record(record: Record) -> bool:
    """A condition that every record meets."""
    return True


def nothing_came(topic: str, exists: bool, records: Sequence[Record], found: int, wanted: int, timeout: float) -> str:
    """Why a wait for records failed, with the last records of the topic."""
    came = "no record" if wanted == 1 else f"{found} of {wanted} records"
    why = f"{came} in topic {topic} met the condition within {timeout:g} s"
    if not records:
        return f"{why}: the topic {'is empty' if exists else 'does not exist'}"
    lines = [f"  {record}" for record in records[-_SHOWN_RECORDS:]]
    if len(records) > len(lines):
        lines.insert(0, f"  … {len(records) - len(lines)} more before these")
    return f"{why}; it holds:\n" + "\n".join(lines)


class TopicHandle(ABC):
    """A handle on a topic by name; the topic does not need to exist."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions it has; 0 if it does not exist."""

    @property
    def exists(self) -> bool:
        """Whether the broker has this topic."""
        return self.partitions > 0

    @abstractmethod
    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> Self:
        """Create it; -1 partitions means the broker's `num.partitions`."""

    @abstractmethod
    def delete(self) -> None:
        """Remove it, with its records and the offsets that groups committed for it."""

    # -- looking into it ---------------------------------------------------------------------------------------

    @abstractmethod
    def records(self, partition: int | None = None, *, committed_only: bool = True) -> list[Record]:
        """Everything in it, partition by partition, in order of offsets; NotFoundError if there is no such topic.

        `committed_only` leaves out the records that a read_committed consumer does not see: those of open and aborted
        transactions.
        """

    @abstractmethod
    def end_offsets(self) -> dict[int, int]:
        """{partition: the offset that the next record gets}."""

    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [record.value for record in self.records()]

    def texts(self) -> list[str | None]:
        """The values of all records, as UTF-8 text."""
        return [record.text for record in self.records()]

    def jsons(self) -> list[Any]:
        """The values of all records, parsed as JSON."""
        return [record.json for record in self.records()]

    def decoded(self) -> list[Any]:
        """The values of all records, decoded with the schemas that they were written with."""
        return [record.decoded for record in self.records()]

    def expect(
        self,
        expected: Iterable[object],
        partition: int | None = None,
        *,
        any_order: bool = False,
        partial: bool = False,
    ) -> None:
        """Assert that exactly these records are in it, in this order unless `any_order`; the error shows a diff.

        Each is a value, (key, value), (key, value, headers) or a Record; keys and headers are compared only if they
        are given. Text and bytes are compared exactly, anything else as JSON. A value that was written with a schema
        registry is decoded first, unless bytes are expected. With `partial`, objects may have more
        fields, and records more headers. `ANY` and `approx(…)` from `ottla.testing`, and compiled regular
        expressions, can replace any part.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        diff = matching.difference(list(expected), self.records(partition), any_order=any_order, partial=partial)
        if diff is not None:
            raise AssertionError(f"topic {self.name} holds something else (- expected, + found, ? why):\n{diff}")

    # -- filling it --------------------------------------------------------------------------------------------

    @abstractmethod
    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        """Append records as a producer would: those with a key go where Kafka's Java client puts them.

        Others go to `partition`, or to partition 0. The topic is created if it does not exist.
        """

    def save(self, path: str | PathLike[str]) -> int:
        """Write its records to a file, one JSON object per line; returns how many."""
        records = self.records()
        with Path(path).open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record.to_dict(), ensure_ascii=False) + "\n")
        return len(records)

    def load(self, path: str | PathLike[str]) -> list[Record]:
        """Append the records of a file that `save` wrote, each to its partition and with its timestamp."""
        loaded: list[Record] = []
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    loaded.append(Record.from_dict(self.name, json.loads(line)))
                except (ValueError, AttributeError) as error:
                    raise ValueError(f"{path}, line {number}: not a record in JSON ({error})") from error
        count = max((record.partition for record in loaded), default=0) + 1
        if not self.exists:
            self.create(count)
        done: list[Record] = []
        for record in loaded:
            timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
            done += self.append([record], partition=record.partition, timestamp_ms=timestamp_ms)
        return done

    # -- housekeeping, now -------------------------------------------------------------------------------------

    @abstractmethod
    def compact_now(self) -> None:
        """Compact everything in it, including the newest segment; ValueError unless `cleanup.policy` has `compact`."""

    @abstractmethod
    def delete_old_now(self) -> int:
        """Delete segments past their retention, without waiting for the next check; returns how many."""

    # -- waiting -----------------------------------------------------------------------------------------------

    @abstractmethod
    async def _await_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        """Wait until `count` records meet the condition, without blocking the event loop. Returns all that do."""

    async def wait_for_async(self, condition: Condition = any_record, *, timeout: float = DEFAULT_TIMEOUT_S) -> Record:
        """`wait_for` in tests on an asyncio loop, which keeps running."""
        return (await self._await_for(condition, 1, timeout))[0]

    async def wait_for_all_async(
        self, condition: Condition = any_record, *, count: int, timeout: float = DEFAULT_TIMEOUT_S
    ) -> list[Record]:
        """`wait_for_all` in tests on an asyncio loop, which keeps running."""
        return await self._await_for(condition, count, timeout)


class BlockingTopic(TopicHandle):
    """A topic of a broker that does not run on the caller's event loop: waits block, or have an async form."""

    @abstractmethod
    def _block_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        """Block until `count` records meet the condition. Returns all that do."""

    def wait_for(self, condition: Condition = any_record, *, timeout: float = DEFAULT_TIMEOUT_S) -> Record:
        """Block until a record meets the condition and return it; AssertionError with the records if none did."""
        refuse_on_loop("wait_for", "topic.wait_for_async")
        return self._block_for(condition, 1, timeout)[0]

    def wait_for_all(
        self, condition: Condition = any_record, *, count: int, timeout: float = DEFAULT_TIMEOUT_S
    ) -> list[Record]:
        """Block until at least `count` records meet the condition and return all that do."""
        refuse_on_loop("wait_for_all", "topic.wait_for_all_async")
        return self._block_for(condition, count, timeout)


def refuse_on_loop(name: str, instead: str) -> None:
    """Refuse a blocking wait on an event loop: it would also block the code that it waits for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{name} would block this event loop: use `await {instead}(…)` here")


def checked(records: Iterable[Given]) -> list[Given]:
    """The records to append, as a list; a single value outside a list is a mistake."""
    if isinstance(records, (str, bytes, Mapping)):
        raise TypeError("append takes a list of records: put the value into [ ]")
    return list(records)


def setting_text(value: object) -> str:
    """A topic's setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
