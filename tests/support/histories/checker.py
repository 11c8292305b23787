"""Find the anomalies of Jepsen's Kafka workload in a history, by the names that Jepsen gives them.

    inconsistent-offsets     two records were seen at one offset
    duplicate                one record was seen at two offsets
    lost-write               a record was acknowledged, a client read past it, and no client ever saw it
    unseen                   a record was acknowledged, and the final reads did not reach it
    aborted-read             a client saw a record of a transaction that was aborted (G1a)
    precommitted-read        a client saw a record before the operation that sent it was over, as a committed one
    int-poll-skip            within one operation, a poll skipped existing records
    int-nonmonotonic-poll    within one operation, a poll went back
    int-send-skip            within one operation, records of other operations lie between two sends to a partition
    int-nonmonotonic-send    within one operation, a later send got an earlier offset
    poll-skip                between two operations of a process, a poll skipped existing records
    nonmonotonic-poll        between two operations of a process, a poll went back
    nonmonotonic-send        between two operations of a process, a send got an earlier offset
    G0                       transactions overwrote each other in a circle: each wrote before the next one, somewhere
    G1c                      transactions saw each other's records in a circle

Kafka promises neither that the records of a transaction lie next to each other nor that two transactions write in the
same order everywhere, so `int-send-skip` and G0 happen on a sound broker: ALLOWED lists the anomalies that a run does
not count. A gap that holds no visible record (aborted ones, markers) is not a skip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from support.histories.events import FAIL, INFO, OK, Operation, Poll, Send

ALLOWED = frozenset({"int-send-skip", "G0"})

Version = tuple[int, int]
"""A partition and a value in it."""


@dataclass
class Anomaly:
    name: str
    text: str
    operations: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" (operations {', '.join(map(str, self.operations))})" if self.operations else ""
        return f"{self.name}: {self.text}{where}"


@dataclass
class Verdict:
    anomalies: list[Anomaly] = field(default_factory=list)
    operations: int = 0
    transactions: int = 0
    sent: int = 0
    seen: int = 0

    def names(self) -> set[str]:
        return {anomaly.name for anomaly in self.anomalies}

    def errors(self, allowed: Iterable[str] = ALLOWED) -> list[Anomaly]:
        return [anomaly for anomaly in self.anomalies if anomaly.name not in allowed]


def check(operations: Sequence[Operation], *, final_reads: bool = True) -> Verdict:
    """Judge a history. `final_reads`: at its end a client read every partition completely."""
    return _Checker(operations, final_reads).verdict()


class _Checker:
    def __init__(self, operations: Sequence[Operation], final_reads: bool) -> None:
        for number, operation in enumerate(operations):
            operation.number = number
        self.operations = operations
        self.final_reads = final_reads
        self.found = Verdict(operations=len(operations))
        self.senders: dict[Version, Operation] = {}
        self.offsets: defaultdict[Version, set[int]] = defaultdict(set)
        self.values: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        """By partition and offset."""
        self.readers: defaultdict[Version, list[Operation]] = defaultdict(list)
        self.visible: dict[int, list[int]] = {}
        """The offsets of records that any client polled, by partition, in order."""

    def verdict(self) -> Verdict:
        self._collect()
        self._check_offsets()
        self._check_reads()
        self._check_lost()
        self._check_order()
        self._check_cycles()
        return self.found

    def note(self, name: str, text: str, *operations: Operation) -> None:
        self.found.anomalies.append(Anomaly(name, text, tuple(operation.number for operation in operations)))

    def _collect(self) -> None:
        polled: defaultdict[int, set[int]] = defaultdict(set)
        for operation in self.operations:
            if operation.sends:
                self.found.transactions += 1
            for send in operation.sends:
                self.found.sent += 1
                self.senders[send.partition, send.value] = operation
                # The offset of an aborted transaction is never reused, but no reader will confirm it.
                if send.offset is not None and operation.outcome != FAIL:
                    self.offsets[send.partition, send.value].add(send.offset)
                    self.values[send.partition, send.offset].add(send.value)
            for poll in operation.polls:
                for partition, records in poll.records.items():
                    for offset, value in records:
                        self.found.seen += 1
                        self.offsets[partition, value].add(offset)
                        self.values[partition, offset].add(value)
                        self.readers[partition, value].append(operation)
                        polled[partition].add(offset)
        self.visible = {partition: sorted(offsets) for partition, offsets in polled.items()}

    def _check_offsets(self) -> None:
        for (partition, offset), values in self.values.items():
            if len(values) > 1:
                self.note("inconsistent-offsets", f"partition {partition} has {sorted(values)} at offset {offset}")
        for (partition, value), offsets in self.offsets.items():
            if len(offsets) > 1:
                self.note("duplicate", f"{value} of partition {partition} is at offsets {sorted(offsets)}")

    def _check_reads(self) -> None:
        for version, readers in self.readers.items():
            sender = self.senders.get(version)
            if sender is None:
                self.note("inconsistent-offsets", f"nobody sent {version[1]} to partition {version[0]}", readers[0])
            elif sender.outcome == FAIL:
                self.note("aborted-read", f"{version[1]} of partition {version[0]} was aborted", sender, readers[0])
            elif sender.outcome == INFO:
                self._check_half_visible(sender)
            elif any(reader is sender for reader in readers):
                self.note("precommitted-read", f"{version[1]} of partition {version[0]} was seen early", sender)

    def _check_half_visible(self, sender: Operation) -> None:
        """If a record of a transaction with unknown outcome was seen, it was committed: all of its records must
        exist."""
        if self.final_reads and len(sender.sends) > 1:
            unseen = [send.value for send in sender.sends if (send.partition, send.value) not in self.readers]
            if unseen:
                self.note("lost-write", f"{unseen} were committed with others that were seen", sender)

    def _check_lost(self) -> None:
        last = {partition: offsets[-1] for partition, offsets in self.visible.items()}
        for (partition, value), sender in self.senders.items():
            if sender.outcome != OK or (partition, value) in self.readers:
                continue
            known = self.offsets.get((partition, value))
            if known and min(known) < last.get(partition, -1):
                self.note("lost-write", f"{value} of partition {partition} at offset {min(known)}", sender)
            elif self.final_reads:
                self.note("unseen", f"{value} of partition {partition}", sender)

    # -- the order of polls and sends

    def _check_order(self) -> None:
        polled: dict[int, dict[int, int]] = {}
        sent: dict[int, dict[int, int]] = {}
        skips = _Skips(self.visible)
        for operation in self.operations:
            own_polls = polled.setdefault(operation.process, {})
            own_sends = sent.setdefault(operation.process, {})
            if operation.moves:
                own_polls.clear()
            inside: dict[int, int] = {}
            inside_sent: dict[int, int] = {}
            for step in operation.steps:
                if isinstance(step, Poll):
                    self._order_of_poll(operation, step, inside, own_polls, skips)
                elif step.offset is not None:
                    self._order_of_send(operation, step, inside_sent, own_sends, skips)
            own_polls.update(inside)
            own_sends.update(inside_sent)

    def _order_of_poll(
        self, operation: Operation, poll: Poll, inside: dict[int, int], before: dict[int, int], skips: _Skips
    ) -> None:
        for partition, records in poll.records.items():
            for offset, _ in records:
                prefix = "int-" if partition in inside else ""
                last = inside.get(partition, before.get(partition))
                if last is not None:
                    where = f"partition {partition}: {offset} after {last}"
                    if offset <= last:
                        self.note("int-nonmonotonic-poll" if prefix else "nonmonotonic-poll", where, operation)
                    elif skips.between(partition, last, offset):
                        self.note(f"{prefix}poll-skip", where, operation)
                inside[partition] = offset

    def _order_of_send(
        self, operation: Operation, send: Send, inside: dict[int, int], before: dict[int, int], skips: _Skips
    ) -> None:
        assert send.offset is not None
        prefix = "int-" if send.partition in inside else ""
        last = inside.get(send.partition, before.get(send.partition))
        if last is not None:
            where = f"partition {send.partition}: {send.offset} after {last}"
            if send.offset <= last:
                self.note(f"{prefix}nonmonotonic-send", where, operation)
            elif prefix and skips.between(send.partition, last, send.offset):
                self.note("int-send-skip", where, operation)
        inside[send.partition] = send.offset

    # -- dependencies between transactions

    def _check_cycles(self) -> None:
        writes: defaultdict[int, set[int]] = defaultdict(set)
        reads: defaultdict[int, set[int]] = defaultdict(set)
        for partition, by_offset in self._log().items():
            order = [self.senders[partition, value] for _, value in sorted(by_offset.items())]
            for earlier, later in pairwise(order):
                if earlier is not later:
                    writes[earlier.number].add(later.number)
        for version, readers in self.readers.items():
            sender = self.senders.get(version)
            if sender is None:
                continue
            for reader in readers:
                if reader is not sender and reader.sends:
                    reads[sender.number].add(reader.number)
        for name, edges in (("G0", writes), ("G1c", reads)):
            for cycle in cycles(edges):
                text = " before ".join(map(str, cycle))
                self.note(name, f"{text} before {cycle[0]}", *(self.operations[number] for number in cycle))

    def _log(self) -> dict[int, dict[int, int]]:
        """The values of each partition by offset, of operations that were not aborted."""
        log: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for (partition, value), offsets in self.offsets.items():
            sender = self.senders.get((partition, value))
            if sender is not None and sender.outcome != FAIL:
                log[partition][min(offsets)] = value
        return log


class _Skips:
    """Whether something visible lies between two offsets; the offsets of a partition are searched, not scanned."""

    def __init__(self, visible: dict[int, list[int]]) -> None:
        self._places = {
            partition: {offset: place for place, offset in enumerate(offsets)} for partition, offsets in visible.items()
        }
        self._visible = visible

    def between(self, partition: int, after: int, before: int) -> bool:
        places, offsets = self._places.get(partition, {}), self._visible.get(partition, [])
        place = places.get(before)
        if place is None:
            return any(after < offset < before for offset in offsets)
        return place > 0 and offsets[place - 1] > after


def cycles(edges: dict[int, set[int]]) -> list[list[int]]:
    """One cycle of every strongly connected group of operations (Tarjan's algorithm, without recursion)."""
    found: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = _popped(stack, on_stack, node)
                    if len(component) > 1:
                        found.append(_cycle_in(component, edges))
    return found


def _popped(stack: list[int], on_stack: set[int], node: int) -> set[int]:
    component: set[int] = set()
    while node not in component:
        component.add(stack[-1])
        on_stack.discard(stack.pop())
    return component


def _cycle_in(component: set[int], edges: dict[int, set[int]]) -> list[int]:
    """A shortest cycle through the first operation of the component."""
    start = min(component)
    came_from: dict[int, int] = {}
    queue = [start]
    for node in queue:
        for other in sorted(edges.get(node, ())):
            if other == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other in component and other not in came_from:
                came_from[other] = node
                queue.append(other)
    raise AssertionError("a strongly connected component has a cycle")
