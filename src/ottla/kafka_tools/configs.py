"""kafka-configs: settings of topics, brokers, groups and client metrics, quotas, and passwords for SCRAM."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from ottla.cli.common import CommandError
from ottla.client import Client
from ottla.client.access import MECHANISMS, delete_scram_user, list_scram_users, set_scram_password
from ottla.client.admin import ConfigEntry, alter_configs, alter_quotas, describe_configs, describe_quotas, list_groups
from ottla.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.errors import KafkaError, ResourceNotFound, error_for
from ottla.kafka_tools.common import Parser, add_verbs, connect, finish, new_parser, parse_verb, read_properties
from ottla.wire.messages import ListConfigResourcesRequest

KINDS = {
    "topics": (ConfigResourceType.TOPIC, "topic"),
    "brokers": (ConfigResourceType.BROKER, "broker"),
    "broker-loggers": (ConfigResourceType.BROKER_LOGGER, "broker-logger"),
    "groups": (ConfigResourceType.GROUP, "group"),
    "client-metrics": (ConfigResourceType.CLIENT_METRICS, "client-metric"),
}
QUOTAS = {"users": ("user", "user-principal"), "clients": ("client-id", "client-id"), "ips": ("ip", "ip")}
"""The type of a quota's entity, and how it is printed."""
SHORT = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
"""`--topic orders` is short for `--entity-type topics --entity-name orders`."""
DEFAULTS = {"client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers", "ip-defaults": "ips"}
QUOTA_KEYS = {
    "users": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "clients": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "ips": ("connection_creation_rate",),
}
OWN_SOURCE: dict[ConfigResourceType, ConfigSource | None] = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: None,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}
"""What counts as dynamic, for a resource with a name; all levels of loggers do."""
SOURCE_NAMES: dict[int, str] = {each: each.name for each in ConfigSource}
_PAIR = re.compile(r"([^=,]+)=(?:\[([^\]]*)\]|([^,]*))(?:,|$)")
Entity = tuple[str, str | None]
"""A kind and a name; None is the default of the kind."""


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    add_verbs(parser, ("describe", "alter"), "Command must include exactly one action: --describe, --alter")
    # In their order: `--entity-type users --entity-name alice --entity-type clients --entity-default`.
    parser.add_argument("--entity-type", dest="entities", action="append", default=[], type=_kind)
    parser.add_argument("--entity-name", dest="entities", action="append", type=lambda text: ("name", text))
    parser.add_argument("--entity-default", dest="entities", action="append_const", const=("name", None))
    for option, kind in SHORT.items():
        parser.add_argument(f"--{option}", dest="entities", action="append", type=_named(kind))
    for option, kind in DEFAULTS.items():
        parser.add_argument(f"--{option}", dest="entities", action="append_const", const=(kind, None))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--add-config", default="")
    parser.add_argument("--add-config-file")
    parser.add_argument("--delete-config", default="")
    arguments = parse_verb(parser, words, {})
    entities = _entities(parser, arguments.entities)
    kinds = [kind for kind, _ in entities]
    if len(kinds) > 1 and sorted(kinds) != ["clients", "users"]:
        parser.error("Only user and client entities can be combined.")
    if arguments.verb == "alter":
        if not (arguments.add_config or arguments.add_config_file or arguments.delete_config):
            parser.error(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
            )
        if any(text == "" for _, text in entities):
            parser.error("an entity-name or default entity must be specified with --alter")
    failed = f"Error while executing config command with args '{' '.join(words)}'\n"
    return finish(_run(arguments, entities), lambda text: failed + text)


def _kind(text: str) -> tuple[str, str]:
    if text not in KINDS and text not in QUOTAS:
        raise argparse.ArgumentTypeError(f"Invalid entity type {text}")
    return ("type", text)


def _named(kind: str) -> Callable[[str], Entity]:
    return lambda text: (kind, text)


def _entities(parser: Parser, words: list[tuple[str, str | None]]) -> list[Entity]:
    """The entities of the command line; a kind without a name has the name "" (all of the kind)."""
    kinds = [text for word, text in words if word == "type"]
    names = [text for word, text in words if word == "name"]
    if len(names) > len(kinds) or any(kind is None for kind in kinds):
        parser.error("--entity-type must be specified for each --entity-name")
    found: list[Entity] = [(str(kind), text) for kind, text in zip(kinds, [*names, *[""] * len(kinds)], strict=False)]
    found += [(word, text) for word, text in words if word not in ("type", "name")]
    if not found:
        parser.error("At least one entity type must be specified")
    return found


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1,b=[x,y]`: brackets keep the commas of a value."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise CommandError(
                "requirement failed: Invalid entity config: all configs to be added must be in the format "
                '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        found[pair[1].strip()] = pair[2] if pair[2] is not None else pair[3]
        position = pair.end()
    return found


async def _run(arguments: argparse.Namespace, entities: list[Entity]) -> int:
    async with connect(arguments) as client:
        kind = entities[0][0]
        if arguments.verb == "describe":
            if kind in QUOTAS:
                await _describe_quotas(client, entities)
            else:
                await _describe(client, kind, entities[0][1], everything=arguments.all)
            return 0
        added = {**read_properties(arguments.add_config_file), **parse_pairs(arguments.add_config)}
        deleted = [key.strip() for key in arguments.delete_config.split(",") if key.strip()]
        if kind in QUOTAS:
            await _alter_users(client, entities, added, deleted)
        else:
            changes: list[tuple[str, int, str | None]] = [(key, AlterConfigOp.SET, text) for key, text in added.items()]
            changes += [(key, AlterConfigOp.DELETE, None) for key in deleted]
            await alter_configs(client, KINDS[kind][0], entities[0][1] or "", changes)
        for each, name in entities:
            word = each.removesuffix("s") if each in QUOTAS else KINDS[each][1]
            is_default = name is None
            text = f"default config for {each} in the cluster" if is_default else f"config for {word} {name}"
            print(f"Completed updating {text}.")
    return 0


async def _describe(client: Client, kind: str, name: str | None, *, everything: bool) -> None:
    number, word = KINDS[kind]
    if name and not everything and name not in await _existing(client, number):
        print(f"The {word} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    names = [name or ""] if name != "" else await _names(client, number)
    for each in names:
        found = (await describe_configs(client, number, [each], explain=True))[each]
        if isinstance(found, KafkaError):
            raise found
        if not each:
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {word} {each} are:")
        own = None if everything else OWN_SOURCE[number] if each else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        for entry in found:
            if own in (None, entry.source):
                print(_shown(entry))


async def _existing(client: Client, kind: ConfigResourceType) -> list[str]:
    """The names that can be described; a group with members needs no settings for that."""
    listed = await list_groups(client) if kind == ConfigResourceType.GROUP else []
    return [*(group.group for group in listed), *await _names(client, kind)]


async def _names(client: Client, kind: ConfigResourceType) -> list[str]:
    """All resources of a kind; "" are the defaults of brokers."""
    if kind == ConfigResourceType.TOPIC:
        return sorted((await client.metadata()).topics)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        brokers = [str(number) for number in sorted((await client.metadata([])).nodes)]
        return [*brokers, ""] if kind == ConfigResourceType.BROKER else brokers
    response = await client.ask(ListConfigResourcesRequest(resource_types=[kind]))
    if response.error_code:
        raise error_for(response.error_code)
    return sorted(each.resource_name for each in response.config_resources)


def _shown(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{SOURCE_NAMES.get(source, 'UNKNOWN')}:{name}={'null' if value is None else value}"
        for name, value, source in entry.synonyms
    )
    value = "null" if entry.value is None else entry.value
    return f"  {entry.name}={value} sensitive={str(entry.sensitive).lower()} synonyms={{{synonyms}}}"


async def _describe_quotas(client: Client, entities: list[Entity]) -> None:
    wanted = {QUOTAS[kind][0]: name for kind, name in entities}
    for entity, quotas in await describe_quotas(client, None):
        if entity.keys() == wanted.keys() and all(name in ("", entity[part]) for part, name in wanted.items()):
            shown = ", ".join(f"{key}={value}" for key, value in sorted(quotas.items()))
            print(f"Quota configs for {_quota_entity(entities, entity)} are {shown}")
    if [kind for kind, _ in entities] == ["users"] and entities[0][1] is not None:
        for user, ways in sorted((await list_scram_users(client)).items()):
            if entities[0][1] in ("", user):
                shown = ", ".join(
                    f"{way.name.replace('_', '-')}=iterations={count}" for way, count in sorted(ways.items())
                )
                print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _quota_entity(entities: list[Entity], found: dict[str, str | None]) -> str:
    texts = []
    for part, word in sorted((QUOTAS[kind] for kind, _ in entities), reverse=True):
        texts.append(f"the default {word}" if found[part] is None else f"{word} '{found[part]}'")
    return ", ".join(texts)


async def _alter_users(client: Client, entities: list[Entity], added: dict[str, str], deleted: list[str]) -> None:
    """Change quotas and passwords."""
    kind, user = entities[0]
    known = QUOTA_KEYS[kind]
    mechanisms: dict[str, object] = dict(MECHANISMS) if [each for each, _ in entities] == ["users"] else {}
    what = "quota and SCRAM credential" if kind == "users" else "quota" if kind == "clients" else "connection quota"
    for keys, word in ((added, "added"), (deleted, "deleted")):
        if unknown := [key for key in keys if key not in known and key not in mechanisms]:
            raise CommandError(
                f"Only {what} configs can be {word} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: {', '.join(unknown)}"
            )
    try:
        quotas: dict[str, float | None] = {key: float(text) for key, text in added.items() if key in known}
    except ValueError as error:
        raise CommandError(f"Cannot parse quota configuration value: {error}") from None
    quotas |= dict.fromkeys((key for key in deleted if key in known), None)
    if quotas:
        await alter_quotas(client, {QUOTAS[each][0]: name for each, name in entities}, quotas)
    changed = [key for key in (*added, *deleted) if key in mechanisms]
    if changed and user is None:
        raise CommandError("The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials")
    for key in changed:
        await _alter_password(client, str(user), key, added.get(key))


async def _alter_password(client: Client, user: str, mechanism: str, text: str | None) -> None:
    """`[iterations=8192,password=secret]`; None removes the password."""
    if text is None:
        try:
            await delete_scram_user(client, user, MECHANISMS[mechanism])
        except ResourceNotFound:
            raise CommandError("Attempt to delete a user credential that does not exist") from None
        return
    given = parse_pairs(text)
    if not given.get("password"):
        raise CommandError(f"requirement failed: SCRAM credential for {mechanism} has no password")
    if not given.get("iterations", "4096").isdecimal():
        raise CommandError(f"Iterations {given['iterations']} is not a number")
    await set_scram_password(
        client, user, MECHANISMS[mechanism], given["password"], int(given.get("iterations", "4096"))
    )
