"""Which records of a partition a task decodes. Apart from the decoder, so that plans are made without numpy."""

from __future__ import annotations

from typing import Final, NamedTuple

FOREVER: Final = 1 << 62


class Wanted(NamedTuple):
    """Offsets from `start` to before `end`, and times (ms) alike."""

    start: int = 0
    end: int = FOREVER
    least_ms: int = -FOREVER
    before_ms: int = FOREVER


EVERYTHING: Final = Wanted()
