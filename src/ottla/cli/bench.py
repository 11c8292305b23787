"""`ottla bench`: the same load on Ottla and Apache Kafka, side by side. The work is done in `ottla.bench`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import guarded
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.bench import command
else:
    command = lazy("ottla.bench.command")


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="compare Ottla with Apache Kafka and other brokers",
        description="Runs the same load on two or more brokers and prints a table of ratios: the first broker "
        "against each of the others.",
    )
    parser.add_argument("--list", action="store_true", help="list the measurements and their targets, and stop")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="lines to run; shell patterns such as 'produce-*'"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a short run that shows that everything works, not how fast it is"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a target is missed in three tries or not measured"
    )
    parser.add_argument(
        "--brokers",
        default="ottla,kafka",
        metavar="KIND,…",
        help="brokers to start: ottla, kafka, kfake (needs Go), or a name that --command defines (ottla,kafka)",
    )
    parser.add_argument(
        "--command",
        dest="broker_commands",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="how to start another broker of --brokers; {port} and {folder} in the command are filled in",
    )
    parser.add_argument(
        "--bootstrap",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT[@PID]",
        help="also measure this running broker; the process id gives CPU and memory",
    )
    parser.add_argument(
        "--serve",
        action="append",
        default=[],
        metavar="ARG",
        help="one more argument for `ottla serve`, as in --serve=--workers=2",
    )
    parser.add_argument(
        "--kafka-start", type=Path, metavar="SCRIPT", help="the script that starts Apache Kafka (scripts/kafka-start)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where the brokers keep their data (a temporary folder)"
    )
    parser.add_argument("--base-port", type=int, default=19600, metavar="PORT", help="first port to try (19600)")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="how often to measure each line on each broker (3 for most)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the plot")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and its plot")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return guarded(lambda: command.run_command(args))
