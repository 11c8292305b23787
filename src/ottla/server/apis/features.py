"""UpdateFeatures. The answer to ApiVersions lists the supported and the finalized features."""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy, FeatureUpgradeType
from ottla.errors import NONE
from ottla.metadata.features import FeatureUpdate, plan_updates
from ottla.metadata.image import KRAFT_VERSION
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.wire.messages.quorum import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(
    UpdateFeaturesRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
)
def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """v0–v2 (KIP-584).

    v0 cannot downgrade; v1 the kind of update, and validate only; v2 no results per feature. All updates apply, or
    none.
    """
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            # Kafka 4.3 reads only the kind of update, which v0 does not have: the flag for downgrades in v0 has no
            # effect.
            update.upgrade_type if ctx.version >= 1 else FeatureUpgradeType.UPGRADE,
        )
        for update in request.feature_updates
    ]
    config = ctx.services.config
    records = plan_updates(ctx.services.metadata, ctx.services.node_id, updates, config["min.insync.replicas"])
    if not request.validate_only:
        if any(update.name == KRAFT_VERSION and update.level == 1 for update in updates):
            ctx.services.metadata_log.upgrade_kraft_version()
        ctx.services.controller.commit(records)
    return UpdateFeaturesResponse(
        error_code=NONE,
        error_message=None,
        results=[
            # Kafka sends this text instead of a null.
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.name, error_code=NONE, error_message="NONE")
            for update in updates
        ]
        if ctx.version <= 1
        else [],
    )
