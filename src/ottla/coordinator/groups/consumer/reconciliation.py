"""How a member of a consumer group moves from its current assignment to the target (KIP-848).

    member state            what it means                             leaves it when
    ----------------------  ----------------------------------------  -------------------------------------------
    STABLE                  owns its target, as far as assigned       the target's epoch moves on
    UNREVOKED_PARTITIONS    must give partitions up, at its old epoch  its heartbeat no longer lists them as owned
    UNRELEASED_PARTITIONS   is at the new epoch, but others still own  they release them
                            partitions that it will get

Only one member can own a partition at a time: the new owner gets it after the old owner has reported that it no longer
owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.coordinator.groups.consumer.group import (
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    PartitionEpochs,
    TargetPartitions,
)

NOT_OWNED = -1


def reconcile(
    member: ConsumerMember,
    target: Mapping[bytes, frozenset[int]],
    target_epoch: int,
    subscribed: frozenset[bytes],
    owned: OwnedPartitions | None,
    owner_epoch: Callable[[bytes, int], int],
    *,
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after this heartbeat. `owned` are the partitions that it reports; None if the field is not set."""
    if member.state is MemberState.STABLE:
        if member.epoch != target_epoch:
            return _next(member, target, target_epoch, subscribed, owned, owner_epoch)
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, member.revoking):
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    return _next(member, target, target_epoch, subscribed, owned, owner_epoch)


def _owns_any(owned: OwnedPartitions | None, revoking: PartitionEpochs) -> bool:
    """None means "still owns everything": the member sends its partitions only when they change."""
    if owned is None:
        return True
    return any(index in revoking.get(topic_id, ()) for topic_id, indexes in owned.items() for index in indexes)


def _drop_unsubscribed(
    member: ConsumerMember, subscribed: frozenset[bytes], owned: OwnedPartitions | None
) -> ConsumerMember:
    """Immediately revoke topics from which the member has just unsubscribed, without waiting for a new target."""
    dropped = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in subscribed}
    if not dropped:
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id, epochs in dropped.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    if _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return _moved(member, member.epoch, member.state, assigned, member.revoking)


def _next(
    member: ConsumerMember,
    target: Mapping[bytes, frozenset[int]],
    target_epoch: int,
    subscribed: frozenset[bytes],
    owned: OwnedPartitions | None,
    owner_epoch: Callable[[bytes, int], int],
) -> ConsumerMember:
    assigned: PartitionEpochs = {}
    revoking: PartitionEpochs = {}
    granted: TargetPartitions = {}
    has_unreleased = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        kept = {index: epoch for index, epoch in current.items() if index in wanted}
        given_up = {index: epoch for index, epoch in current.items() if index not in wanted}
        mine = member.revoking.get(topic_id, {})
        # A partition that this member itself is revoking is not owned by another member.
        free = {
            index
            for index in wanted
            if index not in kept and (owner_epoch(topic_id, index) == NOT_OWNED or index in mine)
        }
        has_unreleased |= len(kept) + len(free) < len(wanted)
        if kept:
            assigned[topic_id] = kept
        if given_up:
            revoking[topic_id] = given_up
        if free:
            granted[topic_id] = frozenset(free)
    if revoking and _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, indexes in granted.items():
        epochs = assigned.setdefault(topic_id, {})
        epochs.update(dict.fromkeys(sorted(indexes), target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return _moved(member, target_epoch, state, assigned, {})


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: PartitionEpochs, revoking: PartitionEpochs
) -> ConsumerMember:
    """Always store the member's epoch as its previous one: it may repeat a heartbeat whose answer was lost."""
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)
