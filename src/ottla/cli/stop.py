"""`ottla stop`: stops a broker that `ottla serve --daemon` started."""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any, Final

from ottla.cli import daemon, terminal
from ottla.cli.common import OK, CommandError, add_json, guarded, subcommand

_POLL_S: Final = 0.05


def add_parser(subparsers: Any) -> None:
    """Add `stop` to the command line."""
    parser = subcommand(
        subparsers,
        "stop",
        "stop a broker that runs in the background",
        "Stop a broker that was started with `ottla serve --daemon`. It closes its logs first.",
        examples=("ottla stop", "ottla stop 9092", "ottla stop --all", "ottla stop --list"),
    )
    parser.add_argument(
        "port", nargs="?", type=int, metavar="PORT", help="the broker's port (needed only if several brokers run)"
    )
    parser.add_argument("--all", action="store_true", help="stop all of them")
    parser.add_argument("--list", action="store_true", help="only list the running brokers")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="how long to wait for each (30)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    return guarded(lambda: _stop(arguments))


def _stop(arguments: argparse.Namespace) -> int:
    running = daemon.known()
    if arguments.list:
        return _show(running, arguments.json)
    chosen = running if arguments.all else [each for each in running if arguments.port in (None, each.port)]
    if not chosen:
        which = "" if arguments.port is None else f" on port {arguments.port}"
        raise CommandError(f"no broker{which} runs in the background; `ottla serve --daemon` starts one")
    if len(chosen) > 1 and not arguments.all:
        ports = ", ".join(str(each.port) for each in chosen)
        raise CommandError(f"several brokers run, on the ports {ports}; name one, or use --all")
    for each in chosen:
        os.kill(each.pid, signal.SIGTERM)
        deadline = time.monotonic() + arguments.timeout
        while each.is_running:
            if time.monotonic() > deadline:
                raise CommandError(f"the broker on port {each.port} (process {each.pid}) did not stop; see {each.log}")
            time.sleep(_POLL_S)
        daemon.forget(each)
        if not arguments.json:
            print(f"stopped the broker on port {each.port}")
    if arguments.json:
        terminal.print_json([each._asdict() for each in chosen])
    return OK


def _show(running: list[daemon.Daemon], as_json: bool) -> int:
    if as_json:
        terminal.print_json([each._asdict() for each in running])
    elif not running:
        terminal.note("no broker runs in the background")
    else:
        rows = [(each.port, each.pid, each.bootstrap, each.where, each.log) for each in running]
        print(terminal.table(("PORT", "PROCESS", "BOOTSTRAP", "DATA", "LOG"), rows, right=("PORT", "PROCESS")))
    return OK
