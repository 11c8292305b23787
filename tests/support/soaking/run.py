"""Runs the loads of a soak for a given time; see scripts/soak."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

from support.interop.secured import Secured
from support.soaking.load import LOADS, Work, make_topics
from support.soaking.report import Sample, judge, plot, text

SAMPLE_S = 5.0
SETTLED_S = 15.0
"""How long clients may see errors after a restart."""


def measured(pid: int, data: Path) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "memory_mb": int(fields["VmRSS"].split()[0]) / 1024,
        "threads": float(fields["Threads"]),
        "handles": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "disk_mb": _size(data) / (1 << 20),
    }


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted meanwhile
    return total


def soak(broker: Secured, seconds: float, restart_every_s: float, seed: int) -> tuple[list[Sample], Work]:
    work = Work(broker, seed)
    make_topics(work)

    def guarded(load: Callable[[Work], None]) -> None:
        try:
            load(work)
        except Exception as error:
            work.unexpected.append(f"{load.__name__} ended: {error!r}")

    threads = [threading.Thread(target=guarded, args=[load], name=name, daemon=True) for name, load in LOADS.items()]
    for thread in threads:
        thread.start()
    samples: list[Sample] = []
    began = restarted = told = time.monotonic()
    life = 1
    try:
        while (now := time.monotonic()) - began < seconds:
            if now - restarted >= restart_every_s:
                work.restarting = True
                broker.stop()
                broker.start()
                life += 1
                restarted = time.monotonic()
            elif work.restarting and now - restarted > SETTLED_S:
                work.restarting = False
            values = measured(broker._process.pid, broker.folder / "data")
            latencies, work.latencies_ms = work.latencies_ms, []
            if latencies:
                values["p50_ms"] = median(latencies)
            samples.append(Sample(now - began, life, values))
            if now - told > 60:
                told = now
                print(f"{(now - began) / 60:.0f} min: {values} {work.counts}", file=sys.stderr, flush=True)
            time.sleep(SAMPLE_S)
    finally:
        work.restarting = True
        work.stop.set()
        for thread in threads:
            thread.join(60)
    return samples, work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--restart-minutes", type=float, default=20.0)
    parser.add_argument("--report", type=Path, default=Path("soak-report"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-soak-") as folder:
        settings = {
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            # Small segments, so that internal topics are compacted many times in a run.
            "offsets.topic.segment.bytes": 1 << 20,
            "transaction.state.log.segment.bytes": 1 << 20,
            "log.retention.check.interval.ms": 10_000,
        }
        broker = Secured("ottla", Path(folder), **settings)
        try:
            samples, work = soak(broker, arguments.hours * 3600, arguments.restart_minutes * 60, arguments.seed)
        finally:
            broker.stop()
    judged = judge(samples)
    report = text(samples, work.counts, work.unexpected, judged)
    arguments.report.mkdir(parents=True, exist_ok=True)
    (arguments.report / "report.md").write_text(report)
    (arguments.report / "samples.json").write_text(json.dumps([asdict(sample) for sample in samples]))
    (arguments.report / "soak.svg").write_text(plot(samples))
    print(report)
    return 1 if work.unexpected or not judged or not all(each.is_fine for each in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
