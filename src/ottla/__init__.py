"""Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka wire protocol.

`Broker` runs a broker on the running event loop, `serve` in its own thread, `spawn` in a child process; `Cluster` runs
several brokers with replication. The names below and those of `ottla.testing` are public; everything else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla import errors as errors
    from ottla import testing as testing
    from ottla.config import Config as Config
    from ottla.embedded.broker import Broker as Broker
    from ottla.multibroker.cluster import Cluster as Cluster
    from ottla.testing.spawned import spawn as spawn
    from ottla.testing.threaded import serve as serve

__version__ = "0.1.0"
__all__ = ["Broker", "Cluster", "Config", "__version__", "errors", "serve", "spawn", "testing"]

_HOMES = {
    "Broker": "ottla.embedded.broker",
    "Cluster": "ottla.multibroker.cluster",
    "Config": "ottla.config",
    "serve": "ottla.testing.threaded",
    "spawn": "ottla.testing.spawned",
}
_MODULES = ("errors", "testing")


if not TYPE_CHECKING:  # a type checker would treat every misspelled name as Any

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: `import ottla` alone costs nothing."""
        if name in _MODULES:
            return import_module(f"ottla.{name}")
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
