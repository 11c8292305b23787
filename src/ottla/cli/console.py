"""`ottla console`: a web page that shows any Kafka cluster."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from ottla.cli import common, http_service
from ottla.cli.schema_options import add_registry, asynchronous
from ottla.console.server import ConsoleServer
from ottla.server.stop_signals import stop_event

TOKEN_VARIABLE: Final = "OTTLA_CONSOLE_TOKEN"
DEFAULT_PORT: Final = 9095

EXAMPLES: Final = (
    "ottla console",
    "ottla console --bootstrap kafka.example:9092 --client-config client.properties --read-only",
    "OTTLA_CONSOLE_TOKEN=secret ottla console --host 0.0.0.0",
)


def add_parser(subparsers: Any) -> None:
    """Add `console` to the command line."""
    parser = common.subcommand(
        subparsers,
        "console",
        "show a cluster in the browser",
        "Show any Kafka cluster in the browser: topics, messages, groups and their lag.\n"
        f"Other machines are served only with a token, which is read from ${TOKEN_VARIABLE}.",
        EXAMPLES,
    )
    http_service.add_options(parser, DEFAULT_PORT)
    parser.add_argument("--read-only", action="store_true", help="refuse everything that would change the cluster")
    common.add_json(parser)
    common.add_connection(parser)
    add_registry(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    return common.run_async(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> int:
    stopped = stop_event()
    bootstrap, client_config = common.target_of(arguments)
    try:
        with asynchronous(arguments) as registry:
            console = ConsoleServer(
                lambda: bootstrap,
                arguments.host,
                arguments.port,
                security=common.load_security(client_config),
                token=os.environ.get(TOKEN_VARIABLE),
                read_only=arguments.read_only,
                registry=registry,
            )
            return await http_service.serve(console, "console", bootstrap, stopped, as_json=arguments.json)
    except ValueError as error:
        raise common.UsageError(f"{error} (set ${TOKEN_VARIABLE})") from None
