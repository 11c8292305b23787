"""All requests and responses. A name, or a key of REQUESTS and RESPONSES, imports only the module that defines it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ..schema import Message

if TYPE_CHECKING:
    from .fetch import *  # noqa: F403
    from .metadata import *  # noqa: F403
    from .produce import *  # noqa: F403

# module -> the APIs it defines, with their keys
FAMILIES: Final[dict[str, dict[str, int]]] = {
    "produce": {"Produce": 0},
    "fetch": {"Fetch": 1, "ListOffsets": 2, "OffsetForLeaderEpoch": 23},
    "metadata": {
        "Metadata": 3,
        "FindCoordinator": 10,
        "ApiVersions": 18,
        "DescribeCluster": 60,
        "DescribeTopicPartitions": 75,
    },
}

API_NAMES: Final[dict[int, str]] = {key: name for apis in FAMILIES.values() for name, key in apis.items()}
_MODULES: Final[dict[str, str]] = {name: module for module, apis in FAMILIES.items() for name in apis}


class _Registry(Mapping[int, type[Message]]):
    """API key -> message class, imported when asked for."""

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
    return import_module(f"{__name__}.{_MODULES[name]}")


REQUESTS: Final[Mapping[int, type[Message]]] = _Registry("Request")
RESPONSES: Final[Mapping[int, type[Message]]] = _Registry("Response")


def __getattr__(name: str) -> Any:
    for suffix in ("Request", "Response"):
        stem = name.removesuffix(suffix)
        if stem != name and stem in _MODULES:
            found = getattr(_family(stem), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
