"""GetTelemetrySubscriptions and PushTelemetry."""

from __future__ import annotations

from ottla.enums import AnsweredBy
from ottla.errors import NONE
from ottla.server.api import OpenToAll, RequestContext, handles
from ottla.server.telemetry import CODECS, ClientTraits
from ottla.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ottla.wire.primitives import ZERO_UUID, uuid_to_base64


def _traits(ctx: RequestContext, instance_id: bytes) -> ClientTraits:
    connection = ctx.connection
    name, version = connection.client_software or ("", "")
    host, _, port = connection.peer.rpartition(":")
    return ClientTraits(uuid_to_base64(instance_id), ctx.client_id or "", name, version, host, port)


@handles(
    GetTelemetrySubscriptionsRequest,
    advertised=False,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=OpenToAll("clients report only about themselves"),
)
def get_telemetry_subscriptions(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """v0 (KIP-714): the metrics that a client should push, and how often; a client without an id gets one."""
    broker = ctx.services
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = broker.randomness.uuid()
    instance = broker.client_metrics.subscribe(instance_id, _traits(ctx, instance_id), broker.config)
    return GetTelemetrySubscriptionsResponse(
        error_code=NONE,
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(CODECS),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=broker.config["telemetry.max.bytes"],
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


@handles(
    PushTelemetryRequest,
    advertised=False,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=OpenToAll("clients report only about themselves"),
)
def push_telemetry(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """v0 (KIP-714): metrics in OTLP; they are checked, and then dropped because nothing collects them."""
    instance_id = request.client_instance_id
    ctx.services.client_metrics.push(
        instance_id,
        _traits(ctx, instance_id),
        ctx.services.config,
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        request.terminating,
    )
    return PushTelemetryResponse(error_code=NONE)
