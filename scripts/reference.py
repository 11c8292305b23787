"""The reference pages of the documentation: Python names, the command line, metrics, HTTP. See generate.py."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.cli.main import full_parser
from ottla.console.api import OPERATIONS
from ottla.console.operations import PREFIX
from ottla.embedded import control
from ottla.multibroker import cluster_http
from ottla.registry.rest.routes import ROUTES as REGISTRY_ROUTES

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "ottla"

PYTHON = {
    "Brokers": [
        "ottla.Broker", "ottla.serve", "ottla.testing.ServedBroker", "ottla.spawn", "ottla.testing.SpawnedBroker",
    ],
    "Clusters": ["ottla.Cluster"],
    "The fixture `kafka`": ["ottla.testing.Kafka"],
    "What `topic()`, `group()` and `faults` give": [
        "ottla.embedded.topics.SyncTopic", "ottla.embedded.groups.Group", "ottla.embedded.faults.Faults",
    ],
    "Values": ["ottla.testing.Record", "ottla.testing.Request", "ottla.testing.Member", "ottla.testing.Fault"],
    "Time": ["ottla.testing.VirtualClock"],
    "Configuration": ["ottla.Config"],
}  # fmt: skip


def python() -> str:
    """docs/reference/python.md"""
    lines = [
        "# Python reference",
        "",
        "The public names of `ottla` and `ottla.testing`. Everything else may change.",
        "",
    ]
    for title, names in PYTHON.items():
        lines += [f"## {title}", ""]
        for name in names:
            module, _, short = name.rpartition(".")
            lines += _python_entry(name, getattr(importlib.import_module(module), short))
    return "\n".join(lines).rstrip() + "\n"


def _python_entry(name: str, thing: Any) -> Iterator[str]:
    public = name.startswith("ottla.testing.") or name.count(".") == 1
    yield from (f"### `{name if public else thing.__name__.removeprefix('Sync')}`", "")
    yield from (f"`{_signature(name.rpartition('.')[2], thing)}`", "", _paragraphs(thing), "")
    if not inspect.isclass(thing):
        return
    members = [(key, value) for key, value in _members(thing) if (inspect.getdoc(value) or "").strip()]
    if members:
        yield from ("| member | meaning |", "|---|---|")
        for key, value in members:
            target = value.fget if isinstance(value, property) else value
            shown = key if isinstance(value, property) else _signature(key, target)
            yield f"| `{_cell(shown)}` | {_cell(_first(value))} |"
        yield ""


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    seen = set()
    for owner in thing.__mro__[:-1]:
        if not owner.__module__.startswith("ottla"):
            continue
        for key, value in vars(owner).items():
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if key in seen or key.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            seen.add(key)
            yield key, value


def _signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    kept = [each for key, each in found.parameters.items() if key not in ("self", "cls") and not key.startswith("_")]
    plain = [each.replace(annotation=each.empty) for each in kept]
    arguments = str(found.replace(parameters=plain, return_annotation=found.empty))
    word = "await " if inspect.iscoroutinefunction(thing) else ""
    # The address of an object would differ from run to run.
    return word + name + ("(…)" if " at 0x" in arguments or "<" in arguments else arguments)


def _paragraphs(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").strip()


def _first(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def command_line() -> str:
    """docs/reference/cli.md"""
    lines = [
        "# Command line reference",
        "",
        "Every command and option. [The command line](../cli.md) explains them.",
        "",
    ]
    for path, parser in _commands("ottla", full_parser()):
        lines += [f"## `{path}`", "", *_command_entry(parser)]
    return "\n".join(lines).rstrip() + "\n"


def _commands(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield path, parser
    for action in below:
        for name, each in action.choices.items():
            yield from _commands(f"{path} {name}", each)


def _command_entry(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.description:
        yield from (" ".join(parser.description.split()).rstrip(), "")
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            name += f" {_placeholder(action)}"
        text = " ".join(((action.help or "") % {**vars(action), "prog": parser.prog}).split())
        rows.append(f"| `{_cell(name)}` | {_cell(text).replace('<', '&lt;')} |")
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")


def _placeholder(action: argparse.Action) -> str:
    if action.metavar:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    # As in the help text. A bar would need a backslash in a table, and not all renderers hide the backslash.
    return f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()


def metrics() -> str:
    """docs/reference/metrics.md"""
    lines = [
        "# Metrics",
        "",
        "`ottla serve --metrics` serves these for Prometheus on `/metrics`, on port 9094 or the port that you name.",
        "It needs `ottla[metrics]`.",
        "With [workers](../workers.md) samples have a label `worker`; in a [cluster](../cluster.md), `broker`.",
        "",
        "| name | kind | meaning |",
        "|---|---|---|",
    ]
    trees = [ast.parse((PACKAGE / "server" / name).read_text()) for name in ("metrics.py", "state_metrics.py")]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if not isinstance(node, ast.Call):
            continue
        words = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
        if len(words) == 2 and str(words[0]).startswith("ottla_"):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            lines.append(f"| `{words[0]}` | {function.removesuffix('MetricFamily').lower()} | {_cell(str(words[1]))} |")
    return "\n".join(lines) + "\n"


def http() -> str:
    """docs/reference/http.md"""
    console = [
        (each.method, f"{PREFIX}{each.path}", each.summary) for each in sorted(OPERATIONS, key=lambda each: each.path)
    ]
    registry = [(each.method, each.path, _first(each.handler)) for each in REGISTRY_ROUTES]
    lines = [
        "# HTTP reference",
        "",
        "Four things of Ottla speak HTTP. All of them are on 127.0.0.1 unless you say otherwise.",
        "",
        "## Console",
        "",
        "The [console](../console.md) is a page over this API; `/api/v1/openapi.json` describes its parameters.",
        "Lists that change (`…/tail`, `…/events`) are server-sent events.",
        "",
        *_http_table(console),
        "## Control",
        "",
        "`ottla serve --control PORT` and `control=0` open it for tests in any language; see [faults](../faults.md).",
        "Every answer is JSON.",
        "",
        "```",
        *_control_lines(control.__doc__ or ""),
        "```",
        "",
        "In a [cluster](../cluster.md) there is also:",
        "",
        "```",
        *_control_lines(cluster_http.__doc__ or ""),
        "```",
        "",
        "## Schema registry",
        "",
        "The paths of Confluent's registry; see [the schema registry](../registry.md).",
        "",
        *_http_table(registry),
        "## Metrics and probes",
        "",
        *_http_table(
            [
                ("GET", "/metrics", "The [metrics](metrics.md), for Prometheus."),
                ("GET", "/health", "200 while the process lives."),
                ("GET", "/ready", "200 while clients are served, otherwise 503."),
            ]
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _http_table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from ("| method | path | meaning |", "|---|---|---|")
    yield from (f"| {method} | `{_cell(path)}` | {_cell(text)} |" for method, path, text in rows)
    yield ""


def _control_lines(text: str) -> list[str]:
    """The table in the docstring of a module that serves the control endpoint."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("GET ", "POST ", "DELETE ", "… "))]


def compatibility() -> str:
    """docs/compatibility.md"""
    results = json.loads((PACKAGE.parents[1] / "docs" / "compatibility.json").read_text())
    lines = [
        "# Clients and versions",
        "",
        "`scripts/compatibility` runs a program of `examples/clients` with many releases of each client. It writes",
        "three records, and reads them in a consumer group (confluent-kafka in a transaction, Kafka Streams through an",
        "application). This is what it found.",
        "Our tests drive the newest releases much further; see [tests](testing.md).",
        "",
        "| client | language | works with | does not work | tried on |",
        "|---|---|---|---|---|",
    ]
    for client, found in results.items():
        works = [version for version, outcome in found["versions"].items() if outcome == "ok"]
        fails = [f"{version} ({_cell(outcome)})" for version, outcome in found["versions"].items() if outcome != "ok"]
        cells = [client, found["language"], ", ".join(works), ", ".join(fails) or "–", found["date"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
