"""Scenarios on a cluster: the steps of a scenario on one broker, plus the verbs of a cluster.

    steps:
      - error: {api: Produce, error: NOT_LEADER_OR_FOLLOWER, broker: 2}
      - kill: 2
      - wait_in_sync: {topic: orders}
      - partition_network: [[1], [2, 3]]
      - move_leader: {topic: orders, partition: 0, to: 3}

Faults apply to all brokers unless `broker` selects one.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.embedded.scenario import Run, Scenario, run_steps
from ottla.multibroker.cluster_http import VERBS, apply_verb

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.embedded.faults import Fault
    from ottla.multibroker.cluster import Cluster

_OF_ONE_BROKER = ("down", "up", "kill", "restart")
_NAMED_BY_VALUE = {"wait_in_sync": "topic", "partition_network": "sides"}
"""The option that a plain value of a step sets; otherwise it is a broker's number or a controller's name."""


class ClusterRun(Run):
    """A running scenario on a cluster."""

    VERBS: ClassVar[Collection[str]] = (
        *(verb for verb in Run.VERBS if verb not in _OF_ONE_BROKER),
        *VERBS,
        "wait_in_sync",
    )

    def __init__(self, cluster: Cluster) -> None:
        embedded: Any = cluster
        super().__init__(embedded)
        self.cluster = cluster

    async def step(self, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        if "" in options and verb in (*VERBS, "wait_in_sync"):
            kind = "controller" if verb.endswith("_controller") else "broker"
            options = {_NAMED_BY_VALUE.get(verb, kind): options[""]}
        if verb == "wait_in_sync":
            await self.cluster.wait_in_sync(**options)
            return {}
        if verb in VERBS:
            done = apply_verb(self.cluster, verb, options)
            if isawaitable(done):
                await done
            return {}
        return await super().step(verb, options)

    async def clear(self, options: dict[str, Any]) -> None:
        self.cluster.faults.clear()
        for broker in self.cluster.brokers.values():
            broker.faults.clear()

    def new_fault(self, kind: str, options: dict[str, Any]) -> Fault:
        number = options.pop("broker", None)
        faults = self.cluster.faults if number is None else self.cluster.broker(number).faults
        return faults.apply(kind, **options)


async def run_on_cluster(cluster: Cluster, scenario: Scenario) -> list[dict[str, Any]]:
    """Run a scenario on the cluster's loop."""
    return await run_steps(ClusterRun(cluster), scenario)
