"""`ottla console`: a web page that shows any Kafka cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from typing import Any, Final

from ottla.cli import common
from ottla.console.server import ConsoleServer
from ottla.server.net.listener import ListenError

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
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 takes a free one ({DEFAULT_PORT})")
    parser.add_argument("--read-only", action="store_true", help="refuse everything that would change the cluster")
    common.add_json(parser)
    common.add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    return common.run_async(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bootstrap = common.bootstrap_of(arguments)
    try:
        console = ConsoleServer(
            lambda: bootstrap,
            arguments.host,
            arguments.port,
            security=common.load_security(arguments.client_config),
            token=os.environ.get(TOKEN_VARIABLE),
            read_only=arguments.read_only,
        )
        await console.start()
    except ValueError as error:
        raise common.UsageError(f"{error} (set ${TOKEN_VARIABLE})") from None
    except ListenError as error:
        raise common.CommandError(str(error)) from None
    if arguments.json:
        print(json.dumps({"url": console.url, "bootstrap": bootstrap}), flush=True)
    else:
        print(f"the console of {bootstrap} is on {console.url}", flush=True)
    await stopped.wait()
    await console.stop()
    return common.OK
