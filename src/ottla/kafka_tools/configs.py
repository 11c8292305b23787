"""kafka-configs: settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

import argparse
import re

from ottla.cli.common import CommandError
from ottla.client.admin import ConfigEntry, alter_configs, describe_configs
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import KafkaError
from ottla.kafka_tools.common import connect, finish, new_parser

KINDS = {
    "topics": (ConfigResourceType.TOPIC, "topic"),
    "brokers": (ConfigResourceType.BROKER, "broker"),
    "broker-loggers": (ConfigResourceType.BROKER_LOGGER, "broker-logger"),
    "groups": (ConfigResourceType.GROUP, "group"),
    "client-metrics": (ConfigResourceType.CLIENT_METRICS, "client-metric"),
}
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
OWN_SOURCE = {
    ConfigResourceType.TOPIC: 1,
    ConfigResourceType.BROKER: 2,
    ConfigResourceType.BROKER_LOGGER: 6,
    ConfigResourceType.CLIENT_METRICS: 7,
    ConfigResourceType.GROUP: 8,
}
"""What counts as dynamic; the defaults of all brokers are source 3."""
_PAIR = re.compile(r"([^=,]+)=(?:\[([^\]]*)\]|([^,]*))(?:,|$)")


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    verb = parser.add_mutually_exclusive_group(required=True)
    for option in ("describe", "alter"):
        verb.add_argument(f"--{option}", dest="verb", action="store_const", const=option)
    parser.add_argument("--entity-type", choices=tuple(KINDS))
    parser.add_argument("--entity-name")
    parser.add_argument("--entity-default", action="store_true")
    for kind in KINDS:
        parser.add_argument(f"--{kind.removesuffix('s')}", dest=kind)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--add-config", default="")
    parser.add_argument("--delete-config", default="")
    arguments = parser.parse_args(words)
    for kind in KINDS:
        if getattr(arguments, kind) is not None:
            arguments.entity_type, arguments.entity_name = kind, getattr(arguments, kind)
    if arguments.entity_type is None or (arguments.entity_name is None and not arguments.entity_default):
        parser.error("name the entity with --entity-type and --entity-name")
    return finish(_run(arguments), lambda text: f"Error while executing config command with args '{text}'")


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1,b=[x,y]`: brackets keep the commas of a value."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise CommandError(f"Invalid entity config: all configs to be added must be in the format key=val: {text}")
        found[pair[1].strip()] = pair[2] if pair[2] is not None else pair[3]
        position = pair.end()
    return found


async def _run(arguments: argparse.Namespace) -> int:
    kind, word = KINDS[arguments.entity_type]
    name = "" if arguments.entity_default else arguments.entity_name
    what = f"the {word} default entity" if arguments.entity_default else f"{word} {name}"
    async with connect(arguments) as client:
        if arguments.verb == "alter":
            changes: list[tuple[str, int, str | None]] = [
                (key, AlterConfigOp.SET, value) for key, value in parse_pairs(arguments.add_config).items()
            ]
            deleted = [key.strip() for key in arguments.delete_config.split(",") if key.strip()]
            changes += [(key, AlterConfigOp.DELETE, None) for key in deleted]
            if not changes:
                raise CommandError("At least one of --add-config or --delete-config must be specified with --alter")
            await alter_configs(client, kind, name, changes)
            print(f"Completed updating config for {what}.")
            return 0
        found = (await describe_configs(client, kind, [name], explain=True))[name]
        if isinstance(found, KafkaError):
            raise found
        print(f"All configs for {what} are:" if arguments.all else f"Dynamic configs for {what} are:")
        own = None if arguments.all else 3 if arguments.entity_default else OWN_SOURCE[kind]
        for entry in found:
            if own in (None, entry.source):
                print(_shown(entry, own))
    return 0


def _shown(entry: ConfigEntry, own: int | None) -> str:
    synonyms = ", ".join(
        f"{SOURCES.get(source, 'UNKNOWN')}:{name}={'null' if value is None else value}"
        for name, value, source in entry.synonyms
        if own in (None, source)
    )
    value = "null" if entry.value is None else entry.value
    return f"  {entry.name}={value} sensitive={str(entry.sensitive).lower()} synonyms={{{synonyms}}}"
