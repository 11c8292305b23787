"""The schema registry of `ottla serve --registry`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.config import ConfigError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.cli import registry_access
    from ottla.config import Config
    from ottla.console.inside import Inside
    from ottla.embedded import own_registry
    from ottla.registry import server as registry_server
    from ottla.registry.options import RegistryOptions
    from ottla.registry.server import RegistryServer
else:
    registry_access = lazy("ottla.cli.registry_access")
    own_registry = lazy("ottla.embedded.own_registry")
    registry_server = lazy("ottla.registry.server")


def add_options(parser: argparse.ArgumentParser, address: object) -> None:
    """Add the options of the registry; `address` parses [HOST:]PORT."""
    parser.add_argument(
        "--registry",
        type=address,  # type: ignore[arg-type]
        metavar="[HOST:]PORT",
        help="serve a schema registry there, 0 for a free port (needs ottla[registry]); to serve other machines, "
        "define users in $OTTLA_REGISTRY_USERS or with --registry-access",
    )
    add_access(parser, "--registry-access")


def add_access(parser: argparse.ArgumentParser, option: str) -> None:
    """Add the option for a file with users, tokens, rights and certificates."""
    parser.add_argument(
        option, dest="access", metavar="FILE", help="users, tokens, rights by subject and TLS of the registry, in TOML"
    )


def wanted(arguments: argparse.Namespace) -> RegistryOptions | None:
    """The requested registry, or None without `--registry`."""
    if arguments.registry is None:
        return None
    host, port = arguments.registry
    return registry_access.options_of(host, port, arguments.access)


def print_registry(url: str | None) -> None:
    """The line about the registry, for people."""
    if url is not None:
        print(f"ottla {__version__}: schema registry at {url}", flush=True)


@asynccontextmanager
async def registry_of(inside: Inside, arguments: argparse.Namespace) -> AsyncIterator[str | None]:
    """Serve the registry of this process's broker, if requested. Returns its address."""
    options = wanted(arguments)
    registry = None if options is None else own_registry.OwnRegistry(inside.servers, options).server
    inside.registry = lambda: None if registry is None else registry.ask
    async with _served(registry) as url:
        yield url


def check_workers(config: Config, arguments: argparse.Namespace) -> None:
    """Refuse unsupported settings: with workers, the registry is a client without credentials."""
    if arguments.registry is not None and config.listeners[0].security_protocol != "PLAINTEXT":
        raise ConfigError("--registry with --workers needs a first listener without TLS and SASL")
    wanted(arguments)


@asynccontextmanager
async def registry_of_workers(bootstrap: str, arguments: argparse.Namespace) -> AsyncIterator[RegistryServer | None]:
    """The registry of workers, in the supervisor process. Returns the server, which their console uses too."""
    options = wanted(arguments)
    open_client = registry_server.clients_of(lambda: bootstrap)
    registry = None if options is None else registry_server.RegistryServer(open_client, options)
    async with _served(registry):
        yield registry


@asynccontextmanager
async def _served(registry: RegistryServer | None) -> AsyncIterator[str | None]:
    if registry is None:
        yield None
        return
    await registry.start()
    try:
        yield registry.url
    finally:
        await registry.stop()
