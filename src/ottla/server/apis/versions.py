"""ApiVersions: the APIs of this broker, and the features of its cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.enums import AnsweredBy
from ottla.errors import InvalidRequest, UnsupportedVersion
from ottla.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from ottla.metadata.java_hash_order import java_map, java_names
from ottla.metadata.topics import java_hash
from ottla.server.api import OpenToAll, Registry, RequestContext, handles
from ottla.wire.interpreting import interpreting_item_encoder
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"
"""Names and versions of client software become metric names, so Kafka allows few characters (KIP-511)."""


def _finalized_order(names: Iterable[str]) -> list[str]:
    """In the order of Kafka's map, which is exactly large enough; metadata.version is added last."""
    return java_map(sorted(names, key=lambda name: (name == METADATA_VERSION, name)), java_hash, 1)


@handles(
    ApiVersionsRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OpenToAll("it comes before authentication"),
)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """v0–v4. v3 added the client's software (KIP-511) and the features (KIP-584); v4 shows features that start at 0.

    A request with an unknown, newer version still gets an answer (`request` is None then): v0, with
    the error and only ApiVersions in the list, so that the client can retry with a known version.
    """
    apis = ctx.services.registry.apis
    if request is None:
        own = apis[ApiVersionsRequest.API_KEY]
        return ApiVersionsResponse(
            error_code=UnsupportedVersion.code,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=own.key, min_version=own.min_version, max_version=own.max_version
                )
            ],
        )
    if ctx.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not re.fullmatch(_SOFTWARE, name) or not re.fullmatch(_SOFTWARE, version):
            return ApiVersionsResponse(error_code=InvalidRequest.code)
        ctx.connection.client_software = (name, version)
    image = ctx.services.metadata
    return ApiVersionsResponse(
        api_keys=[*_advertised(ctx.services.registry, ctx.version)],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in ((name, SUPPORTED_FEATURES[name]) for name in java_names(SUPPORTED_FEATURES))
            if low > 0 or ctx.version >= 4
        ],
        finalized_features_epoch=ctx.services.metadata_log.last_offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, image.features[name]) for name in _finalized_order(image.features))
        ],
    )


def _advertised(registry: Registry, version: int) -> list[bytes]:
    """An entry for each API; it is encoded only once, so the codec is not compiled."""
    entries = registry.advertised.get(version)
    if entries is None:
        entry = ApiVersionsResponse.ApiVersion
        encode = interpreting_item_encoder(entry, version)
        entries = registry.advertised[version] = []
        for api in registry.apis.values():
            if api.advertised:
                parts: list[bytes] = []
                encode(entry(api_key=api.key, min_version=api.min_version, max_version=api.max_version), parts)
                entries.append(b"".join(parts))
    return entries
