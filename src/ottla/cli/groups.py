"""`ottla groups`: list, describe with lag, reset offsets, delete."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    OK,
    CommandError,
    UsageError,
    add_connection,
    add_json,
    argument,
    connect,
    parse_duration,
    parse_numbers,
    parse_time,
    report_results,
    run_async,
    subcommand,
    verbs,
    words_go_to,
)
from ottla.cli.printable import escaped
from ottla.client.admin import delete_groups, describe_group, list_groups, share_offsets
from ottla.client.offsets import Committed, bounds, commit, committed, delete_offsets, list_offsets
from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.admin import Group

TopicPartition = tuple[str, int]
_QUIET_STATES: Final = ("Empty", "Dead")
_DRY_RUN_NOTE: Final = "this was a dry run: nothing is changed without --execute"


def add_parser(subparsers: Any) -> None:
    """Add `groups` to the command line."""
    parser = subcommand(
        subparsers,
        "groups",
        "list, describe and delete groups, reset their offsets",
        examples=("ottla groups list --lag", "ottla groups describe billing", "ottla groups delete billing"),
    )
    kinds = verbs(parser)
    listing = subcommand(kinds, "list", "list groups", examples=("ottla groups list", "ottla groups list --lag"))
    listing.add_argument("--state", action="append", metavar="STATE", help="only groups in this state; repeatable")
    listing.add_argument("--lag", action="store_true", help="show the total lag of each group")
    listing.add_argument("-q", "--names", action="store_true", help="names only, one per line")
    add_json(listing)
    add_connection(listing)
    describe = subcommand(
        kinds,
        "describe",
        "show members, offsets and lag",
        examples=("ottla groups describe billing", "ottla groups describe billing --members --json"),
    )
    describe.add_argument("groups", nargs="+", metavar="GROUP")
    describe.add_argument("--members", action="store_true", help="show members instead of partitions")
    add_json(describe)
    add_connection(describe)
    words_go_to(describe, "groups")
    _add_reset(kinds)
    delete = subcommand(
        kinds,
        "delete",
        "delete groups, or their offsets of some topics",
        examples=("ottla groups delete billing", "ottla groups delete billing --topic orders"),
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    delete.add_argument("--topic", action="append", metavar="TOPIC[:0,1]", help="only the offsets of this topic")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_json(delete)
    add_connection(delete)
    words_go_to(delete, "groups")


def _add_reset(kinds: Any) -> None:
    reset = subcommand(
        kinds,
        "reset-offsets",
        "change a group's offsets; shows the plan, and applies it with --execute",
        "Change the offsets of a group without members. Without --execute, only the plan is shown.",
        examples=(
            "ottla groups reset-offsets billing --all-topics --to-earliest",
            "ottla groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute",
            "ottla groups reset-offsets billing --topic orders --to-time 2026-01-31T12:00:00Z --execute",
            "ottla groups reset-offsets billing --from-file plan.json --execute   # what --json printed",
        ),
    )
    reset.add_argument("group", metavar="GROUP")
    scope = reset.add_mutually_exclusive_group()
    scope.add_argument("--topic", action="append", metavar="TOPIC[:0,1]", help="a topic, or some partitions of it")
    scope.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets for")
    how = reset.add_mutually_exclusive_group(required=True)
    how.add_argument("--to-earliest", action="store_true")
    how.add_argument("--to-latest", action="store_true")
    how.add_argument("--to-current", action="store_true", help="keep the offset, but move it into the range of the log")
    how.add_argument("--to-offset", type=int, metavar="N")
    how.add_argument("--to-time", "--to-datetime", metavar="TIME", help="ISO-8601, epoch milliseconds or -2h")
    how.add_argument("--by-duration", type=argument(parse_duration), metavar="DURATION", help="this long ago: 2h, PT2H")
    how.add_argument("--shift-by", type=int, metavar="N", help="forwards, or back if negative")
    how.add_argument("--from-file", metavar="FILE", help="a plan that --json printed, or Kafka's CSV")
    reset.add_argument("--execute", action="store_true", help="apply the plan")
    reset.add_argument("--dry-run", action="store_true", help="only show the plan (the default)")
    add_json(reset)
    add_connection(reset)


def run(arguments: argparse.Namespace) -> int:
    verb = {"list": _list, "describe": _describe, "reset-offsets": _reset, "delete": _delete}
    return run_async(verb[arguments.verb](arguments))


async def _list(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        groups = await list_groups(client)
        if arguments.state:
            wanted = {state.lower() for state in arguments.state}
            groups = [group for group in groups if group.state.lower() in wanted]
        lags = {group.group: await _total_lag(client, group.group, group.kind) for group in groups if arguments.lag}
    if arguments.json:
        extra = [{"lag": lags[group.group]} if arguments.lag else {} for group in groups]
        terminal.print_json(
            [
                {"group": g.group, "type": g.kind.lower(), "protocol": g.protocol, "state": g.state, **more}
                for g, more in zip(groups, extra, strict=True)
            ]
        )
    elif arguments.names:
        print(*(group.group for group in groups), sep="\n", end="\n" if groups else "")
    elif not groups:
        terminal.note("no groups")
    else:
        head = ["GROUP", "TYPE", "PROTOCOL", "STATE"] + (["LAG"] if arguments.lag else [])
        rows = [
            [g.group, g.kind.lower(), g.protocol, g.state, *([lags[g.group]] if arguments.lag else [])] for g in groups
        ]
        print(terminal.table(head, rows, right=("LAG",)))
    return OK


async def _total_lag(client: Client, group: str, kind: str) -> int | None:
    return _sum_of_lags(await _offset_rows(client, group, kind.lower(), {}))


def _sum_of_lags(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The total lag of the partitions with a known lag; None if there are none. Without a commit the lag is unknown."""
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return sum(lags) if lags else None


async def _offset_rows(
    client: Client, group: str, kind: str, owners: Mapping[TopicPartition, Any]
) -> list[dict[str, Any]]:
    """The committed offset, end and lag of every partition for which the group has a commit or a member."""
    lags: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, int]
    if kind == "share":
        shared = await share_offsets(client, group)
        offsets = {tp: start for tp, (start, _) in shared.items()}
        lags = {tp: lag for tp, (_, lag) in shared.items() if lag >= 0}
    else:
        offsets = {tp: found.offset for tp, found in (await committed(client, group)).items()}
    partitions = sorted(offsets.keys() | owners.keys())
    known = (await client.metadata({topic for topic, _ in partitions})).topics if partitions else {}
    there = [(t, p) for t, p in partitions if t in known and p in known[t].partitions]
    try:
        edges = await bounds(client, there, IsolationLevel.READ_COMMITTED)
    except KafkaError:
        edges = {}  # some leader is down; the commits are still worth showing
    rows = []
    for tp in partitions:
        offset = offsets.get(tp)
        end = edges[tp][1] if tp in edges else None
        member = owners.get(tp)
        lag = lags.get(tp, None if offset is None or offset < 0 or end is None else max(end - offset, 0))
        rows.append(
            {
                "topic": tp[0],
                "partition": tp[1],
                "offset": offset,
                "end_offset": end,
                "lag": lag,
                "member": member and member.member_id,
                "host": member and member.host,
                "client_id": member and member.client_id,
            }
        )
    return rows


async def _describe(arguments: argparse.Namespace) -> int:
    found = []
    async with connect(arguments) as client:
        for name in arguments.groups:
            group = await describe_group(client, name)
            if group.state == "Dead" and not group.members:
                raise CommandError(f"group '{name}' does not exist")
            owners = {tp: member for member in group.members for tp in member.partitions}
            rows = await _offset_rows(client, name, group.kind, owners)
            found.append((group, rows))
    if arguments.json:
        terminal.print_json([_as_json(group, rows) for group, rows in found])
        return OK
    blocks = []
    for group, rows in found:
        title = f"{terminal.paint(group.group, 'bold')}  {group.kind}, {_state(group.state)}"
        title += f", assignor {escaped(group.assignor)}" if group.assignor else ""
        title += f", coordinator {group.coordinator}, {terminal.counted(len(group.members), 'member')}"
        blocks.append(f"{title}\n{_member_table(group) if arguments.members else _offset_table(rows)}".rstrip())
    print("\n\n".join(blocks))
    return OK


def _state(state: str) -> str:
    return terminal.paint(state, "green" if state == "Stable" else "yellow")


def _member_table(group: Group) -> str:
    rows = [
        (m.member_id, m.instance_id, m.client_id, m.host, " ".join(f"{t}-{p}" for t, p in sorted(m.partitions)) or None)
        for m in group.members
    ]
    return terminal.table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows) if rows else ""


def _offset_table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no offsets committed"
    cells = [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            row["end_offset"],
            terminal.paint(row["lag"], "yellow") if row["lag"] else row["lag"],
            row["member"],
            row["host"],
        )
        for row in rows
    ]
    head = ("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST")
    text = terminal.table(head, cells, right=("PARTITION", "OFFSET", "END", "LAG"))
    return f"{text}\n{_summary(rows)}"


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    total = _sum_of_lags(rows)
    if total is None:
        return "lag: unknown, no partition has a committed offset"
    unknown = sum(row["lag"] is None for row in rows)
    if not unknown:
        return f"lag of all partitions: {terminal.human_count(total)}"
    with_lag = terminal.counted(len(rows) - unknown, "partition")
    return f"lag of {with_lag}: {terminal.human_count(total)}; {unknown} without a committed offset"


def _as_json(group: Group, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.kind,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": m.member_id,
                "instance": m.instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "partitions": [{"topic": t, "partition": p} for t, p in sorted(m.partitions)],
            }
            for m in group.members
        ],
        "lag": _sum_of_lags(rows),
        "offsets": list(rows),
    }


# --- resetting -------------------------------------------------------------------------------------------------------


async def _reset(arguments: argparse.Namespace) -> int:
    if arguments.execute and arguments.dry_run:
        raise UsageError("give either --execute or --dry-run")
    if arguments.from_file is None and not arguments.topic and not arguments.all_topics:
        raise UsageError("choose the offsets: --topic TOPIC or --all-topics")
    async with connect(arguments) as client:
        group = await describe_group(client, arguments.group)
        if group.kind == "share":
            raise CommandError(
                f"'{arguments.group}' is a {group.kind} group; only offsets of consumer groups can be reset"
            )
        if arguments.execute and group.state not in _QUIET_STATES:
            members = terminal.counted(len(group.members), "member")
            raise CommandError(f"group '{arguments.group}' is {group.state} with {members}; stop its consumers first")
        before = await committed(client, arguments.group)
        if arguments.from_file is not None:
            plan = await _within_logs(client, _read_plan(arguments.from_file, arguments.group))
        else:
            plan = await _planned(client, arguments, before, await _scope(client, arguments.topic, before))
        if not plan:
            raise CommandError(f"group '{arguments.group}' has no offsets to reset; name a topic with --topic")
        if arguments.execute:
            await commit(client, arguments.group, {tp: Committed(offset) for tp, offset in plan.items()})
    rows = [
        {"topic": t, "partition": p, "old_offset": before[t, p].offset if (t, p) in before else None, "offset": offset}
        for (t, p), offset in sorted(plan.items())
    ]
    if arguments.json:
        terminal.print_json({"group": arguments.group, "executed": arguments.execute, "offsets": rows})
    else:
        cells = [tuple(row.values()) for row in rows]
        print(terminal.table(("TOPIC", "PARTITION", "OLD", "NEW"), cells, right=("PARTITION", "OLD", "NEW")))
    if not arguments.execute:
        terminal.note(terminal.paint(_DRY_RUN_NOTE, "yellow", sys.stderr))
    return OK


async def _scope(
    client: Client, topics: Sequence[str] | None, before: Mapping[TopicPartition, Any]
) -> list[TopicPartition]:
    """The partitions from --topic, or all partitions with commits of the group."""
    if not topics:
        known = (await client.metadata({topic for topic, _ in before})).topics if before else {}
        return [(t, p) for t, p in before if t in known and p in known[t].partitions]
    found: list[TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        topic = await client.topic(name)
        try:
            wanted = parse_numbers(numbers) if colon else sorted(topic.partitions)
        except ValueError as error:
            raise UsageError(f"--topic: {error}") from None
        for index in wanted:
            if index not in topic.partitions:
                raise CommandError(f"topic '{name}' has no partition {index}")
        found += [(name, index) for index in wanted]
    return found


async def _planned(
    client: Client, arguments: argparse.Namespace, before: Mapping[TopicPartition, Any], scope: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if arguments.to_earliest or arguments.to_latest:
        edge = OffsetTimestamp.EARLIEST if arguments.to_earliest else OffsetTimestamp.LATEST
        return {tp: at.offset for tp, at in (await list_offsets(client, dict.fromkeys(scope, edge))).items()}
    if arguments.to_time is not None or arguments.by_duration is not None:
        now_ms = time.time_ns() // 1_000_000
        try:
            moment = (
                now_ms - arguments.by_duration if arguments.to_time is None else parse_time(arguments.to_time, now_ms)
            )
        except ValueError as error:
            raise UsageError(f"--to-time: {error}") from None
        found = await list_offsets(client, dict.fromkeys(scope, moment))
        edges = await bounds(client, scope)
        return {tp: edges[tp][1] if at.offset < 0 else at.offset for tp, at in found.items()}
    if arguments.to_offset is not None:
        return await _within_logs(client, dict.fromkeys(scope, arguments.to_offset))
    missing = [tp for tp in scope if tp not in before]
    if missing and arguments.shift_by is not None:
        topic, partition = missing[0]
        raise CommandError(f"{topic}-{partition} has no committed offset to shift; reset it to an offset first")
    shift = arguments.shift_by or 0
    edges = await bounds(client, missing)
    wanted = {tp: before[tp].offset + shift if tp in before else edges[tp][1] for tp in scope}
    return await _within_logs(client, wanted)


async def _within_logs(client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """As in Kafka's tool, an offset outside a log becomes the nearest valid offset, with a warning."""
    plan = {}
    for tp, (start, end) in (await bounds(client, wanted)).items():
        plan[tp] = min(max(wanted[tp], start), end)
        if plan[tp] != wanted[tp]:
            terminal.warn(f"{tp[0]}-{tp[1]}: {wanted[tp]} is outside {start} to {end}; using {plan[tp]}")
    return plan


def _read_plan(path: str, group: str) -> dict[TopicPartition, int]:
    """Read a plan: the JSON of this command, or the CSV of Kafka's tool (`[group,]topic,partition,offset`)."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    try:
        if text.lstrip().startswith("{"):
            return {(row["topic"], int(row["partition"])): int(row["offset"]) for row in json.loads(text)["offsets"]}
        plan = {}
        for line in filter(None, text.splitlines()):
            *owner, topic, partition, offset = (cell.strip().strip('"') for cell in line.split(","))
            if not owner or owner == [group]:
                plan[topic, int(partition)] = int(offset)
        return plan
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is not an offset plan: {error}") from None


async def _delete(arguments: argparse.Namespace) -> int:
    if sys.stdin.isatty() and not arguments.yes:
        what = f"the offsets of {', '.join(arguments.topic)} in" if arguments.topic else "all offsets of"
        if not terminal.confirm(f"delete {what} {', '.join(arguments.groups)}?"):
            raise CommandError("nothing was deleted; use --yes to delete without confirmation")
    async with connect(arguments) as client:
        if not arguments.topic:
            results = await delete_groups(client, arguments.groups)
            return report_results(results, lambda name, _: f"deleted {name}", arguments.json)
        results = {}
        for group in arguments.groups:
            try:
                before = await committed(client, group)
                await delete_offsets(client, group, await _scope(client, arguments.topic, before))
                results[group] = None
            except KafkaError as error:
                results[group] = error
    return report_results(results, lambda name, _: f"deleted offsets of {name}", arguments.json)
