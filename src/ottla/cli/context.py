"""`ottla context`: save, choose and list names for clusters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import OK, CommandError, UsageError, add_json, guarded, load_security, subcommand, verbs
from ottla.cli.contexts import Context, ContextError, Contexts, load_contexts, save_contexts
from ottla.client.routing import parse_bootstrap


def add_parser(subparsers: Any) -> None:
    """Add `context` to the command line."""
    parser = subcommand(
        subparsers,
        "context",
        "save cluster addresses under names, and choose one",
        "Save cluster addresses under names, and choose one. Commands use it if neither --bootstrap nor "
        "$OTTLA_BOOTSTRAP is given.",
        examples=(
            "ottla context save staging -b kafka-1:9092,kafka-2:9092 --client-config staging.properties",
            "ottla context use staging",
            "ottla context list",
            "ottla context use --none                       # back to 127.0.0.1:9092",
            "OTTLA_CONTEXT=staging ottla topics list         # for one command",
        ),
    )
    kinds = verbs(parser)
    save = subcommand(
        kinds,
        "save",
        "save a cluster under a name, and use it",
        examples=("ottla context save staging -b kafka-1:9092 --client-config staging.properties",),
    )
    save.add_argument("name", metavar="NAME")
    save.add_argument("-b", "--bootstrap", required=True, metavar="HOST:PORT", help="brokers, separated by commas")
    save.add_argument("--client-config", metavar="FILE", help="a Kafka client's properties; the file stays where it is")
    use = subcommand(
        kinds,
        "use",
        "choose the cluster that commands use",
        examples=("ottla context use staging", "ottla context use --none"),
    )
    use.add_argument("name", nargs="?", metavar="NAME")
    use.add_argument("--none", action="store_true", help="use no context")
    listing = subcommand(kinds, "list", "show the contexts; * marks the current one", examples=("ottla context list",))
    add_json(listing)
    delete = subcommand(kinds, "delete", "forget a context", examples=("ottla context delete staging",))
    delete.add_argument("name", metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    verb = {"save": _save, "use": _use, "list": _list, "delete": _delete}

    def work() -> int:
        try:
            return verb[arguments.verb](arguments)
        except ContextError as error:
            raise CommandError(str(error)) from None

    return guarded(work)


def _save(arguments: argparse.Namespace) -> int:
    try:
        parse_bootstrap(arguments.bootstrap)
    except ValueError as error:
        raise UsageError(f"--bootstrap: {error}") from None
    config = None
    if arguments.client_config is not None:
        load_security(arguments.client_config)  # refuse an unusable file now, not later
        config = str(Path(arguments.client_config).resolve())
    known = {**load_contexts().known, arguments.name: Context(arguments.bootstrap, config)}
    save_contexts(Contexts(arguments.name, known))
    print(f"saved {arguments.name}; commands use it now")
    return OK


def _use(arguments: argparse.Namespace) -> int:
    if (arguments.name is None) != arguments.none:
        raise UsageError("name a context, or give --none")
    contexts = load_contexts()
    if arguments.name is not None:
        _check(arguments.name, contexts)
    save_contexts(contexts._replace(current=arguments.name))
    return OK


def _list(arguments: argparse.Namespace) -> int:
    contexts = load_contexts()
    if arguments.json:
        terminal.print_json(
            [
                {"name": name, "current": name == contexts.current, **context._asdict()}
                for name, context in sorted(contexts.known.items())
            ]
        )
    elif not contexts.known:
        terminal.note("no contexts; save one with: ottla context save NAME -b HOST:PORT")
    else:
        rows = [
            ("*" if name == contexts.current else "", name, context.bootstrap, context.client_config)
            for name, context in sorted(contexts.known.items())
        ]
        print(terminal.table(("", "NAME", "BOOTSTRAP", "CLIENT CONFIG"), rows))
    return OK


def _delete(arguments: argparse.Namespace) -> int:
    contexts = load_contexts()
    _check(arguments.name, contexts)
    known = {name: context for name, context in contexts.known.items() if name != arguments.name}
    save_contexts(Contexts(None if contexts.current == arguments.name else contexts.current, known))
    return OK


def _check(name: str, contexts: Contexts) -> None:
    if name not in contexts.known:
        raise CommandError(f"there is no context '{name}'; `ottla context list` shows those that exist")
