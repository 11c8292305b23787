"""`ottla registry`: a schema registry for any Kafka cluster."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ottla.cli import common, http_service
from ottla.cli.registry_access import USERS_VARIABLE, options_of
from ottla.cli.serve_registry import add_access
from ottla.config import ConfigError
from ottla.registry.server import RegistryServer, clients_of
from ottla.server.stop_signals import stop_event

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
    http_service.add_options(parser, DEFAULT_PORT)
    add_access(parser, "--access")
    common.add_json(parser)
    common.add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    return common.run_async(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> int:
    stopped = stop_event()
    bootstrap, client_config = common.target_of(arguments)
    try:
        options = options_of(arguments.host, arguments.port, arguments.access)
        open_client = clients_of(lambda: bootstrap, common.load_security(client_config))
        registry = RegistryServer(open_client, options)
        return await http_service.serve(registry, "schema registry", bootstrap, stopped, as_json=arguments.json)
    except ConfigError as error:
        raise common.UsageError(str(error)) from None
