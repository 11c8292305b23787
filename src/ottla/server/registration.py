"""How a broker registers: the addresses that it advertises, and its record in the metadata."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

from ottla.config import Config
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.server.net.listener import BoundListener
from ottla.server.security.manager import SECURITY_PROTOCOLS
from ottla.wire.stored import metadata as stored

WILDCARDS = ("", "0.0.0.0", "::")

Advertised = tuple[str, str, int]
"""(listener, host, port) for clients; the host is "" for any address of this machine."""


def advertised_addresses(config: Config, listeners: Iterable[BoundListener]) -> list[Advertised]:
    """The addresses of the listeners. A listener on port 0 advertises the port that it got."""
    configured = {listener.name: listener for listener in config.advertised_listeners}
    addresses = []
    for bound in listeners:
        own = bound.config
        shown = configured.get(own.name, own)
        host = "" if shown.host in WILDCARDS else shown.host
        port = bound.port if shown.port == 0 or (shown is own or shown.port == own.port) else shown.port
        addresses.append((own.name, host, port))
    return addresses


def registration_record(
    broker_id: int,
    incarnation_id: bytes,
    epoch: int,
    config: Config,
    listeners: Iterable[BoundListener],
    advertised: Sequence[Advertised],
    log_dirs: list[bytes],
) -> stored.RegisterBrokerRecord:
    """The metadata record of a broker's start."""
    endpoint = stored.RegisterBrokerRecord.BrokerEndpoint
    protocols = {bound.config.name: bound.config.security_protocol for bound in listeners}
    feature = stored.RegisterBrokerRecord.BrokerFeature
    return stored.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=epoch,
        end_points=[
            endpoint(
                name=name,
                host=host or socket.gethostname(),
                port=port,
                security_protocol=SECURITY_PROTOCOLS[protocols[name]],
            )
            for name, host, port in advertised
        ],
        features=[
            feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=config["broker.rack"],
        fenced=False,
        log_dirs=log_dirs,
    )
