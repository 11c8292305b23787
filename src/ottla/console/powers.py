"""Operations on a broker for tests: faults, the clock and stops; in a cluster also kills and network cuts."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.http.requests import HttpError, HttpRequest

NO_POWERS: Final = (
    "Faults cannot be injected into this broker. Start it with `ottla serve --control PORT` or `--brokers N`, or "
    "from a test with "
    "`ottla.serve(console=0)`."
)

_OBJECT: Final = {"type": "object"}


async def steer(call: Call, method: str, path: str, body: Any = None, *, raw: bytes = b"") -> Any:
    """The answer of the control endpoint, which has the same operations."""
    control = None if call.source.inside is None else call.source.inside.control
    if control is None:
        raise NotFound(NO_POWERS)
    raw = raw if body is None else json.dumps(body).encode()
    try:
        return await control(HttpRequest(method, path, {}, {}, raw))
    except HttpError as error:
        raise (NotFound if error.status == 404 else BadRequest)(str(error)) from None
    except (ValueError, TypeError, KeyError, RuntimeError, AssertionError) as error:
        raise BadRequest(str(error.args[0] if error.args else error)) from None


@operation("GET", "/powers")
async def describe_powers(call: Call) -> Any:
    """The brokers and the faults that are set."""
    state = await steer(call, "GET", "/")
    return {"state": state, "faults": await steer(call, "GET", "/faults"), "cluster": "brokers" in state}


@operation("POST", "/powers/faults", body=_OBJECT)
async def make_fault(call: Call) -> Any:
    """Set a fault: {"kind": "error", "api": "Produce", "error": "REQUEST_TIMED_OUT"}; see docs/faults.md."""
    return await steer(call, "POST", "/faults", call.body)


@operation("DELETE", "/powers/faults/{number}")
async def remove_fault(call: Call) -> Any:
    """Remove a fault."""
    return await steer(call, "DELETE", f"/faults/{quote(call.path['number'], safe='')}")


@operation("POST", "/powers/clock", body=_OBJECT)
async def advance_clock(call: Call) -> Any:
    """Advance the virtual clock: {"minutes": 10}."""
    return await steer(call, "POST", "/clock/advance", call.body)


@operation(
    "POST",
    "/powers/scenario",
    body={
        "type": "object",
        "required": ["text"],
        "properties": {"text": {"type": "string", "description": "a scenario in YAML or JSON; see docs/faults.md"}},
    },
)
async def run_scenario(call: Call) -> Any:
    """Run a scenario: a list of faults, waits and stops. Returns what each step did."""
    return {"steps": await steer(call, "POST", "/scenario", raw=call.text("text").encode(errors="replace"))}


@operation("POST", "/powers/reset", body=_OBJECT)
async def reset(call: Call) -> Any:
    """Remove all topics, groups and faults, and repair the network."""
    return await steer(call, "POST", "/reset", call.body)


@operation("POST", "/powers/broker/{verb}", body=_OBJECT)
async def steer_broker(call: Call) -> Any:
    """down, up, kill or restart a single broker."""
    return await steer(call, "POST", f"/broker/{quote(call.path['verb'], safe='')}", call.body)


@operation("POST", "/powers/cluster/{verb}", body=_OBJECT)
async def steer_cluster(call: Call) -> Any:
    """kill, stop, start, pause, resume, kill_controller, partition_network, slow_link, skew_clock, move_leader,
    add_broker, drain, remove_broker, heal …; see docs/cluster.md.
    """
    return await steer(call, "POST", f"/cluster/{quote(call.path['verb'], safe='')}", call.body)
