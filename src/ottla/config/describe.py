"""The content of DescribeConfigs for a resource, as plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.config import resources
from ottla.config.broker import ALL_KEYS, BROKER_KEYS, SYNONYMS
from ottla.config.keys import ConfigKey, format_value
from ottla.config.loading import base_key
from ottla.enums import ConfigSource, ConfigType

if TYPE_CHECKING:
    from ottla.config.broker import Config


@dataclass(slots=True)
class ConfigSynonym:
    """One layer that can set a value. The first one wins."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True)
class DescribedConfig:
    """One key of a resource. The value of a sensitive key is never shown."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    synonyms: tuple[ConfigSynonym, ...]
    key: ConfigKey | None

    @property
    def documentation(self) -> str | None:
        return None if self.key is None else self.key.doc


_RESOURCE_KINDS = {
    "topic": (resources.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "group": (resources.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
    "client-metrics": (resources.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
}


def describe(
    config: Config, resource: str, overrides: Mapping[str, str], names: Collection[str] | None
) -> list[DescribedConfig]:
    if resource == "broker":
        described = [_broker_entry(config, name) for name in _broker_names(config)]
    elif resource == "cluster":
        described = [_cluster_entry(config, name) for name in config.dynamic_cluster]
    else:
        kind, source = _RESOURCE_KINDS[resource]
        described = _resource_entries(config, kind, source, overrides)
    return described if names is None else [entry for entry in described if entry.name in names]


def _broker_names(config: Config) -> list[str]:
    """All keys except internal ones, and any other names that were set."""
    listed = {name: None for name, key in BROKER_KEYS.items() if not key.internal}
    for layer in (config.static, config.dynamic_cluster, config.dynamic_broker):
        listed.update(dict.fromkeys(layer))
    return list(listed)


def _broker_entry(config: Config, name: str) -> DescribedConfig:
    key = base_key(name, ALL_KEYS)
    synonyms = _broker_synonyms(config, name)
    # Only the key's own layers count: log.retention.ms is null if only log.retention.hours is set.
    own = next((synonym.value for synonym in synonyms if synonym.name == name), None)
    value = own if key is None or own is None else format_value(key.parse(own))
    return _entry(name, key, value, synonyms)


def _cluster_entry(config: Config, name: str) -> DescribedConfig:
    text = config.dynamic_cluster[name]
    key = base_key(name, ALL_KEYS)
    value = text if key is None else format_value(key.parse(text))
    return _entry(name, key, value, (ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),))


def _entry(name: str, key: ConfigKey | None, value: str | None, synonyms: tuple[ConfigSynonym, ...]) -> DescribedConfig:
    # An unknown key may be a secret of a plugin, so it is treated as sensitive.
    sensitive = key is None or key.sensitive
    if sensitive:
        synonyms = tuple(ConfigSynonym(synonym.name, None, synonym.source) for synonym in synonyms)
    return DescribedConfig(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=name not in ALL_KEYS or not ALL_KEYS[name].dynamic,
        sensitive=sensitive,
        type=ConfigType.UNKNOWN if key is None else key.type,
        synonyms=synonyms,
        key=key,
    )


def _related(name: str) -> tuple[str, ...]:
    """The names that Kafka treats as one value with this one."""
    for units in SYNONYMS.values():
        related = tuple(unit for unit, _ in units)
        # The flush scheduler interval is also a separate setting, so it has no synonyms.
        if name in related and name != "log.flush.scheduler.interval.ms":
            return related
    key = base_key(name, ALL_KEYS)
    # A setting for one listener falls back to the one for all listeners.
    return (name,) if key is None or key.name == name else (name, key.name)


def _broker_synonyms(config: Config, name: str) -> tuple[ConfigSynonym, ...]:
    """The layers from the first with this exact name on. Earlier ones belong to other keys."""
    related = _related(name)
    found = [
        ConfigSynonym(other, layer[other], source)
        for layer, source in (
            (config.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (config.dynamic_cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (config.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for other in related
        if other in layer
    ]
    for other in related:
        key = BROKER_KEYS.get(other)
        if key is not None and key.default is not None and not key.required:
            found.append(ConfigSynonym(other, format_value(key.default), ConfigSource.DEFAULT_CONFIG))
    start = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[start:])


def _resource_entries(
    config: Config, kind: resources.ResourceKind, source: ConfigSource, overrides: Mapping[str, str]
) -> list[DescribedConfig]:
    values = kind.values(kind.defaults(config.values), overrides, strict=False)
    entries: list[DescribedConfig] = []
    for name, key in kind.keys.items():
        if key.internal and name not in overrides:
            continue
        value = format_value(values[name])
        synonyms = _resource_synonyms(config, key, kind)
        if name in overrides:
            synonyms = (ConfigSynonym(name, value, source), *synonyms)
        entries.append(
            DescribedConfig(
                name=name,
                value=value,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                read_only=False,
                sensitive=False,
                type=key.type,
                synonyms=synonyms,
                key=key,
            )
        )
    return entries


def _resource_synonyms(config: Config, key: ConfigKey, kind: resources.ResourceKind) -> tuple[ConfigSynonym, ...]:
    if key.synonyms:
        return _broker_synonyms(config, key.synonyms[0])
    if kind is resources.GROUP:
        return (ConfigSynonym(key.name, format_value(key.default), ConfigSource.DEFAULT_CONFIG),)
    return ()
