"""One run: clients work, faults occur, and the checker judges what the clients recorded.

python -m support.histories.run --target broker --client librdkafka --transactions 10000 --seed 1 --keep FOLDER
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from support.histories.checker import Verdict, check
from support.histories.events import write_history
from support.histories.nemesis import TARGETS, Target
from support.histories.workload import CLIENTS, Recorder, make_topic, read_to_the_end

PROCESSES = 4
CALM_S = (0.3, 1.5)
"""The pause between two faults."""


def run(
    target: Target,
    client: str,
    transactions: int,
    seed: int,
    *,
    troubles: tuple[str, ...] | None = None,
    seconds_max: float = 3600.0,
    progress: bool = False,
) -> tuple[Recorder, Verdict, dict[str, int]]:
    """Work until this many transactions have ended. Returns the history, the verdict, and a count of each failure."""
    chance = random.Random(seed)
    recorder, stop = Recorder(), threading.Event()
    make_topic(target.bootstrap)
    names = list(CLIENTS) if client == "mixed" else [client]
    processes = [
        CLIENTS[names[number % len(names)]](number, target.bootstrap, recorder, stop, seed * 1000 + number)
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    kinds = target.troubles if troubles is None else troubles
    counts = dict.fromkeys(kinds, 0)
    deadline = time.monotonic() + seconds_max
    told = time.monotonic()
    try:
        for kind in _endless(kinds, chance):
            # Each fault occurs at least once, no matter how fast the clients are.
            if time.monotonic() >= deadline or (recorder.ended >= transactions and all(counts.values())):
                break
            time.sleep(chance.uniform(*CALM_S))
            target.trouble(kind, chance)
            counts[kind] += 1
            if progress and time.monotonic() - told > 10:
                told = time.monotonic()
                print(f"{recorder.ended} transactions, troubles: {counts}", file=sys.stderr, flush=True)
            for process in processes:
                if process.failure is not None:
                    raise process.failure
    finally:
        stop.set()
        for process in processes:
            process.join(120)
    alive = [process.name for process in processes if process.is_alive()]
    if alive:
        raise AssertionError(f"clients that did not end: {alive}")
    recorder.add(read_to_the_end(target.bootstrap))
    return recorder, check(recorder.operations), counts


def _endless(kinds: tuple[str, ...], chance: random.Random) -> Iterator[str]:
    while True:
        yield from chance.sample(kinds, len(kinds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, default="broker")
    parser.add_argument("--client", choices=[*CLIENTS, "mixed"], default="librdkafka")
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="end after so long, at the latest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write the history to this file")
    arguments = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every connection that a fault ends
    with tempfile.TemporaryDirectory(prefix="ottla-history-") as folder:
        target = TARGETS[arguments.target](Path(folder) / "data")
        try:
            recorder, verdict, counts = run(
                target,
                arguments.client,
                arguments.transactions,
                arguments.seed,
                seconds_max=arguments.minutes * 60,
                progress=True,
            )
        finally:
            target.close()
    if arguments.keep is not None:
        write_history(arguments.keep, recorder.operations)
    allowed = sorted(verdict.names() - {anomaly.name for anomaly in verdict.errors()})
    print(
        f"{arguments.target} with {arguments.client}, seed {arguments.seed}: {recorder.ended} transactions ended, "
        f"{verdict.sent} records sent, {verdict.seen} seen; troubles {counts}; allowed anomalies {allowed or 'none'}"
    )
    for anomaly in verdict.errors():
        print(anomaly)
    return 1 if verdict.errors() else 0


if __name__ == "__main__":
    sys.exit(main())
