"""Options that the tools share, and how they fail: one line on standard error and exit code 1."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.cli.common import CommandError, load_security
from ottla.client import Client
from ottla.client.connection import ClientError
from ottla.errors import KafkaError


def new_parser(name: str, *, command_config: str = "--command-config") -> argparse.ArgumentParser:
    """A parser with the options of every tool. Kafka's tools accept no abbreviations."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT,…")
    parser.add_argument(command_config, dest="command_config", metavar="FILE")
    return parser


def connect(arguments: argparse.Namespace) -> Client:
    try:
        return Client(arguments.bootstrap_server, security=load_security(arguments.command_config))
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from None


def finish(work: Coroutine[Any, Any, int], failed: Callable[[str], str]) -> int:
    """Run a tool. `failed` formats an error as the tool does."""
    try:
        return asyncio.run(work)
    except (KafkaError, ClientError, CommandError) as error:
        print(failed(error.message if isinstance(error, KafkaError) else str(error)), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def table(head: list[tuple[str, int]], rows: list[list[object]]) -> None:
    """Columns of fixed widths, as Kafka prints them; a longer cell moves the rest of its line."""
    widths = [
        max(width, *(len(str(row[column])) for row in rows)) if rows else width
        for column, (_, width) in enumerate(head)
    ]
    names: list[object] = [name for name, _ in head]
    for row in [names, *rows]:
        print(" ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
