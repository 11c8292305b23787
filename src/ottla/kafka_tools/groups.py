"""kafka-consumer-groups: list, describe, reset offsets, delete."""

from __future__ import annotations

import argparse
import sys
import time

from ottla.cli.common import CommandError, parse_time
from ottla.client import Client
from ottla.client.admin import delete_groups, describe_group, list_groups
from ottla.client.offsets import Committed, bounds, commit, committed, list_offsets
from ottla.client.routing import TopicPartition
from ottla.errors import KafkaError
from ottla.kafka_tools.common import connect, finish, new_parser, table

NEW_OFFSETS = [("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10), ("NEW-OFFSET", 15)]
OFFSETS = [
    ("GROUP", 15),
    ("TOPIC", 15),
    ("PARTITION", 10),
    ("CURRENT-OFFSET", 15),
    ("LOG-END-OFFSET", 15),
    ("LAG", 15),
    ("CONSUMER-ID", 15),
    ("HOST", 15),
    ("CLIENT-ID", 9),
]


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    verb = parser.add_mutually_exclusive_group(required=True)
    for option in ("list", "describe", "delete", "reset-offsets"):
        verb.add_argument(f"--{option}", dest="verb", action="store_const", const=option)
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--timeout", type=int)
    for flag in ("all-groups", "all-topics", "offsets", "to-earliest", "to-latest", "execute", "dry-run"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--to-offset", type=int)
    parser.add_argument("--to-datetime")
    parser.add_argument("--shift-by", type=int)
    arguments = parser.parse_args(words)
    if arguments.verb != "list" and not arguments.group and not arguments.all_groups:
        parser.error("Option [group] or [all-groups] is missing")
    return finish(_run(arguments), lambda text: f"\nError: Executing consumer group command failed due to {text}")


async def _run(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        everything = [listed.group for listed in await list_groups(client)]
        if arguments.verb == "list":
            print("\n".join(everything))
            return 0
        groups = everything if arguments.all_groups else arguments.group
        if arguments.verb == "delete":
            for name, result in (await delete_groups(client, groups)).items():
                if isinstance(result, KafkaError):
                    raise CommandError(f"Group '{name}' could not be deleted: {result.message}")
            named = ", ".join(f"'{name}'" for name in groups)
            print(f"Deletion of requested consumer groups ({named}) was successful.")
            return 0
        for name in groups:
            if name not in everything and arguments.verb == "describe":
                raise CommandError(f"Group {name} not found.")
            await (_describe if arguments.verb == "describe" else _reset)(client, name, arguments)
    return 0


async def _describe(client: Client, name: str, arguments: argparse.Namespace) -> None:
    group = await describe_group(client, name)
    offsets = await committed(client, name)
    owners = {tp: member for member in group.members for tp in member.partitions}
    wanted = sorted({*offsets, *owners})
    ends = await bounds(client, wanted)
    if not group.members:
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    rows: list[list[object]] = []
    for tp in wanted:
        end, at, owner = ends[tp][1], offsets.get(tp), owners.get(tp)
        who = ["-", "-", "-"] if owner is None else [owner.member_id, owner.host, owner.client_id]
        current = ["-", end, "-"] if at is None else [at.offset, end, max(0, end - at.offset)]
        rows.append([name, *tp, *current, *who])
    print()
    table(OFFSETS, rows)


async def _reset(client: Client, name: str, arguments: argparse.Namespace) -> None:
    current = await committed(client, name)
    wanted: list[TopicPartition] = []
    for text in arguments.topic:
        topic, colon, numbers = text.partition(":")
        known = sorted((await client.topic(topic)).partitions)
        wanted += [(topic, number) for number in (map(int, numbers.split(",")) if colon else known)]
    if arguments.all_topics:
        wanted += [tp for tp in current if tp not in wanted]
    if not wanted:
        raise CommandError("One of the reset scopes should be defined: --all-topics, --topic.")
    edges = await bounds(client, wanted)
    target = await _targets(client, arguments, edges, current)
    if arguments.execute:
        await commit(client, name, {tp: Committed(at) for tp, at in target.items()})
    print()
    table(NEW_OFFSETS, [[name, *tp, at] for tp, at in sorted(target.items())])


async def _targets(
    client: Client,
    arguments: argparse.Namespace,
    edges: dict[TopicPartition, tuple[int, int]],
    current: dict[TopicPartition, Committed],
) -> dict[TopicPartition, int]:
    if arguments.to_earliest:
        return {tp: start for tp, (start, _) in edges.items()}
    if arguments.to_latest:
        return {tp: end for tp, (_, end) in edges.items()}
    if arguments.to_datetime is not None:
        at_ms = parse_time(arguments.to_datetime, time.time_ns() // 1_000_000)
        found = await list_offsets(client, dict.fromkeys(edges, at_ms))
        return {tp: end if found[tp].offset < 0 else found[tp].offset for tp, (_, end) in edges.items()}
    if arguments.to_offset is not None:
        moved = dict.fromkeys(edges, arguments.to_offset)
    elif arguments.shift_by is not None:
        moved = {tp: current[tp].offset + arguments.shift_by for tp in edges if tp in current}
    else:
        raise CommandError("choose a target: --to-earliest, --to-latest, --to-offset, --to-datetime or --shift-by")
    return {tp: min(max(at, edges[tp][0]), edges[tp][1]) for tp, at in moved.items()}
