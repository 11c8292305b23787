"""Sends the same odd frames to two brokers: do both close the connection, or answer with the same errors?

    scripts/fuzz --against kafka|HOST:PORT [--frames 2000] [--seed 1]    compares Ottla with Kafka, or that broker

Answers are compared by their error codes: offsets, ids and times differ between any two brokers. Both brokers should be
new, because earlier frames change what later ones find. A request that gets different errors is asked again: Apache
Kafka often does a moment later what Ottla does before it answers.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    RequestTimedOut,
)
from ottla.wire.frames import decode_response_header, response_header_version
from ottla.wire.messages import REQUESTS, RESPONSES, ApiVersionsRequest, FindCoordinatorRequest
from ottla.wire.primitives import uuid_to_base64
from support.fuzzing.frames import FrameMaker
from support.waiting import ask_until_ready
from support.wire import Wire

TIMEOUT_S = 10.0
CLOSED, SILENT = "closed", "no answer"
ASKED_AGAIN = 4
PAUSE_S = 0.4
PASSING = frozenset(
    error.code
    for error in (
        RequestTimedOut,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
        ConcurrentTransactions,
        LeaderNotAvailable,
    )
)
"""Errors that only show that the broker was slow."""
UNCOMPARED = frozenset({0, 1, 4, 5, 6, 7, 26, 27, 52, 53, 54, 55, 58, 59, 62, 63, 64, 67, 70, 80, 81, 82})
"""Requests between brokers and controllers, and Produce and Fetch. The answers to these two depend on earlier records;
tests/interop compares them one by one."""

Versions = dict[int, tuple[int, int]]
"""The versions of each API that both brokers serve."""


def shared_versions(*addresses: tuple[str, int]) -> Versions:
    shared: Versions = {}
    for number, address in enumerate(addresses):
        with Wire(address) as wire:
            served = {
                api.api_key: (api.min_version, api.max_version) for api in wire.call(ApiVersionsRequest(), 0).api_keys
            }
        if number == 0:
            shared = served
        shared = {
            key: (max(low, served[key][0]), min(high, served[key][1]))
            for key, (low, high) in shared.items()
            if key in served
        }
    return {key: versions for key, versions in shared.items() if key in REQUESTS and key not in UNCOMPARED}


def warm_up(address: tuple[str, int]) -> None:
    """Let both brokers create the coordinators' topics."""
    with Wire(address) as wire:
        for kind, key in ((0, "warm"), (1, "warm"), (2, f"warm:{uuid_to_base64(bytes((1,)) * 16)}:0")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            ask_until_ready(lambda request=request: wire.call(request, 6).coordinators[0])  # type: ignore[misc]


def codes(value: Any) -> list[int]:
    """All error codes of an answer, in its order."""
    if isinstance(value, list):
        return [code for item in value for code in codes(item)]
    if not hasattr(value, "FIELDS"):
        return []
    found: list[int] = []
    for field in value.FIELDS:
        inner = getattr(value, field.name)
        if field.name.endswith("error_code"):
            found.append(inner)
        else:
            found += codes(inner)
    return found


Outcome = tuple[int, ...] | str
"""The error codes of an answer, or what happened instead."""


def is_passing(outcome: Outcome) -> bool:
    return outcome == SILENT or (not isinstance(outcome, str) and not PASSING.isdisjoint(outcome))


def asked(sides: Sequence[Side], frame: bytes) -> list[Outcome]:
    """The outcome of each side. Asks again while they differ."""
    found = [side.ask(frame) for side in sides]
    for _ in range(ASKED_AGAIN):
        if found[0] == found[1] or CLOSED in found:
            break
        time.sleep(PAUSE_S)
        found = [side.ask(frame) for side in sides]
    return found


class Side:
    """One broker on one connection, which is reopened whenever it is closed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def ask(self, frame: bytes) -> Outcome:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=TIMEOUT_S)
        try:
            self._socket.sendall(frame)
            (size,) = struct.unpack(">i", self._read(4))
            return self._read_codes(frame, self._read(size))
        except TimeoutError:
            self.close()
            return SILENT
        except OSError:
            self.close()
            return CLOSED

    def _read(self, count: int) -> bytes:
        data = b""
        assert self._socket is not None
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    @staticmethod
    def _read_codes(frame: bytes, answer: bytes) -> Outcome:
        key, version = struct.unpack_from(">hh", frame, 4)
        try:
            _, position = decode_response_header(answer, response_header_version(key, version))
            return tuple(sorted(set(codes(RESPONSES[key].decode(memoryview(answer)[position:], version)))))
        except (ValueError, KeyError):
            return f"an answer of {len(answer)} bytes"

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def shown(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else f"errors {list(outcome)}"


def compare(ottla: tuple[str, int], other: tuple[str, int], count: int, seed: int) -> list[str]:
    """The differences, one line for each kind, the most frequent first."""
    versions = shared_versions(ottla, other)
    for address in (ottla, other):
        warm_up(address)
    maker = FrameMaker(seed, [REQUESTS[key] for key in sorted(versions)], [bytes(16)])
    sides = Side(ottla), Side(other)
    differences: Counter[str] = Counter()
    first: dict[str, str] = {}
    for _ in range(count):
        frame = maker.frame()
        if len(frame) < 8 or struct.unpack_from(">i", frame)[0] != len(frame) - 4:
            continue  # it would wait for the rest
        key, version = struct.unpack_from(">hh", frame, 4)
        low, high = versions.get(key, (0, 0))
        if key in UNCOMPARED or (key in versions and not low <= version <= high):
            continue
        ours, theirs = asked(sides, frame)
        if ours != theirs and not is_passing(ours) and not is_passing(theirs):
            name = REQUESTS[key].__name__ if key in REQUESTS else f"api {key}"
            text = f"{name} v{version}: {shown(ours)}, the other: {shown(theirs)}"
            differences[text] += 1
            first.setdefault(text, frame[4:].hex())
    for side in sides:
        side.close()
    return [f"{times} × {text}\n    {first[text][:400]}" for text, times in differences.most_common()]
