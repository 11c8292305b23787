"""Triggers events that otherwise happen in a cluster from time to time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.embedded.groups import find_group, group_ids, shard_of
from ottla.errors import ConcurrentTransactions, KafkaError
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.groups.interfaces import Group
    from ottla.server.broker import Broker as Server


def _group_with_members(server: Server, group_id: str) -> tuple[GroupShard, Group]:
    shard = shard_of(server, group_id)
    group = find_group(server, group_id)
    if shard is None or group is None:
        known = ", ".join(group_ids(server)) or "none yet"
        raise ValueError(f"there is no group {group_id!r} (existing groups: {known}); let its consumer join first")
    if not group.members:
        raise ValueError(f"group {group_id!r} has no members; let its consumer join first")
    return shard, group


def rebalance(server: Server, group_id: str) -> None:
    shard, group = _group_with_members(server, group_id)
    shard.run(shard.protocol(group.type_name).rebalance(group))


def evict(server: Server, group_id: str, wanted: str | None) -> str:
    shard, group = _group_with_members(server, group_id)
    member_id: str | None = next(
        (
            member.member_id
            for member in group.members.values()
            if wanted is None or wanted in (member.member_id, member.instance_id, member.client_id)
        ),
        None,
    )
    if member_id is None:
        there = ", ".join(f"{member.client_id} ({member.member_id})" for member in group.members.values())
        raise ValueError(f"group {group_id!r} has no member {wanted!r}; it has {there}")
    shard.run(shard.protocol(group.type_name).remove(group, member_id))
    return member_id


def fence_producer(server: Server, transactional_id: str) -> None:
    coordinator = server.transactions.coordinator
    try:
        known = coordinator.describe(transactional_id)
    except KafkaError as error:
        raise ValueError(
            f"no producer has the transactional id {transactional_id!r}; let it call init_transactions() first"
        ) from error
    try:
        coordinator.init_producer(transactional_id, known.timeout_ms, None)
    except ConcurrentTransactions:
        return  # the open transaction is being aborted; its producer is fenced anyway


def reload_group_coordinator(server: Server, group_id: str) -> None:
    if GROUP_METADATA_TOPIC not in server.metadata.topics:
        raise ValueError("this broker has not coordinated a group yet; let a consumer join first")
    index = server.groups.partition_for(group_id)
    server.coordinators.groups.host.load(index)


def reload_transaction_coordinator(server: Server, transactional_id: str) -> None:
    if TRANSACTION_STATE_TOPIC not in server.metadata.topics:
        raise ValueError(
            "this broker has not coordinated a transaction yet; let a producer call init_transactions() first"
        )
    transactions = server.transactions
    transactions.host.load(transactions.coordinator.partition_for(transactional_id))


def bump_leader_epoch(server: Server, topic: str, partition: int) -> None:
    known = server.metadata.topics.get(topic)
    if known is None or partition not in known.partitions:
        raise ValueError(f"there is no partition {topic}-{partition}; create the topic first")
    leader = known.partitions[partition].leader
    if leader == NO_LEADER:
        raise ValueError(f"there is no leader of {topic}-{partition} now")
    server.controller.commit(
        [stored.PartitionChangeRecord(partition_id=partition, topic_id=known.topic_id, leader=leader)]
    )


def fail_folder(server: Server, folder: str | None) -> str:
    """Take a data folder offline, as a disk error does. Returns the folder."""
    parts = server.disk.parts()
    wanted = str(parts[-1]) if folder is None else os.path.abspath(folder)
    found = next((part for part in parts if str(part) == wanted), None)
    if found is None:
        raise ValueError(f"{folder} is not a data folder in use; the folders are {', '.join(map(str, parts))}")
    server.folder_failed(str(found), "a fault")
    return str(found)
