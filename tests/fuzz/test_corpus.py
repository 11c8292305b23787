"""The stored corpus through every decoder, with seeded changes, and a short run of atheris if it is installed.

`scripts/fuzz` runs atheris for a given time, and adds its findings to the corpus.
"""

import base64
import importlib.util
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages import REQUESTS
from support.fuzzing.decoders import TARGETS
from support.fuzzing.frames import FrameMaker

CORPUS = Path(__file__).parent / "corpus"
CHANGES = 600
RUNS = {"request": 15_000, "batch": 15_000, "recovery": 3_000}
"""Inputs that atheris tries, from a fixed seed: the same ones in every run, a second or two of them. The other
targets have their corpus and its mutations here; `scripts/fuzz --minutes` gives each its time."""
TOO_LONG_S = 20
"""A slow machine stops earlier."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each damage is logged in one line."""
    logger = logging.getLogger("ottla")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_and_its_mutations_decode_or_raise(target: str) -> None:
    chance = random.Random(target)
    maker = FrameMaker(1, [cls for _, cls in sorted(REQUESTS.items())], [bytes(16)])
    kept = seeds(target)
    assert kept
    for data in kept:
        TARGETS[target](data)
    for _ in range(CHANGES):
        changed = bytearray(chance.choice(kept))
        maker._mutate(changed)
        TARGETS[target](bytes(changed))


def test_requests_of_every_kind() -> None:
    maker = FrameMaker(2, [cls for _, cls in sorted(REQUESTS.items())], [bytes(16)])
    for _ in range(3000):
        TARGETS["request"](maker.frame()[4:])


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="there is no atheris for this Python")
@pytest.mark.parametrize("target", RUNS)
def test_a_short_run_of_atheris(target: str, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "fuzz.py"
    finds = tmp_path / "new-coverage"
    finds.mkdir()
    limits = ["-seed=1", f"-runs={RUNS[target]}", f"-max_total_time={TOO_LONG_S}", f"-artifact_prefix={tmp_path}/"]
    result = subprocess.run(
        [sys.executable, str(script), target, str(finds), *limits],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if result.returncode:
        found = [path for path in tmp_path.iterdir() if path != finds]
        inputs = "".join(f"{path}: {base64.b64encode(path.read_bytes()).decode()}\n" for path in found)
        pytest.fail(f"{target} fails; the input, in base64:\n{inputs}{result.stderr[-3000:]}", pytrace=False)
