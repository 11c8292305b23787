"""The configuration of each broker of a cluster: what they share, and what each has for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.config import Config, ConfigError, Listener
from ottla.config.broker import ALL_KEYS
from ottla.config.keys import to_text
from ottla.config.loading import Setting, unknown_warnings
from ottla.multibroker.controller import CONTROLLER_ID

BROKERS_MAX: Final = 32
_PORT_MAX: Final = 65535
_QUICK: Final = {
    # Kafka takes nine seconds to see that a broker is gone; a test need not.
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.lag.time.max.ms": 3000,
}


def defaults(brokers: int, preset: str | None) -> dict[str, object]:
    """What is different in a cluster of so many brokers; settings of the caller go before these."""
    factor = min(3, brokers)
    found: dict[str, object] = {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min(2, brokers),
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": min(2, brokers),
    }
    if preset not in (None, "kafka"):
        found["default.replication.factor"] = factor
    if preset == "test":
        found.update(_QUICK)
    return found


class Configs:
    """The configurations of the nodes, made from the one that they share."""

    def __init__(
        self,
        shared: Config,
        brokers: int,
        *,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
        racks: Sequence[str] | None = None,
        data: Path | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: a cluster has 1 to {BROKERS_MAX}")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"racks names {len(racks)} racks for {brokers} brokers; name one for each")
        self._own = broker_settings or {}
        unknown = sorted(set(self._own) - set(range(1, brokers + 1)))
        if unknown:
            raise ValueError(f"broker_settings names broker {unknown[0]}; there are 1 to {brokers}")
        self._racks = racks
        self._data = data
        # A preset is made for one broker; what somebody asked for stays.
        asked = {key for key in shared.static if not shared.origins.get(key, "").startswith("preset")}
        self._shared = shared.with_static(
            {key: value for key, value in defaults(brokers, shared.preset).items() if key not in asked}
        )
        self._stride = _stride([shared.listeners, self._advertised], brokers)

    @property
    def _advertised(self) -> Sequence[Listener]:
        return self._shared.advertised_listeners if "advertised.listeners" in self._shared.static else ()

    def of_controller(self) -> Config:
        return self._shared.with_static({"node.id": CONTROLLER_ID})

    def of_broker(self, number: int) -> Config:
        own: dict[str, object] = {
            "node.id": number,
            "listeners": _moved(self._shared.listeners, (number - 1) * self._stride),
        }
        if self._advertised:
            own["advertised.listeners"] = _moved(self._advertised, (number - 1) * self._stride)
        if self._data is not None:
            own["log.dirs"] = str(self._data / f"broker-{number}")
        if self._racks is not None:
            own["broker.rack"] = self._racks[number - 1]
        wanted = self._own.get(number, {})
        texts = {key: Setting(to_text(value), f"broker_settings of {number}") for key, value in wanted.items()}
        for warning in unknown_warnings(texts, ALL_KEYS):
            raise ValueError(warning)
        return self._shared.with_static({**own, **wanted})


def _stride(lists: Sequence[Sequence[Listener]], brokers: int) -> int:
    """How far the ports of one broker are from those of the next: as little as leaves all of them different."""
    fixed = [sorted(listener.port for listener in listeners if listener.port) for listeners in lists]
    stride = 1
    while not all(
        len({port + number * stride for port in ports for number in range(brokers)}) == len(set(ports)) * brokers
        for ports in fixed
    ):
        stride += 1
    highest = max((port for ports in fixed for port in ports), default=0) + (brokers - 1) * stride
    if highest > _PORT_MAX:
        raise ConfigError(
            f"the ports of {brokers} brokers would end at {highest}, and {_PORT_MAX} is the last; begin lower"
        )
    return stride


def _moved(listeners: Sequence[Listener], by: int) -> str:
    return ",".join(str(each._replace(port=each.port + by) if each.port else each) for each in listeners)
