"""A topic as JSON lines: all records that pass the filters, sent as they are read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from ottla.client.offsets import bounds
from ottla.console.operations import Call, Parameter
from ottla.console.records import FILTERS, decoded, filter_of, partitions_of, passes, read_between, shown, starts_of

EXPORT_QUERY: Final = (
    Parameter("from", default="oldest", help="oldest, an offset (offset:42), or a time (time:1700000000000)"),
    Parameter("partition", "integer", minimum=0, maximum=(1 << 31) - 1),
    Parameter("limit", "integer", minimum=1, maximum=(1 << 31) - 1, help="the most records to write"),
    *FILTERS,
)


async def export(call: Call) -> AsyncIterator[str]:
    """Lines of JSON. Errors of a bad call are raised before the first line."""
    wanted = filter_of(call)
    partitions = await partitions_of(call)
    ends = await bounds(call.source.client, partitions)
    starts = await starts_of(call, ends)
    limit = call.query["limit"]

    async def lines() -> AsyncIterator[str]:
        written = 0
        ranges = {tp: (starts[tp[1]], end) for tp, (_, end) in ends.items()}
        async for one in read_between(call.source.client, ranges):
            if not await passes(call.source, call.path["topic"], wanted, one.record):
                continue
            yield _line(await decoded(call.source, call.path["topic"], one, shown(one, bytes_max=1 << 62)))
            written += 1
            if limit is not None and written >= limit:
                return

    return lines()


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
