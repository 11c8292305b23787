"""Configs of topics, groups and client metrics: overrides on top of the broker's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ottla.config.keys import ConfigError, ConfigKey
from ottla.config.rules import check_client_metrics, check_group, check_topic
from ottla.config.topic_keys import CLIENT_METRICS_KEYS, GROUP_KEYS, GROUP_ORDER, TOPIC_KEYS, TOPIC_ORDER


class ResourceConfig:
    """The typed values of one resource. `overrides` holds the texts that were set for it."""

    __slots__ = ("overrides", "values")

    def __init__(self, values: dict[str, Any], overrides: dict[str, str]) -> None:
        self.values = values
        self.overrides = overrides

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)


class TopicConfig(ResourceConfig):
    """A topic's config. Immutable: a change creates a new object for every user of the topic's logs."""

    __slots__ = ()

    @property
    def segment_bytes(self) -> int:
        """The size at which a segment rolls. Kafka's internal key allows less than 1 MiB, unlike segment.bytes."""
        internal: int | None = self.values["internal.segment.bytes"]
        size: int = self.values["segment.bytes"] if internal is None else internal
        return size


class GroupConfig(ResourceConfig):
    """A group's config."""

    __slots__ = ()


class ClientMetricsConfig(ResourceConfig):
    """A client metrics subscription."""

    __slots__ = ()


class ResourceKind:
    """The differences between the three kinds."""

    __slots__ = ("_order", "check", "keys", "title")

    def __init__(
        self,
        title: str,
        keys: Mapping[str, ConfigKey],
        check: Callable[[Mapping[str, Any], Mapping[str, Any]], None],
        first: Iterable[str],
    ) -> None:
        """`first` has keys in the order in which Kafka defines and reads them. The others follow."""
        self._order = {name: place for place, name in enumerate(dict.fromkeys((*first, *keys)))}
        self.title = title
        self.keys = keys
        self.check = check

    def defaults(self, broker: Mapping[str, Any]) -> dict[str, Any]:
        """The values without overrides. The broker's values must be resolved, so that the first synonym counts."""
        return {key.name: broker[key.synonyms[0]] if key.synonyms else key.default for key in self.keys.values()}

    def values(self, defaults: Mapping[str, Any], overrides: Mapping[str, str], *, strict: bool) -> dict[str, Any]:
        values = dict(defaults)
        known = [name for name in overrides if name in self.keys]
        if strict:
            # Like Kafka, report names before values, and values in the order of the definitions.
            for name in overrides:
                if name not in self.keys:
                    raise ConfigError(f"{self.title}: {name}")
            known.sort(key=self._order.__getitem__)
        for name in known:
            values[name] = self.keys[name].parse(overrides[name])
        return values


TOPIC = ResourceKind("Unknown topic config name", TOPIC_KEYS, check_topic, TOPIC_ORDER)
GROUP = ResourceKind("Unknown group config name", GROUP_KEYS, check_group, GROUP_ORDER)
CLIENT_METRICS = ResourceKind(
    "Unknown client metrics configuration", CLIENT_METRICS_KEYS, check_client_metrics, ("metrics", "interval.ms")
)
