"""All requests and responses. A name, or a key of REQUESTS and RESPONSES, imports only the module that defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.api_table import APIS
from ottla.lazy_imports import import_late

from ..schema import Message

if TYPE_CHECKING:
    from .brokers import *  # noqa: F403
    from .configs import *  # noqa: F403
    from .consumer_groups import *  # noqa: F403
    from .consumer_protocol import *  # noqa: F403
    from .fetch import *  # noqa: F403
    from .groups import *  # noqa: F403
    from .log_dirs import *  # noqa: F403
    from .metadata import *  # noqa: F403
    from .offsets import *  # noqa: F403
    from .partitions import *  # noqa: F403
    from .produce import *  # noqa: F403
    from .quorum import *  # noqa: F403
    from .quotas import *  # noqa: F403
    from .security import *  # noqa: F403
    from .share_groups import *  # noqa: F403
    from .share_state import *  # noqa: F403
    from .streams_groups import *  # noqa: F403
    from .telemetry import *  # noqa: F403
    from .topics import *  # noqa: F403
    from .transactions import *  # noqa: F403

API_NAMES: Final[dict[int, str]] = {key: row.name for key, row in APIS.items()}
_MODULES: Final[dict[str, str]] = {row.name: row.messages for row in APIS.values()}

# Messages that are embedded in others.
EMBEDDED: Final[dict[str, str]] = {
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "DefaultPrincipalData": "brokers",
}


class _Registry(Mapping[int, type[Message]]):
    """API key -> message class, imported on first use."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: dict[int, type[Message]] = {}

    def __getitem__(self, api_key: int) -> type[Message]:
        found = self._found.get(api_key)
        if found is None:
            name = API_NAMES[api_key]
            found = self._found[api_key] = getattr(_family(name), name + self._suffix)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(API_NAMES))

    def __len__(self) -> int:
        return len(API_NAMES)

    def __contains__(self, api_key: object) -> bool:
        return api_key in API_NAMES


def _family(name: str) -> Any:
    return import_late(f"{__name__}.{_MODULES[name]}")


REQUESTS: Final[Mapping[int, type[Message]]] = _Registry("Request")
RESPONSES: Final[Mapping[int, type[Message]]] = _Registry("Response")


def __getattr__(name: str) -> Any:
    stem = name.removesuffix("Request").removesuffix("Response")
    module = EMBEDDED.get(name) or (_MODULES.get(stem) if stem != name else None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_late(f"{__name__}.{module}"), name)
    return found
