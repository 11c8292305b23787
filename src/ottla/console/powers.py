"""What can be done to a broker that is there to be troubled: faults, the clock, stops; kills and cuts in a cluster."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.http.requests import HttpError, HttpRequest

NO_POWERS: Final = (
    "This broker cannot be troubled. Start it with `ottla serve --control PORT` or `--brokers N`, or from a test with "
    "`ottla.serve(console=0)`."
)

_OBJECT: Final = {"type": "object"}


async def _steer(call: Call, method: str, path: str, body: Any = None) -> Any:
    """The answer of the control endpoint, which these operations share their meaning with."""
    control = None if call.source.inside is None else call.source.inside.control
    if control is None:
        raise NotFound(NO_POWERS)
    raw = b"" if body is None else json.dumps(body).encode()
    try:
        return await control(HttpRequest(method, path, {}, {}, raw))
    except HttpError as error:
        raise (NotFound if error.status == 404 else BadRequest)(str(error)) from None
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadRequest(str(error.args[0] if error.args else error)) from None


@operation("GET", "/powers")
async def describe_powers(call: Call) -> Any:
    """The brokers and the faults that are set."""
    state = await _steer(call, "GET", "/")
    return {"state": state, "faults": await _steer(call, "GET", "/faults"), "cluster": "brokers" in state}


@operation("POST", "/powers/faults", body=_OBJECT)
async def make_fault(call: Call) -> Any:
    """Set a fault: {"kind": "error", "api": "Produce", "error": "REQUEST_TIMED_OUT"}; see docs/faults.md."""
    return await _steer(call, "POST", "/faults", call.body)


@operation("DELETE", "/powers/faults/{number}")
async def remove_fault(call: Call) -> Any:
    """Remove a fault."""
    return await _steer(call, "DELETE", f"/faults/{quote(call.path['number'], safe='')}")


@operation("POST", "/powers/clock", body=_OBJECT)
async def advance_clock(call: Call) -> Any:
    """Advance the virtual clock: {"minutes": 10}."""
    return await _steer(call, "POST", "/clock/advance", call.body)


@operation("POST", "/powers/broker/{verb}", body=_OBJECT)
async def steer_broker(call: Call) -> Any:
    """down, up, kill or restart a broker that is alone."""
    return await _steer(call, "POST", f"/broker/{quote(call.path['verb'], safe='')}", call.body)


@operation("POST", "/powers/cluster/{verb}", body=_OBJECT)
async def steer_cluster(call: Call) -> Any:
    """kill, stop, start, pause, resume, partition_network, slow_link, move_leader, heal …; see docs/cluster.md."""
    return await _steer(call, "POST", f"/cluster/{quote(call.path['verb'], safe='')}", call.body)
