"""Streams groups (KIP-1071): loaded when the first one is met."""

from __future__ import annotations

from ottla.coordinator.streams.heartbeats import StreamsProtocol as Protocol
from ottla.coordinator.streams.records import KEY_TYPES, REPLAY

__all__ = ["KEY_TYPES", "REPLAY", "Protocol"]
