"""The schema registry in the broker."""

from __future__ import annotations

import json
import subprocess
import sys

from ottla.bench.model import Figure, NotMeasurable, Size, line, value_at_most
from ottla.bench.targets import OttlaMaker, Target


@line(
    "registry",
    "the schema registry: 10,000 schemas, and 1,000 versions of one subject under FULL_TRANSITIVE",
    Figure("registrations", "registrations/s", True, title="registrations, one after the other"),
    Figure("look_ups", "requests/s", True, title="schemas by id, one after the other"),
    Figure("transitive_ms", "ms", False, title="registering version 1,001"),
    Figure("start_s", "s", False, (value_at_most(0.5),), title="from the start to the first schema by id"),
    Figure("memory_mb", "MB", False, (value_at_most(60),), title="memory that the schemas take"),
    repeats=1,
    reference=False,
)
def registry(target: Target, size: Size) -> dict[str, float]:
    if not isinstance(target.fresh(), OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    counts = (size.pick(10_000, 50), size.pick(1_000, 10), size.pick(5_000, 50))
    command = [sys.executable, "-m", "ottla.bench.registry_job", *map(str, counts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
