"""Client metrics (KIP-714): which client should push what, how often, and which pushes are accepted.

Nothing collects the metrics, so the two APIs are not advertised, as in Kafka without a reporter; a client that sends
them anyway gets a proper answer.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.rules import client_match
from ottla.enums import ConfigResourceType
from ottla.errors import (
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from ottla.re2_patterns import InvalidPattern, compile_pattern
from ottla.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config import Config
    from ottla.metadata.image import MetadataImage

INSTANCES_MAX = 16_384
"""The most clients that are remembered; the least recently seen is removed first."""

ALL_METRICS = "*"
CODECS = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: in the broker's order of preference."""


class ClientTraits(NamedTuple):
    """The properties by which a subscription can select clients, under the names in its patterns."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class ClientInstance:
    """One client at its last request."""

    __slots__ = (
        "image_version",
        "interval_ms",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "terminated",
    )

    def __init__(self) -> None:
        self.metrics: list[str] = []
        self.interval_ms = 0
        self.subscription_id = 0
        self.image_version = -1
        self.last_get_ms = float("-inf")
        self.last_push_ms = float("-inf")
        self.terminated = False


class ClientMetrics:
    """The clients that asked for their subscription, and what they were sent."""

    def __init__(self, image: MetadataImage, clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()

    def subscribe(self, instance_id: bytes, traits: ClientTraits, config: Config) -> ClientInstance:
        """The metrics that this client should push; a repeated request before the interval has passed is refused."""
        instance = self._instance(instance_id)
        now_ms = self._clock.monotonic_ms()
        changed = self._resolve(instance, instance_id, traits, config)
        if not changed and now_ms - instance.last_get_ms < instance.interval_ms:
            raise ThrottlingQuotaExceeded()
        instance.last_get_ms = now_ms
        return instance

    def push(
        self,
        instance_id: bytes,
        traits: ClientTraits,
        config: Config,
        subscription_id: int,
        codec: int,
        size_bytes: int,
        terminating: bool,
    ) -> None:
        """Accept a push, or raise its error."""
        if instance_id == ZERO_UUID:
            raise InvalidRequest()
        instance = self._instance(instance_id)
        self._resolve(instance, instance_id, traits, config)
        now_ms = self._clock.monotonic_ms()
        if instance.terminated:
            raise InvalidRequest()
        if not terminating and now_ms - instance.last_push_ms < instance.interval_ms:
            raise ThrottlingQuotaExceeded()
        instance.last_push_ms = now_ms
        if subscription_id != instance.subscription_id:
            raise UnknownSubscriptionId()
        if codec != 0 and codec not in CODECS:
            raise UnsupportedCompressionType()
        if size_bytes > config["telemetry.max.bytes"]:
            raise TelemetryTooLarge()
        instance.terminated = terminating

    def _instance(self, instance_id: bytes) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = ClientInstance()
            if len(self._instances) > INSTANCES_MAX:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        return instance

    def _resolve(self, instance: ClientInstance, instance_id: bytes, traits: ClientTraits, config: Config) -> bool:
        """Update the subscription from the configs; returns whether it changed."""
        if instance.image_version == self._image.version:
            return False
        instance.image_version = self._image.version
        metrics: set[str] = set()
        intervals: list[int] = []
        for (kind, _), overrides in self._image.configs.items():
            if kind == ConfigResourceType.CLIENT_METRICS:
                subscription = config.client_metrics(overrides)
                if _selects(subscription["match"], traits):
                    metrics.update(subscription["metrics"])
                    intervals.append(subscription["interval.ms"])
        instance.interval_ms = min(intervals) if intervals else config.client_metrics()["interval.ms"]
        instance.metrics = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        seed = "\0".join([*instance.metrics, str(instance.interval_ms)]).encode()
        previous, instance.subscription_id = instance.subscription_id, zlib.crc32(seed + instance_id) >> 1
        return previous != instance.subscription_id


def _selects(patterns: tuple[str, ...], traits: ClientTraits) -> bool:
    """Whether all patterns match. They run on RE2, because clients choose the text; a pattern that only Java supports
    (such as a look-ahead) selects nobody."""
    for pattern in patterns:
        name, expression = client_match(pattern)
        try:
            if not compile_pattern(expression).fullmatch(getattr(traits, name)):
                return False
        except InvalidPattern:
            return False
    return True
