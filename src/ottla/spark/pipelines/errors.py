"""Errors of a pipeline, each in one line that says what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PipelineError(Exception):
    """Ends a pipeline. Earlier commits stay, and the same call continues from there."""


class Starved(PipelineError):
    """Spark gives a Python process ten seconds to start, which is not enough on a machine that is too busy."""


STARTS: Final = 12
"""How often to start something that fails to start for lack of CPU."""
_STARVED: Final = re.compile(r"failed to connect back|CANNOT_OPEN_SOCKET")
_AGAIN: Final = "Run the same command again afterwards: it continues where it stopped, and nothing is lost"
_KNOWN: Final = (
    (r"No space left on device|ENOSPC|Disk quota exceeded", f"there is no space left on the disk; free some. {_AGAIN}"),
    (
        r"UnknownTopicOrPartition|TopicDeletionError|was deleted",
        "a topic of this pipeline does not exist, or no longer exists",
    ),
    (
        r"offset was changed from \d+ to \d+|KAFKA_DATA_LOSS|OffsetOutOfRangeException|Cannot fetch (record|offset)",
        "records of the topic are gone: retention removed them before they were read, or the topic was deleted and "
        "created again. Start again with another --checkpoint, or continue after the gap with --on-data-loss warn",
    ),
    (
        r"TopicAuthorizationException|GroupAuthorizationException",
        "the broker denies access; set a user in --client-config",
    ),
    (r"SaslAuthenticationException|SslAuthenticationException", "the broker refuses the login of --client-config"),
    (r"RecordTooLargeException", "a record is larger than the topic accepts; raise its max.message.bytes"),
    (
        r"OutOfMemoryError",
        "Spark ran out of memory; give it more with --conf spark.driver.memory=4g, or set a smaller --max-records",
    ),
    (
        r"Connection to node .* could not be established|Timed out waiting for a node|TimeoutException",
        "the broker does not answer",
    ),
)
_CAUSE: Final = re.compile(r"Caused by: (?:[\w$.]+\.)?([\w$]+(?:Exception|Error)[^:\n]*: ?[^\n]+)")

# Exceptions of our tasks and callbacks come back as text, inside Spark's own exceptions.
_OURS: Final = re.compile(r"\bPipelineError: ([^\n]+)")
_PYTHON: Final = re.compile(r"^((?:[\w.]+\.)?\w+(?:Error|Exception): [^\n]+)", re.MULTILINE)


def explain(error: BaseException) -> PipelineError:
    """Any failure of Spark, the disk or a broker, as one line."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PipelineError(_KNOWN[0][1])
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return PipelineError(f"{where}{error.strerror}. {_AGAIN}")
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return PipelineError(ours[-1].strip())
    if _STARVED.search(text):
        return Starved(
            "the machine is too busy: a Python process of Spark did not start within ten seconds, "
            f"several times in a row. {_AGAIN}"
        )
    for pattern, advice in _KNOWN:
        if re.search(pattern, text):
            return PipelineError(advice)
    causes = _CAUSE.findall(text) or _PYTHON.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    what = causes[-1] if causes else lines[0] if lines else type(error).__name__
    return PipelineError(what.strip()[:500])


def patient(work: Callable[P, T]) -> Callable[P, T]:
    """Retry read-only work that could not start for lack of CPU."""

    @wraps(work)
    def call(*args: P.args, **options: P.kwargs) -> T:
        for left in range(STARTS - 1, -1, -1):
            try:
                return work(*args, **options)
            except Starved:
                if not left:
                    raise
        raise AssertionError

    return call
