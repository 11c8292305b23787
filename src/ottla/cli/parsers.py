"""Parsers with the help layout of all commands. Light, because `ottla serve` needs it too."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written, and leaves room for the options' names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(_columns(), 110))


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 100


def subcommand(
    subparsers: Any, name: str, help_text: str, description: str = "", examples: Sequence[str] = (), **options: Any
) -> argparse.ArgumentParser:
    """A parser with the house's help: a sentence, the options, examples."""
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
