"""The console of `ottla serve`: on its usual port unless something else is asked for."""

from __future__ import annotations

import argparse
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.console.inside import OF_WORKERS
from ottla.console.server import ConsoleServer, own_console
from ottla.server.net.listener import ListenError

if TYPE_CHECKING:
    from ottla.config import Config
    from ottla.console.inside import Inside

logger = logging.getLogger(__name__)

CONSOLE_PORT: Final = 9095


def add_options(parser: argparse.ArgumentParser, port: object) -> None:
    """Add what can be said about the console; `port` reads one."""
    option = parser.add_argument
    option(
        "--console",
        type=port,  # type: ignore[arg-type]
        metavar="PORT",
        help=f"the port of the web console on this machine, 0 for a free one ({CONSOLE_PORT} with the preset dev)",
    )
    option("--no-console", action="store_true", help="no web console")
    option("--console-read-only", action="store_true", help="let the console change nothing")


def has_console(arguments: argparse.Namespace) -> bool:
    """Whether there is one: where a port is given, and with the preset dev."""
    if arguments.no_console:
        return False
    preset = arguments.preset or ("dev" if arguments.properties is None else None)
    return arguments.console is not None or preset == "dev"


def print_console(url: str | None, arguments: argparse.Namespace) -> None:
    """The line about the console, for people."""
    if url is not None:
        is_usual = arguments.console is not None or url.endswith(f":{CONSOLE_PORT}")
        why = "" if is_usual else f" (port {CONSOLE_PORT} is in use)"
        print(f"ottla {__version__}: console at {url}{why}", flush=True)


@asynccontextmanager
async def console_of(inside: Inside, arguments: argparse.Namespace) -> AsyncIterator[str | None]:
    """Serve the console of the brokers of this process, if there is to be one; gives its address."""

    def make(port: int) -> ConsoleServer:
        return own_console(inside, port, read_only=arguments.console_read_only)

    async with _served(make, arguments) as url:
        yield url


@asynccontextmanager
async def console_of_workers(
    config: Config, addresses: str, arguments: argparse.Namespace
) -> AsyncIterator[str | None]:
    """The same for workers: a client of theirs, in the process that supervises them."""
    first = config.listeners[0]
    if has_console(arguments) and first.security_protocol != "PLAINTEXT":
        logger.info("no console: with --workers it needs a first listener without TLS and SASL")
        yield None
        return
    port = addresses.split(",")[0].strip().rpartition(":")[2]

    def make(console_port: int) -> ConsoleServer:
        return ConsoleServer(
            lambda: f"127.0.0.1:{port}" if first.host in ("", "0.0.0.0") else addresses.split(",")[0].strip(),
            "127.0.0.1",
            console_port,
            missing=OF_WORKERS,
            read_only=arguments.console_read_only,
        )

    async with _served(make, arguments) as url:
        yield url


@asynccontextmanager
async def _served(make: Callable[[int], ConsoleServer], arguments: argparse.Namespace) -> AsyncIterator[str | None]:
    if not has_console(arguments):
        yield None
        return
    wanted = arguments.console
    console = make(CONSOLE_PORT if wanted is None else wanted)
    try:
        await console.start()
    except ListenError:
        if wanted is not None:
            raise
        # Nobody asked for this port: another broker's console may have it. `print_console` says so.
        console = make(0)
        await console.start()
    try:
        yield console.url
    finally:
        await console.stop()
