"""Replication throttles (KIP-73): replicas that catch up leave bandwidth to the others.

A topic setting lists the replicas (`leader.replication.throttled.replicas` for the senders, `follower.…` for
the fetchers), and a broker setting limits the rate. In-sync replicas are never throttled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.enums import ConfigResourceType
from ottla.server.security.rates import WindowedRate

if TYPE_CHECKING:
    from ottla.server.broker import Broker

LEADER, FOLLOWER = "leader", "follower"
ALL = "*"


class ReplicationThrottle:
    """One direction of one broker."""

    def __init__(self, broker: Broker, side: str) -> None:
        self._broker = broker
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        config = broker.config
        self._rate = WindowedRate(
            config["replication.quota.window.size.seconds"] * 1000, config["replication.quota.window.num"]
        )
        self._version = -1
        self._throttled: dict[str, tuple[str, ...]] = {}

    def concerns(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        image = self._broker.metadata
        if self._version != image.version:
            self._version = image.version
            self._throttled = {
                name: tuple(self._broker.config.topic(overrides)[self._replicas_key])
                for (kind, name), overrides in image.configs.items()
                if kind == ConfigResourceType.TOPIC and self._replicas_key in overrides
            }
        named = self._throttled.get(topic)
        return named is not None and (named == (ALL,) or f"{index}:{self._broker.node_id}" in named)

    @property
    def is_exceeded(self) -> bool:
        limit: int = self._broker.config[self._rate_key]
        return self._rate.measure(self._broker.clock.monotonic_ms())[0] > limit

    def record(self, byte_count: int) -> None:
        self._rate.record(byte_count, self._broker.clock.monotonic_ms())
