"""How a member of a streams group moves from its current tasks to the target.

    member state      what it means                              leaves it when
    ----------------  -----------------------------------------  ---------------------------------------------
    STABLE            has its target                             the target's epoch moves on
    UNREVOKED_TASKS   must give tasks up, at its old epoch        its heartbeat no longer lists them as owned
    UNRELEASED_TASKS  is at the new epoch, but tasks that it      they are released
                      will get are still with others

A task is active in one place only, and a process has one copy of it at most: members of the same process also wait for
each other when a standby copy becomes the active one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.coordinator.groups.streams.group import MemberState, StreamsGroup, StreamsMember
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED, Assigned, Target, TaskSets
from ottla.errors import FencedMemberEpoch


def reconcile(
    group: StreamsGroup, member: StreamsMember, target_epoch: int, target: Target, owned: Target | None
) -> StreamsMember:
    """The member after this heartbeat. `owned` are the tasks that it reports; None if the field is not set."""
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return member
    elif member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or owned.shares_any(member.revoking):
            return member
        # The member has revoked its tasks: as in Kafka, the next step starts one epoch later.
        return _next(group, member, member.epoch + 1, target_epoch, target, owned)
    elif member.state is MemberState.UNKNOWN:
        # A newer broker wrote this state: only a member without tasks can start again.
        if owned is None or not owned.is_empty:
            raise FencedMemberEpoch(
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
            )
        return _next(group, member, target_epoch, target_epoch, target, owned)
    return _next(group, member, member.epoch, target_epoch, target, owned)


def _next(
    group: StreamsGroup,
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: Target,
    owned: Target | None,
) -> StreamsMember:
    process_id = member.process_id

    def has_copy(task: tuple[str, int]) -> bool:
        return process_id in group.standby_owners.get(task, ()) or process_id in group.warmup_owners.get(task, ())

    def active_elsewhere(task: tuple[str, int]) -> bool:
        return task in group.active_owner or has_copy(task)

    def with_own_process(task: tuple[str, int]) -> bool:
        return group.active_owner.get(task) == process_id or has_copy(task)

    has = member.assigned
    active = _Change(has.active, target.active, active_elsewhere)
    standby = _Change(has.standby, target.standby, with_own_process)
    warmup = _Change(has.warmup, target.warmup, with_own_process)
    changes = (active, standby, warmup)
    kept_active = {
        name: {index: has.active[name][index] for index in sorted(indexes)} for name, indexes in active.kept.items()
    }
    revoking = Assigned(
        {name: {index: has.active[name][index] for index in sorted(lost)} for name, lost in active.lost.items()},
        standby.lost,
        warmup.lost,
    )
    if not revoking.is_empty and (owned is None or owned.shares_any(revoking)):
        return _moved(
            member, epoch, MemberState.UNREVOKED_TASKS, Assigned(kept_active, standby.kept, warmup.kept), revoking
        )
    for name, gained in active.gained.items():
        kept_active.setdefault(name, {}).update(dict.fromkeys(sorted(gained), target_epoch))
    assigned = Assigned(kept_active, _joined(standby), _joined(warmup))
    waits = any(change.waits for change in changes)
    state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
    return _moved(member, target_epoch, state, assigned, NOTHING_ASSIGNED)


class _Change:
    """Tasks of one role: kept, lost, gained, and whether some have to wait."""

    __slots__ = ("gained", "kept", "lost", "waits")

    def __init__(
        self,
        has: Mapping[str, Mapping[int, int]] | TaskSets,
        target: TaskSets,
        is_taken: Callable[[tuple[str, int]], bool],
    ) -> None:
        self.kept: dict[str, frozenset[int]] = {}
        self.lost: dict[str, frozenset[int]] = {}
        self.gained: dict[str, frozenset[int]] = {}
        self.waits = False
        for name in dict.fromkeys((*target, *has)):
            current = frozenset(has.get(name, ()))
            wanted = target.get(name, frozenset())
            free = frozenset(index for index in wanted - current if not is_taken((name, index)))
            self.waits |= len(free) < len(wanted - current)
            for found, tasks in (
                (self.kept, current & wanted),
                (self.lost, current - wanted),
                (self.gained, free),
            ):
                if tasks:
                    found[name] = tasks


def _joined(change: _Change) -> TaskSets:
    return {
        name: change.kept.get(name, frozenset()) | change.gained.get(name, frozenset())
        for name in dict.fromkeys((*change.kept, *change.gained))
    }


def _moved(
    member: StreamsMember, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned
) -> StreamsMember:
    """Always store the member's epoch as its previous one: it may repeat a heartbeat whose answer was lost."""
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)
