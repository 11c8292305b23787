"""Limits on the number of connections, and on the rate of new ones.

At `max.connections` new connections wait in the kernel's queue until an old one closes; on the listener between brokers
they do not wait: the least active connection of another listener is closed instead. An address with more than
`max.connections.per.ip` is refused immediately; one above its rate quota is refused after a delay.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from ottla.config.rules import parse_ip_limits
from ottla.lazy_imports import lazy
from ottla.server.security.loglimit import RateLimitedLog
from ottla.server.security.rates import WindowedRate

if TYPE_CHECKING:
    from ottla.config import Config
    from ottla.metadata import quotas as quotas_module
    from ottla.server.net.listener import BoundListener
    from ottla.server.services import SecurityServices
else:
    quotas_module = lazy("ottla.metadata.quotas")

_ADDRESSES_MAX = 10_000
_UNLIMITED = (1 << 31) - 1
_RATE_KEY = "connection_creation_rate"


class ConnectionLimits:
    """Counts the connections of a broker and decides about new ones."""

    def __init__(self, services: SecurityServices) -> None:
        self._services = services
        self._log = RateLimitedLog(logging.getLogger(__name__), services.clock)
        self._total = 0
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._waiting: list[BoundListener] = []
        self._rates: dict[str, WindowedRate] = {}
        self._address_rates: dict[str, WindowedRate] = {}
        self._overrides: dict[str, int] = {}
        self._config: Config | None = None

    def admit(self, bound: BoundListener, sock: socket.socket, address: str) -> bool:
        """Count a new connection, or refuse it and close its socket now or a little later."""
        config = self._current()
        limit = self._overrides.get(address, config["max.connections.per.ip"])
        if self._by_address[address] >= limit:
            self._log.warning(address, "refused %s: %d connections (max.connections.per.ip)", address, limit)
            self._by_address += Counter()  # drops addresses without connections
            sock.close()
            return False
        wait_ms = self._address_wait_ms(address)
        if wait_ms > 0:
            self._log.warning(address, "refused %s: above its %s quota", address, _RATE_KEY)
            self._services.timer.schedule(wait_ms, sock.close)
            return False
        name = bound.config.name
        self._total += 1
        self._by_listener[name] += 1
        self._by_address[address] += 1
        if self._total > config["max.connections"] and self._is_protected(name, config):
            self._make_room(name)
        self._maybe_hold(bound, config, address)
        return True

    def _make_room(self, protected: str) -> None:
        others = (one for one in self._services.connections if one.listener.name != protected)
        victim = min(others, key=lambda one: one.last_active_ms, default=None)
        if victim is not None:
            victim.close(f"max.connections is reached, and a connection was needed on {protected}")

    def closed(self, listener: str, address: str) -> None:
        self._total -= 1
        self._by_listener[listener] -= 1
        left = self._by_address[address] - 1
        if left > 0:
            self._by_address[address] = left
        else:
            del self._by_address[address]
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            config = self._current()
            for bound in waiting:
                if self._is_full(bound, config):
                    self._waiting.append(bound)
                else:
                    bound.release()

    def _current(self) -> Config:
        config = self._services.config
        if config is not self._config:
            self._config = config
            self._overrides = _by_address(parse_ip_limits(config["max.connections.per.ip.overrides"]))
        return config

    def _is_full(self, bound: BoundListener, config: Config) -> bool:
        name = bound.config.name
        prefix = f"listener.name.{name.lower()}.max.connections"
        if prefix in config and self._by_listener[name] >= int(config[prefix]):
            return True
        return self._total >= config["max.connections"] and not self._is_protected(name, config)

    @staticmethod
    def _is_protected(name: str, config: Config) -> bool:
        """The listener between brokers is protected if there are other listeners."""
        return len(config.listeners) > 1 and name == config.inter_broker_listener

    def _maybe_hold(self, bound: BoundListener, config: Config, address: str) -> None:
        """Stop accepting at the limit, or while the rate of new connections is too high."""
        if self._is_full(bound, config):
            self._log.warning(
                "full",
                "%s is the last connection: no more are accepted on %s until one closes (max.connections)",
                address,
                bound.config,
            )
            bound.hold()
            self._waiting.append(bound)
            return
        name = bound.config.name
        own = f"listener.name.{name.lower()}.max.connection.creation.rate"
        wait_ms = max(
            self._wait_ms("", config["max.connection.creation.rate"]),
            self._wait_ms(name, int(config[own])) if own in config else 0,
        )
        if wait_ms > 0:
            self._log.warning(
                "rate",
                "new connections on %s wait, the last came from %s (max.connection.creation.rate)",
                bound.config,
                address,
            )
            bound.hold(wait_ms / 1000)

    def _wait_ms(self, key: str, limit: int) -> int:
        if limit >= _UNLIMITED:
            return 0
        now_ms = self._services.clock.monotonic_ms()
        rate = self._rates.setdefault(key, self._new_rate())
        rate.record(1, now_ms)
        return rate.excess_ms(max(limit, 1e-9), now_ms)

    def _address_wait_ms(self, address: str) -> int:
        quotas = self._services.metadata.quotas
        if not quotas:
            return 0
        values = quotas.get(((quotas_module.IP, address),)) or {}
        limit = values.get(_RATE_KEY)
        if limit is None:
            limit = (quotas.get(((quotas_module.IP, None),)) or {}).get(_RATE_KEY)
        if limit is None:
            return 0
        now_ms = self._services.clock.monotonic_ms()
        if len(self._address_rates) >= _ADDRESSES_MAX:
            self._address_rates.clear()
        rate = self._address_rates.setdefault(address, self._new_rate())
        rate.record(1, now_ms)
        wait_ms = rate.excess_ms(limit, now_ms)
        if wait_ms > 0:
            rate.record(-1, now_ms)  # refused, so it does not count
        return min(wait_ms, int(rate.window_ms))

    def _new_rate(self) -> WindowedRate:
        config = self._services.config
        return WindowedRate(config["quota.window.size.seconds"] * 1000, config["quota.window.num"])


def _by_address(limits: dict[str, int]) -> dict[str, int]:
    """Overrides may name hosts; they are resolved once, when they are set."""
    found: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                found[str(info[4][0])] = limit
        except OSError:
            found[host] = limit
    return found
