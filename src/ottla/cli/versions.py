"""`ottla versions`: the API versions of a broker, of this build's broker and of this client."""

from __future__ import annotations

import argparse
from typing import Any

from ottla import __version__
from ottla.cli import terminal
from ottla.cli.common import OK, add_connection, add_json, connect, run_async, subcommand
from ottla.client.connection import Connection
from ottla.metadata.features import FORMATTED_FEATURES, SUPPORTED_FEATURES
from ottla.server.api import registered_apis
from ottla.wire.messages import API_NAMES


def add_parser(subparsers: Any) -> None:
    """Add `versions` to the command line."""
    parser = subcommand(
        subparsers,
        "versions",
        "compare a broker's API versions with this build's",
        "The versions of each API that the broker at --bootstrap supports, next to those of this build's broker.",
        examples=("ottla versions", "ottla versions --local", "ottla versions --differences -b kafka:9092"),
    )
    parser.add_argument("--local", action="store_true", help="only this build, without asking a broker")
    parser.add_argument("--differences", action="store_true", help="only APIs whose versions differ")
    add_json(parser)
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_async(_versions(arguments))


async def _versions(arguments: argparse.Namespace) -> int:
    ours = {key: (api.min_version, api.max_version) for key, api in registered_apis().apis.items()}
    theirs: dict[int, tuple[int, int]] = {}
    features: list[dict[str, Any]] = [
        {"name": name, "finalized": FORMATTED_FEATURES.get(name, 0), "min": low, "max": high}
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
    address = None
    if not arguments.local:
        async with connect(arguments) as client:
            connection = await client.connection()
            assert isinstance(connection, Connection)
            theirs, address, answer = connection.versions, connection.address, connection.features
            finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
            supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
            features = [
                {"name": name, "finalized": finalized.get(name), "min": supported.get(name, (0, 0))[0]}
                | {"max": supported.get(name, (0, finalized.get(name)))[1]}
                for name in sorted(supported.keys() | finalized.keys())
            ]
    rows = []
    for key in sorted(ours.keys() | theirs.keys()):
        row = {"key": key, "name": API_NAMES.get(key, "?"), "broker": theirs.get(key), "build": ours.get(key)}
        if not arguments.differences or row["broker"] != row["build"]:
            rows.append(row)
    if arguments.json:
        terminal.print_json({"build": __version__, "broker": address, "apis": rows, "features": features})
        return OK
    head = ["KEY", "API"] + ([] if address is None else [address]) + [f"ottla {__version__}"]
    cells = [
        [row["key"], row["name"], *([] if address is None else [_range(row["broker"])]), _range(row["build"])]
        for row in rows
    ]
    print(terminal.table(head, cells, right=("KEY",)))
    print()
    head = ["FEATURE", "FINALIZED", "SUPPORTED"]
    print(terminal.table(head, [[f["name"], f["finalized"], f"{f['min']}–{f['max']}"] for f in features]))
    return OK


def _range(versions: Any) -> str:
    return "-" if versions is None else f"{versions[0]}–{versions[1]}"
