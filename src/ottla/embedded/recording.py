"""`broker.record("run.jsonl")`: every request of a run with its answer, decoded, one JSON object per line.

`ottla replay-requests` sends the requests of such a file again. Logins are left out, so a recording contains no
passwords, but it contains all records and settings that clients sent.
"""

from __future__ import annotations

import json
import os
from os import PathLike
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from ottla.enums import ApiKey
from ottla.log.files import FileRegion
from ottla.records import message_json
from ottla.wire.messages import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.api import Api
    from ottla.server.request_log import Request
    from ottla.wire.schema import Message

_LOGINS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
FORMAT: Final = "ottla-requests-1"


class Recording:
    """A file that grows with each answer. It ends with `stop()`, with its `with` block, or with the broker."""

    def __init__(self, path: str | PathLike[str], stopped: Callable[[Recording], None]) -> None:
        self.path = os.fspath(path)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file: TextIO = os.fdopen(fd, "w", encoding="utf-8")
        self._file.write(json.dumps({"format": FORMAT}) + "\n")
        self._stopped = stopped
        self._began_ns = perf_counter_ns()
        self._requests: dict[int, tuple[Api, dict[str, Any]]] = {}
        self.count = 0
        """Requests in the file so far."""

    def began(self, seen: Request, api: Api, request: Message | None) -> None:
        """Called when a request arrives. Copies its bytes, because they may be gone when it is answered."""
        if request is None or api.key in _LOGINS:
            return
        decoded = REQUESTS[api.key].decode(_encoded(request, seen.version), seen.version)
        self._requests[seen.number] = api, message_json.to_json(decoded, seen.version)

    def note(self, seen: Any) -> None:
        """Called when a request arrives (see `began`), is answered, or will never be answered."""
        if seen.ended_ns is None or seen.number not in self._requests:
            return
        api, request = self._requests.pop(seen.number)
        self._write(seen, request, _decoded(seen.response, api.key, seen.version))

    def _write(self, seen: Any, request: dict[str, Any], response: dict[str, Any] | None) -> None:
        line = {
            "number": seen.number,
            "connection": seen.peer,
            "client_id": seen.client_id,
            "api": seen.api,
            "version": seen.version,
            "at_ms": seen.at_ms,
            "started_us": (seen.started_ns - self._began_ns) // 1000,
            "ended_us": None if seen.ended_ns is None else (seen.ended_ns - self._began_ns) // 1000,
            "errors": seen.errors,
            "fault": seen.fault,
            "request": request,
            "response": response,
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
        self.count += 1

    def stop(self) -> None:
        """End the recording. Safe to call twice."""
        if not self._file.closed:
            self._stopped(self)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Recording {self.path}, {self.count} requests>"


def _encoded(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    type(message).early_encoder(version)(message, parts)
    return b"".join(bytes(part.read()) if isinstance(part, FileRegion) else bytes(part) for part in parts)


def _decoded(response: Any, key: int, version: int) -> dict[str, Any] | None:
    """A response as a client decodes it: parts of it may be encoded bytes, or regions of files."""
    if response is None:
        return None
    kind = RESPONSES[key]
    return message_json.to_json(kind.decode(_encoded(response, version), version), version)
