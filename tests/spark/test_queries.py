"""`await_stream` starts a stream again that a busy machine did not start, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.spark import await_stream

STARVED = "org.apache.spark.SparkException: Python worker failed to connect back."


class Query:
    def __init__(self, error: str, progress: object) -> None:
        self.error = error
        self.lastProgress = progress

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if self.error:
            raise RuntimeError(self.error)
        return True


class Writer:
    """Stands for Spark's; each start meets the next fate."""

    def __init__(self, *fates: tuple[str, object]) -> None:
        self.fates = list(fates)
        self.options: dict[str, str] = {}

    def option(self, name: str, value: str) -> Writer:
        self.options[name] = value
        return self

    def start(self) -> Query:
        return Query(*self.fates.pop(0))


@pytest.mark.parametrize("progress", [None, {"batchId": 0}])
def test_a_stream_with_a_checkpoint_goes_on(progress: object) -> None:
    writer: Any = Writer((STARVED, progress), (STARVED, None), ("", None))
    await_stream(writer, checkpoint="/c", timeout_s=5)
    assert writer.fates == []
    assert writer.options == {"checkpointLocation": "/c"}


def test_a_stream_without_one_is_started_again_if_it_did_nothing() -> None:
    await_stream(Writer((STARVED, None), ("", None)))  # type: ignore[arg-type]
    writer: Any = Writer((STARVED, {"batchId": 0}), ("", None))
    with pytest.raises(RuntimeError, match="failed to connect back"):
        await_stream(writer)


def test_other_failures_are_raised_at_once() -> None:
    writer: Any = Writer(("no such topic", None), ("", None))
    with pytest.raises(RuntimeError, match="no such topic"):
        await_stream(writer, checkpoint="/c")
    assert len(writer.fates) == 1


def test_there_is_an_end_to_patience() -> None:
    writer: Any = Writer(*[(STARVED, None)] * 50)
    with pytest.raises(RuntimeError, match="failed to connect back"):
        await_stream(writer, checkpoint="/c")
    assert 30 < len(writer.fates) < 50
