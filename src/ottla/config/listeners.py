"""`listeners` and related keys: the addresses that a broker binds, and those that it advertises to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.config.keys import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


class Listener(NamedTuple):
    """One address. An empty host means all interfaces; if advertised, the server picks its own name."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str, controller_names: Sequence[str] = (), *, is_default: bool = False) -> dict[str, str]:
    """listener.security.protocol.map as a dict.

    If it has its default value, controller listeners are PLAINTEXT, as in Kafka.
    """
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid security protocol `{protocol.strip()}` defined in listener.security.protocol.map "
                f"(entry '{entry}'; an entry is NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)})"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    if is_default:
        for name in controller_names:
            protocols.setdefault(name.upper(), "PLAINTEXT")
    return protocols


def parse_listeners(
    entries: Sequence[str], protocols: Mapping[str, str], *, key: str = "listeners", distinct_ports: bool = True
) -> list[Listener]:
    """`NAME://host:port` entries. Names must differ; ports too, unless they are 0 or one host is IPv4 and one IPv6."""
    shown = f"[{', '.join(entries)}]"
    listeners: list[Listener] = []
    for entry in entries:
        listener = _parse_listener(entry, protocols, f"Error creating broker listeners from '{shown}' in {key}")
        for other in listeners:
            if other.name == listener.name:
                raise ConfigError(f"{key}: Each listener must have a different name, listeners: {shown}")
            if distinct_ports and other.port == listener.port != 0 and not _two_families(other.host, listener.host):
                raise ConfigError(f"{key}: Each listener must have a different port, listeners: {shown}")
        listeners.append(listener)
    return listeners


def _parse_listener(entry: str, protocols: Mapping[str, str], context: str) -> Listener:
    name, separator, address = entry.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    if not (separator and colon and name and port.isdecimal()) or not _NAME_CHARACTERS.issuperset(name):
        raise ConfigError(f"{context}: Unable to parse {entry} to a broker endpoint (NAME://host:port)")
    if int(port) > 65535:
        raise ConfigError(f"{context}: port {port} of {entry} is not within 0 and 65535")
    name = name.upper()
    if name not in protocols:
        raise ConfigError(f"{context}: No security protocol defined for listener {name}")
    return Listener(name, host, int(port), protocols[name])


def _two_families(first: str, second: str) -> bool:
    return bool(first and second) and (":" in first) != (":" in second)
