"""The services that handlers, coordinators and security use: each gets a small part of the broker.

A client's requests get the broker's own `Services`. Requests of other brokers, and requests that the controller answers
for another broker, get a copy with other members: see `for_peers`, `for_broker` and `at_controller`.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ottla.lazy_imports import lazy
from ottla.server.wakeups import Wakeups

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.clock import Clock, Timer
    from ottla.config import Config
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.runtime.loader import Loader
    from ottla.log.manager import LogManager
    from ottla.metadata.controller import Controller, Randomness
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.replication.replicas import Replicas
    from ottla.server import fetch_sessions as fetch_sessions_module
    from ottla.server import telemetry
    from ottla.server.api import Registry
    from ottla.server.coordinators import Coordinators
    from ottla.server.directory import Directory
    from ottla.server.fetch_sessions import FetchSessionCache
    from ottla.server.log_dirs import LogDirs
    from ottla.server.net.busy_poll import Pace
    from ottla.server.net.connections import Connections
    from ottla.server.peers import Channel
    from ottla.server.producer_ids import ProducerIds
    from ottla.server.security.authorizer import Authorizer
    from ottla.server.security.manager import Security
    from ottla.server.security.quotas import Quotas
    from ottla.server.share.manager import ShareGroups
    from ottla.server.telemetry import ClientMetrics
    from ottla.server.transactions import TransactionsOfBroker
else:
    fetch_sessions_module = lazy("ottla.server.fetch_sessions")
    telemetry = lazy("ottla.server.telemetry")


class CurrentConfig:
    """The broker's current settings; a change of dynamic settings replaces them."""

    __slots__ = ("config",)

    def __init__(self, config: Config) -> None:
        self.config = config


class Access:
    """The limits on a sender: ACLs and quotas. None means no limits."""

    __slots__ = ("authorizer", "quotas")

    def __init__(self, authorizer: Authorizer | None = None, quotas: Quotas | None = None) -> None:
        self.authorizer = authorizer
        self.quotas = quotas


class MadeLate:
    """Services that many brokers never use: each is created, and its module imported, when it is first used."""

    def __init__(self, current: CurrentConfig, metadata: MetadataImage, clock: Clock, randomness: Randomness) -> None:
        self._current = current
        self._metadata = metadata
        self._clock = clock
        self._randomness = randomness

    @cached_property
    def fetch_sessions(self) -> FetchSessionCache:
        slots = self._current.config["max.incremental.fetch.session.cache.slots"]
        return fetch_sessions_module.FetchSessionCache(slots, self._clock, self._randomness.randbelow)

    @cached_property
    def client_metrics(self) -> ClientMetrics:
        return telemetry.ClientMetrics(self._metadata, self._clock)


class SecurityServices(NamedTuple):
    """The parts of its broker that `Security` may use."""

    current: CurrentConfig
    metadata: MetadataImage
    access: Access
    """`Security` fills it."""
    connections: Connections
    clock: Clock
    timer: Timer
    loop: asyncio.AbstractEventLoop
    randomness: Randomness

    @property
    def config(self) -> Config:
        return self.current.config


class CoordinatorServices(NamedTuple):
    """The parts of their broker that the coordinators may use."""

    node_id: int
    current: CurrentConfig
    metadata: MetadataImage
    directory: Directory
    replicas: Replicas
    channel: Channel
    producer_ids: ProducerIds
    clock: Clock
    timer: Timer
    loop: asyncio.AbstractEventLoop
    randomness: Randomness
    loader: Callable[[], Loader]
    """Loads the coordinators' state from the logs, while clients are served."""
    pace: Pace | None
    """Set if the process only serves clients."""

    @property
    def config(self) -> Config:
        return self.current.config


class Services:
    """The parts of its broker that a handler may use (`ctx.services`)."""

    __slots__ = (
        "_current",
        "_late",
        "access",
        "clock",
        "cluster_id",
        "controller",
        "controller_id",
        "coordinators",
        "directory",
        "fetch_bytes_max",
        "log_dirs",
        "logs",
        "loop",
        "metadata",
        "metadata_log",
        "node_id",
        "producer_ids",
        "randomness",
        "registry",
        "replicas",
        "request_bytes_max",
        "security",
        "timer",
        "wakeups",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        controller_id: int,
        current: CurrentConfig,
        late: MadeLate,
        registry: Registry,
        metadata: MetadataImage,
        metadata_log: MetadataSource,
        controller: Controller,
        directory: Directory,
        replicas: Replicas,
        logs: LogManager,
        log_dirs: LogDirs | None,
        coordinators: Coordinators,
        producer_ids: ProducerIds,
        security: Security,
        access: Access,
        clock: Clock,
        timer: Timer,
        loop: asyncio.AbstractEventLoop,
        randomness: Randomness,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self._current = current
        self._late = late
        self.registry = registry
        self.metadata = metadata
        self.metadata_log = metadata_log
        self.controller = controller
        self.directory = directory
        self.replicas = replicas
        self.logs = logs
        self.log_dirs = log_dirs
        """Set if there are several data folders."""
        self.coordinators = coordinators
        self.producer_ids = producer_ids
        self.security = security
        self.access = access
        self.clock = clock
        self.timer = timer
        self.loop = loop
        self.wakeups = Wakeups(loop.call_soon)
        self.randomness = randomness
        self.fetch_bytes_max: int = current.config["fetch.max.bytes"]
        self.request_bytes_max: int = current.config["socket.request.max.bytes"]

    @property
    def config(self) -> Config:
        return self._current.config

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the one that writes the metadata."""
        return self.node_id == self.controller_id

    @property
    def authorizer(self) -> Authorizer | None:
        return self.access.authorizer

    @property
    def quotas(self) -> Quotas | None:
        return self.access.quotas

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.groups.coordinator

    @property
    def transactions(self) -> TransactionsOfBroker:
        return self.coordinators.transactions

    @property
    def share(self) -> ShareGroups:
        return self.coordinators.share

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        return self._late.fetch_sessions

    @property
    def client_metrics(self) -> ClientMetrics:
        return self._late.client_metrics

    # -- for senders other than this broker's clients ---------------------------------------------------------

    def for_peers(self) -> Services:
        """For requests of other brokers, without ACLs and quotas."""
        other = copy(self)
        other.access = Access()
        return other

    def for_broker(self, node_id: int) -> Services:
        """For the clients of another broker whose request was forwarded here."""
        other = copy(self)
        other.node_id = node_id
        return other

    def at_controller(
        self,
        controller_id: int,
        controller: Controller,
        metadata: MetadataImage,
        metadata_log: MetadataSource,
        quotas: Quotas | None,
    ) -> Services:
        """For requests that a separate controller answers, with its own view of the cluster."""
        other = copy(self)
        other.controller_id = controller_id
        other.controller = controller
        other.metadata = metadata
        other.metadata_log = metadata_log
        other.access = Access(self.access.authorizer, quotas)
        return other
