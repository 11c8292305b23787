"""`ottla replay-requests`: send the requests of a recording again, to any broker."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import (
    FAILED,
    OK,
    CommandError,
    add_connection,
    add_json,
    load_security,
    run_async,
    subcommand,
    target_of,
)
from ottla.client.replaying import replay


def add_parser(subparsers: Any) -> None:
    """Add `replay-requests` to the command line."""
    parser = subcommand(
        subparsers,
        "replay-requests",
        "send recorded requests again",
        "Send the requests of a recording (broker.record) again, to any broker. The exit code is 1 if an answer "
        "has different errors than in the recording.",
        ("ottla replay-requests run.jsonl", "ottla replay-requests run.jsonl --client billing --json"),
    )
    parser.add_argument("recording", metavar="FILE")
    parser.add_argument("--client", metavar="ID", help="only the requests with this client id")
    add_json(parser)
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_async(_replay(arguments))


async def _replay(arguments: argparse.Namespace) -> int:
    target = target_of(arguments)
    try:
        outcome = await replay(
            arguments.recording,
            target.bootstrap,
            security=load_security(target.client_config),
            client_id=arguments.client,
            timeout_s=arguments.timeout,
        )
    except OSError as error:
        why = f"cannot read {error.filename}: {error.strerror}" if error.filename else str(error)
        raise CommandError(why) from None
    except ValueError as error:
        raise CommandError(str(error)) from None
    if arguments.json:
        found = asdict(outcome)
        terminal.print_json(found | {"differences": [each._asdict() for each in outcome.differences]})
    else:
        for difference in outcome.differences:
            print(difference)
        terminal.note(f"{terminal.counted(outcome.requests, 'request')} played, {len(outcome.differences)} differ")
    return FAILED if outcome.differences else OK
