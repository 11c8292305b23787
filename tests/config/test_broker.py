"""Resolved values, dynamic layers, and the configs of topics and groups."""

from __future__ import annotations

import pytest

from ottla.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, Config, ConfigError, Listener
from ottla.config.broker import ALL_KEYS
from ottla.config.keys import format_double
from ottla.config.topic_keys import CLIENT_METRICS_KEYS
from ottla.enums import ConfigType


def load(**settings: object) -> Config:
    return Config.load(overrides={name.replace("_", "."): value for name, value in settings.items()})


def test_defaults_are_valid_and_of_their_type() -> None:
    python_types = {
        ConfigType.BOOLEAN: bool,
        ConfigType.INT: int,
        ConfigType.SHORT: int,
        ConfigType.LONG: int,
        ConfigType.DOUBLE: float,
        ConfigType.LIST: tuple,
    }
    for table in (ALL_KEYS, TOPIC_KEYS, GROUP_KEYS):
        for key in table.values():
            if key.default is not None:
                assert type(key.default) is python_types.get(key.type, str), key
                if key.validator is not None:
                    key.validator.check(key.name, key.default)


def test_every_key_is_documented_in_a_sentence() -> None:
    for table in (ALL_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS):
        for key in table.values():
            assert key.doc[0].isalnum() or key.doc[0] in "-*", key
            assert key.doc.endswith("."), key


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": 1}, 3_600_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2}, 120_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2, "log_retention_ms": 3}, 3),
        ({"log_retention_ms": -5}, -1),
        ({"log_retention_minutes": -1}, -1),
    ],
)
def test_retention_can_be_set_in_three_units(settings: dict[str, int], expected: int) -> None:
    config = load(**settings)
    assert config["log.retention.ms"] == expected
    assert config.topic()["retention.ms"] == expected


def test_other_values_with_several_names() -> None:
    config = load(log_roll_hours=2, log_flush_scheduler_interval_ms=9, log_roll_jitter_hours=1)
    assert config["log.roll.ms"] == config.topic()["segment.ms"] == 7_200_000
    assert config.topic()["segment.jitter.ms"] == 3_600_000
    assert config.topic()["flush.ms"] == 9


def test_log_dirs() -> None:
    assert load().log_dirs == ("/tmp/kafka-logs",)
    assert load(log_dir="/a").log_dirs == ("/a",)
    config = load(log_dir="/a", log_dirs="/b, /c,/b")
    assert config.log_dirs == ("/b", "/c")
    assert config["metadata.log.dir"] == "/b"


def test_listeners_default_to_the_kafka_port() -> None:
    config = load()
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener == "PLAINTEXT"


def test_wildcard_addresses_are_bound_and_not_advertised() -> None:
    config = load(listeners="PLAINTEXT://0.0.0.0:1,SSL://[::]:2")
    assert [listener.host for listener in config.listeners] == ["0.0.0.0", "::"]
    assert [listener.host for listener in config.advertised_listeners] == ["", ""]
    assert str(config.listeners[1]) == "SSL://[::]:2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://h:70000"}, "port 70000 .* is not within 0 and 65535"),
        ({"group.share.assignors": "foo"}, r"Class foo cannot be found \(group.share.assignors takes simple\)"),
        (
            {"group.share.assignors": "simple,org.apache.kafka.coordinator.group.assignor.SimpleAssignor"},
            "group.share.assignors must contain exactly one assignor, but found 2",
        ),
        ({"listeners": "PLAINTEXT://::1:9092"}, "Unable to parse PLAINTEXT://::1:9092"),
        ({"listeners": "://h:1"}, "Unable to parse"),
        ({"listeners": "CONTROLLER://:9093"}, "listeners has no entry that clients could use"),
        ({"listeners": "FOO://:1"}, "No security protocol defined for listener FOO"),
        ({"advertised.listeners": "SSL://h:1"}, "listeners has no entry named SSL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
    ],
)
def test_invalid_listeners_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.load(overrides=settings)


def test_dynamic_layers_go_above_static_ones() -> None:
    static = load(log_retention_hours=1, num_io_threads=4)
    cluster = static.with_dynamic(cluster={"log.retention.ms": "50", "num.io.threads": "5"})
    broker = cluster.with_dynamic(broker={"log.retention.ms": "60"})
    assert [config["log.retention.ms"] for config in (static, cluster, broker)] == [3_600_000, 50, 60]
    assert broker["num.io.threads"] == 5
    assert broker.with_dynamic(cluster={}, broker={})["log.retention.ms"] == 3_600_000
    assert static["num.io.threads"] == 4, "the older config does not change"


def test_with_static_replaces_settings() -> None:
    config = load(node_id=3, num_partitions=2).with_static(
        {"listeners": "PLAINTEXT://localhost:0", "num.partitions": 5}
    )
    assert (config.node_id, config["num.partitions"], config.listeners[0].port) == (3, 5, 0)
    assert config.with_static({"node.id": 4}).node_id == config.with_static({"broker.id": 4}).node_id == 4


@pytest.mark.parametrize(
    ("layer", "per_broker", "message"),
    [
        ({"node.id": "2"}, True, "Cannot update these configs dynamically: [node.id]"),
        ({"log.retention.hours": "2"}, False, "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            {"ssl.key.password": "x"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.key.password]",
        ),
        (
            {"log.retention.ms": "x"},
            True,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        ({"num.io.threads": "0"}, True, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        (
            {"num.io.threads": "17"},
            True,
            "Dynamic thread count update validation failed for num.io.threads=17, "
            "value should not be greater than double the current value 8",
        ),
        (
            {"log.cleaner.threads": "3"},
            True,
            "Log cleaner threads cannot be increased to more than double the current value 1",
        ),
        (
            {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,a.b.C"},
            False,
            "Validation of dynamic config update of Set(metric.reporters) failed "
            "with class class kafka.server.DynamicMetricsReporters",
        ),
        (
            {"num.io.threads": "3"},
            False,
            "Dynamic thread count update validation failed for num.io.threads=3, "
            "value should be at least half the current value 8",
        ),
    ],
)
def test_dynamic_changes_that_kafka_refuses_are_refused(layer: dict[str, str], per_broker: bool, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load().validate_dynamic(layer, per_broker=per_broker)
    assert str(error.value) == message


def test_dynamic_changes_that_kafka_accepts_are_accepted() -> None:
    config = load()
    assert config.validate_dynamic({"num.io.threads": "16"}, per_broker=True)["num.io.threads"] == 16
    assert config.validate_dynamic({"some.plugin": "x"}, per_broker=False).dynamic_cluster == {"some.plugin": "x"}
    config.validate_dynamic({"listener.name.plaintext.ssl.key.password": "x"}, per_broker=True)
    old = {"node.id": "9", "log.retention.ms": "5"}
    config.validate_dynamic(old, per_broker=True, changed=["log.retention.ms"])


def test_topic_overrides() -> None:
    config = load(message_max_bytes=2000)
    topic = config.topic({"retention.ms": "10", "cleanup.policy": "compact,compact", "from.the.future": "x"})
    assert topic["retention.ms"] == 10
    assert topic["cleanup.policy"] == ("compact",)
    assert topic["max.message.bytes"] == 2000
    assert topic.overrides["retention.ms"] == "10"
    assert "from.the.future" not in topic
    assert set(topic) == set(TOPIC_KEYS)
    assert topic.segment_bytes == 2**30
    assert config.topic({"internal.segment.bytes": "500"}).segment_bytes == 500


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "1"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (1)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_topic_overrides_that_kafka_refuses_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load().validate_topic(overrides)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "1"}, "Unknown group config name: foo"),
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"share.record.lock.duration.ms": "100000000"},
            "share.record.lock.duration.ms must be less than or equal to group.share.max.record.lock.duration.ms",
        ),
        (
            {"streams.num.standby.replicas": "5"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_group_overrides_that_kafka_refuses_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load().group(overrides, strict=True)
    assert str(error.value) == message


def test_group_overrides() -> None:
    config = load(group_consumer_session_timeout_ms=50_000)
    assert config.group()["consumer.session.timeout.ms"] == 50_000
    assert config.group({"share.auto.offset.reset": "by_duration:PT1H"}, strict=True)["share.auto.offset.reset"]
    assert config.group({"from.the.future": "x"})["share.isolation.level"] == "read_uncommitted"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "1"}, "Unknown client metrics configuration: foo"),
        (
            {"interval.ms": "1"},
            "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ({"match": "x=y"}, "Illegal client matching pattern: x=y"),
        ({"match": "client_id=("}, "Illegal client matching pattern: client_id=("),
        ({"match": "client_id"}, "Illegal client matching pattern: client_id"),
        ({"match": "client_id="}, "Illegal client matching pattern: client_id="),
    ],
)
def test_client_metrics_that_kafka_refuses_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load().client_metrics(overrides, strict=True)
    assert str(error.value) == message


def test_client_metrics() -> None:
    subscription = load().client_metrics({"match": "client_id=a.*,client_source_port=1", "metrics": "*"}, strict=True)
    assert subscription["interval.ms"] == 300_000
    assert subscription["metrics"] == ("*",)


def test_doubles_print_as_in_java() -> None:
    printed = {0.5: "0.5", 1.0: "1.0", 0.001: "0.001", 0.0001: "1.0E-4", 1e7: "1.0E7", 12345678.9: "1.23456789E7"}
    printed |= {
        1.7976931348623157e308: "1.7976931348623157E308",
        -2.5e-5: "-2.5E-5",
        0.0: "0.0",
        9999999.0: "9999999.0",
    }
    printed |= {float("inf"): "Infinity", float("-inf"): "-Infinity"}
    assert {value: format_double(value) for value in printed} == printed
    assert format_double(float("nan")) == "NaN"


def test_table_sizes() -> None:
    assert (len(BROKER_KEYS), len(TOPIC_KEYS), len(GROUP_KEYS), len(CLIENT_METRICS_KEYS)) == (360, 34, 17, 3)
