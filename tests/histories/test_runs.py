"""Real clients during faults, judged by the checker: a short fixed set. `scripts/histories` runs for hours."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from support.histories.events import write_history
from support.histories.nemesis import TARGETS
from support.histories.run import run

TRANSACTIONS = 300
SECONDS_MAX = 120.0


@pytest.mark.parametrize(("target", "client", "seed"), [("broker", "mixed", 1), ("cluster", "librdkafka", 2)])
def test_no_anomaly_occurs_during_faults(
    target: str, client: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="aiokafka")  # it logs every connection that a fault ends
    made = TARGETS[target](tmp_path / "data")
    try:
        recorder, verdict, troubles = run(made, client, TRANSACTIONS, seed, seconds_max=SECONDS_MAX)
    finally:
        made.close()
    if verdict.errors():
        write_history(tmp_path / "history.jsonl", recorder.operations)
    assert [str(anomaly) for anomaly in verdict.errors()] == [], f"the history is in {tmp_path}/history.jsonl"
    assert all(troubles.values())
    assert verdict.seen > verdict.transactions
