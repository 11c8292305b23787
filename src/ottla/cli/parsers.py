"""Parsers with the common help layout. This module imports little, because `ottla serve` needs it too."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import difflib
    import textwrap
else:
    difflib = lazy("difflib")
    textwrap = lazy("textwrap")

_CLEARER = {
    r"invalid int value: (.*)": r"\1 is not a whole number",
    r"invalid float value: (.*)": r"\1 is not a number",
    r"expected one argument": "needs a value",
}


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the layout of examples, leaves room for the options' names, and wraps sentences."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(_columns(), 110))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # A line that begins with a space is formatted by hand: an example, or a row of a table.
        lines = (line if line[:1] in ("", " ") else textwrap.fill(line, width) for line in text.splitlines())
        return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence; argparse would print every option of the command before it."""

    def error(self, message: str) -> NoReturn:
        for pattern, clearer in _CLEARER.items():
            message = re.sub(pattern, clearer, message)
        verbs = next((action for action in self._actions if isinstance(action, argparse._SubParsersAction)), None)
        if verbs is not None and message == f"the following arguments are required: {verbs.metavar}":
            message = f"needs a verb: {_listed(verbs.choices, 'or')}"
        self.exit(2, f"{self.prog}: error: {message}\nTry `{self.prog} --help`.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = did_you_mean(value, action.choices) or f"; choose {_listed(action.choices, 'or')}"
            self.error(f"unknown verb '{value}'{close}")
        super()._check_value(action, value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word; empty if nothing is similar."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _listed(words: Iterable[str], conjunction: str) -> str:
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 100


def subcommand(
    subparsers: Any, name: str, help_text: str, description: str = "", examples: Sequence[str] = (), **options: Any
) -> argparse.ArgumentParser:
    """A parser with the common help layout: a sentence, the options, examples."""
    if examples:
        options["epilog"] = "examples:\n" + "\n".join(f"  {line}" for line in examples)
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help_text,
        description=description or help_text[0].upper() + help_text[1:] + ".",
        formatter_class=Formatter,
        **options,
    )
    return parser
