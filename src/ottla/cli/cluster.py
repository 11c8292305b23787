"""`ottla cluster`: controls the brokers of `ottla serve --brokers N --control PORT`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from ottla.cli import common, terminal
from ottla.cli.faults import add_control, control_url
from ottla.testing.over_http import Control, RemoteError

EXAMPLES: Final = (
    "ottla serve --brokers 3 --ephemeral --control 9099 &",
    "ottla cluster --control 9099 status",
    "ottla cluster status --offsets --watch --control 9099",
    "ottla cluster --control 9099 kill 2",
    "ottla cluster --control 9099 start 2",
    "ottla cluster --control 9099 move-leader orders 0 3",
    "ottla cluster --control 9099 partition-network 1 2,3",
    "ottla cluster --control 9099 slow-link 1 2 200",
    "ottla cluster --control 9099 shrink-isr orders 0 3",
    "ottla cluster --control 9099 reassign orders 0 2,3",
    "ottla cluster --control 9099 heal",
    "ottla cluster --control 9099 kill-controller",
    "ottla cluster --control 9099 partition-network c1 c2,c3",
    "ottla cluster --control 9099 skew-clock 2 60000",
    "ottla cluster --control 9099 add-broker --rack b",
    "ottla cluster --control 9099 drain 2",
    "ottla cluster --control 9099 remove-broker 2",
)

_WATCH_S: Final = 0.5
_CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
_LIFE: Final = {
    "kill": "kill a broker, as SIGKILL does",
    "stop": "stop a broker cleanly; it hands its partitions over first",
    "start": "start a broker again, with its port and its data",
    "restart": "stop a broker cleanly and start it again",
    "pause": "freeze a broker, as SIGSTOP does",
    "resume": "resume a paused broker",
}


_OPTIONS: Final = frozenset(
    ["broker", "topic", "partition", "to", "remove", "replicas", "first", "second", "ms", "controller", "node", "rack"]
)
_CONTROLLERS: Final = {
    "kill-controller": "kill a controller of the quorum, as SIGKILL does (default: the active one)",
    "stop-controller": "stop a controller cleanly (default: the active one)",
    "start-controller": "start a controller again (default: all that are down)",
    "pause-controller": "freeze a controller, as SIGSTOP does (default: the active one)",
    "resume-controller": "resume a paused controller (default: all)",
}

POLL_S: Final = 0.2


def add_parser(subparsers: Any) -> None:
    """Add `cluster` to the command line."""
    parser = common.subcommand(
        subparsers,
        "cluster",
        "stop, kill and disturb the brokers of a test cluster",
        "Stop, kill and disturb the brokers of a cluster that was started with `ottla serve --brokers N --control "
        "PORT`.",
        EXAMPLES,
    )
    verbs = common.verbs(parser)
    status = verbs.add_parser("status", help="brokers, leaders, in-sync replicas")
    status.add_argument(
        "--offsets", action="store_true", help="where the log of each replica ends (LEO), and its high watermark (HW)"
    )
    status.add_argument("--watch", action="store_true", help="show it again twice a second until interrupted")
    common.add_json(status)
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
        help="nodes on one side, as in 2,3 or c1; may include `controller`",
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
    for verb, text in _CONTROLLERS.items():
        verbs.add_parser(verb, help=text).add_argument("controller", nargs="?", metavar="CONTROLLER", help="c1, say")
    slow = verbs.add_parser("slow-controller", help="slow down everything to and from a controller")
    slow.add_argument("controller")
    slow.add_argument("ms", type=float)
    skew = verbs.add_parser(
        "skew-clock", help="set the clock of a node ahead, or behind if negative (ms); 0 corrects it"
    )
    skew.add_argument("node", type=_node, help="a broker's number, or c1")
    skew.add_argument("ms", type=int, help="milliseconds; behind if negative")
    add = verbs.add_parser("add-broker", help="start one more broker")
    add.add_argument("broker", type=int, nargs="?", help="its id (default: the next free one)")
    add.add_argument("--rack", help="its broker.rack")
    drain = verbs.add_parser("drain", help="move all replicas of a broker to the others")
    drain.add_argument("broker", type=int)
    remove = verbs.add_parser("remove-broker", help="drain a broker, stop it and unregister it")
    remove.add_argument("broker", type=int)
    verbs.add_parser("heal", help="repair the network")
    verbs.add_parser("elect-preferred", help="give partitions back to their preferred leaders")
    add_control(parser, verbs, "the cluster's control endpoint")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("partition", type=int)


def _node(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _replicas(text: str) -> list[int] | None:
    return None if text == "cancel" else [int(number) for number in text.split(",")]


def run(arguments: argparse.Namespace) -> int:
    """Return 0 on success, 1 if the cluster refused, 2 for a wrong command line."""
    control = Control(control_url(arguments))

    def main() -> int:
        try:
            if arguments.verb == "status":
                _status(control, arguments)
            elif arguments.verb in ("drain", "remove-broker"):
                _drain(control, arguments.broker, remove=arguments.verb == "remove-broker")
            else:
                control.ask("POST", f"/cluster/{arguments.verb.replace('-', '_')}", _options(arguments))
        except RemoteError as error:
            hint = "; was it started with --control?" if "no control endpoint" in str(error) else ""
            raise common.CommandError(f"{error}{hint}") from None
        return common.OK

    return common.guarded(main)


def _drain(control: Control, broker: int, *, remove: bool) -> None:
    """Start the drain, and show the progress until it is done."""
    state = control.ask("POST", "/cluster/drain", {"broker": broker})
    total = left = _replicas_on(state, broker)
    print(f"draining broker {broker}: {total} partitions to move", flush=True)
    while left:
        time.sleep(POLL_S)
        now = _replicas_on(control.ask("GET", "/"), broker)
        if now != left:
            left = now
            print(f"draining broker {broker}: {total - left} of {total} partitions moved", flush=True)
    if remove:
        control.ask("POST", "/cluster/remove_broker", {"broker": broker})
        print(f"broker {broker} is removed", flush=True)


def _replicas_on(state: dict[str, Any], broker: int) -> int:
    count: int = state["replicas"].get(str(broker), 0)
    return count


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options = {
        key: value
        for key, value in vars(arguments).items()
        if key in _OPTIONS and (value is not None or key == "replicas")
    }
    if arguments.verb == "partition-network":
        options["sides"] = [[_node(node) for node in side.split(",")] for side in arguments.sides]
    return options


def _status(control: Control, arguments: argparse.Namespace) -> None:
    while True:
        state = control.ask("GET", "/")
        if arguments.json:
            terminal.print_json(state)
        else:
            lines = _lines(state, offsets=arguments.offsets)
            if arguments.watch and sys.stdout.isatty():
                sys.stdout.write(_CLEAR_SCREEN)
            print(*lines, sep="\n", flush=True)
        if not arguments.watch:
            return
        time.sleep(_WATCH_S)


def _lines(state: dict[str, Any], *, offsets: bool) -> list[str]:
    lines = [f"broker {number}: {what}" for number, what in state["brokers"].items()]
    for name, controller in state.get("controllers", {}).items():
        known = f", epoch {controller['epoch']}, offset {controller['end_offset']}" if "epoch" in controller else ""
        lines.append(f"controller {name} ({controller['address']}): {controller['state']}{known}")
    for topic, partitions in state["topics"].items():
        for each in partitions:
            lines.append(
                f"{topic}-{each['partition']}: leader {each['leader']}, replicas {each['replicas']}, isr {each['isr']}"
            )
            if offsets:
                lines += [f"  {line}" for line in _replica_table(each).splitlines()]
    network = state["network"]
    lines += [f"no connection between {pair[0]} and {pair[1]}" for pair in network["cut"]]
    lines += [f"from {link['from']} to {link['to']}: {link['delay_ms']:g} ms" for link in network["slow"]]
    lines += [
        f"the clock of {node} is {abs(ms)} ms {'behind' if ms < 0 else 'ahead'}"
        for node, ms in state["clock_skew_ms"].items()
    ]
    return lines


def _replica_table(partition: dict[str, Any]) -> str:
    """A row for each replica: its log end offset, its high watermark, and whether it is in sync."""
    rows = []
    for broker in partition["replicas"]:
        in_sync = broker in partition["isr"]
        role = "leader" if broker == partition["leader"] else "in sync" if in_sync else "out of sync"
        rows.append(
            (
                broker,
                partition["end_offsets"].get(str(broker)),
                partition["high_watermarks"].get(str(broker)),
                role if in_sync else terminal.paint(role, "yellow"),
            )
        )
    return terminal.table(("BROKER", "LEO", "HW", "ROLE"), rows, right=("BROKER", "LEO", "HW"))
