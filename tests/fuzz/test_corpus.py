"""The kept corpus through every decoder, with seeded changes; and a few seconds of atheris where it is installed.

`scripts/fuzz` lets atheris run for as long as one likes, and adds what it finds to the corpus.
"""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing.decoders import TARGETS
from fuzzing.frames import FrameMaker

from ottla.wire.messages import REQUESTS

CORPUS = Path(__file__).parent / "corpus"
CHANGES = 600
ATHERIS_S = 4


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_and_what_is_like_it(target: str) -> None:
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


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_run_of_atheris(target: str, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "fuzz"
    result = subprocess.run(
        [sys.executable, str(script), target, str(tmp_path), f"-max_total_time={ATHERIS_S}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
