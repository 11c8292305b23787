"""The `ottla` command. Each subcommand lives in a module of its own, imported only when it is called."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from ottla import __version__
from ottla.cli.parsers import Formatter
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

_COMMANDS = {
    "serve": ("ottla.cli.serve", "run a broker in the foreground"),
    "topics": ("ottla.cli.topics", "create, list, describe, alter and delete topics"),
    "produce": ("ottla.cli.produce", "write records, from lines of text or JSON"),
    "consume": ("ottla.cli.consume", "read records, as lines of text or JSON"),
    "groups": ("ottla.cli.groups", "list and describe groups with their lag, reset offsets, delete"),
    "configs": ("ottla.cli.configs", "get, set and delete settings of topics, brokers, groups and clients"),
    "migrate": ("ottla.cli.migrate", "copy topics, settings and group offsets to another cluster"),
    "dump-log": ("ottla.cli.dump_log", "print what is inside the files of a data folder"),
    "verify": ("ottla.cli.verify", "check a data folder, with a picture of its segments"),
    "versions": ("ottla.cli.versions", "what a broker supports beside what this build serves"),
    "faults": ("ottla.cli.faults", "make a broker misbehave, for tests"),
    "pipeline": ("ottla.cli.pipeline", "archive, replay, count, parse and query topics with Spark"),
    "cluster": ("ottla.cli.cluster", "trouble the brokers of a test cluster"),
    "registry": ("ottla.cli.registry", "serve a schema registry for a cluster"),
    "console": ("ottla.cli.console", "show a cluster in the browser"),
    "bench": ("ottla.cli.bench", "measure brokers side by side"),
    "completion": ("ottla.cli.completion", "print a completion script for bash, zsh or fish"),
}


def build_parser(names: Sequence[str], *, alone: bool = False) -> argparse.ArgumentParser:
    """The whole command line; only the commands in `names` get their options, and `alone` leaves out the others."""
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka protocol.",
        epilog=(
            "Commands that talk to a broker work with any Kafka cluster: --bootstrap or\n"
            "$OTTLA_BOOTSTRAP names it (127.0.0.1:9092). `ottla COMMAND --help` shows the options\n"
            "with examples."
        ),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    # With the name given, argparse does not measure the terminal for a usage line that nobody asked for.
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
    # All that is imported stays: looking for garbage in it would only make a start longer. Unless it is frozen, the
    # first collection does that all the same.
    gc.disable()
    try:
        run, parsed = _command(list(sys.argv[1:] if arguments is None else arguments))
    finally:
        gc.freeze()
        gc.enable()
    code: int = run(parsed)
    return code


def _print_anything() -> None:
    """A terminal that knows fewer characters shows a question mark for the others, and a name that is no text too."""
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def _command(given: list[str]) -> tuple[Callable[[argparse.Namespace], int], argparse.Namespace]:
    """The function of the command that is asked for, and its options."""
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    named = next((word for word in given if not word.startswith("-")), None)
    # A command that comes first takes all the words after it: the others are not asked for anything, not even help.
    parser = build_parser([] if named is None else [named], alone=named in _COMMANDS and given[0] == named)
    if not given:
        parser.print_help(sys.stderr)
        sys.exit(2)
    if named is not None and named not in _COMMANDS and given[0] == named:
        parser.error(f"unknown command '{named}'" + _did_you_mean(named, _COMMANDS))
    parsed, extra = parser.parse_known_args(given)
    # argparse ends a list of words at the first option (`topics create a -p 3 b`); what follows belongs to it still.
    words = getattr(parsed, str(getattr(parsed, "words_go_to", None)), None)
    if extra and (words is None or any(word.startswith("-") for word in extra)):
        _refuse(parser, given, next((word for word in extra if word.startswith("-")), extra[0]))
    if words is not None:
        words.extend(extra)
    return import_module(_COMMANDS[parsed.command][0]).run, parsed


def _refuse(parser: argparse.ArgumentParser, given: Sequence[str], word: str) -> NoReturn:
    """Say what a word is not, with the usage of the command that it was given to, and the option that may be meant."""
    below = parser
    while actions := [action for action in below._actions if isinstance(action, argparse._SubParsersAction)]:
        name = next((each for each in given if each in actions[0].choices), None)
        if name is None:
            break
        below = actions[0].choices[name]
    if not word.startswith("-"):
        below.error(f"'{word}' is unexpected here")
    options = [option for option in below._option_string_actions if option.startswith("--")]
    below.error(f"unknown option {word}" + _did_you_mean(word.partition("=")[0], options))


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


if __name__ == "__main__":
    sys.exit(main())
