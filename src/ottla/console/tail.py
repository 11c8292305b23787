"""A live tail: new records as they arrive. If it skips records for a slow reader, it reports how many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from ottla.client.fetcher import Fetcher
from ottla.client.offsets import bounds
from ottla.console.operations import Call, Parameter
from ottla.console.records import FILTERS, decoded, filter_of, found_in, partitions_of, shown

STATUS_INTERVAL_S: Final = 1.0

RATE_MAX: Final = 500
"""The most records per second. Nobody can read more; the rest is counted in `skipped`."""

TAIL_QUERY: Final = (Parameter("partition", "integer", minimum=0, maximum=(1 << 31) - 1), *FILTERS)


async def tail(call: Call) -> AsyncIterator[tuple[str, Any]]:
    """Begin at the end of the topic. Errors of a bad call are raised before the first event."""
    wanted = filter_of(call)
    partitions = await partitions_of(call)
    ends = await bounds(call.source.client, partitions)
    fetcher = Fetcher(call.source.client, {tp: end for tp, (_, end) in ends.items()})

    async def events() -> AsyncIterator[tuple[str, Any]]:
        seen = matched = skipped = 0
        budget = float(RATE_MAX)
        last = status_at = time.monotonic()
        try:
            yield "status", {"seen": 0, "matched": 0, "skipped": 0}
            while True:
                before = dict(fetcher.positions)
                for part in await fetcher.poll():
                    for one in found_in(part, before[part.tp], 1 << 62):
                        seen += 1
                        if not wanted.matches(one.record):
                            continue
                        matched += 1
                        now = time.monotonic()
                        budget, last = min(RATE_MAX, budget + (now - last) * RATE_MAX), now
                        if budget < 1:
                            skipped += 1
                            continue
                        budget -= 1
                        yield "record", await decoded(call.source, call.path["topic"], one, shown(one))
                if time.monotonic() - status_at >= STATUS_INTERVAL_S:
                    status_at = time.monotonic()
                    yield "status", {"seen": seen, "matched": matched, "skipped": skipped}
                await asyncio.sleep(0)
        finally:
            await fetcher.close()

    return events()
