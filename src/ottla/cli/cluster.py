"""`ottla cluster`: what happens to the brokers of `ottla serve --brokers N --control PORT`."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ottla.cli import common, terminal
from ottla.cli.faults import CONTROL_VARIABLE, DEFAULT_CONTROL, control_url
from ottla.testing.over_http import Control, RemoteError

EXAMPLES: Final = (
    "ottla serve --brokers 3 --ephemeral --control 9099 &",
    "ottla cluster --control 9099 status",
    "ottla cluster --control 9099 kill 2",
    "ottla cluster --control 9099 start 2",
    "ottla cluster --control 9099 move-leader orders 0 3",
    "ottla cluster --control 9099 partition-network 1 2,3",
    "ottla cluster --control 9099 slow-link 1 2 200",
    "ottla cluster --control 9099 shrink-isr orders 0 3",
    "ottla cluster --control 9099 reassign orders 0 2,3",
    "ottla cluster --control 9099 heal",
)

_LIFE: Final = {
    "kill": "end a broker as SIGKILL does",
    "stop": "stop a broker cleanly; it hands its partitions over first",
    "start": "start a broker again, on its port and its data",
    "restart": "stop a broker cleanly and start it again",
    "pause": "freeze a broker as SIGSTOP does",
    "resume": "let a paused broker go on",
}


def add_parser(subparsers: Any) -> None:
    """Add `cluster` to the command line."""
    parser = common.subcommand(
        subparsers,
        "cluster",
        "trouble the brokers of a test cluster",
        "Trouble the brokers of a cluster that was started with `ottla serve --brokers N --control PORT`.",
        EXAMPLES,
    )
    parser.add_argument(
        "--control", metavar="URL", help=f"the cluster's control endpoint (${CONTROL_VARIABLE}, or {DEFAULT_CONTROL})"
    )
    verbs = common.verbs(parser)
    common.add_json(verbs.add_parser("status", help="brokers, leaders, in-sync replicas"))
    for verb, text in _LIFE.items():
        verbs.add_parser(verb, help=text).add_argument("broker", type=int)
    move = verbs.add_parser("move-leader", help="make another in-sync replica the leader")
    _add_partition(move)
    move.add_argument("to", type=int, metavar="BROKER")
    cut = verbs.add_parser("partition-network", help="cut the network between brokers: 1 2,3")
    cut.add_argument(
        "sides",
        nargs="+",
        metavar="BROKERS",
        help="brokers on one side, as in 2,3; may include `controller`",
    )
    slow = verbs.add_parser("slow-link", help="slow down the network between two brokers")
    slow.add_argument("first")
    slow.add_argument("second")
    slow.add_argument("ms", type=float)
    shrink = verbs.add_parser("shrink-isr", help="remove replicas from the ISR until `heal`")
    _add_partition(shrink)
    shrink.add_argument("remove", nargs="+", type=int, metavar="BROKER")
    move = verbs.add_parser("reassign", help="move a partition to other replicas, the preferred leader first: 2,3")
    _add_partition(move)
    move.add_argument(
        "replicas", type=_replicas, metavar="BROKERS", help="separated by commas; `cancel` cancels a move in progress"
    )
    verbs.add_parser("heal", help="repair the network")
    verbs.add_parser("elect-preferred", help="give partitions back to their preferred leaders")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("partition", type=int)


def _replicas(text: str) -> list[int] | None:
    return None if text == "cancel" else [int(number) for number in text.split(",")]


def run(arguments: argparse.Namespace) -> int:
    """0 when the cluster did it, 1 when it refused, 2 for a wrong command line."""
    control = Control(control_url(arguments))

    def main() -> int:
        try:
            if arguments.verb == "status":
                _show(control.ask("GET", "/"), as_json=arguments.json)
            else:
                control.ask("POST", f"/cluster/{arguments.verb.replace('-', '_')}", _options(arguments))
        except RemoteError as error:
            hint = "; was it started with --control?" if "no control endpoint" in str(error) else ""
            raise common.CommandError(f"{error}{hint}") from None
        return common.OK

    return common.guarded(main)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options = {
        key: value
        for key, value in vars(arguments).items()
        if key in ("broker", "topic", "partition", "to", "remove", "replicas", "first", "second", "ms")
    }
    if arguments.verb == "partition-network":
        options["sides"] = [
            [int(node) if node.isdigit() else node for node in side.split(",")] for side in arguments.sides
        ]
    return options


def _show(state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(state)
        return
    for number, what in state["brokers"].items():
        print(f"broker {number}: {what}")
    for topic, partitions in state["topics"].items():
        for each in partitions:
            print(
                f"{topic}-{each['partition']}: leader {each['leader']}, replicas {each['replicas']}, isr {each['isr']}"
            )
    network = state["network"]
    for pair in network["cut"]:
        print(f"no connection between {pair[0]} and {pair[1]}")
    for link in network["slow"]:
        print(f"from {link['from']} to {link['to']}: {link['delay_ms']:g} ms")
