"""Config changes: checks AlterConfigs and IncrementalAlterConfigs, and returns their records.

The changes of one resource are applied together or not at all. As in Kafka, the error code depends on the kind of
resource: a bad value for a broker is an INVALID_REQUEST, for a topic it is an INVALID_CONFIG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.config import BROKER_KEYS, TOPIC_KEYS, ChangeRefused, Config, ConfigError, ConfigKey
from ottla.enums import AlterConfigOp, ConfigResourceType, ConfigType
from ottla.errors import InvalidConfig, InvalidRequest, KafkaError, UnknownServerError, UnknownTopicOrPartition
from ottla.metadata.features import ELIGIBLE_LEADERS
from ottla.metadata.image import MetadataImage
from ottla.metadata.java_hash_order import by_hash, java_names
from ottla.metadata.topics import check_topic_name
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

_KNOWN_OPERATIONS = frozenset(AlterConfigOp)

_GROUP_BUCKETS = 32
"""The size of the map in which Kafka looks for a group's unknown names; it also holds the known ones."""

MIN_ISR = "min.insync.replicas"

Resource = tuple[int, str]


class ConfigChange(NamedTuple):
    """The change of one key. AlterConfigs only has SET."""

    name: str
    value: str | None
    operation: int = AlterConfigOp.SET


class ConfigChanges:
    """Plans changes against the current metadata; `node_id` is the broker that handles the request."""

    def __init__(
        self, image: MetadataImage, config: Config, node_id: int, check: Callable[[Config], None] | None = None
    ) -> None:
        """`check` may refuse a broker's new settings, for example if a key store cannot be read."""
        self._image = image
        self._config = config
        self._node_id = node_id
        self._try_broker = check

    def replace(self, resource: Resource, changes: Sequence[ConfigChange]) -> list[Message]:
        """The records that replace all settings with these (AlterConfigs)."""
        check_form(changes)
        self.check_kind(resource)
        current = self._image.configs.get(resource, {})
        wanted = {change.name: change.value for change in changes if change.value is not None}
        return self._planned(resource, current, wanted, {*current, *wanted})

    def increment(self, resource: Resource, changes: Sequence[ConfigChange]) -> list[Message]:
        """The records for single operations: set, delete, append to a list, subtract from it (KIP-339)."""
        check_form(changes)
        self.check_kind(resource)
        current = self._image.configs.get(resource, {})
        wanted = dict(current)
        for change in _in_kafkas_order(resource[0], changes):
            value = self._outcome(resource[0], change, current.get(change.name))
            if value is None:
                wanted.pop(change.name, None)
            else:
                wanted[change.name] = value
        return self._planned(resource, current, wanted, {change.name for change in changes})

    def _planned(
        self, resource: Resource, current: Mapping[str, str], wanted: dict[str, str], touched: set[str]
    ) -> list[Message]:
        self._check(resource, wanted)
        kind, name = resource
        if kind == ConfigResourceType.BROKER:
            self._check_eligible_leaders(name, current, wanted, touched)
        changed = [
            key
            for key in sorted(touched)
            # A broker's setting is written even if it is unchanged, so that the broker reloads its key stores.
            if current.get(key) != wanted.get(key) or (kind == ConfigResourceType.BROKER and key in wanted)
        ]
        records: list[Message] = [
            stored.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=wanted.get(key))
            for key in changed
        ]
        if MIN_ISR in changed and self._image.features.get(ELIGIBLE_LEADERS):
            # The eligible leaders were determined with the old value (KIP-966).
            records.append(stored.ClearElrRecord(topic_name=name if kind == ConfigResourceType.TOPIC else ""))
        return records

    # -- single operations -------------------------------------------------------------------------------------

    def _outcome(self, kind: int, change: ConfigChange, current: str | None) -> str | None:
        if change.operation == AlterConfigOp.SET:
            return change.value
        if change.operation == AlterConfigOp.DELETE:
            return None
        if change.operation not in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            raise UnknownServerError
        key = _list_key(kind, change)
        text = current if current is not None else ",".join(key.default or ())
        items = [item for item in text.split(",") if item]
        assert change.value is not None
        for item in change.value.split(","):
            if change.operation == AlterConfigOp.SUBTRACT:
                if item in items:
                    items.remove(item)
            elif item not in items:
                items.append(item)
        return ",".join(items)

    def fails_the_whole_request(self, resource: Resource, changes: Sequence[ConfigChange]) -> bool:
        """Whether Kafka's controller fails the whole request: an operation is unknown, and no earlier check refuses
        this resource."""
        kind = resource[0]
        if kind not in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
            return False
        try:
            check_form(changes)
            for change in _in_kafkas_order(kind, changes):
                self._outcome(kind, change, None)
        except UnknownServerError:
            return True
        except KafkaError:
            pass
        return False

    # -- checks ------------------------------------------------------------------------------------------------

    def check_kind(self, resource: Resource) -> None:
        kind, name = resource
        if kind == ConfigResourceType.BROKER:
            if name:
                check_node_id(name, self._node_id)
        elif kind not in (ConfigResourceType.TOPIC, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP):
            raise InvalidRequest(f"Unknown resource type {kind}")

    def _check(self, resource: Resource, wanted: dict[str, str]) -> None:
        kind, name = resource
        if kind == ConfigResourceType.TOPIC:
            self._check_topic(name, wanted)
        elif kind == ConfigResourceType.BROKER:
            self._check_broker(name, wanted)
        elif kind == ConfigResourceType.GROUP:
            if not name:
                raise InvalidRequest("Default group resources are not allowed.")
            try:
                self._config.group(by_hash(wanted, _GROUP_BUCKETS), strict=True)
            except ConfigError as error:
                raise InvalidConfig(str(error)) from error
        else:
            if not name:
                raise InvalidRequest("Subscription name can't be empty")
            try:
                self._config.client_metrics(by_hash(wanted), strict=True)
            except ConfigError as error:
                raise _client_metrics_error(error) from error

    def _check_topic(self, name: str, wanted: dict[str, str]) -> None:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        check_topic_name(name)
        try:
            self._config.validate_topic(by_hash(wanted))
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
        if name not in self._image.topics:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")

    def _check_broker(self, name: str, wanted: dict[str, str]) -> None:
        try:
            proposed = self._config.validate_dynamic(wanted, per_broker=bool(name))
            if self._try_broker is not None:
                self._try_broker(proposed)
        except ConfigError as error:
            text = str(error)
            if isinstance(error, ChangeRefused):
                # Kafka's text includes the exception of the component that refuses the change.
                text = (
                    f"Invalid value org.apache.kafka.common.config.ConfigException: {text} "
                    "for configuration Invalid dynamic configuration"
                )
            raise InvalidRequest(text) from error

    def _check_eligible_leaders(
        self, name: str, current: Mapping[str, str], wanted: Mapping[str, str], touched: set[str]
    ) -> None:
        """Eligible leader replicas need one min.insync.replicas for the whole cluster (KIP-966)."""
        if MIN_ISR not in touched or not self._image.features.get(ELIGIBLE_LEADERS):
            return
        if name:
            raise InvalidConfig(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if MIN_ISR in current and MIN_ISR not in wanted:
            raise InvalidConfig(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def check_node_id(name: str, node_id: int, wording: str = "Unexpected broker id, expected {}, but received {}") -> None:
    """Only the broker itself can change its settings and loggers."""
    try:
        found = int(name)
    except ValueError:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}") from None
    if found != node_id:
        raise InvalidRequest(wording.format(node_id, name))


def check_form(changes: Sequence[ConfigChange]) -> None:
    """Refuse duplicate keys, and keys to set without a value."""
    if len({change.name for change in changes}) != len(changes):
        raise InvalidRequest("Error due to duplicate config keys")
    missing = [change.name for change in changes if change.value is None and change.operation != AlterConfigOp.DELETE]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")


def _in_kafkas_order(kind: int, changes: Sequence[ConfigChange]) -> Sequence[ConfigChange]:
    """The changes in the order in which Kafka checks them.

    A broker's changes keep their order, and unknown operations are refused first; others are in a map by name.
    """
    if kind == ConfigResourceType.BROKER:
        for change in changes:
            if change.operation not in _KNOWN_OPERATIONS:
                raise InvalidRequest(f"Unknown operations type {change.operation}")
        return changes
    by_name = {change.name: change for change in changes}
    return [by_name[name] for name in java_names(by_name)]


def _list_key(kind: int, change: ConfigChange) -> ConfigKey:
    """The definition of a list key; raises if the key is not a list."""
    if kind == ConfigResourceType.BROKER:
        key = BROKER_KEYS.get(change.name)
        if key is None:
            raise InvalidConfig(f"Unknown config name: {change.name}")
        if key.type is not ConfigType.LIST:
            operation = AlterConfigOp(change.operation).name.lower()
            raise InvalidConfig(f"Config value {operation} is not allowed for config key: {change.name}")
        return key
    # In Kafka, the configs of groups and client metrics have no lists.
    key = TOPIC_KEYS.get(change.name) if kind == ConfigResourceType.TOPIC else None
    if key is None or key.type is not ConfigType.LIST:
        raise InvalidConfig(
            f"Can't {AlterConfigOp(change.operation).name} to key {change.name} because its type is not LIST."
        )
    return key


def _client_metrics_error(error: ConfigError) -> KafkaError:
    text = str(error)
    is_request = text.startswith("Unknown client metrics") or "interval must be between" in text
    return InvalidRequest(text) if is_request else InvalidConfig(text)
