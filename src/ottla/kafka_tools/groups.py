"""kafka-consumer-groups."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence

from ottla.cli.common import CommandError, parse_time
from ottla.client import Client
from ottla.client.admin import Group, GroupListing, Member, delete_groups, describe_group, list_groups
from ottla.client.connection import UnknownTopic
from ottla.client.offsets import Committed, bounds, commit, committed, grouped, list_offsets, try_delete_offsets
from ottla.client.routing import TopicPartition
from ottla.durations import parse_duration
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.kafka_tools.common import Parser, add_verbs, connect, finish, java_error, new_parser, parse_verb, table
from ottla.re2_patterns import InvalidPattern, compile_pattern

VERBS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
NEW_OFFSETS = [("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10), ("NEW-OFFSET", 15)]
OFFSETS = [
    ("GROUP", 15),
    ("TOPIC", 15),
    ("PARTITION", 10),
    ("LEADER-EPOCH", 15),
    ("CURRENT-OFFSET", 15),
    ("LOG-END-OFFSET", 15),
    ("LAG", 15),
    ("CONSUMER-ID", 15),
    ("HOST", 15),
    ("CLIENT-ID", 9),
]
MEMBERS = [("GROUP", 15), ("CONSUMER-ID", 15), ("HOST", 15), ("CLIENT-ID", 15), ("#PARTITIONS", 15)]
MEMBER_EPOCHS = [("CURRENT-EPOCH", 15), ("CURRENT-ASSIGNMENT", 20), ("TARGET-EPOCH", 15), ("TARGET-ASSIGNMENT", 20)]
GROUP_EPOCHS = [("GROUP-EPOCH", 15), ("TARGET-ASSIGNMENT-EPOCH", 25)]
STATE = [("GROUP", 15), ("COORDINATOR (ID)", 25), ("ASSIGNMENT-STRATEGY", 20), ("STATE", 20), ("#MEMBERS", 8)]
STATES = ("PreparingRebalance", "Dead", "Reconciling", "Stable", "Empty", "Assigning", "CompletingRebalance")
TYPES = ("Classic", "Consumer")
TARGETS = ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file", "to-current")
FAILED = "\nError: Executing consumer group command failed due to "


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    add_verbs(
        parser, VERBS[:-1], f"Command must include exactly one action: {', '.join(f'--{each}' for each in VERBS)}"
    )
    parser.add_argument("--validate-regex")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--timeout", type=int)
    parser.add_argument("--state", nargs="?", const="")
    parser.add_argument("--type", nargs="?", const="")
    for flag in ("all-groups", "all-topics", "offsets", "members", "verbose", "execute", "dry-run", "export"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("to-earliest", "to-latest", "to-current"):
        parser.add_argument(f"--{flag}", action="store_true", default=None)
    parser.add_argument("--to-offset", type=int)
    parser.add_argument("--to-datetime")
    parser.add_argument("--by-duration")
    parser.add_argument("--from-file")
    parser.add_argument("--shift-by", type=int)
    if "--validate-regex" in words:
        return _validate(parser.parse_args(words).validate_regex)
    arguments = parse_verb(parser, words, {"delete-offsets": ("group", "topic")})
    _check_options(parser, arguments)
    # Kafka's tool fails with exit code 0 too.
    return min(0, finish(_run(arguments), lambda text: FAILED + text, to_stdout=True))


def _validate(pattern: str) -> int:
    try:
        compile_pattern(pattern)
    except InvalidPattern as error:
        print(f"The regular expression `{pattern}` is not valid: {error}")
        return 0
    except KafkaError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(f"The regular expression `{pattern}` is valid.")
    return 0


def _check_options(parser: Parser, arguments: argparse.Namespace) -> None:
    if arguments.verb == "list":
        for option, valid in (("state", STATES), ("type", TYPES)):
            given = getattr(arguments, option)
            if not _words(given or "") <= {each.lower() for each in valid}:
                parser.error(f"Invalid {option} list '{given}'. Valid {option}s are: {', '.join(valid)}")
        return
    if not arguments.group and not arguments.all_groups:
        parser.error(f"Option [{arguments.verb}] takes one of these options: [all-groups], [group]")
    if arguments.verb == "reset-offsets":
        if not arguments.execute and not arguments.dry_run:
            print(
                "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command "
                "will require either --dry-run or --execute to be specified. You should add the --dry-run option "
                "explicitly if you are scripting this command and want to keep the current default behavior without "
                "prompting.",
                file=sys.stderr,
            )
        chosen = [each for each in TARGETS if getattr(arguments, each.replace("-", "_")) is not None]
        if len(chosen) != 1:
            parser.error(f"Option [reset-offsets] takes exactly one of these options: {', '.join(TARGETS)}")
        arguments.target = chosen[0]
        if not arguments.topic and not arguments.all_topics and arguments.target != "from-file":
            parser.error("One of the reset scopes should be defined: --all-topics, --topic.")


async def _run(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        listed = [each for each in await list_groups(client) if each.protocol in ("consumer", "")]
        if arguments.verb == "list":
            _list(listed, arguments)
            return 0
        groups = [each.group for each in listed] if arguments.all_groups else arguments.group
        if arguments.verb == "delete":
            await _delete(client, groups)
        elif arguments.verb == "delete-offsets":
            await _delete_offsets(client, groups[0], arguments)
        elif arguments.verb == "reset-offsets":
            await _reset(client, groups, arguments)
        else:
            for name in groups:
                if name not in {each.group for each in listed}:
                    raise CommandError(
                        f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {name} not found."
                    )
                await _describe(client, name, arguments)
    return 0


def _words(text: str) -> set[str]:
    return {each.strip().lower() for each in text.split(",") if each.strip()}


def _list(listed: list[GroupListing], arguments: argparse.Namespace) -> None:
    if arguments.state is None and arguments.type is None:
        for each in listed:
            print(each.group)
        return
    head: list[tuple[str, int]] = [("GROUP", 25)]
    rows: list[list[object]] = [[each.group] for each in listed]
    for given, name, width, values in (
        (arguments.type, "TYPE", 20, [each.kind.capitalize() for each in listed]),
        (arguments.state, "STATE", 20, [each.state for each in listed]),
    ):
        if given is not None:
            head.append((name, width))
            wanted = _words(given)
            kept = [not wanted or value.lower() in wanted for value in values]
            rows = [row and [*row, value] if keep else [] for row, value, keep in zip(rows, values, kept, strict=True)]
    rows = [row for row in rows if row]
    table(head, rows, is_padded=True)


async def _delete(client: Client, groups: list[str]) -> None:
    results = await delete_groups(client, groups) if groups else {}
    failed = {name: error for name, error in results.items() if isinstance(error, KafkaError)}
    done = ", ".join(f"'{name}'" for name in results if name not in failed)
    if not failed:
        print(f"Deletion of requested consumer groups ({done}) was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for name, error in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {java_error(error)}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: {done}")


async def _delete_offsets(client: Client, group: str, arguments: argparse.Namespace) -> None:
    wanted: list[TopicPartition] = []
    results: list[tuple[str, object, KafkaError | None]] = []
    for text in arguments.topic:
        try:
            wanted += await _partitions(client, [text])
        except UnknownTopicOrPartition as error:
            results.append((text.partition(":")[0], "-", error))
    try:
        deleted = await try_delete_offsets(client, group, wanted)
        if any(deleted.values()):
            print("\nError: Encountered some partition-level error, see the follow-up details.")
        else:
            print(f"Request succeeded for deleting offsets from group {group}.")
    except KafkaError as error:
        deleted = dict.fromkeys(wanted, error)
        print(f"\nError: {error.message}")
    results += [(*tp, error) for tp, error in deleted.items()]
    print()
    rows: list[list[object]] = [
        [topic, number, "Successful" if error is None else f"Error: {java_error(error)}"]
        for topic, number, error in results
    ]
    table([("TOPIC", 15), ("PARTITION", 10), ("STATUS", 15)], rows, is_padded=True)


async def _describe(client: Client, name: str, arguments: argparse.Namespace) -> None:
    group = await describe_group(client, name)
    if not group.members:
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
    print()
    if arguments.members:
        head, rows = list(MEMBERS), [_member(name, each) for each in group.members]
        if arguments.verbose:
            head += MEMBER_EPOCHS
            rows = [[*row, *_epochs(each, group)] for row, each in zip(rows, group.members, strict=True)]
        table(head, rows, is_padded=True)
    elif arguments.state is not None:
        node = client.known.nodes[group.coordinator]
        at = f"{node.host}:{node.port}  ({node.node_id})"
        epochs: list[object] = [_or_dash(group.epoch), _or_dash(group.assignment_epoch)] if arguments.verbose else []
        head = [*STATE[:-1], *(GROUP_EPOCHS if arguments.verbose else ()), STATE[-1]]
        table(head, [[name, at, group.assignor or "-", group.state, *epochs, len(group.members)]])
    else:
        await _describe_offsets(client, name, group.members, verbose=arguments.verbose)


def _member(group: str, member: Member) -> list[object]:
    return [group, member.member_id, member.host, member.client_id, len(member.partitions)]


def _epochs(member: Member, group: Group) -> list[object]:
    """The member's epoch and partitions, and those that it will have."""
    target = "-" if member.target is None else _assignment(member.target)
    return [_or_dash(member.epoch), _assignment(member.partitions), _or_dash(group.assignment_epoch), target]


def _or_dash(number: int | None) -> object:
    return "-" if number is None else number


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    topics = grouped(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or "-"


async def _describe_offsets(client: Client, group: str, members: Sequence[Member], *, verbose: bool) -> None:
    offsets = await committed(client, group)
    owners = {tp: member for member in members for tp in member.partitions}
    wanted = sorted({*offsets, *owners})
    ends = await bounds(client, wanted)
    rows: list[list[object]] = []
    for tp in wanted:
        end, at, owner = ends[tp][1], offsets.get(tp), owners.get(tp)
        who = ["-", "-", "-"] if owner is None else [owner.member_id, owner.host, owner.client_id]
        epoch = "-" if at is None or at.leader_epoch < 0 else at.leader_epoch
        current = ["-", end, "-"] if at is None else [at.offset, end, max(0, end - at.offset)]
        rows.append([group, *tp, epoch, *current, *who])
    rows += [
        [group, "-", "-", "-", "-", "-", "-", each.member_id, each.host, each.client_id]
        for each in members
        if not each.partitions
    ]
    shown = [number for number, (name, _) in enumerate(OFFSETS) if verbose or name != "LEADER-EPOCH"]
    table([OFFSETS[number] for number in shown], [[row[number] for number in shown] for row in rows])


async def _partitions(client: Client, topics: list[str]) -> list[TopicPartition]:
    """`orders` is all partitions of the topic, `orders:0,2` are two of them."""
    wanted: list[TopicPartition] = []
    for text in topics:
        topic, colon, numbers = text.partition(":")
        try:
            known = sorted((await client.topic(topic)).partitions)
        except UnknownTopic:
            raise UnknownTopicOrPartition from None  # with Kafka's words
        wanted += [(topic, number) for number in (map(int, numbers.split(",")) if colon else known)]
    return wanted


async def _reset(client: Client, groups: list[str], arguments: argparse.Namespace) -> None:
    rows: list[list[object]] = []
    for group in groups:
        state = (await describe_group(client, group)).state
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, "
                f"but the current state is {state}."
            )
            continue
        target = await _new_offsets(client, group, len(groups) > 1, arguments)
        if arguments.execute:
            await commit(client, group, {tp: Committed(at) for tp, at in target.items()})
        rows += [[group, *tp, at] for tp, at in sorted(target.items())]
    if arguments.export:
        first = 0 if len(groups) > 1 else 1
        for row in rows:
            print(",".join(map(str, row[first:])))
        print()
        return
    print()
    table(NEW_OFFSETS, rows)


async def _new_offsets(
    client: Client, group: str, is_named: bool, arguments: argparse.Namespace
) -> dict[TopicPartition, int]:
    current = await committed(client, group)
    if arguments.target == "from-file":
        wanted = _from_file(arguments.from_file, group, is_named)
        return _within(wanted, await bounds(client, wanted))
    partitions = await _partitions(client, arguments.topic)
    if arguments.all_topics:
        partitions += [tp for tp in current if tp not in partitions]
    edges = await bounds(client, partitions)
    if arguments.target == "to-offset":
        return _within(dict.fromkeys(edges, arguments.to_offset), edges)
    if arguments.target == "shift-by":
        if missing := [tp for tp in edges if tp not in current]:
            name, number = missing[0]
            raise CommandError(
                f"Cannot shift offset for partition {name}-{number} since there is no current committed offset"
            )
        return _within({tp: current[tp].offset + arguments.shift_by for tp in edges}, edges)
    if arguments.target == "to-current":
        return {tp: current[tp].offset if tp in current else end for tp, (_, end) in edges.items()}
    if arguments.target in ("to-earliest", "to-latest"):
        return {tp: start if arguments.target == "to-earliest" else end for tp, (start, end) in edges.items()}
    return await _at_time(client, edges, _time_ms(arguments))


def _time_ms(arguments: argparse.Namespace) -> int:
    now_ms = time.time_ns() // 1_000_000
    try:
        if arguments.target == "by-duration":
            return now_ms - parse_duration(arguments.by_duration)
        return parse_time(arguments.to_datetime, now_ms)
    except ValueError as error:
        raise CommandError(f"{error}") from None


async def _at_time(
    client: Client, edges: dict[TopicPartition, tuple[int, int]], at_ms: int
) -> dict[TopicPartition, int]:
    found = await list_offsets(client, dict.fromkeys(edges, at_ms))
    for topic, number in (tp for tp in sorted(edges) if found[tp].offset < 0):
        print(f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset.")
    return {tp: end if found[tp].offset < 0 else found[tp].offset for tp, (_, end) in edges.items()}


def _within(
    wanted: dict[TopicPartition, int], edges: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Offsets moved to where there are records, with a line for each that is moved."""
    found: dict[TopicPartition, int] = {}
    for tp, at in wanted.items():
        found[tp] = min(max(at, edges[tp][0]), edges[tp][1])
        if found[tp] != at:
            side = "higher than latest" if found[tp] < at else "lower than earliest"
            print(
                f"WARN New offset ({at}) is {side} offset for topic partition {tp[0]}-{tp[1]}. "
                f"Value will be set to {found[tp]}",
                file=sys.stderr,
            )
    return found


def _from_file(path: str, group: str, is_named: bool) -> dict[TopicPartition, int]:
    """What --export printed: `topic,partition,offset`, after the name of the group if several are reset."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
        if is_named:
            rows = [row[1:] for row in rows if row[0] == group]
        return {(topic, int(number)): int(offset) for topic, number, offset in rows}
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}") from None
