"""The schema registry over the control endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ottla.http.requests import HttpError

if TYPE_CHECKING:
    from ottla.embedded.own_registry import OwnRegistry


async def steer(registry: OwnRegistry, method: str, parts: Sequence[str], options: dict[str, Any]) -> Any:
    """Answer requests under /registry: ask, down, up, requests, and faults by number."""
    what = parts[0] if parts else ""
    if what == "faults":
        return _steer_faults(registry, method, parts[1:], options)
    if what == "requests":
        return [asdict(each) for each in registry.faults.requests()]
    if method != "POST":
        raise HttpError(405, f"{method} is not possible here; use POST")
    if what == "ask":
        status, body = await registry.server.ask(options["method"], options["path"], options.get("body"))
        return {"status": status, "body": body}
    verbs = {"down": registry.server.down, "up": registry.server.up}
    if what not in verbs:
        raise HttpError(404, "a registry has /faults, /requests, /ask, /down and /up")
    await verbs[what]()
    return {}


def _steer_faults(registry: OwnRegistry, method: str, parts: Sequence[str], options: dict[str, Any]) -> Any:
    faults = registry.faults
    if parts:
        fault = next((each for each in faults.all if str(each.id) == parts[0]), None)
        if fault is None:
            raise HttpError(404, f"the registry has no fault {parts[0]}")
        if method == "DELETE":
            fault.remove()
        return fault.to_dict()
    if method == "GET":
        return [fault.to_dict() for fault in faults.all]
    if method == "DELETE":
        faults.clear()
        return {}
    if "kind" not in options:
        raise HttpError(400, 'name the fault: {"kind": "error", "call": "POST /subjects/*", "status": 503}')
    return faults.apply(options.pop("kind"), **options).to_dict()
