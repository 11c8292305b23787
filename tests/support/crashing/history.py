"""Histories of requests and answers, and the rules that no broker may break, no matter what happens to it.

A write is *acknowledged* (with its offset), *refused* (with an error that says it did not happen) or *in doubt* (the
connection broke first). The checks do not depend on how the broker works:

- an acknowledged record is read at its offset, once; a refused one is never read; one in doubt at most once
- records of one producer are in the order in which it sent them
- an offset holds the same record in every read, at any time
- a committed offset does not go back: a read returns the last acknowledged commit, or a later one in doubt
- readers of committed records see all of a transaction or nothing, as its acknowledged outcome says
- in a compacted partition every key has its newest value, and the remaining records keep their offsets
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    IN_DOUBT = "in doubt"


class Violation(AssertionError):
    """The broker broke a promise."""


Place = tuple[str, int]


@dataclass
class Write:
    producer: str
    place: Place
    value: bytes
    outcome: Outcome = Outcome.IN_DOUBT
    offset: int = -1
    transaction: int | None = None
    key: bytes | None = None
    is_deletion: bool = False
    """For compacted topics: a tombstone; `value` is only a label."""


@dataclass
class Commit:
    group: str
    place: Place
    offset: int
    outcome: Outcome = Outcome.IN_DOUBT


@dataclass
class History:
    """What happened, in the order in which each client saw it."""

    writes: list[Write] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    seen: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    """Every record that any read ever returned, by place and offset."""

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """A record was read. It must be the one that every earlier read found there."""
        known = self.seen.setdefault((place, offset), value)
        if known != value:
            raise Violation(f"{place} offset {offset} was {known!r} and is now {value!r}")

    def check_log(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        """`records` is the whole partition, including uncommitted and aborted records."""
        offsets = [offset for offset, _ in records]
        if offsets != sorted(set(offsets)):
            raise Violation(f"{place}: offsets do not grow: {offsets}")
        for offset, value in records:
            self.read(place, offset, value)
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        for offset, value in records:
            places[value].append(offset)
        order: defaultdict[str, list[int]] = defaultdict(list)
        known = set()
        for write in self.writes:
            if write.place != place:
                continue
            known.add(write.value)
            found = places.get(write.value, [])
            if len(found) > 1:
                raise Violation(f"{place}: {write.value!r} is there {len(found)} times, at {found}")
            if write.outcome is Outcome.ACKNOWLEDGED and found != [write.offset]:
                raise Violation(f"{place}: {write.value!r} was acknowledged at {write.offset}, and is at {found}")
            if write.outcome is Outcome.REFUSED and found:
                raise Violation(f"{place}: {write.value!r} was refused, and is at {found}")
            order[write.producer] += found
        for producer, found in order.items():
            if found != sorted(found):
                raise Violation(f"{place}: records of {producer} are out of order: {found}")
        strange = set(places) - known
        if strange:
            raise Violation(f"{place}: nobody wrote {sorted(strange)[:3]}")

    def check_compacted(self, place: Place, records: list[tuple[int, bytes, bytes | None]]) -> None:
        """`records` is the whole partition with its keys; all records of a key except the newest may be gone."""
        offsets = [offset for offset, _, _ in records]
        if offsets != sorted(set(offsets)):
            raise Violation(f"{place}: offsets do not grow: {offsets}")
        writes = [write for write in self.writes if write.place == place]
        acknowledged = {w.offset: w for w in writes if w.outcome is Outcome.ACKNOWLEDGED}
        doubtful_ones = [w for w in writes if w.outcome is Outcome.IN_DOUBT]
        newest: dict[bytes, Write] = {}
        for offset, key, value in records:
            self.read(place, offset, key + b"=" + (value if value is not None else b"(deleted)"))
            write = acknowledged.get(offset)
            if write is None:
                write = next((w for w in doubtful_ones if _is(w, key, value)), None)
            if write is None or not _is(write, key, value):
                raise Violation(f"{place}: nobody wrote {key!r}={value!r} at {offset}")
            newest[key] = write
        for key in {write.key for write in writes if write.key is not None}:
            of_key = [write for write in writes if write.key == key and write.outcome is not Outcome.REFUSED]
            last = max((n for n, write in enumerate(of_key) if write.outcome is Outcome.ACKNOWLEDGED), default=-1)
            allowed = of_key[max(last, 0) :]
            found = newest.get(key)
            if found is None:
                if last >= 0 and not any(write.is_deletion for write in allowed):
                    raise Violation(f"{place}: {key!r} is gone, and was {of_key[last].value!r}")
            elif not any(found is write for write in allowed):
                raise Violation(f"{place}: {key!r} is {found.value!r}, and was {of_key[last].value!r} in the end")

    def check_committed(self, group: str, place: Place, offset: int) -> None:
        """`offset` is the committed offset that the broker reports; -1 for none."""
        commits = [c for c in self.commits if c.group == group and c.place == place]
        allowed = {-1}
        for commit in commits:
            if commit.outcome is Outcome.ACKNOWLEDGED:
                allowed = {commit.offset}
            elif commit.outcome is Outcome.IN_DOUBT:
                allowed.add(commit.offset)
        if offset not in allowed:
            raise Violation(f"group {group} at {place}: committed is {offset}, possible are {sorted(allowed)}")

    def check_transactions(self, decided: dict[int, bool | None], visible: set[bytes], undecided: set[int]) -> None:
        """`decided`: the acknowledged outcomes, None if in doubt; `undecided`: transactions that were never ended."""
        members: defaultdict[int, list[bytes]] = defaultdict(list)
        for write in self.writes:
            if write.transaction is not None and write.outcome is Outcome.ACKNOWLEDGED:
                members[write.transaction].append(write.value)
        for number, values in members.items():
            shown = [value for value in values if value in visible]
            if shown and len(shown) != len(values):
                raise Violation(f"transaction {number} is half visible: {len(shown)} of {len(values)} records")
            outcome = False if number in undecided else decided.get(number)
            if outcome is not None and bool(shown) is not outcome:
                was = "committed" if outcome else "aborted or never ended"
                raise Violation(f"transaction {number} was {was}, and {len(shown)} of its records are visible")


def _is(write: Write, key: bytes, value: bytes | None) -> bool:
    return write.key == key and (value is None if write.is_deletion else value == write.value)


def doubtful(error: BaseException) -> Any:
    """Connection errors after which the client does not know whether a request was served."""
    return isinstance(error, OSError)
