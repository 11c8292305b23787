"""Control of a cluster over HTTP, in addition to what `ottla.embedded.control` offers for one broker.

GET    /                         brokers, leaders, in-sync replicas, network problems
POST   /cluster/kill             {"broker": 2}; also stop, start, restart, pause, resume
POST   /cluster/move_leader      {"topic": "t", "partition": 0, "to": 3}
POST   /cluster/partition_network  {"sides": [[1], [2, 3]]}
POST   /cluster/slow_link        {"first": 1, "second": 2, "ms": 200}
POST   /cluster/shrink_isr       {"topic": "t", "partition": 0, "remove": [3]}
POST   /cluster/reassign         {"topic": "t", "partition": 0, "replicas": [2, 3]}; null cancels a move
POST   /cluster/heal | elect_preferred
POST   /cluster/kill_controller  {"controller": "c1"}, or {} for the active one; also stop_, start_, pause_, resume_
POST   /cluster/slow_controller  {"controller": "c1", "ms": 200}
POST   /cluster/skew_clock       {"node": 2, "ms": 60000}; 0 corrects it
POST   /cluster/add_broker       {"broker": 4, "rack": "b"}, or {} for the next id
POST   /cluster/drain            {"broker": 2}: begins to move its replicas; GET / shows how far it is
POST   /cluster/remove_broker    {"broker": 2}: drains it, stops it, unregisters it
…      /brokers/2/faults         everything that one broker offers (docs/faults.md), for that broker
…      /faults, /topics, /groups, /requests, /clock, /reset, /report, /scenario, /registry   the same for all brokers
"""

from __future__ import annotations

import inspect
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.embedded.control import ControlServer, method_of, options_of
from ottla.http.requests import HttpError, HttpRequest
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.embedded import scenario
    from ottla.multibroker.cluster import Cluster
else:
    scenario = lazy("ottla.embedded.scenario")

VERBS: Final = (
    "kill",
    "stop",
    "start",
    "restart",
    "pause",
    "resume",
    "move_leader",
    "partition_network",
    "slow_link",
    "shrink_isr",
    "reassign",
    "skew_clock",
    "heal",
    "elect_preferred",
    "kill_controller",
    "stop_controller",
    "start_controller",
    "pause_controller",
    "resume_controller",
    "slow_controller",
    "add_broker",
    "drain",
    "remove_broker",
)


_OF_ALL: Final = ("faults", "topics", "groups", "requests", "clock", "reset", "report", "scenario", "registry")


def apply_verb(cluster: Cluster, verb: str, options: dict[str, Any]) -> Any:
    """Run a verb with its options by name, for HTTP and scenarios."""
    given = dict(options)
    sides = given.pop("sides", [])
    if "broker" in given:
        given["broker_id"] = given.pop("broker")
    if "controller" in given:
        given["name"] = given.pop("controller")
    method = getattr(cluster, verb)
    try:
        inspect.signature(method).bind(*sides, **given)
    except TypeError as error:
        shown = f"{verb}: {error}".replace("broker_id", "broker").replace("'name'", "'controller'")
        raise ValueError(shown) from None
    return method(*sides, **given)


class ClusterControlServer(ControlServer):
    """The HTTP control of a whole cluster."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        target: Any = cluster
        super().__init__(target, port)
        self._cluster = cluster

    async def _route(self, request: HttpRequest) -> Any:
        name = request.parts[0] if request.parts else ""
        if name == "":
            return self._cluster.describe()
        if name == "cluster":
            return await self._steer(request)
        if name == "brokers":
            return await self._one_broker(request)
        if name in _OF_ALL:
            return await super()._route(request)
        known = ", ".join(f"/{each}" for each in ("cluster", "brokers", *_OF_ALL))
        raise HttpError(404, f"a cluster has no /{name}; it has {known}")

    async def _steer(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        verb = request.parts[1] if len(request.parts) > 1 else ""
        if verb not in VERBS:
            raise HttpError(404, f"a cluster can {', '.join(VERBS)}")
        options = options_of(request)
        if verb == "drain":
            options.setdefault("wait", False)  # it may take a long time: the client polls the progress
        done = apply_verb(self._cluster, verb, options)
        if isawaitable(done):
            await done
        return self._cluster.describe()

    async def _scenario(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        return await self._cluster.run_scenario(scenario.parse(request.body.decode()))

    async def _one_broker(self, request: HttpRequest) -> Any:
        if len(request.parts) < 2:
            return self._cluster.describe()["brokers"]
        if not request.parts[1].isdigit():
            raise HttpError(404, f"{request.parts[1]!r} is not the number of a broker")
        broker = self._cluster.broker(int(request.parts[1]))
        return await ControlServer(broker, 0).route(
            request._replace(path="/" + "/".join(quote(part, safe="") for part in request.parts[2:]))
        )
