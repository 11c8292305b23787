"""The sticky assignor of streams groups: members keep their tasks as far as the load allows.

Members of one process share its state folders, so load is balanced first between processes and then between their
members. Active tasks are assigned in three rounds: to the members that had them, to those that had a standby copy, to
the least loaded. Standby tasks follow: to the members that were active before, to those that had them in standby, to
the least loaded; a process never gets two copies. A member's quota is its share of the remaining tasks, so that no
member keeps so many that others get none. Ties are decided by the order of Kafka's hash maps and heaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.coordinator.groups.streams.tasks import Target
from ottla.metadata.java_hash_order import JavaOrder, java_names
from ottla.metadata.topics import java_hash

logger = logging.getLogger(__name__)

Task = tuple[str, int]
"""Subtopology and partition."""


class MemberSpec(NamedTuple):
    process_id: str
    previous: Target


class SubtopologySpec(NamedTuple):
    task_count: int
    is_stateful: bool


T = TypeVar("T")


class _Heap(Generic[T]):
    """Java's PriorityQueue, which returns equal entries in a different order than Python's heap."""

    __slots__ = ("_items", "_key")

    def __init__(self, key: Callable[[T], float], items: Iterable[T]) -> None:
        self._key = key
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        items, key = self._items, self._key
        at = len(items)
        items.append(item)
        while at:
            parent = (at - 1) >> 1
            if key(item) >= key(items[parent]):
                break
            items[at] = items[parent]
            at = parent
        items[at] = item

    def pop(self) -> T:
        items, key = self._items, self._key
        first, item = items[0], items.pop()
        if not items:
            return first
        at, count = 0, len(items)
        while at < count >> 1:
            child = 2 * at + 1
            if child + 1 < count and key(items[child]) > key(items[child + 1]):
                child += 1
            if key(item) <= key(items[child]):
                break
            items[at] = items[child]
            at = child
        items[at] = item
        return first


class _Process:
    """The members of one process, and their tasks."""

    __slots__ = ("_by_count", "active", "counts", "standby", "task_count", "tasks")

    def __init__(self) -> None:
        self._by_count: _Heap[list[str | int]] | None = None
        self.counts: dict[str, int] = {}
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self.tasks: set[Task] = set()
        self.task_count = 0

    @property
    def load(self) -> float:
        return self.task_count / len(self.counts)

    def add(self, member_id: str, task: Task, *, active: bool) -> int:
        """Give a member a task; returns how many it has now."""
        self._by_count = None
        return self._add(member_id, task, active=active)

    def _add(self, member_id: str, task: Task, *, active: bool) -> int:
        (self.active if active else self.standby)[member_id].append(task)
        self.tasks.add(task)
        self.task_count += 1
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_to_least_loaded(self, task: Task, *, active: bool) -> int:
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, active=active)
        if self._by_count is None:
            self._by_count = _Heap(_count_of, ([name, self.counts[name]] for name in java_names(self.counts)))
        least = self._by_count.pop()
        count = least[1] = self._add(str(least[0]), task, active=active)
        self._by_count.push(least)
        return count


def _count_of(member: list[str | int]) -> float:
    return float(member[1])


def _load_of(process: _Process) -> float:
    return process.load


_Queue = _Heap[_Process]
_Previous = Callable[[Task], str | None]


class _Quota:
    """The maximum number of tasks of a member. It shrinks as members reach it."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = self._share()

    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def reached(self, count: int) -> None:
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = self._share()


class _Assignment:
    def __init__(
        self, members: Mapping[str, MemberSpec], topology: Mapping[str, SubtopologySpec], standby_replicas: int
    ) -> None:
        self._replicas = standby_replicas
        active_count = sum(each.task_count for each in topology.values())
        standby_count = standby_replicas * sum(each.task_count for each in topology.values() if each.is_stateful)
        self._active_quota = _Quota(active_count, len(members))
        self._quota = _Quota(active_count + standby_count, len(members))
        self.processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}
        order: JavaOrder[str] = JavaOrder(java_hash, buckets=len(members))
        for member_id in java_names(members):
            member = members[member_id]
            order.add(member.process_id)
            process = self._process_of[member_id] = self.processes.setdefault(member.process_id, _Process())
            process.counts[member_id] = 0
            process.active[member_id] = []
            process.standby[member_id] = []
            for subtopology, partitions in member.previous.active.items():
                for partition in partitions:
                    self._was_active[subtopology, partition] = member_id
            for subtopology, partitions in member.previous.standby.items():
                for partition in partitions:
                    self._was_standby.setdefault((subtopology, partition), []).append(member_id)
        self._turns = [self.processes[process_id] for process_id in order]

    # -- active tasks

    def assign_active(self, tasks: list[Task]) -> None:
        tasks = self._keep_active(sorted(tasks, key=lambda task: (task[1], task[0])), self._previous_active)
        tasks = self._keep_active(tasks, self._previous_standby)
        queue = self._by_load()
        for task in sorted(tasks):
            process = queue.pop()
            count = process.add_to_least_loaded(task, active=True)
            self._active_quota.reached(count)
            self._quota.reached(count)
            queue.push(process)

    def _keep_active(self, tasks: list[Task], previous: _Previous) -> list[Task]:
        """Give tasks to the members that had them before, within the quota; returns the remaining tasks."""
        left = []
        for task in tasks:
            member_id = previous(task)
            if member_id is None or self._process_of[member_id].counts[member_id] >= self._active_quota.each:
                left.append(task)
                continue
            count = self._process_of[member_id].add(member_id, task, active=True)
            self._active_quota.reached(count)
            self._quota.reached(count)
        return left

    def _previous_active(self, task: Task) -> str | None:
        return self._was_active.get(task)

    def _previous_standby(self, task: Task) -> str | None:
        return self._least_loaded(self._was_standby.get(task, []), None)

    def _least_loaded(self, member_ids: list[str], task: Task | None) -> str | None:
        if not member_ids:
            return None
        chosen = member_ids[0]
        first = self._process_of[chosen]
        load, count = first.load, first.counts[chosen]
        for member_id in member_ids[1:]:
            process = self._process_of[member_id]
            is_free = task is None or task not in process.tasks
            if process.load < load and is_free and process.counts[member_id] < count:
                chosen, load, count = member_id, process.load, process.counts[member_id]
        # Like Kafka, check the process of the first member here, not that of the chosen one.
        return None if task is not None and task in first.tasks else chosen

    # -- standby tasks

    def assign_standby(self, tasks: list[Task]) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
            for given in range(self._replicas):
                if not self._keep_standby(task):
                    left.append((task, self._replicas - given))
                    break
        queue = self._by_load()
        homeless = 0
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._give_standby(queue, task):
                    homeless += 1
                    break
        if homeless:
            logger.warning(
                "%d tasks have fewer than %d standby copies: there are not enough processes", homeless, self._replicas
            )

    def _keep_standby(self, task: Task) -> bool:
        for member_id in (self._was_active.get(task), self._least_loaded(self._was_standby.get(task, []), task)):
            if member_id is None:
                continue
            process = self._process_of[member_id]
            if task not in process.tasks and process.counts[member_id] < self._quota.each:
                self._quota.reached(process.add(member_id, task, active=False))
                return True
        return False

    def _give_standby(self, queue: _Queue, task: Task) -> bool:
        """Give the task to the least loaded process that has no copy of it."""
        passed = []
        found = False
        while len(queue) and not found:
            process = queue.pop()
            if task not in process.tasks:
                self._quota.reached(process.add_to_least_loaded(task, active=False))
                found = True
            passed.append(process)
        for process in reversed(passed):
            queue.push(process)
        return found

    def _by_load(self) -> _Queue:
        return _Heap(_load_of, self._turns)


def assign(
    members: Mapping[str, MemberSpec], topology: Mapping[str, SubtopologySpec], standby_replicas: int
) -> dict[str, Target]:
    """The tasks of each member."""
    assignment = _Assignment(members, topology, standby_replicas)
    tasks = [(name, index) for name in sorted(topology) for index in range(topology[name].task_count)]
    if members:
        assignment.assign_active(tasks)
        if standby_replicas > 0:
            assignment.assign_standby([task for task in tasks if topology[task[0]].is_stateful])
    return {
        member_id: Target(_grouped(process.active[member_id]), _grouped(process.standby[member_id]))
        for process in assignment.processes.values()
        for member_id in process.counts
    }


def _grouped(tasks: list[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
