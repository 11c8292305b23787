"""The shared parts of the verbs of `ottla pipeline`: options from the command line, and results as text."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import INTERRUPTED, OK, UsageError, parse_settings, target_of


def connection_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The address of the cluster, and the login."""
    bootstrap, client_config = target_of(arguments)
    found: dict[str, Any] = {"bootstrap": bootstrap}
    if client_config:
        from ottla.spark.pipelines.login import client_properties

        found["client_config"] = client_properties(client_config)
    return found


def pairs(given: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE pairs of an option that can be repeated."""
    try:
        return parse_settings(given)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def finish(arguments: argparse.Namespace, summary: Any, text: str) -> int:
    """Print the result of a stream, and return the exit code."""
    if arguments.json:
        terminal.print_json(summary_json(summary))
    else:
        print(text)
        for loss in summary.lost:
            print(f"lost: {loss.topic}-{loss.partition} {loss.first} to {loss.end - 1}")
    return interrupted() if summary.interrupted else OK


def interrupted() -> int:
    terminal.note("interrupted; run the same command to continue from here")
    return INTERRUPTED


def summary_json(summary: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(summary), "records_per_second": round(summary.records_per_second, 1)}


def speed(summary: Any) -> str:
    rate = terminal.human_count(int(summary.records_per_second))
    return f"{terminal.counted(summary.records, 'record')} in {summary.seconds:.1f} s ({rate}/s)"


def answer_table(answer: Any) -> str:
    """The rows of a query."""
    return terminal.table(answer.columns, [list(plain_row(row).values()) for row in answer.rows])


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON and a table can show."""
    return {key: _shown(value) for key, value in row.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _shown(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)
