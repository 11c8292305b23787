"""Restarts streams that could not start because the machine was too busy.

Spark waits ten seconds for a Python process, and has no setting for this. On a machine that is too busy, a stream ends
with *Python worker failed to connect back*, although nothing is wrong with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def await_stream(
    writer: DataStreamWriter, *, checkpoint: str | None = None, timeout_s: float | None = None
) -> StreamingQuery:
    """Start a stream and wait for its end, or for `timeout_s`; the query may still be running then.

    A stream that ended because Spark could not start a Python process in time is started again. It continues from
    `checkpoint`; a stream without a checkpoint is only started again if it has completed no batch, because it would
    begin from the start.
    """
    from ottla.spark.pipelines.errors import STARTS, Starved, explain

    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for left in range(STARTS - 1, -1, -1):
        query: Any = None
        try:
            query = writer.start()
            if deadline is None:
                query.awaitTermination()
            else:
                query.awaitTermination(max(deadline - time.monotonic(), 0.001))
            return query
        except Exception as error:
            repeatable = checkpoint is not None or query is None or query.lastProgress is None
            if not left or not repeatable or not isinstance(explain(error), Starved):
                raise
    raise AssertionError
