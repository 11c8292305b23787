"""The schema registry of a broker in another process, controlled over the broker's HTTP endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ottla.embedded.registry_faults import RegistryRequest
from ottla.embedded.rules import Turns
from ottla.testing.over_http import RemoteFault, RemoteFaultList

if TYPE_CHECKING:
    from ottla.testing.over_http import Control


class RemoteRegistryFaults(RemoteFaultList):
    """Faults with the same names and options as in this process."""

    def __init__(self, control: Control) -> None:
        super().__init__(control, "/registry/faults")

    def error(
        self, call: str, status: int = 500, code: int | None = None, message: str = "", **turns: Unpack[Turns]
    ) -> RemoteFault:
        """Answer with an HTTP status and Confluent's error code; the request has no effect."""
        return self.apply("error", call=call, status=status, code=code, message=message, **turns)

    def delay(
        self, call: str, *, seconds: float = 0.0, ms: float = 0.0, when: str = "before", **turns: Unpack[Turns]
    ) -> RemoteFault:
        """Serve a request late, or (`when="after"`) serve it and answer late."""
        return self.apply("delay", call=call, seconds=seconds, ms=ms, when=when, **turns)

    def drop(self, call: str, *, when: str = "before", **turns: Unpack[Turns]) -> RemoteFault:
        """Close the connection instead of answering."""
        return self.apply("drop", call=call, when=when, **turns)

    def black_hole(self, call: str, **turns: Unpack[Turns]) -> RemoteFault:
        """Never answer, and keep the connection open."""
        return self.apply("black_hole", call=call, **turns)


class RemoteRegistry:
    """Reaches the registry over the control endpoint: logins and faults do not affect it."""

    def __init__(self, control: Control, url: str) -> None:
        self._control = control
        self._url = url
        self.faults = RemoteRegistryFaults(control)

    @property
    def url(self) -> str:
        return self._url

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        found = self._control.ask("POST", "/registry/ask", {"method": method, "path": path, "body": body})
        return found["status"], found["body"]

    def down(self) -> None:
        self._control.ask("POST", "/registry/down")

    def up(self) -> None:
        self._control.ask("POST", "/registry/up")

    def requests(self) -> list[RegistryRequest]:
        return [RegistryRequest(**each) for each in self._control.ask("GET", "/registry/requests")]
