"""`ottla registry`: a schema registry for any Kafka cluster."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import Any, Final

from ottla.cli import common, terminal
from ottla.registry.server import RegistryServer
from ottla.server.net.listener import ListenError

USERS_VARIABLE: Final = "OTTLA_REGISTRY_USERS"
DEFAULT_PORT: Final = 8081

EXAMPLES: Final = (
    "ottla registry",
    "ottla registry --bootstrap kafka.example:9092 --client-config client.properties",
    "OTTLA_REGISTRY_USERS=alice:secret,bob:other ottla registry --host 0.0.0.0",
)


def add_parser(subparsers: Any) -> None:
    """Add `registry` to the command line."""
    parser = common.subcommand(
        subparsers,
        "registry",
        "serve a schema registry for a cluster",
        "Serve a Confluent-compatible schema registry. It keeps its schemas in the topic _schemas of a Kafka cluster.\n"
        f"Users and passwords are read from ${USERS_VARIABLE}; without them only this machine is served.",
        EXAMPLES,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 takes a free one ({DEFAULT_PORT})")
    common.add_json(parser)
    common.add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    return common.run_async(_serve(arguments))


def users_of(text: str) -> dict[str, str]:
    """`alice:secret,bob:other` as names with passwords."""
    users = {}
    for pair in filter(None, text.split(",")):
        name, colon, password = pair.partition(":")
        if not (name and colon and password):
            raise common.UsageError(f"${USERS_VARIABLE} must be name:password, separated by commas")
        users[name] = password
    return users


async def _serve(arguments: argparse.Namespace) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bootstrap = common.bootstrap_of(arguments)
    try:
        registry = RegistryServer(
            lambda: bootstrap,
            arguments.host,
            arguments.port,
            security=common.load_security(arguments.client_config),
            users=users_of(os.environ.get(USERS_VARIABLE, "")),
        )
        await registry.start()
    except ValueError as error:
        raise common.UsageError(f"{error} (set ${USERS_VARIABLE})") from None
    except ListenError as error:
        raise common.CommandError(str(error)) from None
    if arguments.json:
        terminal.print_json({"url": registry.url, "bootstrap": bootstrap})
    else:
        print(f"the schema registry of {bootstrap} is on {registry.url}")
    sys.stdout.flush()
    await stopped.wait()
    await registry.stop()
    return common.OK
