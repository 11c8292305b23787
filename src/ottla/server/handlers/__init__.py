"""The handlers, one module a family. Importing a module registers its handlers."""

from __future__ import annotations

from importlib import import_module

_FAMILIES = (
    "versions",
    "metadata",
    "topics",
    "partitions",
    "records",
    "configs",
    "log_dirs",
    "quotas",
    "scram",
    "acls",
    "security",
    "features",
    "quorum",
    "telemetry",
    "produce",
    "fetch",
    "offsets_lookup",
    "producers",
    "coordinators",
    "groups",
    "offsets",
    "transactions",
    "streams_groups",
)


def load() -> None:
    """Import every family, so that its handlers are registered."""
    for family in _FAMILIES:
        import_module(f"{__name__}.{family}")
