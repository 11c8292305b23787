"""A live tail: new records as they arrive. If it skips records for a slow reader, it reports how many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from ottla.client.fetcher import Fetcher
from ottla.client.offsets import bounds
from ottla.console.operations import Call, Parameter
from ottla.console.records import (
    FILTERS,
    cursor_for,
    cursor_of,
    decoded,
    filter_of,
    found_in,
    partitions_of,
    passes,
    shown,
)

STATUS_INTERVAL_S: Final = 1.0

RATE_MAX: Final = 500
"""The maximum number of records per second. Nobody can read more; the rest is counted in `skipped`."""

TAIL_QUERY: Final = (
    Parameter("partition", "integer", minimum=0, maximum=(1 << 31) - 1),
    Parameter("cursor", help="where to continue: the cursor of the last status"),
    *FILTERS,
)


async def tail(call: Call) -> AsyncIterator[tuple[str, Any]]:
    """Begin at the end of the topic, or at the cursor. Errors of a bad call are raised before the first event."""
    wanted = filter_of(call)
    partitions = await partitions_of(call)
    ends = await bounds(call.source.client, partitions)
    cursor = cursor_of(call) or {}
    positions = {tp: max(start, min(cursor.get(tp[1], end), end)) for tp, (start, end) in ends.items()}
    fetcher = Fetcher(call.source.client, positions)
    topic = call.path["topic"]

    async def events() -> AsyncIterator[tuple[str, Any]]:
        seen = matched = skipped = 0
        budget = float(RATE_MAX)
        last = status_at = time.monotonic()

        def status() -> dict[str, Any]:
            cursor = cursor_for({index: position for (_, index), position in fetcher.positions.items()})
            return {"seen": seen, "matched": matched, "skipped": skipped, "cursor": cursor}

        try:
            yield "status", status()
            while True:
                before = dict(fetcher.positions)
                for part in await fetcher.poll():
                    for one in found_in(part, before[part.tp], 1 << 62):
                        seen += 1
                        if not await passes(call.source, topic, wanted, one.record):
                            continue
                        matched += 1
                        now = time.monotonic()
                        budget, last = min(RATE_MAX, budget + (now - last) * RATE_MAX), now
                        if budget < 1:
                            skipped += 1
                            continue
                        budget -= 1
                        yield "record", await decoded(call.source, topic, one, shown(one))
                if time.monotonic() - status_at >= STATUS_INTERVAL_S:
                    status_at = time.monotonic()
                    yield "status", status()
                await asyncio.sleep(0)
        finally:
            await fetcher.close()

    return events()
