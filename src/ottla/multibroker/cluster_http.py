"""Steering a cluster over HTTP, beside what `ottla.embedded.control` offers for one broker.

GET    /                         brokers, leaders, in-sync replicas, what is wrong with the network
POST   /cluster/kill             {"broker": 2}; also stop, start, restart, pause, resume
POST   /cluster/move_leader      {"topic": "t", "partition": 0, "to": 3}
POST   /cluster/partition_network  {"sides": [[1], [2, 3]]}
POST   /cluster/slow_link        {"first": 1, "second": 2, "ms": 200}
POST   /cluster/shrink_isr       {"topic": "t", "partition": 0, "remove": [3]}
POST   /cluster/reassign         {"topic": "t", "partition": 0, "replicas": [2, 3]}; null calls a move back
POST   /cluster/heal | elect_preferred
…      /brokers/2/faults         whatever one broker offers (docs/faults.md), for that broker
…      /faults, /topics, /groups, /requests, /clock, /reset, /report, /scenario     the same for all brokers
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
    "heal",
    "elect_preferred",
)


_OF_ALL: Final = ("faults", "topics", "groups", "requests", "clock", "reset", "report", "scenario")


def apply_verb(cluster: Cluster, verb: str, options: dict[str, Any]) -> Any:
    """A verb with its options by name, as HTTP and scenarios have them."""
    given = dict(options)
    sides = given.pop("sides", [])
    if "broker" in given:
        given["broker_id"] = given.pop("broker")
    method = getattr(cluster, verb)
    try:
        inspect.signature(method).bind(*sides, **given)
    except TypeError as error:
        raise ValueError(f"{verb}: {error}".replace("broker_id", "broker")) from None
    return method(*sides, **given)


class ClusterControlServer(ControlServer):
    """The same few lines of HTTP for all brokers of a cluster."""

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
        raise HttpError(404, f"a cluster has no /{name}; there are {known}")

    async def _steer(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        verb = request.parts[1] if len(request.parts) > 1 else ""
        if verb not in VERBS:
            raise HttpError(404, f"a cluster can {', '.join(VERBS)}")
        done = apply_verb(self._cluster, verb, options_of(request))
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
