"""What DescribeConfigs answers: sources, synonyms and secrets; also against a real broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.config import Config, ConfigError
from ottla.config.describe import ConfigSource, ConfigSynonym, DescribedConfig
from support.kafka import Kafka


def one(config: Config, resource: str, name: str, overrides: dict[str, str] | None = None) -> DescribedConfig:
    (entry,) = config.describe(resource, overrides or {}, [name])
    return entry


def test_default_value() -> None:
    entry = one(Config(), "broker", "num.partitions")
    assert (entry.value, entry.source, entry.read_only) == ("1", ConfigSource.DEFAULT_CONFIG, True)
    assert entry.synonyms == (ConfigSynonym("num.partitions", "1", ConfigSource.DEFAULT_CONFIG),)
    assert entry.documentation == "Partitions of topics that are made automatically or without a number."


def test_layers_are_listed_by_priority() -> None:
    config = Config({"num.io.threads": "5"}, {"num.io.threads": "6"}, {"num.io.threads": "7"})
    entry = one(config, "broker", "num.io.threads")
    assert [(synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("7", "DYNAMIC_BROKER_CONFIG"),
        ("6", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("5", "STATIC_BROKER_CONFIG"),
        ("8", "DEFAULT_CONFIG"),
    ]
    assert entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert not entry.read_only


def test_secrets_and_unknown_keys_are_not_described() -> None:
    config = Config({"ssl.key.password": "hush", "my.plugin.token": "hush"})
    for name in ("ssl.key.password", "my.plugin.token"):
        entry = one(config, "broker", name)
        assert entry.sensitive
        assert entry.value is None
        assert [synonym.value for synonym in entry.synonyms] == [None]
    assert one(config, "broker", "my.plugin.token").documentation is None


def test_internal_keys_are_shown_once_they_are_set() -> None:
    names = {entry.name for entry in Config().describe("broker")}
    assert len(names) == 340
    assert "log.initial.task.delay.ms" not in names
    assert one(Config({"log.initial.task.delay.ms": "1"}), "broker", "log.initial.task.delay.ms").value == "1"
    assert len(Config().describe("topic")) == 33
    assert one(Config(), "topic", "internal.segment.bytes", {"internal.segment.bytes": "9"}).value == "9"


def test_topic_value_through_hours() -> None:
    config = Config({"log.retention.hours": "1"})
    entry = one(config, "topic", "retention.ms")
    assert (entry.value, entry.synonyms) == ("3600000", ())
    assert one(config, "broker", "log.retention.ms").value is None


def test_cluster_shows_its_dynamic_settings_only() -> None:
    config = Config({}, {"log.retention.ms": "5", "foo": "x"})
    entries = {entry.name: entry for entry in config.describe("cluster")}
    assert set(entries) == {"log.retention.ms", "foo"}
    assert entries["log.retention.ms"].value == "5"
    assert entries["foo"].value is None


STATIC = ("log.roll.hours=100", "ssl.key.password=secret", "my.own.key=1", "log.cleanup.policy=delete,compact,delete")
CHANGES = [
    ("TOPIC", "t", "retention.ms", "1000"),
    ("TOPIC", "t", "cleanup.policy", "compact,compact"),
    ("TOPIC", "t", "internal.segment.bytes", "5000"),
    ("TOPIC", "t", "min.cleanable.dirty.ratio", "0.00005"),
    ("TOPIC", "t", "compression.type", "none"),
    ("TOPIC", "t", "foo", "1"),
    ("BROKER", "", "log.retention.ms", "5000000"),
    ("BROKER", "", "foo.cluster", "1"),
    ("BROKER", "", "log.segment.bytes", "2097152"),
    ("BROKER", "", "listeners", "PLAINTEXT://:1"),
    ("BROKER", "1", "log.retention.ms", "6000000"),
    ("BROKER", "1", "num.network.threads", "100"),
    ("BROKER", "1", "leader.replication.throttled.rate", "100"),
    ("BROKER", "1", "node.id", "7"),
    ("BROKER", "1", "listener.name.plaintext.ssl.truststore.type", "PEM"),
    ("BROKER", "1", "log.cleaner.io.max.bytes.per.second", "1e3"),
    ("BROKER", "1", "log.roll.ms", "abc"),
    ("GROUP", "g", "consumer.session.timeout.ms", "50000"),
    ("GROUP", "g", "consumer.heartbeat.interval.ms", "1"),
    ("GROUP", "g", "share.auto.offset.reset", "by_duration:PT1H"),
    ("CLIENT_METRICS", "m", "interval.ms", "60000"),
    ("CLIENT_METRICS", "m", "match", "client_id=x"),
    ("CLIENT_METRICS", "m", "match", "colour=red"),
]
KINDS = {"TOPIC": "topic", "GROUP": "group", "CLIENT_METRICS": "client-metrics"}


class Model:
    """Applies the same changes to Ottla's Config."""

    def __init__(self, static: dict[str, str]) -> None:
        # A Kafka with eligible leader replicas starts with this cluster default.
        self.config = Config(static, {"min.insync.replicas": "1"})
        self.overrides: dict[str, dict[str, str]] = {"TOPIC": {}, "GROUP": {}, "CLIENT_METRICS": {}}

    def set(self, kind: str, name: str, key: str, value: str) -> str:
        try:
            if kind == "BROKER":
                layer = {**(self.config.dynamic_broker if name else self.config.dynamic_cluster), key: value}
                self.config = self.config.validate_dynamic(layer, per_broker=bool(name), changed=[key])
            else:
                overrides = {**self.overrides[kind], key: value}
                if kind == "TOPIC":
                    self.config.validate_topic(overrides)
                elif kind == "GROUP":
                    self.config.group(overrides, strict=True)
                else:
                    self.config.client_metrics(overrides, strict=True)
                self.overrides[kind] = overrides
        except ConfigError as error:
            return str(error)
        return "ok"

    def describe(self, kind: str, name: str) -> set[tuple[str, ...]]:
        if kind == "BROKER":
            entries = self.config.describe("broker" if name else "cluster")
        else:
            entries = self.config.describe(KINDS[kind], self.overrides[kind])
        return {
            (
                *(kind, name, entry.name, str(entry.value) if entry.value is not None else "null", entry.source.name),
                *(str(entry.read_only).lower(), str(entry.sensitive).lower(), entry.type.name),
                "".join(f"{s.name}={'null' if s.value is None else s.value}@{s.source.name};" for s in entry.synonyms),
            )
            for entry in entries
        }


@pytest.mark.jvm
@pytest.mark.slow
def test_descriptions_equal_a_real_brokers(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    scripts = pytestconfig.rootpath / "scripts"
    jars = subprocess.run([scripts / "kafka-jars"], check=True, capture_output=True, text=True).stdout.strip()
    kafka = Kafka(tmp_path / "kafka", *STATIC)
    resources = [("TOPIC", "t"), ("BROKER", "1"), ("BROKER", ""), ("GROUP", "g"), ("CLIENT_METRICS", "m")]
    lines = ["topic\tTOPIC\tt"]
    lines += [f"describe\t{kind}\t{name}" for kind, name in resources]
    lines += ["set\t" + "\t".join(change) for change in CHANGES]
    lines += [f"describe\t{kind}\t{name}" for kind, name in resources]
    try:
        source = Path(__file__).with_name("KafkaDescribe.java")
        output = subprocess.run(
            ["java", "-cp", f"{jars}/*", source, kafka.bootstrap],
            input="".join(line + "\n" for line in lines),
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    finally:
        kafka.kill()
    told = [tuple(line.split("\t")) for line in output.splitlines()]
    last_set = max(index for index, line in enumerate(told) if line[0] == "set")
    before = {line[1:] for line in told[:last_set] if line[0] == "entry"}
    after = {line[1:] for line in told[last_set:] if line[0] == "entry"}

    properties = (tmp_path / "kafka" / "server.properties").read_text().splitlines()
    model = Model(dict(line.split("=", 1) for line in properties if not line.startswith("#")))
    assert set().union(*(model.describe(*resource) for resource in resources)) == before
    answers = [model.set(*change) for change in CHANGES]
    # Kafka wraps the error of a refused reconfiguration in another one; only the inner message is compared.
    for change, ours, (_, theirs) in zip(CHANGES, answers, (line for line in told if line[0] == "set"), strict=True):
        assert ours == theirs or (ours != "ok" and ours in theirs), change
    assert set().union(*(model.describe(*resource) for resource in resources)) == after
