"""The `ottla` command. Each subcommand lives in a module of its own, imported only when it is called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from ottla import __version__

_COMMANDS = {
    "serve": ("ottla.cli.serve", "run a broker in the foreground"),
    "bench": ("ottla.cli.bench", "measure brokers side by side"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka protocol.",
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in given if not word.startswith("-")), None)
    for name, (module, summary) in _COMMANDS.items():
        if name == named:
            import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    parsed = parser.parse_args(given)
    run = import_module(_COMMANDS[parsed.command][0]).run
    code: int = run(parsed)
    return code


if __name__ == "__main__":
    sys.exit(main())
