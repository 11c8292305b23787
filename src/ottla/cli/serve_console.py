"""The console of `ottla serve`: on its usual port unless an option changes it."""

from __future__ import annotations

import argparse
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.console.inside import inside_of
from ottla.lazy_imports import lazy
from ottla.server.net.listener import ListenError, bind

if TYPE_CHECKING:
    import secrets

    from ottla.config import Config
    from ottla.console import server as console_server
    from ottla.console import worker_views
    from ottla.console.inside import Inside
    from ottla.console.server import ConsoleServer
    from ottla.console.worker_views import WorkerViews
    from ottla.http.endpoint import HttpEndpoint
    from ottla.registry.server import RegistryServer
    from ottla.server.broker import Broker
else:
    secrets = lazy("secrets")
    console_server = lazy("ottla.console.server")
    worker_views = lazy("ottla.console.worker_views")

logger = logging.getLogger(__name__)

CONSOLE_PORT: Final = 9095


def add_options(parser: argparse.ArgumentParser, port: object) -> None:
    """Add the options of the console; `port` parses a port."""
    option = parser.add_argument
    option(
        "--console",
        type=port,  # type: ignore[arg-type]
        metavar="PORT",
        help=f"the port of the web console on this machine, 0 for a free one ({CONSOLE_PORT} with the preset dev)",
    )
    option("--no-console", action="store_true", help="no web console")
    option("--console-read-only", action="store_true", help="the console refuses every change")


def has_console(arguments: argparse.Namespace) -> bool:
    """Whether there is a console: yes if a port is given, or with the preset dev."""
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
    """Serve the console of this process's brokers, if it has one. Returns its address."""

    def make(port: int) -> ConsoleServer:
        return console_server.own_console(inside, port, read_only=arguments.console_read_only)

    async with _served(make, arguments) as url:
        yield url


def first_address(config: Config, addresses: str) -> str:
    """The address at which this machine reaches the workers' first listener."""
    address = addresses.split(",")[0].strip()
    return f"127.0.0.1:{address.rpartition(':')[2]}" if config.listeners[0].host in ("", "0.0.0.0") else address


class WorkerConsoles:
    """The views of all workers, on ports that are bound before the workers start. Only the console has the token."""

    def __init__(self, count: int) -> None:
        self._sockets = [bind("127.0.0.1", 0) for _ in range(count)]
        self._token = secrets.token_urlsafe()

    def endpoint(self, place: int, broker: Broker) -> HttpEndpoint:
        """The endpoint of a worker; called in its process."""
        for each, sock in enumerate(self._sockets):
            if each != place:
                sock.close()
        return console_server.worker_view(inside_of(broker), self._sockets[place], self._token)

    def views(self) -> WorkerViews:
        """The views for the console; called when the workers run."""
        ports = [sock.getsockname()[1] for sock in self._sockets]
        for sock in self._sockets:
            sock.close()
        return worker_views.WorkerViews([worker_views.WorkerAddress(port, self._token) for port in ports])


@asynccontextmanager
async def console_of_workers(
    config: Config,
    bootstrap: str,
    consoles: WorkerConsoles | None,
    arguments: argparse.Namespace,
    registry: RegistryServer | None,
) -> AsyncIterator[str | None]:
    """The console of workers. It runs in the supervisor, connects to them as a client, and can also inspect them."""
    if consoles is not None and config.listeners[0].security_protocol != "PLAINTEXT":
        logger.info("no console: with --workers it needs a first listener without TLS and SASL")
        yield None
        return
    workers = None if consoles is None else consoles.views()

    def make(console_port: int) -> ConsoleServer:
        return console_server.ConsoleServer(
            lambda: bootstrap,
            "127.0.0.1",
            console_port,
            workers=workers,
            read_only=arguments.console_read_only,
            registry=None if registry is None else registry.ask,
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
        # This port is only the default: another broker's console may use it. `print_console` reports that.
        console = make(0)
        await console.start()
    try:
        yield console.url
    finally:
        await console.stop()
