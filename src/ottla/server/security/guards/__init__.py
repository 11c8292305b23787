"""The authorizer's guards: each protects an API with the permission that its handler declares.

With an authorizer the broker serves the registry that `guarded` returns; without one, this package is not imported. The
permissions of `server/api/permissions.py` become guards here. The guards that handlers name with `GuardedBy` are in the
other modules of this package, one per family of APIs.
"""

from __future__ import annotations

from typing import Any

from ottla.enums import AclOperation, ResourceType
from ottla.errors import ClusterAuthorizationFailed
from ottla.lazy_imports import import_late
from ottla.server.api import (
    Api,
    GuardedBy,
    Handler,
    OnCluster,
    OnEach,
    OnGroup,
    OnTransactionalId,
    Permission,
    Registry,
    RequestContext,
)
from ottla.server.security.guards.parts import DENIED, Allowed, Guard, GuardAnswer, need, on_topic_or_id, parted


def guarded(registry: Registry) -> Registry:
    """The same APIs, protected by their guards."""
    return registry.wrapped(_guarded)


def _guarded(api: Api) -> Handler:
    for permission in reversed(api.permissions):
        guard = guard_of(permission)
        if guard is not None:
            api = api.replace(handler=_before(api, guard))
    return api.handler


def _before(api: Api, guard: Guard) -> Handler:
    return lambda ctx, request: guard(api, ctx, request)


def guard_of(permission: Permission) -> Guard | None:
    """The guard that checks a permission before the handler runs; None if there is nothing to check, or the handler
    checks."""
    match permission:
        case OnCluster():
            return _on_cluster(permission)
        case OnGroup(operation):
            return _on_named(operation, ResourceType.GROUP, "group_id")
        case OnTransactionalId(operation):
            return _on_named(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")
        case OnEach():
            answers = permission.answers or permission.items
            return parted(permission.items, answers, _allowed(permission), DENIED[permission.resource])
        case GuardedBy():
            module, _, function = permission.function.partition(".")
            guard: Guard = getattr(import_late(f"{__name__}.{module}"), function)
            return guard
    return None


def _on_cluster(permission: OnCluster) -> Guard:
    operation, instead = permission

    def guard(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
        is_allowed_anyway = instead is not None and ctx.may(instead, ResourceType.CLUSTER, audit=False)
        if not is_allowed_anyway and not ctx.may(operation, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed()
        return api.handler(ctx, request)

    return guard


def _on_named(operation: AclOperation, kind: ResourceType, field: str) -> Guard:
    def guard(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
        name = getattr(request, field)
        if name is not None:
            need(ctx, operation, kind, name)
        return api.handler(ctx, request)

    return guard


def _allowed(permission: OnEach) -> Allowed:
    operation, kind, field = permission.operation, permission.resource, permission.name
    if permission.by_id:
        return on_topic_or_id(operation)
    if field:
        return lambda ctx, item: ctx.may(operation, kind, getattr(item, field))
    return lambda ctx, name: ctx.may(operation, kind, name)
