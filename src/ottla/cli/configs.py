"""`ottla configs`: settings of topics, brokers, groups and client metrics; quotas of clients, users and addresses."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    OK,
    CommandError,
    UsageError,
    add_connection,
    add_json,
    connect,
    matching,
    run_async,
    subcommand,
    verbs,
    words_go_to,
)
from ottla.cli.printable import escaped
from ottla.client.admin import CONFIG_SOURCES, OVERRIDES, alter_configs, alter_quotas, describe_configs, describe_quotas
from ottla.enums import ConfigResourceType, ConfigSource
from ottla.errors import KafkaError, error_for
from ottla.wire.messages.configs import ListConfigResourcesRequest

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.admin import ConfigEntry

# The names that people use -> type of the config resource, or of the quota entity.
_RESOURCES: Final[dict[str, ConfigResourceType]] = {
    "topic": ConfigResourceType.TOPIC,
    "broker": ConfigResourceType.BROKER,
    "broker-logger": ConfigResourceType.BROKER_LOGGER,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
    "group": ConfigResourceType.GROUP,
}
_QUOTAS: Final = {"client": "client-id", "user": "user", "ip": "ip"}
_KINDS: Final = (*_RESOURCES, *_QUOTAS)
_BROKER_KINDS: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_HIDDEN: Final = "(hidden)"


def add_parser(subparsers: Any) -> None:
    """Add `configs` to the command line."""
    parser = subcommand(
        subparsers,
        "configs",
        "get, set and delete settings of topics, brokers, groups and clients",
        examples=(
            "ottla configs get topic orders",
            "ottla configs get broker 1 log.retention.ms --explain",
            "ottla configs set topic orders retention.ms=3600000 cleanup.policy+=compact",
            "ottla configs set client reporting consumer_byte_rate=1048576",
            "ottla configs delete topic orders retention.ms",
        ),
    )
    kinds = verbs(parser)
    get = subcommand(
        kinds,
        "get",
        "show settings: those that were set, or all with --all",
        examples=(
            "ottla configs get topic orders",
            "ottla configs get broker 1 log.retention.ms --explain",
            "ottla configs get client reporting --json",
        ),
    )
    _add_entity(get, "names, or shell patterns for topics; none means all", "*")
    get.add_argument("--key", action="append", metavar="KEY", help="only this one; repeatable")
    get.add_argument("--all", action="store_true", help="show defaults too")
    get.add_argument("--explain", action="store_true", help="show documentation and the source of each value")
    change = subcommand(
        kinds,
        "set",
        "change settings",
        "Change settings: KEY=VALUE sets, KEY+=VALUE adds to a list, KEY-=VALUE removes from a list.",
        examples=(
            "ottla configs set topic orders retention.ms=3600000 cleanup.policy+=compact",
            "ottla configs set broker --default log.cleaner.threads=2",
            "ottla configs set client reporting consumer_byte_rate=1048576",
        ),
    )
    _add_entity(change, "the name; leave it out with --default", None)
    change.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    change.add_argument("--dry-run", action="store_true", help="only let the broker check the change")
    remove = subcommand(
        kinds,
        "delete",
        "remove settings, so that defaults apply",
        examples=("ottla configs delete topic orders retention.ms",),
    )
    _add_entity(remove, "the name; leave it out with --default", None)
    remove.add_argument("keys", nargs="*", metavar="KEY")
    remove.add_argument("--dry-run", action="store_true", help="only let the broker check the change")
    for verb, words in ((get, "names"), (change, "settings"), (remove, "keys")):
        words_go_to(verb, words)
        verb.add_argument(
            "--default", action="store_true", help="the default for all brokers, clients, users or addresses"
        )
        add_json(verb)
        add_connection(verb)


def _add_entity(parser: argparse.ArgumentParser, names_help: str, count: str | None) -> None:
    parser.add_argument("kind", choices=[*_KINDS, *(f"{kind}s" for kind in _KINDS)], metavar="KIND", help=_kinds())
    if count is None:
        parser.add_argument("name", nargs="?", metavar="NAME", help=names_help)
    else:
        parser.add_argument("names", nargs=count, metavar="NAME", help=names_help)


def _kinds() -> str:
    return ", ".join(_KINDS)


def run(arguments: argparse.Namespace) -> int:
    kind = arguments.kind
    arguments.kind = kind if kind in _KINDS else kind.removesuffix("s")
    quota = arguments.kind in _QUOTAS
    if arguments.verb == "get":
        return run_async(_get_quotas(arguments) if quota else _get(arguments))
    if arguments.default and arguments.name is not None:
        # Without a name, the first setting is parsed as the name.
        words = arguments.settings if arguments.verb == "set" else arguments.keys
        words.insert(0, arguments.name)
        arguments.name = None
    return run_async(_change(arguments))


# --- reading ---------------------------------------------------------------------------------------------------------


async def _get(arguments: argparse.Namespace) -> int:
    kind = _RESOURCES[arguments.kind]
    async with connect(arguments) as client:
        names, keys = await _names(client, arguments, kind)
        found = await describe_configs(
            client, kind, names, keys=keys, explain=arguments.explain or kind in _BROKER_KINDS
        )
    shown: dict[str, list[ConfigEntry]] = {}
    for name, entries in found.items():
        if isinstance(entries, KafkaError):
            raise CommandError(f"{arguments.kind} '{name}': {entries.message} ({entries.name})")
        # Requested keys are shown, regardless of their source.
        everything = arguments.all or keys is not None
        shown[name] = [entry for entry in entries if everything or _is_own(kind, name, entry)]
    if arguments.json:
        terminal.print_json([_as_json(arguments, name, entries) for name, entries in shown.items()])
        return OK
    for name, entries in shown.items():
        if len(shown) > 1 or not entries:
            label = f"default {arguments.kind}" if name == "" else f"{arguments.kind} {name}"
            print(terminal.paint(label, "bold") + ("" if entries else ": nothing is set; --all shows the defaults"))
        for entry in entries:
            print(_line(arguments, entry))
    return OK


async def _names(client: Client, arguments: argparse.Namespace, kind: int) -> tuple[list[str], list[str] | None]:
    """The names and keys of the settings to show. A word with a dot after a topic's name may be a key."""
    keys: list[str] | None = arguments.key
    names: list[str] = list(arguments.names)
    if arguments.default:
        if kind != _RESOURCES["broker"]:
            raise UsageError("--default is for brokers, clients, users and addresses")
        return [""], [*names, *(keys or [])] or None
    if kind == _RESOURCES["topic"]:
        known = (await client.metadata()).topics
        if not names:
            return sorted(name for name in known if not known[name].is_internal), keys
        asked = [name for name in names[1:] if name not in known and "." in name]
        return matching(known, [name for name in names if name not in asked]), [*asked, *(keys or [])] or None
    if kind in _BROKER_KINDS:
        nodes = (await client.metadata([])).nodes
        asked = [name for name in names if not name.isdigit()]
        ids = [name for name in names if name.isdigit()] or [str(node) for node in sorted(nodes)]
        unknown = [name for name in ids if int(name) not in nodes]
        if unknown:
            raise CommandError(
                f"no broker has the id {unknown[0]}; the brokers are {', '.join(map(str, sorted(nodes)))}"
            )
        return ids, [*asked, *(keys or [])] or None
    if not names:
        names = await _listed(client, kind)
    return names, keys


async def _listed(client: Client, kind: int) -> list[str]:
    response = await client.ask(ListConfigResourcesRequest(resource_types=[kind]))
    if response.error_code:
        raise error_for(response.error_code)
    return sorted(entry.resource_name for entry in response.config_resources if entry.resource_type == kind)


def _is_own(kind: int, name: str, entry: ConfigEntry) -> bool:
    if kind == _RESOURCES["broker"]:
        own = () if name == "" else (ConfigSource.DYNAMIC_BROKER_CONFIG,)
        return entry.source in (*own, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    return entry.source in OVERRIDES or kind == _RESOURCES["broker-logger"]


def _line(arguments: argparse.Namespace, entry: ConfigEntry) -> str:
    value = _HIDDEN if entry.sensitive else escaped(entry.value or "")
    source = CONFIG_SOURCES.get(entry.source, "?")
    text = f"  {terminal.paint(entry.name, 'cyan')}={value}  {terminal.paint(f'({source})', 'dim')}"
    if arguments.explain:
        for name, synonym, where in entry.synonyms:
            text += (
                f"\n      {CONFIG_SOURCES.get(where, '?')}: {name}={_HIDDEN if synonym is None else escaped(synonym)}"
            )
        if entry.documentation:
            text += f"\n      {entry.documentation}"
    return text


def _as_json(arguments: argparse.Namespace, name: str, entries: list[ConfigEntry]) -> dict[str, Any]:
    configs = []
    for entry in entries:
        fields: dict[str, Any] = {
            "name": entry.name,
            "value": entry.value,
            "source": CONFIG_SOURCES.get(entry.source, "?"),
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        if arguments.explain:
            fields["documentation"] = entry.documentation
            fields["synonyms"] = [
                {"name": n, "value": v, "source": CONFIG_SOURCES.get(s, "?")} for n, v, s in entry.synonyms
            ]
        configs.append(fields)
    return {"kind": arguments.kind, "name": name, "configs": configs}


async def _get_quotas(arguments: argparse.Namespace) -> int:
    kind = _QUOTAS[arguments.kind]
    wanted: list[dict[str, str | None] | None] = [{kind: name} for name in arguments.names]
    if arguments.default:
        wanted.append({kind: None})
    found = []
    async with connect(arguments) as client:
        for entity in wanted or [None]:
            found += [entry for entry in await describe_quotas(client, entity) if kind in entry[0]]
    if arguments.json:
        terminal.print_json([{"entity": entity, "quotas": values} for entity, values in found])
        return OK
    if not found:
        terminal.note("no quotas are set")
    for entity, values in found:
        label = ", ".join(f"{what} {'(default)' if name is None else name}" for what, name in entity.items())
        print(terminal.paint(label, "bold"))
        for key, value in sorted(values.items()):
            print(f"  {terminal.paint(key, 'cyan')}={_number(value)}")
    return OK


def _number(value: float) -> str:
    """Format a number as briefly as possible without losing precision."""
    return str(int(value)) if value.is_integer() else repr(value)


# --- changing --------------------------------------------------------------------------------------------------------


async def _change(arguments: argparse.Namespace) -> int:
    name: str | None = arguments.name
    if name is None and not arguments.default:
        raise UsageError(f"name the {arguments.kind}, or use --default")
    if arguments.verb == "set":
        changes = [_operation(text) for text in arguments.settings]
    else:
        changes = [(key, 1, None) for key in arguments.keys]
    if not changes:
        raise UsageError("name at least one setting")
    async with connect(arguments) as client:
        if arguments.kind in _QUOTAS:
            await _alter_quotas(client, arguments, name, changes)
        else:
            await _alter(client, arguments, name, changes)
    target = f"default {arguments.kind}" if name is None else f"{arguments.kind} {name}"
    if arguments.json:
        terminal.print_json({"kind": arguments.kind, "name": name, "changed": [key for key, _, _ in changes]})
    else:
        word = "would change" if arguments.dry_run else "changed"
        print(f"{word} {', '.join(key for key, _, _ in changes)} of {target}")
    return OK


def _operation(text: str) -> tuple[str, int, str | None]:
    """SET, APPEND or SUBTRACT of IncrementalAlterConfigs."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"'{text}' is not KEY=VALUE")
    if key.endswith("+"):
        return key[:-1], 2, value
    if key.endswith("-"):
        return key[:-1], 3, value
    return key, 0, value


async def _alter(
    client: Client, arguments: argparse.Namespace, name: str | None, changes: list[tuple[str, int, str | None]]
) -> None:
    kind = _RESOURCES[arguments.kind]
    if name is None and kind != _RESOURCES["broker"]:
        raise UsageError("--default is for brokers, clients, users and addresses")
    if kind == _RESOURCES["topic"]:
        await client.topic(name or "")
    await alter_configs(client, kind, name or "", changes, validate_only=arguments.dry_run)


async def _alter_quotas(
    client: Client, arguments: argparse.Namespace, name: str | None, changes: list[tuple[str, int, str | None]]
) -> None:
    values: dict[str, float | None] = {}
    for key, operation, text in changes:
        if operation not in (0, 1):
            raise UsageError("quotas are numbers: use KEY=VALUE")
        try:
            values[key] = None if text is None else float(text)
        except ValueError:
            raise UsageError(f"{key} must be a number, not '{text}'") from None
    await alter_quotas(client, {_QUOTAS[arguments.kind]: name}, values, validate_only=arguments.dry_run)
