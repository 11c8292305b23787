"""`ottla wait`: wait until a cluster answers, and until topics exist."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import OK, CommandError, add_connection, add_json, connect, run_async, subcommand, target_of
from ottla.client.connection import ConnectionLost
from ottla.client.routing import Client
from ottla.errors import KafkaError

_POLL_S: Final = 0.05
_NO_LEADER: Final = -1


def add_parser(subparsers: Any) -> None:
    """Add `wait` to the command line."""
    parser = subcommand(
        subparsers,
        "wait",
        "wait until a cluster answers, and until topics exist",
        "Wait until a cluster answers, and until every --topic exists with a leader for each partition. "
        "The exit code is 1 if that takes longer than --timeout.",
        ("ottla wait", "ottla wait --topic orders --topic payments --timeout 10"),
    )
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="a topic to wait for; repeatable")
    add_json(parser)
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_async(_wait(arguments))


async def _wait(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    why = "it was not tried"
    try:
        async with asyncio.timeout(arguments.timeout), connect(arguments) as client:
            while True:
                try:
                    missing = await _missing(client, arguments.topic)
                except (ConnectionLost, KafkaError) as error:
                    why = str(error)
                else:
                    if missing is None:
                        break
                    why = missing
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        address = target_of(arguments).bootstrap
        raise CommandError(f"{address} was not ready within {arguments.timeout:g} s: {why}") from None
    if arguments.json:
        terminal.print_json({"ready": True, "seconds": round(time.monotonic() - began, 3)})
    return OK


async def _missing(client: Client, topics: list[str]) -> str | None:
    """A message about what is missing, or None."""
    known = await client.refresh(topics)
    for name in topics:
        topic = known.topics.get(name)
        if topic is None or topic.error_code or not topic.partitions:
            return f"topic '{name}' does not exist"
        if any(partition.leader == _NO_LEADER for partition in topic.partitions.values()):
            return f"topic '{name}' has a partition without a leader"
    return None
