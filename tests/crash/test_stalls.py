"""Clients continue after kills of workers while their transactions time out. `scripts/stalls` runs longer."""

import subprocess
import sys

from support.paths import ROOT

ROUNDS = 3


def test_clients_continue_after_workers_are_killed_while_transactions_time_out(seed: int) -> None:
    """In a separate process, because the clients leak sockets when their broker is killed."""
    command = [sys.executable, "-m", "support.crashing.stalls", "--rounds", str(ROUNDS), "--seed", str(seed)]
    ended = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"round {ROUNDS}: " in ended.stdout
