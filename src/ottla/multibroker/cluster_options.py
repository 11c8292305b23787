"""The configuration of each broker of a cluster: the shared settings and the differences."""

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
CONTROLLER_PORTS_ABOVE: Final = 1000
"""The distance from the port of the first broker to that of the first controller. The cluster can grow in between."""
_QUICK: Final = {
    # Kafka takes nine seconds to notice that a broker is gone; a test need not wait that long.
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.lag.time.max.ms": 3000,
    # A controller is replaced within a second; Kafka takes two to four seconds.
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.fetch.timeout.ms": 500,
}


def defaults(brokers: int, preset: str | None) -> dict[str, object]:
    """The defaults of a cluster with this many brokers; settings of the caller override them."""
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
    """The configurations of the nodes, derived from the shared one."""

    def __init__(
        self,
        shared: Config,
        brokers: int,
        *,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
        racks: Sequence[str] | None = None,
        data: Sequence[Path] = (),
        controllers: int | None = None,
        combined: bool = False,
    ) -> None:
        """`combined` means that the first brokers are also the controllers."""
        _check_combined(brokers, controllers, combined)
        self._controllers = controllers
        self._combined = controllers or 0 if combined else 0
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: a cluster has 1 to {BROKERS_MAX}")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"racks names {len(racks)} racks for {brokers} brokers; name one for each")
        self._own = dict(broker_settings or {})
        unknown = sorted(set(self._own) - set(range(1, brokers + 1)))
        if unknown:
            raise ValueError(f"broker_settings names broker {unknown[0]}; the brokers are 1 to {brokers}")
        self._racks = dict(enumerate(racks or (), 1))
        self._folders = data
        # A preset is made for one broker; explicit settings stay.
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

    def add(self, number: int, rack: str | None, settings: Mapping[str, object] | None) -> None:
        """Add the configuration of one more broker."""
        if rack is not None:
            self._racks[number] = rack
        if settings:
            self._own[number] = settings

    def of_quorum_controller(self, number: int) -> Config:
        """Controllers listen 1000 ports above the first broker, or on free ones."""
        shared = self._shared
        name = shared["controller.listener.names"][0].upper()
        given = next((each for each in shared["listeners"] if each.upper().startswith(f"{name}://")), None)
        if given is not None:
            host, _, port = given.partition("://")[2].rpartition(":")
            first = int(port)
        else:
            host, first = shared.listeners[0].host, shared.listeners[0].port
            first = 0 if not first else first + CONTROLLER_PORTS_ABOVE
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        own: dict[str, object] = {
            "node.id": number if self._combined else CONTROLLER_ID + number,
            "process.roles": "controller",
            "listeners": f"{name}://{host}:{first + number - 1 if first else 0}",
        }
        if self._folders:
            own["log.dirs"] = str(self._folders[0] / f"controller-{number}")
        return shared.with_static(own, without=("advertised.listeners", "inter.broker.listener.name", "broker.rack"))

    def of_broker(self, number: int) -> Config:
        own: dict[str, object] = {
            "node.id": number,
            "listeners": _moved(self._shared.listeners, (number - 1) * self._stride),
        }
        if self._advertised:
            own["advertised.listeners"] = _moved(self._advertised, (number - 1) * self._stride)
        if self._folders:
            own["log.dirs"] = ",".join(str(folder / f"broker-{number}") for folder in self._folders)
        if self._controllers is not None:
            own["process.roles"] = "broker,controller" if number <= self._combined else "broker"
        if self._folders and number <= self._combined:
            own["metadata.log.dir"] = str(self._folders[0] / f"controller-{number}")
        if number in self._racks:
            own["broker.rack"] = self._racks[number]
        wanted = self._own.get(number, {})
        texts = {key: Setting(to_text(value), f"broker_settings of {number}") for key, value in wanted.items()}
        for warning in unknown_warnings(texts, ALL_KEYS):
            raise ValueError(warning)
        return self._shared.with_static({**own, **wanted})


def _check_combined(brokers: int, controllers: int | None, combined: bool) -> None:
    if combined and controllers is None:
        raise ConfigError("combined roles need a number of controllers: set controllers (--controllers) to 3, say")
    if combined and controllers is not None and controllers > brokers:
        raise ConfigError(
            f"combined roles: {controllers} controllers share their nodes with as many brokers, and there are {brokers}"
        )


def _stride(lists: Sequence[Sequence[Listener]], brokers: int) -> int:
    """The distance from the ports of one broker to those of the next: the smallest number that keeps all ports
    different.
    """
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
