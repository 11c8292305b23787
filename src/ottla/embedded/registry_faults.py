"""Faults of the schema registry: like the broker's faults, but on HTTP requests."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import unquote

from ottla.embedded.fault_handle import FaultHandle, shown_faults
from ottla.embedded.rules import Turn, Turns
from ottla.http.endpoint import DropConnection
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.registry.rest import http as rest
    from ottla.registry.server import Serve
else:
    rest = lazy("ottla.registry.rest.http")

KINDS: Final = ("error", "delay", "drop", "black_hole")
_REQUESTS_KEPT: Final = 2000


@dataclass(frozen=True)
class RegistryRequest:
    """A request to the registry, and the status of its answer, or None before the answer."""

    method: str
    path: str
    status: int | None

    def __str__(self) -> str:
        return f"{self.method} {self.path} → {self.status}"


class RegistryFault(FaultHandle):
    """One fault of the registry."""

    fired: int = 0

    def __init__(self, owner: RegistryFaults, number: int, kind: str, text: str, call: str, turn: Turn) -> None:
        self._owner = owner
        self.id = number
        self.kind = kind
        self.text = text
        self.call = call
        self.turn = turn
        self.options: dict[str, Any] = {}

    @property
    def active(self) -> bool:
        """Whether it can still fire."""
        return self in self._owner and self.turn.times != 0

    def remove(self) -> None:
        self._owner.remove(self)

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "text": self.text, "fired": self.fired, "active": self.active}


class RegistryFaults:
    """A method and a path select the requests for a fault, and `*` matches any part: "POST /subjects/*",
    "GET /schemas/ids/7", or "*" for all requests. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        # Replaced, never changed: the loop reads it while other threads add to it.
        self._rules: tuple[RegistryFault, ...] = ()
        self.all: list[RegistryFault] = []
        """All faults, including removed and used-up ones."""
        self._requests: deque[RegistryRequest] = deque(maxlen=_REQUESTS_KEPT)

    def __iter__(self) -> Iterator[RegistryFault]:
        """The faults that can still fire."""
        return (fault for fault in self._rules if fault.active)

    def __contains__(self, fault: object) -> bool:
        return fault in self._rules

    def __repr__(self) -> str:
        return shown_faults(self)

    def apply(self, kind: str, **options: Any) -> RegistryFault:
        """Add a fault by the name of its method."""
        if kind not in KINDS:
            raise ValueError(f"the registry has no fault {kind!r}; choose one of {', '.join(KINDS)}")
        fault: RegistryFault = getattr(self, kind)(**options)
        return fault

    def error(
        self, call: str, status: int = 500, code: int | None = None, message: str = "", **turns: Unpack[Turns]
    ) -> RegistryFault:
        """Answer with an HTTP status and Confluent's error code; the request has no effect."""
        if not 400 <= status <= 599:
            raise ValueError(f"status={status}: an error has a status from 400 to 599")
        fault = self._add("error", f"HTTP {status} for {call}", call, turns)
        fault.options = {"status": status, "code": code or status, "message": message or f"HTTP {status}"}
        return fault

    def delay(
        self, call: str, *, seconds: float = 0.0, ms: float = 0.0, when: str = "before", **turns: Unpack[Turns]
    ) -> RegistryFault:
        """Serve a request late, or (`when="after"`) serve it and answer late."""
        delay_s = seconds + ms / 1000
        if delay_s <= 0:
            raise ValueError("say how long: delay(call, seconds=…) or delay(call, ms=…)")
        fault = self._add("delay", f"{delay_s * 1000:g} ms for {call}", call, turns)
        fault.options = {"seconds": delay_s, "when": _when(when)}
        return fault

    def drop(self, call: str, *, when: str = "before", **turns: Unpack[Turns]) -> RegistryFault:
        """Close the connection instead of answering: before the request takes effect, or `when="after"`."""
        fault = self._add("drop", f"connection closed {when} {call}", call, turns)
        fault.options = {"when": _when(when)}
        return fault

    def black_hole(self, call: str, **turns: Unpack[Turns]) -> RegistryFault:
        """Never answer, and keep the connection open."""
        return self._add("black_hole", f"no answer to {call}", call, turns)

    def remove(self, fault: RegistryFault) -> None:
        self._rules = tuple(each for each in self._rules if each is not fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._rules = ()
        self.all.clear()

    # -- how it works ------------------------------------------------------------------------------------------

    def requests(self) -> list[RegistryRequest]:
        """The requests that arrived, oldest first; the last 2,000 are kept."""
        return list(self._requests)

    def forget_requests(self) -> None:
        self._requests.clear()

    async def around(self, request: rest.Request, serve: Serve) -> rest.Answer:
        """Serve a request, with the first fault that hits it."""
        path = unquote(request.path)
        status: int | None = None
        try:
            answer = await self._served(request, serve, f"{request.method} {path}")
            status = answer.status
            return answer
        finally:
            self._requests.append(RegistryRequest(request.method, path, status))

    async def _served(self, request: rest.Request, serve: Serve, call: str) -> rest.Answer:
        fault = next((each for each in self._rules if fnmatchcase(call, each.call) and each.turn.strikes()), None)
        if fault is None:
            return await serve(request)
        fault.fired += 1
        options = fault.options
        if fault.kind == "error":
            return rest.Answer(options["status"], {"error_code": options["code"], "message": options["message"]})
        if fault.kind == "black_hole":
            await asyncio.Event().wait()
        is_before = options["when"] == "before"
        if fault.kind == "drop":
            if not is_before:
                await serve(request)
            raise DropConnection
        if is_before:
            await asyncio.sleep(options["seconds"])
            return await serve(request)
        answer = await serve(request)
        await asyncio.sleep(options["seconds"])
        return answer

    def _add(self, kind: str, text: str, call: str, turns: Turns) -> RegistryFault:
        pattern = "*" if call == "*" else call if " " in call else f"* {call}"
        fault = RegistryFault(self, next(self._numbers), kind, text, pattern, Turn(**turns))
        self._rules = (*self._rules, fault)
        self.all.append(fault)
        return fault


def _when(when: str) -> str:
    if when not in ("before", "after"):
        raise ValueError(f"when={when!r}: pass 'before' or 'after'")
    return when
