"""A broker inside tests: embedding, inspection, faults, virtual time. See docs/embedding.md and docs/faults.md.

The public names are here and in `ottla`; the modules are imported only when they are needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.embedded.broker import Broker as Broker
    from ottla.embedded.clock import VirtualClock as VirtualClock
    from ottla.embedded.fault_handle import FaultHandle as FaultHandle
    from ottla.embedded.faults import Fault as Fault
    from ottla.embedded.groups import Member as Member
    from ottla.embedded.matching import ANY as ANY
    from ottla.embedded.matching import approx as approx
    from ottla.embedded.records import Record as Record
    from ottla.embedded.registry_handle import AsyncRegistry as AsyncRegistry
    from ottla.embedded.registry_handle import RegistryHandle as RegistryHandle
    from ottla.embedded.stopped import BrokerStopped as BrokerStopped
    from ottla.embedded.topic_handle import TopicHandle as TopicHandle
    from ottla.embedded.unknown_names import NotFoundError as NotFoundError
    from ottla.registry.client import RegisteredSchema as RegisteredSchema
    from ottla.registry.errors import RegistryError as RegistryError
    from ottla.registry.options import RegistryOptions as RegistryOptions
    from ottla.server.request_log import Request as Request
    from ottla.testing.namespace import Kafka as Kafka
    from ottla.testing.plain_kafka import ExternalBroker as ExternalBroker
    from ottla.testing.protocols import BrokerHandle as BrokerHandle
    from ottla.testing.protocols import ClockHandle as ClockHandle
    from ottla.testing.protocols import FaultsHandle as FaultsHandle
    from ottla.testing.protocols import GroupHandle as GroupHandle
    from ottla.testing.replaying import replay_requests as replay_requests
    from ottla.testing.spawned import SpawnedBroker as SpawnedBroker
    from ottla.testing.spawned import spawn as spawn
    from ottla.testing.threaded import ServedBroker as ServedBroker
    from ottla.testing.threaded import serve as serve

_HOMES = {
    "TopicHandle": "ottla.embedded.topic_handle",
    "GroupHandle": "ottla.testing.protocols",
    "FaultsHandle": "ottla.testing.protocols",
    "FaultHandle": "ottla.embedded.fault_handle",
    "ClockHandle": "ottla.testing.protocols",
    "BrokerHandle": "ottla.testing.protocols",
    "ANY": "ottla.embedded.matching",
    "AsyncRegistry": "ottla.embedded.registry_handle",
    "RegistryHandle": "ottla.embedded.registry_handle",
    "RegisteredSchema": "ottla.registry.client",
    "RegistryError": "ottla.registry.errors",
    "RegistryOptions": "ottla.registry.options",
    "Broker": "ottla.embedded.broker",
    "BrokerStopped": "ottla.embedded.stopped",
    "ExternalBroker": "ottla.testing.plain_kafka",
    "Fault": "ottla.embedded.faults",
    "Kafka": "ottla.testing.namespace",
    "Member": "ottla.embedded.groups",
    "NotFoundError": "ottla.embedded.unknown_names",
    "Record": "ottla.embedded.records",
    "Request": "ottla.server.request_log",
    "ServedBroker": "ottla.testing.threaded",
    "SpawnedBroker": "ottla.testing.spawned",
    "VirtualClock": "ottla.embedded.clock",
    "approx": "ottla.embedded.matching",
    "replay_requests": "ottla.testing.replaying",
    "serve": "ottla.testing.threaded",
    "spawn": "ottla.testing.spawned",
}
__all__ = [
    "ANY",
    "AsyncRegistry",
    "Broker",
    "BrokerHandle",
    "BrokerStopped",
    "ClockHandle",
    "ExternalBroker",
    "Fault",
    "FaultHandle",
    "FaultsHandle",
    "GroupHandle",
    "Kafka",
    "Member",
    "NotFoundError",
    "Record",
    "RegisteredSchema",
    "RegistryError",
    "RegistryHandle",
    "RegistryOptions",
    "Request",
    "ServedBroker",
    "SpawnedBroker",
    "TopicHandle",
    "VirtualClock",
    "approx",
    "replay_requests",
    "serve",
    "spawn",
]


if not TYPE_CHECKING:  # otherwise type checkers would treat every misspelled name as Any

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used."""
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
