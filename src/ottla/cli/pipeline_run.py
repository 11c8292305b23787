"""`ottla pipeline run`: runs the pipelines of a YAML file, and prints a table of their results."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import FAILED, OK
from ottla.cli.pipeline_shown import answer_table, connection_options, interrupted, plain_row, speed
from ottla.cli.pipeline_spark import Bar, Stop, spark_for

_HEAD: Final = ("PIPELINE", "RESULT", "IN", "OUT", "DEAD LETTERS", "FINDINGS", "LOST", "LAG", "FILES", "SECONDS")


def run_file(arguments: argparse.Namespace) -> int:
    from ottla.spark.pipelines.declared import Declared, load, run_declared

    entries, session_options = load(arguments.file)
    if arguments.check:
        for entry in entries:
            print(f"{entry.name}: {entry.pipeline}")
        return OK
    arguments.master = arguments.master or session_options.get("master")
    arguments.conf = [*(f"{key}={value}" for key, value in session_options.get("conf", {}).items()), *arguments.conf]
    # The command line overrides the file, and the file overrides the environment.
    connection = connection_options(arguments)
    fallback = {} if arguments.bootstrap else {"bootstrap": connection.pop("bootstrap")}
    chosen = [Declared(e.name, e.pipeline, {**fallback, **e.arguments, **connection}) for e in entries]
    sources = {entry.source for entry in chosen}
    arguments.source = "kafka" if "kafka" in sources else None if None in sources else "ottla"
    shown: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    stop = Stop()
    with spark_for(arguments, stop) as spark, Bar(arguments) as bar:

        def on_done(entry: Declared, result: Any) -> None:
            bar.ended(entry.name)
            outcome = outcome_of(entry.name, entry.pipeline, result)
            outcomes.append(outcome)
            shown.append({"name": entry.name, "pipeline": entry.pipeline, **_result_json(result)})
            if not arguments.json:
                terminal.note(f"{entry.name}: {outcome.result}, {one_line(result)}")
                if entry.pipeline == "sql" and result.written_to is None:
                    print(answer_table(result), end="\n\n")

        run_declared(
            chosen, on_done=on_done, spark=spark, on_progress=bar.show, on_warning=terminal.warn, stop=stop.event
        )
    if arguments.json:
        terminal.print_json(shown)
    elif outcomes:
        print(terminal.table(_HEAD, [outcome.cells() for outcome in outcomes], right=_HEAD[2:]))
    if stop.event.is_set():
        return interrupted()
    failed = any(outcome.wrong or (arguments.fail and outcome.found) for outcome in outcomes)
    return FAILED if failed else OK


@dataclass(slots=True)
class Outcome:
    """The result of one entry; None for figures that a pipeline does not have."""

    name: str
    result: str = "done"
    read: int | None = None
    written: int | None = None
    dead_letters: int | None = None
    findings: int | None = None
    lost: int | None = None
    lag: int | None = None
    files: int | None = None
    seconds: float = 0.0
    wrong: bool = False
    """Whether the command fails in any case."""

    @property
    def found(self) -> bool:
        """Whether the user should look at something."""
        return bool(self.findings or self.dead_letters or self.lost)

    def cells(self) -> tuple[object, ...]:
        counts = (self.read, self.written, self.dead_letters, self.findings, self.lost, self.lag, self.files)
        shown = ("-" if count is None else terminal.human_count(count) for count in counts)
        return (self.name, self.result, *shown, f"{self.seconds:.1f}")


def outcome_of(name: str, pipeline: str, result: Any) -> Outcome:
    """The row of a result."""
    made = Outcome(name, seconds=result.seconds)
    match pipeline:
        case "verify":
            made.read, made.findings, made.wrong = result.records, len(result.problems), not result.ok
            made.files = sum(one.files for one in result.partitions)
        case "quality":
            made.read, made.findings = result.records, result.findings
        case "compact":
            made.files = result.files_after
        case "upkeep":
            made.files = len(result.files)
        case "sql":
            made.written = len(result.rows) if result.written_to is None else result.written
        case _:
            made.read, made.lag = result.records, result.lag
            made.lost = sum(loss.end - loss.first for loss in result.lost)
            made.written = result.details.get("written", result.records)
            made.files = result.details.get("files")
            made.dead_letters = result.details.get("bad")
            made.findings = sum(result.details["dropped"].values()) if pipeline == "stats" else None
    if getattr(result, "interrupted", False):
        made.result = "interrupted"
    elif made.wrong:
        made.result = "WRONG"
    elif made.found:
        made.result = "found something"
    return made


def _result_json(result: Any) -> dict[str, Any]:
    found = asdict(result)
    if "rows" in found:
        found["rows"] = [plain_row(row) for row in found["rows"]]
    return found


def one_line(result: Any) -> str:
    """The result of an entry, for the line that reports its end."""
    if hasattr(result, "records_per_second"):
        bad = result.details.get("bad")
        return speed(result) + (f"; {terminal.counted(bad, 'record')} did not match" if bad else "")
    if hasattr(result, "ok"):
        return "each offset is in exactly one file" if result.ok else "; ".join(result.problems)
    if hasattr(result, "clean"):
        return str(result.told())
    if hasattr(result, "files_after"):
        become = "would be {}" if result.dry_run else "are {} now"
        return f"{result.files_before} files {become.format(result.files_after)}"
    if hasattr(result, "versions"):
        removed = "would be removed" if result.dry_run else "removed"
        return f"{terminal.counted(len(result.files), 'file')} {removed}, {terminal.human_bytes(result.bytes)}"
    return f"written to {result.written_to}" if result.written_to else terminal.counted(len(result.rows), "row")
