"""What `ottla pipeline` shows: a line while Spark starts, a bar that begins at zero, a table at the end of `run`."""

from __future__ import annotations

import os
import pty
import re
import time
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import pipeline_spark
from ottla.cli.pipeline_run import one_line, outcome_of
from ottla.cli.pipeline_spark import Bar, Waiting
from ottla.spark.pipelines.compact import Compaction
from ottla.spark.pipelines.jobs import Progress
from ottla.spark.pipelines.quality import Findings, Quality
from ottla.spark.pipelines.sql import Answer
from ottla.spark.pipelines.streams import Loss, Summary
from ottla.spark.pipelines.upkeep import Upkeep
from ottla.spark.pipelines.verify import PartitionReport, Verification

LIVE = re.compile(r"\r\x1b\[2Kstarting Spark 4\.2\.0 … \d+ s")


def test_a_line_on_a_terminal_says_what_goes_on_and_for_how_long() -> None:
    leader, follower = pty.openpty()
    try:
        with Waiting(follower, quiet=False) as waiting:
            waiting.begin("starting Spark 4.2.0")
            seen = b""
            deadline = time.monotonic() + 20
            while not LIVE.search(seen.decode(errors="replace")) and time.monotonic() < deadline:
                seen += os.read(leader, 1000)
        while not seen.endswith(b"\n"):
            seen += os.read(leader, 1000)
    finally:
        os.close(leader)
        os.close(follower)
    assert LIVE.search(seen.decode())
    assert re.search(r"\rstarting Spark 4\.2\.0: \d+\.\d s\r\n$", seen.decode().replace("\x1b[2K", ""))


@pytest.mark.parametrize(("quiet", "lines"), [(False, ["one: 1.5 s", "two: 2.0 s"]), (True, [])])
def test_progress_lines_without_a_terminal(quiet: bool, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(pipeline_spark, "time", SimpleNamespace(monotonic=lambda: now))
    read, write = os.pipe()
    with Waiting(write, quiet=quiet) as waiting:
        waiting.begin("one")
        now = 11.5
        waiting.begin("two")
        now = 13.5
    os.close(write)
    with open(read, encoding="utf-8") as file:
        assert file.read().splitlines() == lines


def test_every_entry_of_a_file_counts_from_zero() -> None:
    bar = Bar(Namespace(verb="run", json=True))
    bar.show(Progress("a", 20_000, 20_000, 0, 5.0, 1))
    bar.ended("a")
    bar.show(Progress("b", 100, 20_000, 19_900, 5.0, 0))
    assert (bar.line.done, bar.line.total) == (100, 20_000)
    # Those that follow their topics run side by side, and share a bar.
    bar.show(Progress("c", 10, 50, 40, 5.0, 0))
    assert (bar.line.done, bar.line.total) == (110, 20_050)


def summary(**more: Any) -> Summary:
    return Summary("x", ["t"], records=100, seconds=2.0, lag=3, **more)


@pytest.mark.parametrize(
    ("pipeline", "result", "cells"),
    [
        ("archive", summary(details={"files": 4}), ("done", "100", "100", "-", "-", "0", "3", "4", "2.0")),
        (
            "archive",
            summary(lost=[Loss("t", 0, 5, 12)], details={"files": 4}),
            ("found something", "100", "100", "-", "-", "7", "3", "4", "2.0"),
        ),
        (
            "parse",
            summary(details={"bad": 5, "written": 95, "files": 1}),
            ("found something", "100", "95", "5", "-", "0", "3", "1", "2.0"),
        ),
        (
            "stats",
            summary(details={"dropped": {"t": 2}, "written": 7, "files": 1}),
            ("found something", "100", "7", "-", "2", "0", "3", "1", "2.0"),
        ),
        ("replay", summary(interrupted=True), ("interrupted", "100", "100", "-", "-", "0", "3", "-", "2.0")),
        (
            "verify",
            Verification("a", [PartitionReport("t", 0, files=2, records=9)], ["one is missing"]),
            ("WRONG", "9", "-", "-", "1", "-", "-", "2", "0.0"),
        ),
        (
            "quality",
            Quality([Findings("t", 0, 8, gaps=3)]),
            ("found something", "8", "-", "-", "3", "-", "-", "-", "0.0"),
        ),
        ("quality", Quality([Findings("t", 0, 8)]), ("done", "8", "-", "-", "0", "-", "-", "-", "0.0")),
        ("compact", Compaction("a", files_after=2), ("done", "-", "-", "-", "-", "-", "-", "2", "0.0")),
        ("sql", Answer(["t"], rows=[{}]), ("done", "-", "1", "-", "-", "-", "-", "-", "0.0")),
    ],
)
def test_the_row_of_a_result(pipeline: str, result: Any, cells: tuple[str, ...]) -> None:
    assert outcome_of("x", pipeline, result).cells() == ("x", *cells)


def test_lines_say_what_was_found() -> None:
    assert one_line(Quality([Findings("t", 0, 8, gaps=3, null_keys=1)])) == "3 gaps, 1 null keys"
    assert one_line(Compaction("a", files_before=9, files_after=2)) == "9 files are 2 now"
    assert one_line(Compaction("a", files_before=9, files_after=2, dry_run=True)) == "9 files would be 2"
    assert one_line(Upkeep("a", files=["x"], bytes=5)) == "1 file removed, 5 B"
    assert one_line(Upkeep("a", files=["x"], bytes=5, dry_run=True)) == "1 file would be removed, 5 B"
    assert one_line(summary(details={"bad": 5})).endswith("; 5 records did not match")
