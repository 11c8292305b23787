"""Operations on groups of all four kinds: the list, one group with its lag, offsets, deletion."""

from __future__ import annotations

from typing import Any, Final

from ottla.client import admin
from ottla.client.offsets import Committed, bounds, commit, committed, list_offsets
from ottla.client.routing import Client, TopicPartition
from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.console.storage import unread_ms
from ottla.errors import KafkaError

_DEAD: Final = "Dead"


@operation("GET", "/groups")
async def list_groups(call: Call) -> Any:
    """All groups, with their kind and state."""
    return [
        {"group": each.group, "kind": each.kind.lower(), "protocol": each.protocol, "state": each.state}
        for each in await admin.list_groups(call.source.client)
    ]


@operation("GET", "/groups/{group}")
async def describe_group(call: Call) -> Any:
    """One group: members with their partitions, and the lag of each partition."""
    client = call.source.client
    group = await _existing(call)
    lags = await _share_lags(client, group.group) if group.kind == "share" else await _lags(client, group.group)
    owners = {tp: member.member_id for member in group.members for tp in member.partitions}
    for tp in owners:
        lags.setdefault(tp, {"committed": None, "end": None, "lag": None})
    for (topic, index), entry in lags.items():
        entry["lag_ms"] = _lag_ms(call, topic, index, entry)
    return {
        "group": group.group,
        "kind": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(member.partitions)],
            }
            for member in group.members
        ],
        "offsets": [
            {"topic": topic, "partition": index, "member_id": owners.get((topic, index)), **entry}
            for (topic, index), entry in sorted(lags.items())
        ],
        "lag": sum(entry["lag"] or 0 for entry in lags.values()),
        "lag_ms": max((entry["lag_ms"] for entry in lags.values() if entry["lag_ms"] is not None), default=None),
    }


def _lag_ms(call: Call, topic: str, index: int, entry: dict[str, Any]) -> int | None:
    """How long the first unread record has waited; only the broker's own console can tell."""
    if entry["lag"] == 0:
        return 0
    return None if entry["committed"] is None else unread_ms(call, topic, index, entry["committed"])


@operation("GET", "/groups/{group}/history")
async def group_history(call: Call) -> Any:
    """What happened to a group since its coordinator started, oldest first. A group that is gone is remembered."""
    inside = call.source.need_inside()
    group = await admin.describe_group(call.source.client, call.path["group"])
    events = [
        event._asdict()
        for server in inside.servers().values()
        for shard in server.groups.shards()
        for event in shard.history.of(group.group)
    ]
    if group.state == _DEAD and not events:
        raise NotFound(f"there is no group {group.group!r}")
    return events


async def _existing(call: Call) -> admin.Group:
    group = await admin.describe_group(call.source.client, call.path["group"])
    if group.state == _DEAD:
        raise NotFound(f"there is no group {call.path['group']!r}")
    return group


async def _lags(client: Client, group: str) -> dict[TopicPartition, dict[str, Any]]:
    offsets = await committed(client, group)
    known = (await client.metadata({topic for topic, _ in offsets})).topics
    there = [tp for tp in offsets if tp[0] in known and tp[1] in known[tp[0]].partitions]
    ends = await bounds(client, there)
    return {
        tp: {
            "committed": position.offset,
            "end": ends[tp][1] if tp in ends else None,
            "lag": max(0, ends[tp][1] - position.offset) if tp in ends else None,
        }
        for tp, position in offsets.items()
    }


async def _share_lags(client: Client, group: str) -> dict[TopicPartition, dict[str, Any]]:
    found = await admin.share_offsets(client, group)
    return {
        tp: {"committed": start, "end": None, "lag": lag if lag >= 0 else None} for tp, (start, lag) in found.items()
    }


@operation("DELETE", "/groups/{group}")
async def delete_group(call: Call) -> Any:
    """Delete a group without members, with its offsets."""
    group = await _existing(call)
    error = (await admin.delete_groups(call.source.client, [group.group]))[group.group]
    if isinstance(error, KafkaError):
        raise error
    return {"group": group.group}


@operation(
    "POST",
    "/groups/{group}/offsets",
    body={
        "type": "object",
        "required": ["to"],
        "properties": {
            "to": {
                "type": "string",
                "description": "earliest, latest, offset:N, shift:N, or time:MILLISECONDS",
            },
            "topic": {"type": "string"},
            "partitions": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "preview": {"type": "boolean", "default": True},
        },
    },
)
async def reset_offsets(call: Call) -> Any:
    """Move a group's offsets. With `preview` (the default) nothing is changed: the answer says what would be."""
    client = call.source.client
    group = await _existing(call)
    if group.kind in ("share", "streams"):
        raise BadRequest(f"{group.group!r} is a {group.kind} group: its offsets cannot be set here")
    now = await committed(client, group.group)
    wanted = await _chosen(call, now)
    limits = await bounds(client, wanted)
    targets = await _targets(call, wanted, now, limits)
    changes = [
        {
            "topic": topic,
            "partition": index,
            "from": now[topic, index].offset if (topic, index) in now else None,
            "to": target,
        }
        for (topic, index), target in sorted(targets.items())
    ]
    preview = call.body.get("preview", True)
    if not isinstance(preview, bool):
        raise BadRequest("'preview' must be true or false")
    if not preview:
        await commit(client, group.group, {tp: Committed(target) for tp, target in targets.items()})
    return {"preview": preview, "offsets": changes}


async def _chosen(call: Call, now: dict[TopicPartition, Committed]) -> list[TopicPartition]:
    """The partitions that a reset is about: those with a commit, or those of the topic that is named."""
    if "topic" not in call.body:
        if not now:
            raise BadRequest("the group has committed nothing: name a topic")
        return sorted(now)
    topic = await call.source.client.topic(call.text("topic"))
    picked = call.body.get("partitions")
    if picked is None:
        return [(topic.name, index) for index in topic.partitions]
    if not isinstance(picked, list) or not all(each in topic.partitions for each in picked):
        raise BadRequest(f"'partitions' must be a list of partitions of {topic.name!r}")
    return [(topic.name, index) for index in picked]


async def _targets(
    call: Call,
    wanted: list[TopicPartition],
    now: dict[TopicPartition, Committed],
    limits: dict[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    place = call.text("to")
    kind, _, text = place.partition(":")
    if place == "earliest":
        return {tp: limits[tp][0] for tp in wanted}
    if place == "latest":
        return {tp: limits[tp][1] for tp in wanted}
    digits = text.removeprefix("-")
    if kind not in ("offset", "shift", "time") or not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise BadRequest(f"to={place!r} is not earliest, latest, offset:N, shift:N or time:MILLISECONDS")
    number = int(text)
    if kind == "offset":
        aims = dict.fromkeys(wanted, number)
    elif kind == "shift":
        aims = {tp: now[tp].offset + number for tp in wanted if tp in now}
    else:
        if number < 0:
            raise BadRequest("a time is a number of milliseconds since 1970")
        found = await list_offsets(call.source.client, dict.fromkeys(wanted, number))
        aims = {tp: found[tp].offset if found[tp].offset >= 0 else limits[tp][1] for tp in wanted}
    return {tp: min(max(aim, limits[tp][0]), limits[tp][1]) for tp, aim in aims.items()}
