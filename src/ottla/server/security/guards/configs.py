"""Guards of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

from ottla.enums import AclOperation, ConfigResourceType, ResourceType
from ottla.server.api import Api, RequestContext
from ottla.server.security.guards.parts import DENIED, Guard, GuardAnswer, handled

_KINDS: dict[int, ResourceType] = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}
"""Which ACLs guard the settings of a resource. The handler refuses unknown types."""


def _configs(operation: AclOperation, answers_of: str, result_name: str) -> Guard:
    def may(ctx: RequestContext, resource: Any) -> bool:
        kind = _KINDS.get(resource.resource_type)
        if kind is None:
            return True
        if kind is ResourceType.CLUSTER:
            return ctx.may(operation, kind)
        return ctx.may(operation, kind, resource.resource_name)

    def guard(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
        result = getattr(api.response, result_name)
        kept, denied = [], []
        for resource in request.resources:
            if may(ctx, resource):
                kept.append(resource)
                continue
            error = DENIED[_KINDS[resource.resource_type]]
            denied.append(
                result(
                    error_code=error.code,
                    error_message=error.default_message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        request.resources = kept
        if not denied:
            return api.handler(ctx, request)
        return handled(api, ctx, request, lambda response: getattr(response, answers_of).extend(denied))

    return guard


describe_configs = _configs(AclOperation.DESCRIBE_CONFIGS, "results", "DescribeConfigsResult")
alter_configs = _configs(AclOperation.ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse")
