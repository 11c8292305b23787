"""The console of `ottla serve`: on its usual port unless something else is asked for."""

from __future__ import annotations

import argparse
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ottla.console.server import own_console
from ottla.server.net.listener import ListenError

if TYPE_CHECKING:
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


@asynccontextmanager
async def console_of(inside: Inside, arguments: argparse.Namespace) -> AsyncIterator[str | None]:
    """Serve the console, if there is one to be; gives its address."""
    if not has_console(arguments):
        yield None
        return
    wanted = arguments.console
    console = own_console(inside, CONSOLE_PORT if wanted is None else wanted, read_only=arguments.console_read_only)
    try:
        await console.start()
    except ListenError:
        if wanted is not None:
            raise
        # Nobody asked for this port: another broker's console may have it.
        logger.info("port %d is in use: the console takes a free one (--console PORT chooses it)", CONSOLE_PORT)
        console = own_console(inside, 0, read_only=arguments.console_read_only)
        await console.start()
    try:
        yield console.url
    finally:
        await console.stop()
