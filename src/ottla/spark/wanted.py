"""Which records of a partition a task decodes. Separate from the decoder, so that planning does not import numpy."""

from __future__ import annotations

from typing import Final, NamedTuple

FOREVER: Final = 1 << 62


class Wanted(NamedTuple):
    """Offsets from `start` up to, but not including, `end`, and times (ms) likewise."""

    start: int = 0
    end: int = FOREVER
    least_ms: int = -FOREVER
    before_ms: int = FOREVER


EVERYTHING: Final = Wanted()
