"""Operations on groups of all four kinds: the list, one group with its lag, offsets, deletion."""

from __future__ import annotations

from typing import Any, Final

from ottla.client import admin
from ottla.client.offsets import Committed, bounds, commit, committed, delete_offsets, list_offsets
from ottla.client.routing import Client, TopicPartition
from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.console.storage import unread_ms
from ottla.console.worker_views import joined
from ottla.errors import KafkaError

_DEAD: Final = "Dead"


@operation("GET", "/groups")
async def list_groups(call: Call) -> Any:
    """All groups, with their kind, state and, of the first thousand, lag."""
    listed = await admin.groups_by_coordinator(call.source.client, partial=True)
    lags = call.source.lags
    await lags.look(call.source.client, listed)
    return [
        {
            "group": each.group,
            "kind": each.kind.lower(),
            "protocol": each.protocol,
            "state": each.state,
            "coordinator": node_id,
            "lag": lags.now(each.group),
        }
        for each, node_id in sorted((each, node_id) for node_id, found in listed.items() for each in found)
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
        "lag_history": [[each.at_ms, each.lag] for each in call.source.lags.history(group.group)],
        "lag_ms": _longest([entry["lag_ms"] for entry in lags.values() if entry["lag"] is not None]),
    }


def _longest(waits: list[int | None]) -> int | None:
    known = [each for each in waits if each is not None]
    return max(known, default=None) if len(known) == len(waits) else None


def _lag_ms(call: Call, topic: str, index: int, entry: dict[str, Any]) -> int | None:
    """How long the first unread record has waited; only the console in the broker's process knows this."""
    if entry["lag"] == 0:
        return 0
    return None if entry["committed"] is None else unread_ms(call, topic, index, entry["committed"])


@operation("GET", "/groups/{group}/history", gather=joined)
async def group_history(call: Call) -> Any:
    """What happened to a group since its coordinator started, oldest first. This includes deleted groups."""
    inside = call.source.need_inside()
    name = call.path["group"]
    group = None if call.source.is_view else await admin.describe_group(call.source.client, name)
    events = [
        event._asdict()
        for server in inside.servers().values()
        for shard in server.groups.shards()
        for event in shard.history.of(name)
    ]
    if group is not None and group.state == _DEAD and not events:
        raise NotFound(f"there is no group {name!r}")
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
    known = (await client.metadata({topic for topic, _ in found})).topics
    ends = await bounds(client, [tp for tp in found if tp[0] in known and tp[1] in known[tp[0]].partitions])
    return {
        tp: {
            "committed": start if start >= 0 else None,
            "end": ends[tp][1] if tp in ends else None,
            "lag": lag if lag >= 0 else None,
        }
        for tp, (start, lag) in found.items()
    }


@operation("DELETE", "/groups/{group}")
async def delete_group(call: Call) -> Any:
    """Delete a group without members, with its offsets."""
    group = await _existing(call)
    error = (await admin.delete_groups(call.source.client, [group.group]))[group.group]
    if isinstance(error, KafkaError):
        raise error
    return {"group": group.group}


@operation("DELETE", "/groups/{group}/offsets/{topic}")
async def delete_group_offsets(call: Call) -> Any:
    """Delete the offsets of a group in one topic. No member may be subscribed to it."""
    client = call.source.client
    group = await _existing(call)
    name = call.path["topic"]
    wanted = [tp for tp in await committed(client, group.group) if tp[0] == name]
    if not wanted:
        raise NotFound(f"group {group.group!r} has committed nothing in topic {name!r}")
    await delete_offsets(client, group.group, wanted)
    return {"group": group.group, "topic": name, "partitions": sorted(index for _, index in wanted)}


@operation(
    "POST",
    "/groups/{group}/offsets",
    body={
        "type": "object",
        "required": ["to"],
        "properties": {
            "to": {
                "type": "string",
                "description": "earliest, latest, current, offset:N, shift:N, time:MILLISECONDS, ago:MILLISECONDS, "
                "or given",
            },
            "offsets": {
                "type": "array",
                "description": "with `given`: an offset for each partition",
                "items": {
                    "type": "object",
                    "required": ["topic", "partition", "offset"],
                    "properties": {
                        "topic": {"type": "string"},
                        "partition": {"type": "integer", "minimum": 0},
                        "offset": {"type": "integer", "minimum": 0},
                    },
                },
            },
            "topic": {"type": "string"},
            "partitions": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "preview": {"type": "boolean", "default": True},
        },
    },
)
async def reset_offsets(call: Call) -> Any:
    """Move a group's offsets. With `preview` (the default) nothing is changed: the answer shows what would change."""
    client = call.source.client
    group = await _existing(call)
    is_share = group.kind == "share"
    if is_share:
        starts = await admin.share_offsets(client, group.group)
        now = {tp: Committed(start) for tp, (start, _) in starts.items() if start >= 0}
    else:
        now = await committed(client, group.group)
    given = _given_offsets(call)
    wanted = sorted(given) if given else await _chosen(call, now)
    for topic in {topic for topic, _ in given}:
        await client.topic(topic)
    limits = await bounds(client, wanted)
    targets = (
        {tp: min(max(offset, limits[tp][0]), limits[tp][1]) for tp, offset in given.items()}
        if given
        else await _targets(call, wanted, now, limits)
    )
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
    if not preview and is_share:
        await admin.set_share_offsets(client, group.group, targets)
    elif not preview:
        await commit(client, group.group, {tp: Committed(target) for tp, target in targets.items()})
    return {"preview": preview, "offsets": changes}


def _given_offsets(call: Call) -> dict[TopicPartition, int]:
    """The offsets of a reset with `given`; empty for the other targets."""
    if call.text("to") != "given":
        return {}
    given = call.body.get("offsets")
    try:
        found = {(each["topic"], each["partition"]): each["offset"] for each in given or ()}
    except (TypeError, KeyError):
        found = {}
    if not found or not all(
        isinstance(topic, str) and type(index) is int and 0 <= index < 1 << 31 and type(offset) is int
        for (topic, index), offset in found.items()
    ):
        raise BadRequest("""'offsets' must be a list such as [{"topic": "t", "partition": 0, "offset": 42}]""")
    return found


async def _chosen(call: Call, now: dict[TopicPartition, Committed]) -> list[TopicPartition]:
    """The partitions to reset: those with a commit, or those of the named topic."""
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
    if place == "current":
        return {tp: min(max(now[tp].offset, limits[tp][0]), limits[tp][1]) for tp in wanted if tp in now}
    digits = text.removeprefix("-")
    if kind not in ("offset", "shift", "time", "ago") or not (
        digits.isascii() and digits.isdigit() and len(digits) < 19
    ):
        raise BadRequest(f"to={place!r} is not earliest, latest, current, given, offset:N, shift:N, time:MS or ago:MS")
    number = int(text)
    if kind == "offset":
        aims = dict.fromkeys(wanted, number)
    elif kind == "shift":
        aims = {tp: now[tp].offset + number for tp in wanted if tp in now}
    else:
        if kind == "ago":
            number = call.source.now_ms() - number
        if number < 0:
            raise BadRequest("a time is a number of milliseconds since 1970")
        found = await list_offsets(call.source.client, dict.fromkeys(wanted, number))
        aims = {tp: found[tp].offset if found[tp].offset >= 0 else limits[tp][1] for tp in wanted}
    return {tp: min(max(aim, limits[tp][0]), limits[tp][1]) for tp, aim in aims.items()}
