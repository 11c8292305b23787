"""The `ottla` command. Each subcommand has its own module, imported only when it is called."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from ottla import __version__
from ottla.cli.parsers import Formatter, Parser, did_you_mean

_COMMANDS = {
    "serve": ("ottla.cli.serve", "run a broker in the foreground"),
    "stop": ("ottla.cli.stop", "stop a broker that runs in the background"),
    "topics": ("ottla.cli.topics", "create, list, describe, alter and delete topics"),
    "produce": ("ottla.cli.produce", "write records, from lines of text or JSON"),
    "consume": ("ottla.cli.consume", "read records, as lines of text or JSON"),
    "groups": ("ottla.cli.groups", "list, describe and delete groups, reset their offsets"),
    "configs": ("ottla.cli.configs", "get, set and delete settings of topics, brokers, groups and clients"),
    "brokers": ("ottla.cli.brokers", "list the brokers with their addresses, leaders and replicas"),
    "partitions": ("ottla.cli.partitions", "elect leaders and move replicas"),
    "context": ("ottla.cli.context", "save cluster addresses under names, and choose one"),
    "users": ("ottla.cli.users", "list, create and delete SCRAM users"),
    "acls": ("ottla.cli.acls", "list, add and delete access rules"),
    "wait": ("ottla.cli.wait", "wait until a cluster answers, and until topics exist"),
    "migrate": ("ottla.cli.migrate", "copy topics, settings and group offsets to another cluster"),
    "dump-log": ("ottla.cli.dump_log", "print what is inside the files of a data folder"),
    "verify": ("ottla.cli.verify", "check a data folder, with a picture of its segments"),
    "versions": ("ottla.cli.versions", "compare a broker's API versions with this build's"),
    "replay-requests": ("ottla.cli.replay_requests", "send recorded requests again"),
    "faults": ("ottla.cli.faults", "make a broker misbehave, for tests"),
    "pipeline": ("ottla.cli.pipeline", "archive, replay, count, parse and query topics with Spark"),
    "cluster": ("ottla.cli.cluster", "stop, kill and disturb the brokers of a test cluster"),
    "registry": ("ottla.cli.registry", "serve a schema registry for a cluster"),
    "schemas": ("ottla.cli.schemas", "list, get, register, check, delete, export and import schemas"),
    "console": ("ottla.cli.console", "show a cluster in the browser"),
    "bench": ("ottla.cli.bench", "measure brokers side by side"),
    "completion": ("ottla.cli.completion", "print a completion script for bash, zsh or fish"),
}


def build_parser(names: Sequence[str], *, alone: bool = False) -> argparse.ArgumentParser:
    """The whole command line; only the commands in `names` get their options, and `alone` leaves out the others."""
    parser = Parser(
        prog="ottla",
        description="Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka protocol.",
        epilog=(
            "Commands that talk to a broker work with any Kafka cluster: --bootstrap, $OTTLA_BOOTSTRAP\n"
            "or `ottla context use` names it (127.0.0.1:9092). `ottla COMMAND --help` shows the\n"
            "options with examples."
        ),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    # With a given name, argparse does not measure the terminal for a usage line that is not printed.
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="ottla")
    for name, (module, summary) in _COMMANDS.items():
        if name in names:
            import_module(module).add_parser(subparsers)
        elif not alone:
            subparsers.add_parser(name, help=summary)
    return parser


def full_parser() -> argparse.ArgumentParser:
    """With the options of all commands, for completion and documentation."""
    return build_parser(list(_COMMANDS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _print_anything()
    # Imported modules stay in memory: scanning them for garbage would only slow down the start. Freezing prevents this
    # in the first collection.
    gc.disable()
    try:
        run, parsed = _command(list(sys.argv[1:] if arguments is None else arguments))
    finally:
        gc.freeze()
        gc.enable()
    code: int = run(parsed)
    return code


def _print_anything() -> None:
    """If the terminal has a smaller character set, show a question mark for other characters and undecodable names."""
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def _command(given: list[str]) -> tuple[Callable[[argparse.Namespace], int], argparse.Namespace]:
    """The function of the requested command, and its options."""
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    named = next((word for word in given if not word.startswith("-")), None)
    # If a command comes first, only its parser is built: the other commands are not needed, not even for help.
    parser = build_parser([] if named is None else [named], alone=named in _COMMANDS and given[0] == named)
    if not given:
        parser.print_help(sys.stderr)
        sys.exit(2)
    if named is not None and named not in _COMMANDS and given[0] == named:
        parser.error(f"unknown command '{named}'" + did_you_mean(named, _COMMANDS))
    parsed, extra = parser.parse_known_args(given)
    # argparse ends a list of words at the first option (`topics create a -p 3 b`); the words after the option still
    # belong to the list.
    words = getattr(parsed, str(getattr(parsed, "words_go_to", None)), None)
    if extra and (words is None or any(word.startswith("-") for word in extra)):
        _refuse(parser, given, next((word for word in extra if word.startswith("-")), extra[0]))
    if words is not None:
        words.extend(extra)
    parsed.given = given
    return import_module(_COMMANDS[parsed.command][0]).run, parsed


def _refuse(parser: argparse.ArgumentParser, given: Sequence[str], word: str) -> NoReturn:
    """Report an unexpected word, and the option that was probably meant."""
    below = parser
    while actions := [action for action in below._actions if isinstance(action, argparse._SubParsersAction)]:
        name = next((each for each in given if each in actions[0].choices), None)
        if name is None:
            break
        below = actions[0].choices[name]
    if not word.startswith("-"):
        below.error(f"'{word}' is unexpected here")
    options = [option for option in below._option_string_actions if option.startswith("--")]
    below.error(f"unknown option {word}" + did_you_mean(word.partition("=")[0], options))


if __name__ == "__main__":
    sys.exit(main())
