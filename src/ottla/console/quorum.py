"""The metadata quorum: its leader, voters and observers, and how far each of them has read the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.admin import quorum_request
from ottla.console.operations import Call, operation
from ottla.console.powers import steer
from ottla.errors import error_for
from ottla.wire.messages.quorum import DescribeQuorumResponse

Replica = DescribeQuorumResponse.ReplicaState


@operation("GET", "/quorum")
async def describe_quorum(call: Call) -> Any:
    """The metadata quorum. `controllers` are those of this process, with their states; `leader` can be null."""
    inside = call.source.inside
    state = {} if inside is None or inside.control is None else await steer(call, "GET", "/")
    controllers = {each["node_id"]: {"name": name, **each} for name, each in state.get("controllers", {}).items()}
    found: dict[str, Any] = {
        "leader": None,
        "epoch": max((each.get("epoch", 0) for each in controllers.values()), default=None),
        "high_watermark": max((each.get("high_watermark", 0) for each in controllers.values()), default=None),
        "voters": [_alone(node_id, each) for node_id, each in sorted(controllers.items())],
        "observers": [],
        "controllers": list(controllers.values()),
        "brokers": sorted((await call.source.client.metadata([])).nodes),
    }
    # Brokers answer only when there is a leader. Until then the page shows that there is none.
    if not controllers or any(each["state"] == "active" for each in controllers.values()):
        found |= await _asked(call)
    return found


async def _asked(call: Call) -> dict[str, Any]:
    response = await call.source.client.ask_controller(quorum_request())
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    view = response.topics[0].partitions[0]
    if view.error_code:
        raise error_for(view.error_code, view.error_message)
    leader = next((each for each in view.current_voters if each.replica_id == view.leader_id), None)
    addresses = {
        node.node_id: ", ".join(f"{each.host}:{each.port}" for each in node.listeners) for node in response.nodes
    }
    return {
        "leader": view.leader_id,
        "epoch": view.leader_epoch,
        "high_watermark": view.high_watermark,
        "voters": [_replica(each, leader, addresses) for each in view.current_voters],
        "observers": [_replica(each, leader, addresses) for each in view.observers],
    }


def _replica(replica: Replica, leader: Replica | None, addresses: Mapping[int, str]) -> dict[str, Any]:
    """One row of the table. The leader does not fetch, so its times are the current time of its clock."""
    known = leader is not None and replica.log_end_offset >= 0
    return {
        "node": replica.replica_id,
        "address": addresses.get(replica.replica_id),
        "end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
        "lag": max(0, leader.log_end_offset - replica.log_end_offset) if leader is not None and known else None,
        "fetched_ms": _age(leader, "last_fetch_timestamp", replica),
        "caught_up_ms": _age(leader, "last_caught_up_timestamp", replica),
    }


def _age(leader: Replica | None, field: str, replica: Replica) -> int | None:
    now_ms, then_ms = getattr(leader, field, -1), getattr(replica, field)
    return None if now_ms < 0 or then_ms < 0 else max(0, now_ms - then_ms)


def _alone(node_id: int, state: Mapping[str, Any]) -> dict[str, Any]:
    """A voter without a leader. It only knows its own position."""
    return {
        "node": node_id,
        "address": state["address"],
        "end_offset": state.get("end_offset"),
        "lag": None,
        "fetched_ms": None,
        "caught_up_ms": None,
    }
