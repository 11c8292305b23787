"""Client metrics (KIP-714)."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, array, boolean, int8, int16, int32, octets, string, uuid


class GetTelemetrySubscriptionsRequest(Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"):
    """A client with the zero id gets a new one (KIP-714)."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"):
    """Which metrics to push, how often, and with which codecs."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)


class PushTelemetryRequest(Message, key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """Metrics in OTLP, compressed or not (KIP-714)."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = octets()


class PushTelemetryResponse(Message, key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """Throttle time and an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
