"""`ottla partitions`: elections and reassignments on any cluster."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    FAILED,
    OK,
    CommandError,
    UsageError,
    add_connection,
    add_json,
    argument,
    connect,
    matching,
    parse_numbers,
    run_async,
    subcommand,
    verbs,
    words_go_to,
)
from ottla.client.placement import elect_leaders, reassign, reassignments
from ottla.enums import ElectionType
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.routing import TopicPartition

_POLL_S: Final = 0.5


def add_parser(subparsers: Any) -> None:
    """Add `partitions` to the command line."""
    parser = subcommand(
        subparsers,
        "partitions",
        "elect leaders and move replicas",
        examples=(
            "ottla partitions elect                             # preferred leaders, wherever another one leads",
            "ottla partitions reassign orders:0 2,3             # broker 2 becomes the preferred leader",
            "ottla partitions reassign orders:0,1 2,3 --wait",
            "ottla partitions moves",
        ),
    )
    kinds = verbs(parser)
    elect = subcommand(
        kinds,
        "elect",
        "elect leaders: the preferred replicas, or with --unclean any live replica",
        examples=(
            "ottla partitions elect",
            "ottla partitions elect orders:0,1",
            "ottla partitions elect orders --unclean",
        ),
    )
    elect.add_argument("partitions", nargs="*", metavar="TOPIC[:0,1]", help="which partitions (all)")
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="for partitions without a leader; records are lost if the elected replica lags",
    )
    add_json(elect)
    add_connection(elect)
    words_go_to(elect, "partitions")
    move = subcommand(
        kinds,
        "reassign",
        "move partitions to other brokers",
        examples=("ottla partitions reassign orders:0 2,3 --wait", "ottla partitions reassign orders:0 cancel"),
    )
    move.add_argument("partitions", metavar="TOPIC[:0,1]", help="which partitions")
    move.add_argument(
        "replicas",
        type=argument(_replicas),
        metavar="BROKERS",
        help="the new replicas, the preferred leader first: 2,3; `cancel` cancels a move in progress",
    )
    move.add_argument("--wait", action="store_true", help="wait until the new replicas are in sync")
    add_json(move)
    add_connection(move)
    moves = subcommand(kinds, "moves", "the reassignments in progress", examples=("ottla partitions moves",))
    add_json(moves)
    add_connection(moves)


def _replicas(text: str) -> list[int] | None:
    return None if text == "cancel" else parse_numbers(text)


def run(arguments: argparse.Namespace) -> int:
    verb = {"elect": _elect, "reassign": _reassign, "moves": _moves}
    return run_async(verb[arguments.verb](arguments))


async def _elect(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        wanted = await _named(client, arguments.partitions) if arguments.partitions else None
        outcomes = await elect_leaders(
            client, wanted, election=ElectionType.UNCLEAN if arguments.unclean else ElectionType.PREFERRED
        )
        await client.metadata({topic for topic, _ in outcomes})
        leaders = {tp: client.known.topics[tp[0]].partitions[tp[1]].leader for tp in outcomes}
    if not outcomes and not arguments.json:
        terminal.note("no election was needed")
    return _report(outcomes, arguments.json, lambda tp: f"broker {leaders[tp]} leads now")


async def _reassign(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        partitions = await _named(client, [arguments.partitions])
        outcomes = await reassign(client, dict.fromkeys(partitions, arguments.replicas))
        if arguments.wait:
            await _wait(client, {tp for tp, error in outcomes.items() if error is None})
    done = "move cancelled" if arguments.replicas is None else "moved" if arguments.wait else "moving"
    to = "" if arguments.replicas is None else f" to {','.join(map(str, arguments.replicas))}"
    return _report(outcomes, arguments.json, lambda _: f"{done}{to}")


async def _wait(client: Client, partitions: set[TopicPartition]) -> None:
    """Wait until none of these partitions is moving."""
    with terminal.Progress("reassign", len(partitions), unit="partitions") as progress:
        left = set(partitions)
        while left:
            still = left & (await reassignments(client)).keys()
            progress.advance(len(left) - len(still))
            left = still
            if left:
                await asyncio.sleep(_POLL_S)


async def _moves(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        found = await reassignments(client)
    if arguments.json:
        terminal.print_json([{"topic": t, "partition": p, **move._asdict()} for (t, p), move in sorted(found.items())])
    elif not found:
        terminal.note("no partition is being moved")
    else:
        rows = [
            (topic, index, *(",".join(map(str, brokers)) or None for brokers in move))
            for (topic, index), move in sorted(found.items())
        ]
        print(terminal.table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows, right=("PARTITION",)))
    return OK


async def _named(client: Client, texts: Sequence[str]) -> list[TopicPartition]:
    """Parse `orders` or `orders:0,2`; shell patterns match topics, too."""
    known = (await client.metadata()).topics
    found: list[TopicPartition] = []
    for text in texts:
        name, colon, numbers = text.partition(":")
        for topic in matching(known, [name]):
            there = sorted(known[topic].partitions)
            try:
                wanted = parse_numbers(numbers) if colon else there
            except ValueError as error:
                raise UsageError(str(error)) from None
            if missing := [index for index in wanted if index not in there]:
                raise CommandError(f"topic '{topic}' has no partition {missing[0]}")
            found += [(topic, index) for index in wanted]
    return found


def _report(outcomes: Mapping[TopicPartition, KafkaError | None], as_json: bool, done: Any) -> int:
    if as_json:
        terminal.print_json(
            [
                {"topic": topic, "partition": index, "error": None if error is None else error.name}
                for (topic, index), error in sorted(outcomes.items())
            ]
        )
    for (topic, index), error in sorted(outcomes.items()):
        if error is not None and not as_json:
            terminal.fail(f"{topic}-{index}: {error.message} ({error.name})")
        elif not as_json:
            print(f"{topic}-{index}: {done((topic, index))}")
    return FAILED if any(outcomes.values()) else OK
