"""The cost of a broker inside tests. The measured programs are in `ottla.bench.in_tests`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ottla.bench.in_tests import consume_first
from ottla.bench.lines.topics import topic
from ottla.bench.model import Figure, NotMeasurable, Size, line, value_at_most
from ottla.bench.targets import OttlaMaker, Target

PROGRAM = Path(__file__).parent.parent / "in_tests.py"
GO_TESTS = Path(__file__).parents[4] / "helpers" / "go" / "test"


def _run(target: Target, *arguments: str) -> dict[str, float]:
    if not isinstance(target.fresh(), OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@line(
    "first-record",
    "from nothing to the first record consumed by a group",
    Figure("ms", "ms", False, (value_at_most(100),), title="the first broker of a test run; for others, a process"),
    Figure("import_ms", "ms", False, title="the import before it"),
)
def first_record(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    if isinstance(maker, OttlaMaker):
        return _run(target, "first-record")
    folder, port = maker.prepare()
    started = time.perf_counter()
    broker = maker.launch(folder, port)
    try:
        broker.await_ready()
        with topic(broker, 1) as name:
            consume_first(broker.address, name, "first")
        return {"ms": (time.perf_counter() - started) * 1e3}
    finally:
        broker.stop()


@line(
    "in-tests",
    "a broker inside tests",
    Figure("fresh_ms", "ms", False, (value_at_most(20),), title="a fresh broker for a test, started and stopped"),
    Figure("reset_ms", "ms", False, (value_at_most(5),), title="a reset between two tests"),
    reference=False,
)
def in_tests(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "brokers")


@line(
    "secured",
    "a broker inside tests with TLS, users and rules",
    Figure("ms", "ms", False, (value_at_most(100),), title="started: serve(tls=True, users=…, acls=…)"),
    Figure("first_ms", "ms", False, title="the first of a process, with its imports"),
    reference=False,
)
def secured(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "secured")


@line(
    "snapshots",
    "snapshots of a broker inside tests, with 1 GB in it",
    Figure("memory_snapshot_ms", "ms", False, (value_at_most(50),), title="snapshot, in memory"),
    Figure("memory_restore_ms", "ms", False, (value_at_most(50),), title="restore, in memory"),
    Figure("memory_branch_ms", "ms", False, title="branch, in memory"),
    Figure("folder_snapshot_ms", "ms", False, (value_at_most(50),), title="snapshot, in a folder"),
    Figure("folder_restore_ms", "ms", False, (value_at_most(50),), title="restore, in a folder"),
    Figure("folder_branch_ms", "ms", False, title="branch, in a folder"),
    reference=False,
)
def snapshots(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "snapshots", str(size.pick(1024, 4)))


@line(
    "spawn",
    "ottla.spawn(), a broker in a child process, until its address is known",
    Figure("ms", "ms", False, (value_at_most(120),)),
    reference=False,
)
def spawn(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "spawned")


@line(
    "new-python",
    "what a user waits for in a new Python",
    Figure("serve_ms", "ms", False, title="import ottla and ottla.serve()"),
    Figure("cli_ms", "ms", False, title="ottla topics list"),
    Figure("pytest_s", "s", False, title="a pytest run of one test"),
    reference=False,
)
def new_python(target: Target, size: Size) -> dict[str, float]:
    one_test = _run(target, "thousand", "1")["s"]
    address = f"{target.address[0]}:{target.address[1]}"
    return {
        "serve_ms": _program_ms("-c", "import ottla\nwith ottla.serve(): pass"),
        "cli_ms": _program_ms("-m", "ottla.cli.main", "topics", "list", "--bootstrap", address),
        "pytest_s": one_test,
    }


def _program_ms(*arguments: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, timeout=60, check=True)
    return (time.perf_counter() - started) * 1e3


@line(
    "thousand-tests",
    "1,000 tests, each with its own topic and group",
    Figure("s", "s", False, (value_at_most(30),), title="the whole run of pytest"),
    repeats=1,
    reference=False,
)
def thousand_tests(target: Target, size: Size) -> dict[str, float]:
    return _run(target, "thousand", str(size.pick(1000, 20)))


@line(
    "go-test",
    "a Go test: from nothing to the first record consumed by a group",
    Figure("ottla_ms", "ms", False, title="with ottlatest, which starts a process"),
    Figure("kfake_ms", "ms", False, title="with kfake, inside the test"),
    repeats=1,
    reference=False,
)
def go_test(target: Target, size: Size) -> dict[str, float]:
    if not isinstance(target.fresh(), OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    if shutil.which("go") is None or not GO_TESTS.exists():
        raise NotMeasurable("needs Go, and a checkout of the repository")
    rounds = f"{size.pick(10, 1)}x"
    command = ["go", "test", "-run", "^$", "-bench", "FirstRecord", "-benchtime", rounds, "./..."]
    environ = {**os.environ, "OTTLA_COMMAND": f"{sys.executable} -m ottla"}
    done = subprocess.run(command, cwd=GO_TESTS, env=environ, capture_output=True, text=True, timeout=300, check=False)
    found = dict(re.findall(r"BenchmarkFirstRecord(\w+?)(?:-\d+)?\s+\d+\s+(\d+) ns/op", done.stdout))
    if found.keys() != {"Ottla", "Kfake"}:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])
    return {f"{name.lower()}_ms": int(ns) / 1e6 for name, ns in found.items()}
