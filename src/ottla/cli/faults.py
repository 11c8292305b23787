"""`ottla faults`: faults, time and scenarios in a broker that was started with `ottla serve --control PORT`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Final

from ottla.cli import common, terminal
from ottla.testing.over_http import Control, RemoteError

CONTROL_VARIABLE: Final = "OTTLA_TEST_CONTROL"
DEFAULT_CONTROL: Final = "http://127.0.0.1:9093"

EXAMPLES: Final = (
    "ottla serve --ephemeral --control 9093 &",
    "ottla faults add error api=Produce error=NOT_LEADER_OR_FOLLOWER times=2",
    "ottla faults add delay api=Fetch,Metadata ms=500 client_id=slow times=every",
    "ottla faults add rebalance group=orders",
    "ottla faults list",
    "ottla faults remove 1",
    "ottla faults advance minutes=10",
    "ottla faults broker kill && ottla faults broker up",
    "ottla faults run scenario.yaml",
)


def add_parser(subparsers: Any) -> None:
    """Add `faults` to the command line."""
    parser = common.subcommand(
        subparsers,
        "faults",
        "make a broker misbehave, for tests",
        "Make a broker misbehave. It must have been started with --control.",
        EXAMPLES,
    )
    verbs = common.verbs(parser)
    add = verbs.add_parser("add", help="add a fault, or run an immediate one")
    add.add_argument("kind", help="error, delay, drop, black_hole, corrupt, disk_full, rebalance, … (docs/faults.md)")
    add.add_argument("options", nargs="*", metavar="KEY=VALUE")
    listing = verbs.add_parser("list", help="the faults, and how often each fired")
    common.add_json(listing)
    remove = verbs.add_parser("remove", help="remove faults")
    remove.add_argument("ids", nargs="*", type=int, metavar="ID", help="their numbers (all faults)")
    advance = verbs.add_parser("advance", help="advance the broker's virtual clock")
    advance.add_argument("durations", nargs="+", metavar="UNIT=NUMBER", help="days, hours, minutes, seconds or ms")
    life = verbs.add_parser("broker", help="stop, start or kill the broker")
    life.add_argument("what", choices=("down", "up", "kill", "restart"))
    run_ = verbs.add_parser("run", help="run a scenario")
    run_.add_argument("file", help="a YAML or JSON file; see docs/faults.md")
    add_control(parser, verbs, "the broker's control endpoint")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 on success, 1 if the broker refused, 2 for a wrong command line."""
    control = Control(control_url(arguments))

    def main() -> int:
        try:
            return _run(arguments, control)
        except RemoteError as error:
            hint = "; was it started with --control?" if "no control endpoint" in str(error) else ""
            raise common.CommandError(f"{error}{hint}") from None

    return common.guarded(main)


def add_control(parser: argparse.ArgumentParser, verbs: Any, what: str) -> None:
    """`--control`, before or after the verb."""
    text = f"{what} (${CONTROL_VARIABLE}, or {DEFAULT_CONTROL})"
    parser.add_argument("--control", metavar="URL", help=text)
    for verb in verbs.choices.values():
        # The verb has no default, so it keeps the value given before it.
        verb.add_argument("--control", metavar="URL", default=argparse.SUPPRESS, help=text)


def control_url(arguments: argparse.Namespace) -> str:
    """The control endpoint: a URL, a host and port, or a port of this machine."""
    url = arguments.control or os.environ.get(CONTROL_VARIABLE) or DEFAULT_CONTROL
    if url.isdigit():
        return f"http://127.0.0.1:{url}"
    return url if "://" in url else f"http://{url}"


def _run(arguments: argparse.Namespace, control: Any) -> int:
    if arguments.verb == "add":
        fault = control.ask("POST", "/faults", {"kind": arguments.kind, **_options(arguments.options)})
        print(f"fault {fault['id']}: {fault['text']}")
    elif arguments.verb == "list":
        faults = control.ask("GET", "/faults")
        if arguments.json:
            terminal.print_json(faults)
        for fault in [] if arguments.json else faults:
            state = "active" if fault["active"] else "over"
            print(f"{fault['id']}: {fault['text']} (fired {fault['fired']} times, {state})")
    elif arguments.verb == "remove":
        for path in [f"/faults/{number}" for number in arguments.ids] or ["/faults"]:
            control.ask("DELETE", path)
    elif arguments.verb == "advance":
        control.ask("POST", "/clock/advance", _options(arguments.durations))
    elif arguments.verb == "broker":
        control.ask("POST", f"/broker/{arguments.what}")
    else:
        try:
            text = Path(arguments.file).read_bytes()
        except OSError as error:
            raise common.CommandError(f"{arguments.file}: {error.strerror}") from None
        for step in control.ask("POST", "/scenario", text):
            print(", ".join(f"{key} {value}" for key, value in step.items()))
    return common.OK


def _options(given: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE options; digits become numbers, and `api=Produce,Fetch` becomes a list."""
    options: dict[str, Any] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise common.UsageError(f"give options as KEY=VALUE, not {each!r}")
        try:
            options[key] = json.loads(text)
        except ValueError:
            options[key] = text.split(",") if key == "api" and "," in text else text
    return options
