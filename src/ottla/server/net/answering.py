"""Turns a response into what a connection sends: byte strings, and parts of files between them."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any

from ottla.log.files import FileRegion
from ottla.server.api import Route
from ottla.wire.schema import Message

_HEADER = Struct(">ii").pack
_FLEXIBLE_HEADER = Struct(">iib").pack


def queue_answer(out: deque[Any], route: Route, correlation_id: int, response: Message) -> None:
    """Add the frame of an answer to the send queue. If anything fails, nothing is added."""
    parts: list[Any] = []
    route.encode(response, parts)
    if not route.carries_records:
        body = b"".join(parts)
        if route.flexible_response:
            out.append(_FLEXIBLE_HEADER(len(body) + 5, correlation_id, 0) + body)
        else:
            out.append(_HEADER(len(body) + 4, correlation_id) + body)
        return
    size = 4
    for part in parts:
        size += len(part)
    if route.flexible_response:
        head = _FLEXIBLE_HEADER(size + 1, correlation_id, 0)
    else:
        head = _HEADER(size, correlation_id)
    _queue_with_regions(out, head, parts)


def _queue_with_regions(out: deque[Any], head: bytes, parts: list[Any]) -> None:
    """The bytes between two file regions become one piece, together with small file regions."""
    run: list[Any] = [head]
    for part in parts:
        if part.__class__ is FileRegion:
            few = part.if_few()
            if few is not None:
                run.append(few)
                continue
            if run:
                out.append(b"".join(run))
                run = []
            out.append(part)
        else:
            run.append(part)
    if run:
        out.append(b"".join(run))
