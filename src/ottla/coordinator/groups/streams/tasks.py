"""Tasks of a streams group: one for each subtopology and each of its input partitions.

A task is active on one member; others may have standby copies. The protocol and the records have warm-up tasks, but
Kafka 4.3 does not assign any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

TaskSets = Mapping[str, frozenset[int]]
"""Subtopology -> partitions."""
TaskEpochs = Mapping[str, Mapping[int, int]]
"""Subtopology -> partition -> the epoch at which the member got the task."""


class Target(NamedTuple):
    """The tasks that a member should have, or reports to have."""

    active: TaskSets = {}
    standby: TaskSets = {}
    warmup: TaskSets = {}

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def shares_any(self, other: Assigned) -> bool:
        """Whether both contain some task in the same role."""
        pairs: Iterable[tuple[TaskSets, Mapping[str, Iterable[int]]]] = (
            (self.active, other.active),
            (self.standby, other.standby),
            (self.warmup, other.warmup),
        )
        return any(
            not mine.get(subtopology, frozenset()).isdisjoint(partitions)
            for mine, theirs in pairs
            for subtopology, partitions in theirs.items()
        )


class Assigned(NamedTuple):
    """The tasks that a member has, or has to give up."""

    active: TaskEpochs = {}
    standby: TaskSets = {}
    warmup: TaskSets = {}

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


NO_TARGET = Target()
NOTHING_ASSIGNED = Assigned()


def sets_of(task_ids: Iterable[Any]) -> TaskSets:
    """From the `TaskIds` of any message."""
    return {each.subtopology_id: frozenset(each.partitions) for each in task_ids}


def epochs_of(task_ids: Iterable[Any], default_epoch: int) -> TaskEpochs:
    """From a stored record. A subtopology with missing or too few epochs gets `default_epoch` for all its tasks."""
    found = {}
    for each in task_ids:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [default_epoch] * len(each.partitions)
        found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


def task_ids(make: Callable[..., Any], tasks: Mapping[str, Iterable[int]]) -> list[Any]:
    """Convert to the `TaskIds` of any message, sorted."""
    return [make(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]
