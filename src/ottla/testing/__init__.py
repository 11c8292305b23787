"""A broker inside tests: embedding, looking inside, faults, time on demand. See docs/embedding.md and docs/faults.md.

What people use is here and in `ottla`; the modules below are not imported before they are needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker as Broker
    from ottla.testing.broker import BrokerStopped as BrokerStopped
    from ottla.testing.clock import VirtualClock as VirtualClock
    from ottla.testing.faults import Fault as Fault
    from ottla.testing.groups import Member as Member
    from ottla.testing.namespace import Kafka as Kafka
    from ottla.testing.plain_kafka import ExternalBroker as ExternalBroker
    from ottla.testing.records import Record as Record
    from ottla.testing.requests import Request as Request
    from ottla.testing.spawned import SpawnedBroker as SpawnedBroker
    from ottla.testing.spawned import spawn as spawn
    from ottla.testing.threaded import ServedBroker as ServedBroker
    from ottla.testing.threaded import serve as serve

_HOMES = {
    "Broker": "broker",
    "BrokerStopped": "broker",
    "ExternalBroker": "plain_kafka",
    "Fault": "faults",
    "Kafka": "namespace",
    "Member": "groups",
    "Record": "records",
    "Request": "requests",
    "ServedBroker": "threaded",
    "SpawnedBroker": "spawned",
    "VirtualClock": "clock",
    "serve": "threaded",
    "spawn": "spawned",
}
__all__ = [
    "Broker",
    "BrokerStopped",
    "ExternalBroker",
    "Fault",
    "Kafka",
    "Member",
    "Record",
    "Request",
    "ServedBroker",
    "SpawnedBroker",
    "VirtualClock",
    "serve",
    "spawn",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name in _HOMES:
        return getattr(import_module(f"ottla.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
