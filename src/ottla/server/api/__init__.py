"""The APIs: how handlers declare them, the context of a request, and the registry of served APIs."""

from ottla.server.api.context import RequestContext
from ottla.server.api.declaration import Handler, handles
from ottla.server.api.permissions import (
    ChecksItself,
    GuardedBy,
    OnCluster,
    OnEach,
    OnGroup,
    OnTransactionalId,
    OpenToAll,
    Permission,
)
from ottla.server.api.registry import Api, Registry, registered_apis
from ottla.server.api.route import RUN_MAX, Repeated, Route

__all__ = [
    "RUN_MAX",
    "Api",
    "ChecksItself",
    "GuardedBy",
    "Handler",
    "OnCluster",
    "OnEach",
    "OnGroup",
    "OnTransactionalId",
    "OpenToAll",
    "Permission",
    "Registry",
    "Repeated",
    "RequestContext",
    "Route",
    "handles",
    "registered_apis",
]
