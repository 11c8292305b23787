"""Ottla, Kafka's little sister: a broker in pure Python that speaks the Apache Kafka wire protocol.

`Broker` runs one on the running event loop. The names below are the public ones; everything else may change.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla import errors as errors
    from ottla.config import Config as Config
    from ottla.server.broker import Broker as Broker

__version__ = "0.1.0"
__all__ = ["Broker", "Config", "__version__", "errors"]

_HOMES = {"Broker": "ottla.server.broker", "Config": "ottla.config"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import ottla` alone costs nothing."""
    from importlib import import_module

    if name == "errors":
        return import_module("ottla.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
