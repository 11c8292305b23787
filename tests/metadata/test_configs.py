"""Changes of configs: operations, checks with Kafka's codes and messages, and the resulting records."""

from typing import Any

import pytest

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.configs import ConfigChange, ConfigChanges
from ottla.metadata.controller import NewTopic
from ottla.wire.stored import metadata as stored

TOPIC = (ConfigResourceType.TOPIC, "t")
BROKER = (ConfigResourceType.BROKER, "1")
CLUSTER = (ConfigResourceType.BROKER, "")


@pytest.fixture
def there(world: Any) -> Any:
    world.controller.create_topics([NewTopic("t")])
    world.append([stored.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    return world


def increment(world: Any, resource: tuple[int, str], *changes: ConfigChange) -> None:
    world.append(ConfigChanges(world.image, world.config, 1).increment(resource, changes))


def replace(world: Any, resource: tuple[int, str], **values: str) -> None:
    changes = [ConfigChange(key.replace("_", "."), value) for key, value in values.items()]
    world.append(ConfigChanges(world.image, world.config, 1).replace(resource, changes))


def test_replacing_configs_removes_all_others(there: Any) -> None:
    replace(there, TOPIC, retention_ms="1", segment_ms="2")
    replace(there, TOPIC, segment_ms="3")
    assert there.image.configs[TOPIC] == {"segment.ms": "3"}
    replace(there, TOPIC)
    assert TOPIC not in there.image.configs


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, AlterConfigOp.APPEND, "compact", "delete,compact"),
        ("compact", AlterConfigOp.APPEND, "compact", "compact"),
        ("compact", AlterConfigOp.APPEND, "delete,compact", "compact,delete"),
        ("compact,delete", AlterConfigOp.SUBTRACT, "delete", "compact"),
        ("compact", AlterConfigOp.SUBTRACT, "compact", ""),
        (None, AlterConfigOp.SUBTRACT, "compact", "delete"),
        ("compact", AlterConfigOp.DELETE, None, None),
        ("compact", AlterConfigOp.DELETE, "ignored", None),
    ],
)
@pytest.mark.parametrize(("resource", "key"), [(TOPIC, "cleanup.policy"), (BROKER, "log.cleanup.policy")])
def test_lists_grow_and_shrink_from_their_default(
    there: Any, resource: Any, key: str, before: str | None, operation: int, value: str | None, after: str | None
) -> None:
    if before is not None:
        increment(there, resource, ConfigChange(key, before))
    increment(there, resource, ConfigChange(key, value, operation))
    assert there.image.configs.get(resource, {}).get(key) == after


def test_an_unchanged_value_is_written_again_for_brokers_only(there: Any) -> None:
    for resource, key, written in ((TOPIC, "retention.ms", 1), (BROKER, "log.retention.ms", 2)):
        before = len(there.written)
        for _ in range(2):
            increment(there, resource, ConfigChange(key, "77"))
        assert len(there.written) - before == written


REFUSED = [
    (TOPIC, [("nope", AlterConfigOp.SET, "1")], InvalidConfig, "Unknown topic config name: nope"),
    (
        TOPIC,
        [("retention.ms", AlterConfigOp.SET, "-5")],
        InvalidConfig,
        "Invalid value -5 for configuration retention.ms: Value must be at least -1",
    ),
    (
        TOPIC,
        [("retention.ms", AlterConfigOp.APPEND, "1")],
        InvalidConfig,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (
        TOPIC,
        [("nope", AlterConfigOp.SUBTRACT, "1")],
        InvalidConfig,
        "Can't SUBTRACT to key nope because its type is not LIST.",
    ),
    (TOPIC, [("retention.ms", 9, "1")], UnknownServerError, UnknownServerError.default_message),
    (
        TOPIC,
        [("retention.ms", AlterConfigOp.SET, None), ("segment.ms", AlterConfigOp.APPEND, None)],
        InvalidRequest,
        "Null value not supported for : retention.ms, segment.ms",
    ),
    (
        TOPIC,
        [("retention.ms", AlterConfigOp.SET, "1"), ("retention.ms", AlterConfigOp.DELETE, None)],
        InvalidRequest,
        "Error due to duplicate config keys",
    ),
    ((ConfigResourceType.TOPIC, "none"), [], UnknownTopicOrPartition, "The topic 'none' does not exist."),
    (
        (ConfigResourceType.TOPIC, "none"),
        [("retention.ms", AlterConfigOp.SET, "a")],
        InvalidConfig,
        "Invalid value a for configuration retention.ms: Not a number of type LONG",
    ),
    ((ConfigResourceType.TOPIC, ""), [], InvalidRequest, "Default topic resources are not allowed."),
    (
        (ConfigResourceType.TOPIC, "a b"),
        [],
        InvalidTopicException,
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    ((7, "x"), [], InvalidRequest, "Unknown resource type 7"),
    (
        BROKER,
        [("log.retention.ms", AlterConfigOp.SET, "x")],
        InvalidRequest,
        "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
    ),
    (
        BROKER,
        [("node.id", AlterConfigOp.SET, "7"), ("process.roles", AlterConfigOp.SET, "x")],
        InvalidRequest,
        "Cannot update these configs dynamically: [node.id, process.roles]",
    ),
    (
        BROKER,
        [("log.retention.ms", AlterConfigOp.APPEND, "1")],
        InvalidConfig,
        "Config value append is not allowed for config key: log.retention.ms",
    ),
    (BROKER, [("nope.x", AlterConfigOp.APPEND, "1")], InvalidConfig, "Unknown config name: nope.x"),
    (BROKER, [("log.retention.ms", 9, "1")], InvalidRequest, "Unknown operations type 9"),
    ((ConfigResourceType.BROKER, "2"), [], InvalidRequest, "Unexpected broker id, expected 1, but received 2"),
    ((ConfigResourceType.BROKER, "x"), [], InvalidRequest, "Node id must be an integer, but it is: x"),
    (
        BROKER,
        [("num.io.threads", AlterConfigOp.SET, "100")],
        InvalidRequest,
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed "
        "for num.io.threads=100, value should not be greater than double the current value 8 for configuration "
        "Invalid dynamic configuration",
    ),
    (
        BROKER,
        [("log.cleaner.threads", AlterConfigOp.SET, "100")],
        InvalidRequest,
        "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more "
        "than double the current value 1 for configuration Invalid dynamic configuration",
    ),
    (
        BROKER,
        [("ssl.keystore.location", AlterConfigOp.SET, "x")],
        InvalidRequest,
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]",
    ),
    (
        CLUSTER,
        [("listener.name.plaintext.ssl.keystore.type", AlterConfigOp.SET, "JKS")],
        InvalidRequest,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[listener.name.plaintext.ssl.keystore.type]",
    ),
    (
        BROKER,
        [("min.insync.replicas", AlterConfigOp.SET, "1")],
        InvalidConfig,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    (
        (ConfigResourceType.CLIENT_METRICS, "s"),
        [("metrics", AlterConfigOp.APPEND, "a")],
        InvalidConfig,
        "Can't APPEND to key metrics because its type is not LIST.",
    ),
    (
        (ConfigResourceType.CLIENT_METRICS, "s"),
        [("interval.ms", AlterConfigOp.SET, "1")],
        InvalidRequest,
        "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    ),
    (
        (ConfigResourceType.CLIENT_METRICS, "s"),
        [("interval.ms", AlterConfigOp.SET, "x")],
        InvalidConfig,
        "Invalid value x for configuration interval.ms: Not a number of type INT",
    ),
    (
        (ConfigResourceType.CLIENT_METRICS, "s"),
        [("match", AlterConfigOp.SET, "foo=x")],
        InvalidConfig,
        "Illegal client matching pattern: foo=x",
    ),
    (
        (ConfigResourceType.CLIENT_METRICS, "s"),
        [("nope", AlterConfigOp.SET, "1")],
        InvalidRequest,
        "Unknown client metrics configuration: nope",
    ),
    ((ConfigResourceType.CLIENT_METRICS, ""), [], InvalidRequest, "Subscription name can't be empty"),
    (
        (ConfigResourceType.GROUP, "g"),
        [("consumer.session.timeout.ms", AlterConfigOp.SET, "1")],
        InvalidConfig,
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        (ConfigResourceType.GROUP, "g"),
        [("nope", AlterConfigOp.SET, "1")],
        InvalidConfig,
        "Unknown group config name: nope",
    ),
    ((ConfigResourceType.GROUP, ""), [], InvalidRequest, "Default group resources are not allowed."),
]


@pytest.mark.parametrize(("resource", "changes", "error", "message"), REFUSED)
def test_refusals_have_kafkas_codes_and_messages(
    there: Any, resource: Any, changes: Any, error: type[KafkaError], message: str
) -> None:
    before = len(there.written)
    with pytest.raises(KafkaError) as caught:
        increment(there, resource, *(ConfigChange(name, value, op) for name, op, value in changes))
    assert (caught.type, caught.value.message) == (error, message)
    assert len(there.written) == before


def test_deleting_an_unset_config_is_not_an_error(there: Any) -> None:
    for resource, key in ((TOPIC, "nope"), (BROKER, "node.id"), (BROKER, "nope")):
        increment(there, resource, ConfigChange(key, None, AlterConfigOp.DELETE))
        assert resource not in there.image.configs


def test_the_clusters_min_insync_replicas_stays_while_elr_is_enabled(there: Any) -> None:
    increment(there, CLUSTER, ConfigChange("min.insync.replicas", "1"))
    message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    with pytest.raises(InvalidConfig, match=message):
        increment(there, CLUSTER, ConfigChange("min.insync.replicas", None, AlterConfigOp.DELETE))
    with pytest.raises(InvalidConfig, match=message):
        replace(there, CLUSTER, log_retention_ms="5")
    there.append([stored.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)])
    increment(there, CLUSTER, ConfigChange("min.insync.replicas", None, AlterConfigOp.DELETE))
    increment(there, BROKER, ConfigChange("min.insync.replicas", "2"))


def test_unknown_keys_of_a_broker_are_kept_for_plugins(there: Any) -> None:
    increment(there, BROKER, ConfigChange("my.plugin.key", "1"))
    assert there.image.broker_configs(1) == ({}, {"my.plugin.key": "1"})
