"""The results as a table for the terminal, as JSON, and as the project's Markdown page."""

from __future__ import annotations

import json
import platform
import time
from importlib import metadata
from textwrap import fill
from typing import Any

from ottla.bench import proc
from ottla.bench.model import Figure
from ottla.bench.runner import LineResult, Results

PAGE_WIDTH = 128
INTRODUCTION = (
    "Written by `scripts/bench --write`; do not edit. The brokers ran on one machine, in turns on each line, "
    "with the same load from the same generator, Ottla with `--preset kafka`, data on disk. kfake, in Go, keeps "
    "records in memory; on the lines that say so Ottla does too (`--ephemeral`). Figures are medians; "
    "the ratios of one run say more than the figures, which depend on the machine."
)
METHOD = (
    "How it is measured: a load generator in a process of its own keeps requests that were encoded beforehand "
    "under way over raw sockets (five for produce), counts the answers, and asks the broker afterwards whether "
    "all records are there. CPU is the broker's own user and system time from `/proc`. MB/s of compressed batches "
    "count the bytes before compression. Every broker is warmed up first. `scripts/bench --list` names the lines, "
    "`--only NAME` runs some of them, and `--check` fails when a bar is missed in three tries."
)
MARKS = {"pass": "✓", "miss": "✗", "unknown": "?", "": ""}


def number(value: float | None) -> str:
    """Three significant digits, with a thousands separator."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def label(result: LineResult, figure: Figure) -> str:
    return f"{result.line.title}: {figure.title}" if figure.title else result.line.title


def cell(result: LineResult, broker: str, figure: Figure) -> str:
    samples = result.samples.get(broker)
    if samples is None:
        return ""
    value = samples.median(figure.key)
    if value is None and samples.problem:
        return samples.problem.partition(":")[0]
    return number(value)


def bars(figure: Figure) -> str:
    return ", ".join(str(bar) if bar.of == "ratio" else f"{bar} {figure.unit}" for bar in figure.bars)


def header(results: Results) -> list[str]:
    ratios = [f"{results.subject} ÷ {peer}" for peer in results.peers]
    return ["line", "unit", *results.brokers, *ratios, "bar", ""]


def rows(results: Results, *, names: bool) -> list[list[str]]:
    """One row per figure; `names` shows the short names for --only instead of titles."""
    table = []
    for result in results.lines:
        for figure in result.line.figures:
            title = f"{result.line.name} {figure.key}" if names else label(result, figure)
            row = [title, figure.unit, *(cell(result, broker, figure) for broker in results.brokers)]
            for peer in results.peers:
                quotient = result.ratio(peer, figure.key)
                row.append("" if quotient is None else f"{number(quotient)}×")
            row += [bars(figure), MARKS[result.verdict(figure)]]
            table.append(row)
    return table


def text_table(results: Results) -> str:
    table = [header(results), *rows(results, names=True)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    number_columns = range(2, len(widths) - 2)
    lines = []
    for row in table:
        cells = [
            text.rjust(width) if column in number_columns else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def summary(results: Results) -> str:
    verdicts = results.verdicts()
    parts = [f"{len(verdicts['pass'])} bars reached"]
    if verdicts["miss"]:
        parts.append(f"{len(verdicts['miss'])} missed: {', '.join(verdicts['miss'])}")
    if verdicts["unknown"]:
        parts.append(f"{len(verdicts['unknown'])} not judged: {', '.join(verdicts['unknown'])}")
    return "; ".join(parts)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("ottla", "confluent-kafka"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def as_json(results: Results, broker_versions: dict[str, str]) -> str:
    lines: list[dict[str, Any]] = []
    for result in results.lines:
        for figure in result.line.figures:
            lines.append(
                {
                    "line": result.line.name,
                    "figure": figure.key,
                    "title": label(result, figure),
                    "unit": figure.unit,
                    "higher_is_better": figure.higher_is_better,
                    "samples": {name: each.values.get(figure.key, []) for name, each in result.samples.items()},
                    "medians": {name: each.median(figure.key) for name, each in result.samples.items()},
                    "problems": {name: each.problem for name, each in result.samples.items() if each.problem},
                    "ratios": {peer: result.ratio(peer, figure.key) for peer in results.peers},
                    "bars": bars(figure),
                    "verdict": result.verdict(figure),
                    "tries": result.tries,
                }
            )
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": proc.machine(),
        "versions": {**versions(), **broker_versions},
        "brokers": results.brokers,
        "quick": results.quick,
        "lines": lines,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _part(results: Results, line_count: int | None) -> list[str]:
    """A note if not every line was run."""
    if line_count is None or len(results.lines) >= line_count:
        return []
    return [f"- This run measured {len(results.lines)} of the {line_count} lines that `scripts/bench --list` names."]


def markdown(
    results: Results, broker_versions: dict[str, str], plot_name: str | None, line_count: int | None = None
) -> str:
    """The whole page docs/performance.md."""
    known = {**versions(), **broker_versions}
    table = [header(results), ["---"] * len(header(results)), *rows(results, names=False)]
    problems = [
        f"- {result.line.name}, {name}: {samples.problem}"
        for result in results.lines
        for name, samples in result.samples.items()
        if samples.problem
    ]
    parts = [
        "# Performance",
        "",
        fill(INTRODUCTION, PAGE_WIDTH),
        "",
        f"- Date: {time.strftime('%Y-%m-%d', time.gmtime())}",
        f"- Machine: {proc.machine()}",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in known.items())}",
        f"- {summary(results)}",
        *_part(results, line_count),
        "",
        *([f"![Ottla beside Apache Kafka]({plot_name})", ""] if plot_name else []),
        *("| " + " | ".join(row) + " |" for row in table),
        *(["", "What could not be measured:", "", *problems] if problems else []),
        "",
        fill(METHOD, PAGE_WIDTH),
        "",
    ]
    return "\n".join(parts)
