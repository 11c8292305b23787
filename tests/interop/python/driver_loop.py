"""The driver protocol, Python side: one JSON request per line on stdin, one JSON answer per line on stdout.

A driver wraps one client library. Requests are `{"op": name, "args": {...}}`, answers `{"ok": value}` or
`{"error": {"code": kafka error code or null, "name": exception class, "text": ...}}`. Bytes are sent as base64.
`tests/interop/lib/interop/drivers.py` is the other end and lists the operations.
"""

import base64
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def unb64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def as_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "timestamp_type": timestamp_type,
        "key": b64(key),
        "value": b64(value),
        "headers": [[name, b64(data)] for name, data in headers or ()],
    }


class Refused(Exception):
    """An error that a driver found in a result instead of an exception."""

    def __init__(self, code: int | None, name: str, text: str = "") -> None:
        super().__init__(text or name)
        self.code = code
        self.name = name


def describe(error: BaseException, code_of: Callable[[BaseException], int | None]) -> dict[str, Any]:
    if isinstance(error, Refused):
        return {"code": error.code, "name": error.name, "text": str(error)}
    return {"code": code_of(error), "name": type(error).__name__, "text": str(error)}


def serve(driver: Any) -> None:
    # The real stdout is only for answers; the output of libraries is redirected to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(driver, request["op"])(**request["args"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": describe(error, driver.code_of)}
        answers.write(json.dumps(answer) + "\n")
    # Members that are still open end with the process: tests close those that must be closed.
    answers.flush()
    os._exit(0)
