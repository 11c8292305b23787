"""The sticky assignor of streams groups: who has a task keeps it as far as the load allows.

Members of one process share its state folders, so load is balanced between processes first and between their members
then. Active tasks are given out in three rounds: to who had them, to who kept them in standby, to who has least. Then
come the standby tasks: to who was active before, to who had them in standby, to who has least, and never two copies
to one process. A member's quota is its share of what is left, so that nobody keeps so much that others get nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ottla.coordinator.streams.tasks import Target

logger = logging.getLogger(__name__)

Task = tuple[str, int]
"""Subtopology and partition."""


class MemberSpec(NamedTuple):
    process_id: str
    previous: Target


class SubtopologySpec(NamedTuple):
    task_count: int
    is_stateful: bool


class _Process:
    """The members of one process, and what they get."""

    __slots__ = ("active", "counts", "standby", "task_count", "tasks")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self.tasks: set[Task] = set()
        self.task_count = 0

    @property
    def load(self) -> float:
        return self.task_count / len(self.counts)

    def add(self, member_id: str, task: Task, *, active: bool) -> int:
        """Give a member a task; how many it has now."""
        (self.active if active else self.standby)[member_id].append(task)
        self.tasks.add(task)
        self.task_count += 1
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_to_least_loaded(self, task: Task, *, active: bool) -> int:
        return self.add(min(self.counts, key=self.counts.__getitem__), task, active=active)


_Queue = list[tuple[float, int, _Process]]
"""A heap by load; the number keeps the order of processes with the same load."""
_Previous = Callable[[Task], str | None]


class _Quota:
    """How many tasks one more member may have: shrinks as members reach it."""

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
        for member_id, member in members.items():
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

    # -- active tasks

    def assign_active(self, tasks: list[Task]) -> None:
        tasks = self._keep_active(sorted(tasks, key=lambda task: (task[1], task[0])), self._previous_active)
        tasks = self._keep_active(tasks, self._previous_standby)
        queue = self._by_load()
        for task in sorted(tasks):
            _, number, process = heappop(queue)
            count = process.add_to_least_loaded(task, active=True)
            self._active_quota.reached(count)
            self._quota.reached(count)
            heappush(queue, (process.load, number, process))

    def _keep_active(self, tasks: list[Task], previous: _Previous) -> list[Task]:
        """Give tasks to who had them before, within the quota; those that are left."""
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
        # Kafka looks at the first one's process here, whoever was chosen.
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
        """To the least loaded process that has no copy of the task."""
        passed = []
        found = False
        while queue and not found:
            _, number, process = heappop(queue)
            if task not in process.tasks:
                self._quota.reached(process.add_to_least_loaded(task, active=False))
                found = True
            passed.append((process.load, number, process))
        for entry in passed:
            heappush(queue, entry)
        return found

    def _by_load(self) -> _Queue:
        queue = [(process.load, number, process) for number, process in enumerate(self.processes.values())]
        heapify(queue)
        return queue


def assign(
    members: Mapping[str, MemberSpec], topology: Mapping[str, SubtopologySpec], standby_replicas: int
) -> dict[str, Target]:
    """What each member is to have."""
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
