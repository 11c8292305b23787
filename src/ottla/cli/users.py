"""`ottla users`: SCRAM users on any cluster."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    OK,
    UsageError,
    add_connection,
    add_json,
    connect,
    run_async,
    subcommand,
    verbs,
)
from ottla.client.access import MECHANISMS, delete_scram_user, list_scram_users, set_scram_password
from ottla.enums import ScramMechanism

_DEFAULT: Final = "SCRAM-SHA-512"


def add_parser(subparsers: Any) -> None:
    """Add `users` to the command line."""
    parser = subcommand(
        subparsers,
        "users",
        "list, create and delete users that log in with SCRAM",
        examples=(
            "ottla users list",
            "ottla users create alice",
            "echo $PASSWORD | ottla users create alice --password-stdin",
            "ottla users delete alice",
        ),
    )
    kinds = verbs(parser)
    listing = subcommand(kinds, "list", "show the users and how each can log in", examples=("ottla users list",))
    create = subcommand(
        kinds,
        "create",
        "create a user, or change a user's password",
        examples=("ottla users create alice", "echo $PASSWORD | ottla users create alice --password-stdin"),
    )
    create.add_argument("user", metavar="USER")
    create.add_argument("--password", metavar="TEXT", help="the password; other users can see it in the process list")
    create.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    delete = subcommand(kinds, "delete", "remove a user", examples=("ottla users delete alice",))
    delete.add_argument("user", metavar="USER")
    for verb, text in ((create, f"how the user logs in ({_DEFAULT})"), (delete, "only this mechanism (all)")):
        verb.add_argument("--mechanism", choices=list(MECHANISMS), type=str.upper, help=text)
    for verb in (listing, create, delete):
        add_json(verb)
        add_connection(verb)


def run(arguments: argparse.Namespace) -> int:
    return run_async({"list": _list, "create": _create, "delete": _delete}[arguments.verb](arguments))


async def _list(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        users = await list_scram_users(client)
    rows = [
        {"user": user, "mechanism": _name(mechanism), "iterations": iterations}
        for user, ways in sorted(users.items())
        for mechanism, iterations in sorted(ways.items())
    ]
    if arguments.json:
        terminal.print_json(rows)
    else:
        print(terminal.table(("USER", "MECHANISM", "ITERATIONS"), [[*row.values()] for row in rows]))
    return OK


def _name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


async def _create(arguments: argparse.Namespace) -> int:
    password = _password(arguments)
    mechanism = arguments.mechanism or _DEFAULT
    async with connect(arguments) as client:
        await set_scram_password(client, arguments.user, MECHANISMS[mechanism], password)
    return _done(arguments, f"{arguments.user} can log in with {mechanism}", mechanism)


async def _delete(arguments: argparse.Namespace) -> int:
    only = None if arguments.mechanism is None else MECHANISMS[arguments.mechanism]
    async with connect(arguments) as client:
        gone = [_name(each) for each in await delete_scram_user(client, arguments.user, only)]
    return _done(arguments, f"removed {arguments.user} ({', '.join(gone)})", *gone)


def _done(arguments: argparse.Namespace, text: str, *mechanisms: str) -> int:
    if arguments.json:
        terminal.print_json({"user": arguments.user, "mechanisms": list(mechanisms)})
    else:
        print(text)
    return OK


def _password(arguments: argparse.Namespace) -> str:
    if arguments.password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif arguments.password is not None:
        password = str(arguments.password)
    elif sys.stdin.isatty():
        password = getpass.getpass(f"password of {arguments.user}: ")
    else:
        raise UsageError("there is no terminal to ask for the password: give --password-stdin or --password")
    if not password:
        raise UsageError("the password is empty")
    return password
