"""Layers of settings: presets, files, environment, overrides; unknown keys and bad values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ottla
from ottla.config import BROKER_KEYS, PRESETS, Config, ConfigError
from ottla.config.loading import _RESERVED_VARIABLES, REMOVED_KEYS, variable_name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nlog.retention.ms=5000\n")
    return path


def test_dev_preset_is_the_default_without_a_file() -> None:
    config = Config.load()
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config["offsets.topic.replication.factor"] == 1
    assert config["share.coordinator.state.topic.min.isr"] == 1
    assert config["num.partitions"] == 1
    assert config.warnings == ()


def test_variables_of_other_programs_are_not_settings() -> None:
    package = Path(ottla.__file__).parent
    found = {name for path in package.rglob("*.py") for name in re.findall(r"\bOTTLA_[A-Z_]+\b", path.read_text())}
    read = {name for name in found if not name.endswith("_")} - {"OTTLA_LOG_RETENTION_MS"}  # the docs' example
    assert {"OTTLA_BOOTSTRAP", "OTTLA_COMMAND", "OTTLA_REGISTRY_USERS"} <= read
    assert Config.load(environ=dict.fromkeys(read, "x")).warnings == ()


def test_kafka_preset_has_kafkas_delay() -> None:
    config = Config.load(preset="kafka")
    assert config["group.initial.rebalance.delay.ms"] == 3000
    assert config["transaction.state.log.replication.factor"] == 1
    differing = {name for name, key in BROKER_KEYS.items() if name in config.static and not key.required}
    assert differing == {*PRESETS["kafka"], "broker.id"}


def test_a_file_is_used_without_a_preset(file: Path) -> None:
    config = Config.load(str(file))
    assert config["group.initial.rebalance.delay.ms"] == 3000
    assert config["offsets.topic.replication.factor"] == 3
    assert config["num.partitions"] == 3


def test_a_named_preset_goes_below_the_file(file: Path) -> None:
    file.write_text("group.initial.rebalance.delay.ms=7\n")
    config = Config.load(str(file), preset="dev")
    assert config["group.initial.rebalance.delay.ms"] == 7
    assert config["offsets.topic.replication.factor"] == 1


def test_copies_of_a_config_keep_its_preset(file: Path) -> None:
    config = Config.load(preset="test").with_static({"num.partitions": 2}).with_dynamic(cluster={})
    assert (config.preset, config.shows_new_topics_at_once) == ("test", True)
    assert [Config.load(preset=preset).shows_new_topics_at_once for preset in (None, "dev", "kafka")] == [False] * 3
    assert (Config.load(str(file)).preset, Config.load(str(file), preset="test").shows_new_topics_at_once) == (
        None,
        True,
    )


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no preset 'prod'; choose one of dev, kafka"):
        Config.load(preset="prod")


def test_the_last_layer_wins(file: Path) -> None:
    environ = {"OTTLA_NUM_PARTITIONS": "4", "OTTLA_LOG_SEGMENT_BYTES": "2000000", "HOME": "/"}
    config = Config.load(str(file), {"log.segment.bytes": 3_000_000}, environ)
    assert config["log.retention.ms"] == 5000
    assert config["num.partitions"] == 4
    assert config["log.segment.bytes"] == 3_000_000


def test_overrides_may_be_python_values() -> None:
    overrides = {"auto.create.topics.enable": False, "log.cleanup.policy": ["compact", "delete"], "num.partitions": 2}
    config = Config.load(overrides={**overrides, "log.cleaner.min.cleanable.ratio": 0.25})
    assert config["auto.create.topics.enable"] is False
    assert config["log.cleanup.policy"] == ("compact", "delete")
    assert config["log.cleaner.min.cleanable.ratio"] == 0.25


def test_every_key_has_its_own_variable() -> None:
    variables = {variable_name(key) for key in BROKER_KEYS}
    assert len(variables) == len(BROKER_KEYS)
    assert not any(variable.startswith(_RESERVED_VARIABLES) for variable in variables)


def test_environment_reaches_listener_keys() -> None:
    environ = {
        "OTTLA_LISTENERS": "OUT_SIDE://:1",
        "OTTLA_LISTENER_SECURITY_PROTOCOL_MAP": "OUT_SIDE:SASL_SSL",
        "OTTLA_LISTENER_NAME_OUT_SIDE_SSL_KEYSTORE_LOCATION": "/keys",
        "OTTLA_LISTENER_NAME_OUT_SIDE_SCRAM_SHA_256_SASL_JAAS_CONFIG": "jaas",
        "OTTLA_PYTHON": "python3.12",
        "OTTLA_TEST_WORKERS": "2",
    }
    config = Config.load(environ=environ)
    assert config.for_listener("OUT_SIDE", "ssl.keystore.location") == "/keys"
    assert config.for_listener("OTHER", "ssl.keystore.location") is None
    assert config.for_listener("OUT_SIDE", "sasl.jaas.config", "SCRAM-SHA-256") == "jaas"
    assert config.for_listener("OUT_SIDE", "sasl.jaas.config", "PLAIN") is None
    assert config.warnings == ()


def test_unknown_keys_are_warned_about_once(file: Path) -> None:
    file.write_text(
        "num.partition=3\nzookeeper.connect=localhost:2181\nrsm.config.bucket=b\nlistener.name.x.nothing=1\n"
    )
    config = Config.load(str(file), environ={"OTTLA_LOG_RETENTION_M": "1"}, overrides={"num.partitoins": "2"})
    assert config.warnings == (
        "unknown setting OTTLA_LOG_RETENTION_M in the environment; did you mean 'OTTLA_LOG_RETENTION_MS'?",
        f"unknown configuration key 'num.partition' ({file}, line 1); did you mean 'num.partitions'?",
        f"unknown configuration key 'zookeeper.connect' ({file}, line 2); remove it: there is no ZooKeeper any more",
        f"unknown configuration key 'listener.name.x.nothing' ({file}, line 4); it is ignored",
        "unknown configuration key 'num.partitoins' (--set); did you mean 'num.partitions'?",
    )
    assert config["num.partitions"] == 1


def test_dynamic_only_keys_in_a_file(file: Path) -> None:
    file.write_text("leader.replication.throttled.rate=3\n")
    config = Config.load(str(file))
    assert config.warnings == ("'leader.replication.throttled.rate' is ignored: it can only be set dynamically",)
    assert config["leader.replication.throttled.rate"] == 2**63 - 1


def test_bad_values_name_key_value_and_place(file: Path) -> None:
    file.write_text("#\nnum.partitions=0\n")
    with pytest.raises(ConfigError) as error:
        Config.load(str(file))
    assert str(error.value) == (
        f"Invalid value 0 for configuration num.partitions: Value must be at least 1 ({file}, line 2)"
    )
    with pytest.raises(ConfigError, match=r"Not a number of type LONG \(environment variable OTTLA_LOG_RETENTION_MS\)"):
        Config.load(environ={"OTTLA_LOG_RETENTION_MS": "soon"})
    with pytest.raises(ConfigError, match=r"String must be one of: uncompressed, .* \(--set\)"):
        Config.load(overrides={"compression.type": "brotli"})
    with pytest.raises(ConfigError, match=r"listener.name.x.ssl.client.auth: String must be one of"):
        Config.load(overrides={"listener.name.x.ssl.client.auth": "always"})


def test_kafkas_own_server_properties_loads(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.request.max.bytes": "104857600",
        "log.dirs": "/tmp/kraft-combined-logs",
        "num.partitions": "1",
        "num.recovery.threads.per.data.dir": "2",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.retention.hours": "168",
        "log.segment.bytes": "1073741824",
        "log.retention.check.interval.ms": "300000",
    }
    path.write_text("# like Kafka's\n" + "".join(f"{key}={value}\n" for key, value in settings.items()))
    config = Config.load(str(path))
    assert config.warnings == ()
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)


def test_node_id_and_broker_id_are_one(file: Path) -> None:
    assert Config.load(overrides={"broker.id": "4"}).node_id == 4
    assert Config.load(overrides={"node.id": "5"})["broker.id"] == 5
    assert Config.load().node_id == 1
    with pytest.raises(ConfigError, match=r"You must set `node.id` to the same value as `broker.id`"):
        Config.load(overrides={"broker.id": "4", "node.id": "5"})


EXAMPLES = sorted((Path(__file__).parents[2] / "configs").glob("*.properties"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_load_without_a_warning(example: Path) -> None:
    config = Config.load(str(example))
    assert config.warnings == ()
    assert config.listeners
    assert config["offsets.topic.replication.factor"] == 1


def test_there_are_examples_and_the_page_lists_each() -> None:
    page = (Path(__file__).parents[2] / "configs" / "README.md").read_text()
    assert len(EXAMPLES) >= 4
    assert all(f"`{example.name}`" in page for example in EXAMPLES)


def test_dev_example_equals_the_dev_preset() -> None:
    example = Config.load(str(Path(__file__).parents[2] / "configs" / "dev.properties"))
    preset = Config.load()
    different = {name for name in preset if example[name] != preset[name]}
    assert different == {"listeners", "log.dirs", "metadata.log.dir"}


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("port", "use listeners=PLAINTEXT://HOST:PORT instead"),
        ("zookeeper.session.timeout.ms", "there is no ZooKeeper any more"),
        ("inter.broker.protocol.version", "remove it: Kafka 4 does not have it any more"),
    ],
)
def test_keys_that_kafka_dropped_name_their_successor(key: str, advice: str) -> None:
    (warning,) = Config.load(None, overrides={key: "1"}).warnings
    assert advice in warning


def test_dropped_keys_are_gone_from_the_table() -> None:
    assert not REMOVED_KEYS.keys() & BROKER_KEYS.keys()
