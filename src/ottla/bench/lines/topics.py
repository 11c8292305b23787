"""Topics for one run of a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ottla.bench.load import Driven
from ottla.bench.model import NotServed
from ottla.bench.targets import Target

_numbers = itertools.count(1)
# Without a delay, the files of a finished run do not occupy the page cache during the next measurement.
CONFIGS = {"file.delete.delay.ms": "0"}


def new_topic(target: Target, partitions: int, stem: str = "bench", **configs: str) -> str:
    """Create a topic; its settings have `_` instead of `.` in their names."""
    name = f"{stem}-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with target.client() as client:
        client.create_topics([name], partitions, CONFIGS | settings)
    return name


@contextmanager
def topic(target: Target, partitions: int, **configs: str) -> Iterator[str]:
    """A temporary topic."""
    name = new_topic(target, partitions, **configs)
    try:
        yield name
    finally:
        with suppress(NotServed), target.client() as client:
            client.delete_topics([name])


def per_gb(driven: Driven) -> dict[str, float]:
    """MB/s, and the broker's CPU seconds per GB if available."""
    figures = {"mb_s": driven["bytes"] / 1e6 / driven.seconds}
    if driven.broker_cpu_seconds is not None:
        figures["cpu_gb"] = driven.broker_cpu_seconds / (driven["bytes"] / 1e9)
    return figures
