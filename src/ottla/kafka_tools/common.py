"""Options that the tools share, and how they fail: one line on standard error and exit code 1."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from ottla.cli.common import CommandError, load_security
from ottla.client import Client
from ottla.client.connection import ClientError
from ottla.config import ConfigError
from ottla.config.properties import read_properties as read_file
from ottla.errors import KafkaError, NonEmptyGroup

KAFKA_VERSION = "4.3.1"
"""What `--version` prints: the release whose tools these follow."""
JAVA_NAMES: dict[type[KafkaError], str] = {NonEmptyGroup: "GroupNotEmpty"}
"""Errors whose class has another name in Java."""


class Parser(argparse.ArgumentParser):
    """Kafka's tools accept no abbreviations. A mistake is a line, the options, and exit code 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        print(message, file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(1)


def new_parser(name: str) -> Parser:
    """A parser with the options of every tool."""
    parser = Parser(prog=name)
    parser.add_argument("--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--command-config", metavar="FILE")
    parser.add_argument("--version", action="version", version=KAFKA_VERSION)
    return parser


def add_verbs(parser: Parser, verbs: tuple[str, ...], message: str) -> None:
    """One option for each thing that the tool can do, in `arguments.verb` later; exactly one must be given."""
    for option in verbs:
        parser.add_argument(f"--{option}", dest="verbs", action="append_const", const=option, default=[])
    parser.set_defaults(verb_message=message)


def parse_verb(parser: Parser, words: list[str], needs: dict[str, tuple[str, ...]]) -> argparse.Namespace:
    """The command line; `needs` names the options that a verb must have."""
    arguments = parser.parse_args(words)
    if len(set(arguments.verbs)) != 1:
        parser.error(arguments.verb_message)
    arguments.verb = arguments.verbs[0]
    for option in needs.get(arguments.verb, ()):
        if getattr(arguments, option.replace("-", "_")) in (None, []):
            parser.error(f'Missing required argument "[{option}]"')
    return arguments


def connect(arguments: argparse.Namespace) -> Client:
    try:
        return Client(arguments.bootstrap_server, security=load_security(arguments.command_config))
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from None


def read_properties(path: str | None) -> dict[str, str]:
    try:
        return {} if path is None else {key: text for key, (text, _) in read_file(path).items()}
    except (ConfigError, OSError) as error:
        raise CommandError(f"{path}: {error}") from None


def finish(work: Coroutine[Any, Any, int], failed: Callable[[str], str], *, to_stdout: bool = False) -> int:
    """Run a tool. `failed` formats an error as the tool does; a few tools print it on standard output."""
    try:
        return asyncio.run(work)
    except (KafkaError, ClientError, CommandError) as error:
        text = failed(error.message if isinstance(error, KafkaError) else str(error))
        print(text, file=sys.stdout if to_stdout else sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:  # by SIGTERM, which ends Kafka's tools with this code
        return 143


def java_error(error: KafkaError) -> str:
    """An error as Java's tools print it: with the name of its class."""
    name = JAVA_NAMES.get(type(error), type(error).__name__)
    return f"org.apache.kafka.common.errors.{name}Exception: {error.message}"


def table(head: list[tuple[str, int]], rows: list[list[object]], *, is_padded: bool = False) -> None:
    """Columns of fixed widths, as Kafka prints them; a longer cell widens its column.

    Some of Kafka's tables fill the last column with blanks too.
    """
    widths = [
        max(width, *(len(str(row[column])) for row in rows)) if rows else width
        for column, (_, width) in enumerate(head)
    ]
    if is_padded:
        widths[-1] = head[-1][1]
    names: list[object] = [name for name, _ in head]
    for row in [names, *rows]:
        line = " ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True))
        print(line if is_padded else line.rstrip())
