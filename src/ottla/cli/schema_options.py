"""The options for a schema registry, and the messages for its errors."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.common import CommandError, UsageError
from ottla.config import ConfigError
from ottla.config.properties import read_properties
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.registry import client as registry_client
    from ottla.registry import errors, http_client
    from ottla.registry.client import RegistryClient
    from ottla.registry.http_client import HttpRegistry
else:
    errors = lazy("ottla.registry.errors")
    http_client = lazy("ottla.registry.http_client")
    registry_client = lazy("ottla.registry.client")

REGISTRY_VARIABLE: Final = "OTTLA_REGISTRY"
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"

# Properties of Confluent's clients, with and without the prefix of serializers.
_PREFIX: Final = "schema.registry."


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Options for the registry that a command talks to."""
    group = parser.add_argument_group("schema registry")
    group.add_argument(
        "--registry",
        metavar="URL",
        help=f"the registry; with a login: http://user:password@host:port (${REGISTRY_VARIABLE}, or "
        f"{DEFAULT_REGISTRY})",
    )
    group.add_argument(
        "--registry-config",
        metavar="FILE",
        help="a client's properties: schema.registry.url, basic.auth.user.info, bearer.auth.token, ssl.ca.location",
    )


def names_registry(arguments: argparse.Namespace) -> bool:
    """Whether the command line or the environment contains a registry."""
    return bool(arguments.registry or arguments.registry_config or os.environ.get(REGISTRY_VARIABLE))


@contextmanager
def registry_of(arguments: argparse.Namespace) -> Iterator[RegistryClient]:
    """The registry of these options; nothing is sent yet."""
    with closing(http_registry(arguments)) as registry:
        yield registry_client.RegistryClient(registry.ask)


@contextmanager
def asynchronous(
    arguments: argparse.Namespace,
) -> Iterator[Callable[[str, str, Any], Awaitable[tuple[int, Any]]] | None]:
    """The registry from the options, for a console; None if they contain none."""
    if not names_registry(arguments):
        yield None
        return
    registry, one_at_a_time = http_registry(arguments), asyncio.Lock()

    async def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
        async with one_at_a_time:
            try:
                return await asyncio.to_thread(registry.answer, method, path, body)
            except http_client.RegistryUnreachable as error:
                return 502, {"error_code": 502, "message": str(error)}

    with closing(registry):
        yield ask


def http_registry(arguments: argparse.Namespace) -> HttpRegistry:
    settings = _settings(arguments.registry_config)
    url = arguments.registry or settings.get("url") or os.environ.get(REGISTRY_VARIABLE) or DEFAULT_REGISTRY
    try:
        return http_client.HttpRegistry(
            url,
            user=settings.get("basic.auth.user.info"),
            token=settings.get("bearer.auth.token"),
            ca_file=settings.get("ssl.ca.location"),
        )
    except ValueError as error:
        raise UsageError(f"--registry: {error}") from None
    except OSError as error:
        raise CommandError(f"--registry-config {arguments.registry_config}: ssl.ca.location: {error}") from None


def _settings(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        found = {key.removeprefix(_PREFIX): text for key, (text, _) in read_properties(path).items()}
    except (ConfigError, ValueError, OSError) as error:
        raise CommandError(f"--registry-config {path}: {error}") from None
    return found


@contextmanager
def explained() -> Iterator[None]:
    """A registry's error, or a failed connection, as one line."""
    try:
        yield
    except errors.RegistryError as error:
        raise CommandError(f"{error.message} (HTTP {error.status}, error code {error.code})") from None
    except http_client.RegistryUnreachable as error:
        raise CommandError(f"{error}; choose another registry with --registry or ${REGISTRY_VARIABLE}") from None
