"""ListGroups and DeleteGroups, for all kinds of groups. Each kind also has its own `description` module.

ListGroups: v4 filter by state, v5 by type; unknown states and types match nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.answers import Reply
from ottla.coordinator.groups.interfaces import Group
from ottla.coordinator.runtime.result import Result
from ottla.errors import GroupIdNotFound, KafkaError
from ottla.wire.messages import DeleteGroupsResponse, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

Deleted = DeleteGroupsResponse.DeletableGroupResult


def list_groups(
    shard: GroupShard, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListGroupsResponse.ListedGroup]:
    state_filter = {state.strip().lower() for state in states}
    type_filter = {name.strip().lower() for name in types}
    listed = []
    for group in shard.seen_groups():
        state = group.state_name
        if state_filter and group.state_filter_name not in state_filter:
            continue
        if type_filter and group.type_name not in type_filter:
            continue
        listed.append(
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=state,
                group_type=group.type_name,
            )
        )
    return listed


def delete_group(shard: GroupShard, group_id: str) -> Result[Deleted]:
    """Delete a group and all its offsets; refused while it has members."""
    group = _deletable(shard, group_id)
    response = Deleted(group_id=group_id)
    reply: Reply[Deleted] = Reply()

    def done(error: KafkaError | None) -> None:
        try:
            if error is not None:
                raise error
            answer = shard.run(_deleted(shard, _deletable(shard, group_id), response))
        except KafkaError as refusal:
            response.error_code = refusal.code
            reply.resolve(response)
            return
        reply.complete(lambda: answer)

    first = group.before_deleted(shard, done)
    return _deleted(shard, group, response) if first is None else first.with_response(reply)


def _deletable(shard: GroupShard, group_id: str) -> Group:
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    group.validate_delete()
    return group


def _deleted(shard: GroupShard, group: Group, response: Deleted) -> Result[Deleted]:
    shard.history.forget(group.group_id)
    return Result([*shard.offsets.tombstones(group.group_id), *group.tombstones()], response)
