"""The messages in Kafka's own logs. A name imports the module that defines it, on first use.

`OFFSETS_TOPIC`, `TRANSACTION_TOPIC` and `SHARE_STATE_TOPIC` hold the record types of the coordinators' topics, and
`METADATA_RECORDS` those of the cluster metadata log.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import import_late

from ..schema import Message
from .coding import (
    CoordinatorRecords,
    UnknownRecordType,
    decode_metadata_record,
    decode_versioned,
    encode_metadata_record,
    encode_versioned,
    peek_int16,
)

if TYPE_CHECKING:
    from .control import *  # noqa: F403
    from .groups import *  # noqa: F403
    from .metadata import *  # noqa: F403
    from .share_groups import *  # noqa: F403
    from .streams_groups import *  # noqa: F403
    from .transactions import *  # noqa: F403

    OFFSETS_TOPIC: CoordinatorRecords
    TRANSACTION_TOPIC: CoordinatorRecords
    SHARE_STATE_TOPIC: CoordinatorRecords
    METADATA_RECORDS: Mapping[int, type[Message]]

MODULES: Final = ("transactions", "control", "metadata", "groups", "share_groups", "streams_groups")

__all__ = [
    "CoordinatorRecords",
    "UnknownRecordType",
    "decode_metadata_record",
    "decode_versioned",
    "encode_metadata_record",
    "encode_versioned",
    "peek_int16",
]


def _module(name: str) -> ModuleType:
    return import_late(f"{__name__}.{name}")


def _messages(*modules: str) -> list[type[Message]]:
    """The message classes that these modules define."""
    return [
        value
        for name in modules
        for value in vars(_module(name)).values()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ]


def _registry(name: str) -> Any:
    if name == "OFFSETS_TOPIC":
        found = _messages("groups", "share_groups", "streams_groups")
        return CoordinatorRecords(cls for cls in found if not cls.__name__.startswith(("ShareSnapshot", "ShareUpdate")))
    if name == "SHARE_STATE_TOPIC":
        found = _messages("share_groups")
        return CoordinatorRecords(cls for cls in found if cls.__name__.startswith(("ShareSnapshot", "ShareUpdate")))
    if name == "TRANSACTION_TOPIC":
        return CoordinatorRecords(_messages("transactions"))
    if name == "METADATA_RECORDS":
        return {cls.API_KEY: cls for cls in _messages("metadata")}
    return None


def __getattr__(name: str) -> Any:
    found = _registry(name)
    if found is None and name[0].isupper():
        for module in MODULES:
            found = getattr(_module(module), name, None)
            if found is not None:
                break
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
