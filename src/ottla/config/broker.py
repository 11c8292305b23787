"""The broker's configuration: layers of settings, resolved once into a dict of typed values.

From weak to strong: the table's defaults, the static settings (preset, file, environment, command line), dynamic
settings for the whole cluster, dynamic settings for this broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from ottla.config import resources
from ottla.config.broker_keys import DYNAMIC_ONLY_KEYS, SERVER_KEYS
from ottla.config.coordinator_keys import COORDINATOR_KEYS
from ottla.config.keys import CLUSTER_WIDE, READ_ONLY, ChangeRefused, ConfigError, ConfigKey, to_text
from ottla.config.listeners import Listener, parse_listeners, parse_protocol_map
from ottla.config.loading import LISTENER_PREFIX, SHOW_NEW_TOPICS_AT_ONCE, Setting, base_key, collect, unknown_warnings
from ottla.config.rules import check_broker
from ottla.config.security_keys import SECURITY_KEYS
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.config import describe
    from ottla.config.describe import DescribedConfig
else:
    describe = lazy("ottla.config.describe")

BROKER_KEYS: Mapping[str, ConfigKey] = {**SERVER_KEYS, **COORDINATOR_KEYS, **SECURITY_KEYS}
ALL_KEYS: Mapping[str, ConfigKey] = {**BROKER_KEYS, **DYNAMIC_ONLY_KEYS}

# One value in several units: the first one that is set wins. Kafka shows them as synonyms.
SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "log.roll.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "log.roll.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "log.flush.interval.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}

_SECURITY_PER_LISTENER = frozenset(
    f"ssl.{name}"
    for name in (
        *("keystore.type", "keystore.location", "keystore.password", "key.password", "keystore.key"),
        *("keystore.certificate.chain", "truststore.type", "truststore.location", "truststore.password"),
        "truststore.certificates",
    )
)
_REPORTERS = "metric.reporters"
_CLEANER_THREADS = "log.cleaner.threads"
_THREAD_COUNTS = (
    *("num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"),
    *(_CLEANER_THREADS, "background.threads"),
)

_CLUSTER_WIDE_PER_LISTENER = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""The only listener settings that Kafka allows to be set for all brokers."""

_DEFAULTS = {key.name: key.default for key in ALL_KEYS.values()}


class Config:
    """A validated configuration. It never changes: `with_dynamic` creates another one."""

    __slots__ = (
        "_advertised",
        "_listeners",
        "_topic_defaults",
        "_values",
        "dynamic_broker",
        "dynamic_cluster",
        "origins",
        "preset",
        "static",
        "warnings",
    )

    def __init__(
        self,
        static: Mapping[str, str] = {},
        dynamic_cluster: Mapping[str, str] = {},
        dynamic_broker: Mapping[str, str] = {},
        *,
        origins: Mapping[str, str] = {},
        warnings: tuple[str, ...] = (),
        preset: str | None = None,
    ) -> None:
        self.preset = preset  # the layer below the static settings; None to use these as they are
        self.origins = origins  # the source of each static setting, for messages
        self.warnings = warnings  # one line each, logged once the log exists
        self.static = _with_identity(static)
        self.dynamic_cluster = dict(dynamic_cluster)
        self.dynamic_broker = dict(dynamic_broker)
        self._values = self._resolve()
        self._topic_defaults = resources.TOPIC.defaults(self._values)
        self._listeners, self._advertised = self._parse_listeners()
        self._check_named_listeners()
        check_broker(self._values)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str] | None = None,
        overrides: Mapping[str, object] = {},
        environ: Mapping[str, str] = {},
        preset: str | None = None,
        *,
        origin: str = "--set",
    ) -> Config:
        """Read all static settings. Without a file, the preset is `dev` unless another is given; with a file, there is
        none unless one is given. Errors name `origin` as the source of the overrides."""
        file = None if path is None else str(path)
        if preset is None and file is None:
            preset = "dev"
        settings, warnings = collect(file, overrides, environ, preset, ALL_KEYS, origin)
        for name in DYNAMIC_ONLY_KEYS:
            if settings.pop(name, None) is not None:
                warnings.append(f"'{name}' is ignored: it can only be set dynamically")
        return cls._of(settings, [*warnings, *unknown_warnings(settings, ALL_KEYS)], preset)

    @classmethod
    def _of(cls, settings: Mapping[str, Setting], warnings: list[str], preset: str | None) -> Config:
        return cls(
            {name: setting.text for name, setting in settings.items()},
            origins={name: setting.origin for name, setting in settings.items()},
            warnings=tuple(warnings),
            preset=preset,
        )

    # Values -----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @property
    def values(self) -> Mapping[str, Any]:
        """All typed values, resolved: a look-up costs no more than in a dict."""
        return self._values

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def for_listener(self, listener: str, name: str, mechanism: str = "") -> Any:
        """A value that a listener or its SASL mechanism may override: listener.name.<name>.[mechanism.]<key>."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        values = self._values
        if mechanism and (own := f"{prefix}{mechanism.lower()}.{name}") in values:
            return values[own]
        own = prefix + name
        return values[own] if own in values else values[name]

    @property
    def node_id(self) -> int:
        node_id: int = self._values["node.id"]
        return node_id

    @property
    def log_dirs(self) -> tuple[str, ...]:
        log_dirs: tuple[str, ...] = self._values["log.dirs"]
        return log_dirs

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients connect to. A KRaft controller's listeners are left out: Ottla has no separate
        controller."""
        return self._listeners

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses that clients get; an empty host or port 0 is filled in by the server once it is bound."""
        return self._advertised

    @property
    def shows_new_topics_at_once(self) -> bool:
        """Whether the request that creates a topic already returns it, instead of only the next one."""
        return self.preset in SHOW_NEW_TOPICS_AT_ONCE

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that other brokers use; by default the first one."""
        name: str | None = self._values["inter.broker.listener.name"]
        if name is None and "security.inter.broker.protocol" in self.static:
            name = self._values["security.inter.broker.protocol"]
        return self._listeners[0].name if name is None else name.upper()

    # Layers -----------------------------------------------------------------------------------------------------------

    def with_dynamic(self, cluster: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None) -> Config:
        """The same static settings with new dynamic ones; a layer that is not given stays."""
        return Config(
            self.static,
            self.dynamic_cluster if cluster is None else cluster,
            self.dynamic_broker if broker is None else broker,
            origins=self.origins,
            warnings=self.warnings,
            preset=self.preset,
        )

    def with_static(self, overrides: Mapping[str, object], *, without: Collection[str] = ()) -> Config:
        """A copy with some static settings replaced, for example by a test that needs port 0, and some removed."""
        texts = {name: to_text(value) for name, value in overrides.items()}
        static = {name: text for name, text in self.static.items() if name not in ("node.id", "broker.id", *without)}
        if "node.id" not in texts and "broker.id" not in texts:
            static["node.id"] = self.static["node.id"]
        return Config(
            {**static, **texts},
            self.dynamic_cluster,
            self.dynamic_broker,
            origins={**self.origins, **dict.fromkeys(texts, "overrides")},
            warnings=self.warnings,
            preset=self.preset,
        )

    def validate_dynamic(self, layer: Mapping[str, str], *, per_broker: bool, changed: Collection[str] = ()) -> Config:
        """Check a whole new dynamic layer as AlterConfigs does, and return the resulting Config.

        `changed` lists the keys that the request changes (the whole layer if empty). Errors have Kafka's messages.
        """
        names = sorted(changed or layer)
        fixed = [name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].mode == READ_ONLY]
        if fixed:
            raise ConfigError(f"Cannot update these configs dynamically: {_java_set(fixed)}")
        bare = [name for name in names if name in _SECURITY_PER_LISTENER]
        if bare:
            raise ConfigError(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                + _java_set(bare)
            )
        if not per_broker:
            local = [name for name in names if not _is_cluster_wide(name)]
            if local:
                raise ConfigError(
                    "Cannot update these configs at default cluster level, broker id must be specified: "
                    + _java_set(local)
                )
        proposed = self.with_dynamic(broker=layer) if per_broker else self.with_dynamic(cluster=layer)
        for name in _THREAD_COUNTS:
            self._check_thread_count(name, proposed[name])
        self._check_reporters(proposed)
        return proposed

    def _check_reporters(self, proposed: Config) -> None:
        """Kafka refuses reporters whose class it cannot load. Here that is every one except the default."""
        loadable = {*self._values[_REPORTERS], *_DEFAULTS[_REPORTERS]}
        if not loadable.issuperset(proposed[_REPORTERS]):
            raise ChangeRefused(
                f"Validation of dynamic config update of Set({_REPORTERS}) failed "
                "with class class kafka.server.DynamicMetricsReporters"
            )

    def _check_thread_count(self, name: str, count: int) -> None:
        """Kafka changes its thread pools by at most a factor of two at a time."""
        current = self._values[name]
        if count == current or not current:
            return
        if current // 2 <= count <= current * 2:
            return
        grows = count > current
        if name == _CLEANER_THREADS:
            # The cleaner checks its own threads, with a different message.
            limit = "increased to more than double" if grows else "reduced to less than half"
            raise ChangeRefused(f"Log cleaner threads cannot be {limit} the current value {current}")
        limit = "not be greater than double" if grows else "be at least half"
        raise ChangeRefused(
            f"Dynamic thread count update validation failed for {name}={count}, "
            f"value should {limit} the current value {current}"
        )

    # Topics, groups, client metrics -----------------------------------------------------------------------------------

    def topic(self, overrides: Mapping[str, str] = {}) -> resources.TopicConfig:
        """A topic's config. Unknown names, such as those in a folder of a newer Kafka, are kept but have no effect."""
        values = resources.TOPIC.values(self._topic_defaults, overrides, strict=False)
        return resources.TopicConfig(values, dict(overrides))

    def validate_topic(self, overrides: Mapping[str, str]) -> resources.TopicConfig:
        """Like `topic`, for a client's request: unknown names and conflicts are errors, with Kafka's messages."""
        values = resources.TOPIC.values(self._topic_defaults, overrides, strict=True)
        resources.TOPIC.check(values, self._values)
        return resources.TopicConfig(values, dict(overrides))

    def group(self, overrides: Mapping[str, str] = {}, *, strict: bool = False) -> resources.GroupConfig:
        """A group's config; `strict` for a client's request."""
        values = self._resource(resources.GROUP, overrides, strict)
        return resources.GroupConfig(values, dict(overrides))

    def client_metrics(
        self, overrides: Mapping[str, str] = {}, *, strict: bool = False
    ) -> resources.ClientMetricsConfig:
        """A client metrics subscription; `strict` for a client's request."""
        values = self._resource(resources.CLIENT_METRICS, overrides, strict)
        return resources.ClientMetricsConfig(values, dict(overrides))

    def _resource(self, kind: resources.ResourceKind, overrides: Mapping[str, str], strict: bool) -> dict[str, Any]:
        values = kind.values(kind.defaults(self._values), overrides, strict=strict)
        if strict:
            kind.check(values, self._values)
        return values

    def describe(
        self, resource: str, overrides: Mapping[str, str] = {}, names: Collection[str] | None = None
    ) -> list[DescribedConfig]:
        """DescribeConfigs of `broker`, `cluster` (the dynamic defaults), `topic`, `group` or `client-metrics`."""
        return describe.describe(self, resource, overrides, names)

    # Resolution -------------------------------------------------------------------------------------------------------

    def _resolve(self) -> dict[str, Any]:
        values = dict(_DEFAULTS)
        for layer, kind in (
            (self.static, ""),
            (self.dynamic_cluster, "dynamic cluster default"),
            (self.dynamic_broker, "dynamic broker setting"),
        ):
            for name, text in layer.items():
                key = base_key(name, ALL_KEYS)
                try:
                    values[name] = text if key is None else key.parse(text, name)
                except ConfigError as error:
                    origin = kind or self.origins.get(name)
                    raise ConfigError(str(error) if kind or not origin else f"{error} ({origin})") from None
        for name, units in SYNONYMS.items():
            values[name] = next(values[unit] * scale for unit, scale in units if values[unit] is not None)
        values["log.retention.ms"] = max(values["log.retention.ms"], -1)
        values["log.dirs"] = values["log.dirs"] or values["log.dir"]
        values["metadata.log.dir"] = values["metadata.log.dir"] or values["log.dirs"][0]
        return values

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller and not a broker."""
        return set(self._values["process.roles"]) == {"controller"}

    def _parse_listeners(self) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
        values = self._values
        controllers = {name.upper() for name in values["controller.listener.names"]}
        map_key = "listener.security.protocol.map"
        is_default = not any(map_key in layer for layer in (self.static, self.dynamic_cluster, self.dynamic_broker))
        protocols = parse_protocol_map(values[map_key], sorted(controllers), is_default=is_default)
        is_controller = self.is_controller
        bound = [
            listener
            for listener in parse_listeners(values["listeners"], protocols)
            if (listener.name in controllers) == is_controller
        ]
        if not bound:
            raise ConfigError(
                f"listeners has no entry that clients could use: {','.join(values['listeners'])} "
                f"(controller.listener.names is {','.join(values['controller.listener.names'])})"
            )
        if values["advertised.listeners"] is None:
            # Kafka refuses 0.0.0.0 here. Ottla advertises the address that the client connected to.
            return tuple(bound), tuple(
                listener._replace(host="") if listener.host in ("0.0.0.0", "::") else listener for listener in bound
            )
        advertised = [
            listener
            for listener in parse_listeners(
                values["advertised.listeners"], protocols, key="advertised.listeners", distinct_ports=False
            )
            if (listener.name in controllers) == is_controller
        ]
        _check_advertised(bound, advertised)
        return tuple(bound), tuple(advertised)

    def _check_named_listeners(self) -> None:
        """Listeners that other keys name must exist. Unlike in Kafka, defaults are not checked."""
        by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        if by_name in self.static and by_protocol in self.static:
            raise ConfigError(f"Only one of {by_name} and {by_protocol} should be set.")
        names = [listener.name for listener in self._advertised]
        for key in (by_name, by_protocol):
            if key in self.static and self.inter_broker_listener not in names:
                raise ConfigError(
                    f"{key} is {self.static[key]}, and must be a listener name defined in advertised.listeners. "
                    f"The valid options based on currently configured listeners are {','.join(names)}"
                )
        known = {*names, *(name.upper() for name in self._values["controller.listener.names"])}
        for name in self._values["early.start.listeners"] or ():
            if name.upper() not in known:
                raise ConfigError(
                    f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
                    "controller.listener.names"
                )


def _check_advertised(bound: list[Listener], advertised: list[Listener]) -> None:
    names = {listener.name for listener in bound}
    for listener in advertised:
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {listener.host}. "
                "Use a routable IP address."
            )
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners has {listener}, but listeners has no entry named {listener.name} "
                f"(only {', '.join(sorted(names))})"
            )


def _with_identity(static: Mapping[str, str]) -> dict[str, str]:
    """Add settings that Kafka requires and Ottla does not. node.id and broker.id are two names of one value."""
    settings = dict(static)
    node_id, broker_id = settings.get("node.id"), settings.get("broker.id")
    if node_id is not None and broker_id is not None and node_id.strip() != broker_id.strip():
        raise ConfigError(
            f"You must set `node.id` to the same value as `broker.id`. (node.id is {node_id}, broker.id is {broker_id})"
        )
    settings["node.id"] = settings["broker.id"] = node_id or broker_id or to_text(BROKER_KEYS["node.id"].default)
    for name in ("process.roles", "controller.listener.names"):
        settings.setdefault(name, to_text(BROKER_KEYS[name].default))
    return settings


def _is_cluster_wide(name: str) -> bool:
    """Whether a key is cluster-wide. Unknown names count as such, because they may belong to a plugin."""
    if name.startswith(LISTENER_PREFIX):
        return name.removeprefix(LISTENER_PREFIX).partition(".")[2] in _CLUSTER_WIDE_PER_LISTENER
    key = ALL_KEYS.get(name)
    return key is None or key.mode == CLUSTER_WIDE


def _java_set(names: Collection[str]) -> str:
    return f"[{', '.join(names)}]"
