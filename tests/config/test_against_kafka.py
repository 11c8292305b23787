"""The tables and their errors equal those of Apache Kafka, for every key and sample."""

from __future__ import annotations

import base64
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.config import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, Config, ConfigError
from ottla.config.broker import DYNAMIC_ONLY_KEYS, SYNONYMS
from ottla.config.keys import Range, format_value
from ottla.config.properties import parse_properties
from ottla.enums import ConfigType

pytestmark = pytest.mark.jvm

TABLES = {
    "broker": BROKER_KEYS,
    "dynamic": DYNAMIC_ONLY_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client-metrics": CLIENT_METRICS_KEYS,
}

# Chosen to reach every branch of every type and validator of at least one key.
SAMPLES = [
    *("", " ", "0", "1", "-1", "-2", "-3", "+5", " 7 ", "--1", "+", "007", "1_000", "0x10", "1e3", "١٢"),
    *("32767", "32768", "-32769", "2147483647", "2147483648", "-2147483649", "9223372036854775807"),
    *("9223372036854775808", "1.5", ".5", "5.", "-0.1", "NaN", "Infinity", "inf", "nan", "1.0d", "2f", "1e400"),
    *("true", "TRUE", "False", "yes", "abc", "a b", "a,b", "a,a", ",", "a,", "a,,b", " a , b ", "*", "*,1:2"),
    *("x:1", "1:2,3:4", "1:2,", "a:b", "delete", "compact", "compact,delete", "delete,delete", "delete,x"),
    *("none", "uncompressed", "gzip", "zstd", "producer", "CreateTime", "LogAppendTime", "createtime"),
    *("PLAINTEXT", "SASL_SSL", "required", "none", "disabled", "BIDIRECTIONAL", "classic", "es256"),
    *("broker", "controller,broker", "read_committed", "earliest", "latest", "Latest", "by_duration:P1D"),
    *("by_duration:PT1.5S", "by_duration:pt3h", "by_duration:P1DT2H3M4S", "by_duration:-PT1S", "by_duration:P1Y"),
    *("by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:PT0S", "by_duration:x"),
    *("1@h:1", "1@h:1,2@[::1]:2", "1@h", "x@h:1", "h:1", "h:x", "[::1]:9092", "1", "0.0001", "12345678.9"),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Callable[..., list[list[str]]]:
    """Runs the facts program and splits its output at tabs."""
    script = pytestconfig.rootpath / "scripts" / "kafka-jars"
    jars = subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()
    source = Path(__file__).with_name("KafkaConfigFacts.java")
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, source], check=True, capture_output=True)

    def run(command: str, lines: list[str] | None = None) -> list[list[str]]:
        done = subprocess.run(
            ["java", "-Dlog4j2.level=OFF", "-Dfile.encoding=UTF-8", "-cp", f"{classes}:{jars}/*", source.stem, command],
            input="".join(line + "\n" for line in lines or []),
            check=True,
            capture_output=True,
            encoding="utf-8",
        )
        return [line.split("\t") for line in done.stdout.split("\n") if line]

    return run


@pytest.fixture(scope="module")
def facts(kafka: Callable[..., list[list[str]]]) -> list[list[str]]:
    return kafka("facts")


def test_keys_types_defaults_and_importance(facts: list[list[str]]) -> None:
    theirs = {tuple(fact[1:]) for fact in facts if fact[0] == "key"}
    ours = set()
    for kind, table in TABLES.items():
        for key in table.values():
            default = "required" if key.required else format_value(key.default)
            row = (kind, key.name, key.type.name, "null" if default is None else default, key.importance)
            ours.add((*row, str(key.internal).lower()))
    assert ours == theirs
    assert len(ours) == 417


def test_update_modes(facts: list[list[str]]) -> None:
    theirs = {name: mode for kind, name, mode in (fact for fact in facts if fact[0] == "mode")}
    ours = {key.name: key.mode for key in [*BROKER_KEYS.values(), *DYNAMIC_ONLY_KEYS.values()] if key.dynamic}
    assert ours == theirs


def test_sensitive_keys(facts: list[list[str]]) -> None:
    theirs = {fact[2] for fact in facts if fact[0] == "key" and fact[3] == "PASSWORD"}
    assert {key.name for table in TABLES.values() for key in table.values() if key.sensitive} == theirs


def test_synonyms(facts: list[list[str]]) -> None:
    theirs: dict[tuple[str, str], tuple[str, ...]] = {}
    for kind, name, broker in (fact[1:] for fact in facts if fact[0] == "synonym"):
        theirs[kind, name] = (*theirs.get((kind, name), ()), broker)
    ours = {
        (kind, key.name): key.synonyms for kind in ("topic", "group") for key in TABLES[kind].values() if key.synonyms
    }
    assert ours == theirs


def test_keys_that_share_a_value(facts: list[list[str]]) -> None:
    from ottla.config.describe import _related

    theirs = {fact[1]: tuple(fact[2].split(",")) for fact in facts if fact[0] == "related"}
    assert {name: _related(name) for name in theirs} == theirs
    assert set(SYNONYMS) < set(theirs)


def _bounds(validator: object) -> list[str]:
    if not isinstance(validator, Range):
        return []
    bounds = [bound for bound in (validator.low, validator.high) if bound is not None]
    return [format_value(bound + step) or "" for bound in bounds for step in (-1, 0, 1)]


def test_accepted_values_and_error_messages(kafka: Callable[..., list[list[str]]]) -> None:
    cases = [
        (kind, key, sample)
        for kind, table in TABLES.items()
        for key in table.values()
        # Kafka looks up classes in the JVM; here only the name can be checked.
        if key.type is not ConfigType.CLASS
        for sample in dict.fromkeys([*SAMPLES, *_bounds(key.validator)])
    ]
    answers = kafka("check", [f"{kind}\t{key.name}\t{sample}" for kind, key, sample in cases])
    assert len(answers) == len(cases)
    wrong = []
    for (kind, key, sample), theirs in zip(cases, answers, strict=True):
        try:
            ours = ["ok", format_value(key.parse(sample))]
        except ConfigError as error:
            ours = ["error", str(error)]
        if ours != theirs:
            wrong.append((kind, key.name, sample, ours, theirs))
    assert not wrong, f"{len(wrong)} differ: {wrong[:: max(1, len(wrong) // 25)]}"


KRAFT = (
    *("process.roles=broker,controller", "node.id=1", "controller.listener.names=CONTROLLER"),
    *("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.voters=1@localhost:9093"),
)
FULL_MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
# Whole configurations that break a rule between keys, or only just satisfy it.
COMBINATIONS = [
    [],
    ["log.retention.hours=1"],
    ["log.retention.minutes=2", "log.retention.hours=1"],
    ["log.retention.ms=-7"],
    ["log.retention.ms=0"],
    ["log.roll.ms=0"],
    ["log.roll.jitter.ms=-1"],
    ["replica.fetch.wait.max.ms=40000"],
    ["replica.lag.time.max.ms=100"],
    ["log.cleaner.dedupe.buffer.size=1"],
    ["log.cleaner.threads=1000"],
    ["log.cleaner.threads=127"],
    ["log.cleaner.threads=128"],
    ["queued.max.request.bytes=10"],
    ["queued.max.request.bytes=0"],
    ["max.connections.per.ip=0"],
    ["max.connections.per.ip=0", "max.connections.per.ip.overrides=127.0.0.1:5"],
    ["max.connections.per.ip.overrides=abc"],
    ["max.connections.per.ip.overrides=127.0.0.1:x"],
    *([f"group.{kind}.max.session.timeout.ms=1"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.session.timeout.ms=1"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.session.timeout.ms=60001"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.heartbeat.interval.ms=1"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.heartbeat.interval.ms=15001"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.min.heartbeat.interval.ms=20000"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.assignment.interval.ms=20000"] for kind in ("consumer", "share", "streams")),
    *([f"group.{kind}.min.assignment.interval.ms=16000"] for kind in ("consumer", "share", "streams")),
    *(
        [f"group.{kind}.heartbeat.interval.ms=46000", f"group.{kind}.max.heartbeat.interval.ms=47000"]
        for kind in ("consumer", "share", "streams")
    ),
    ["group.share.record.lock.duration.ms=3600000"],
    ["group.share.record.lock.duration.ms=1000"],
    ["group.share.delivery.count.limit=10", "group.share.max.delivery.count.limit=7"],
    ["group.share.delivery.count.limit=4", "group.share.min.delivery.count.limit=5"],
    ["group.share.partition.max.record.locks=5000"],
    ["group.share.partition.max.record.locks=100", "group.share.min.partition.max.record.locks=101"],
    ["group.share.max.share.sessions=100"],
    ["group.streams.num.standby.replicas=9"],
    ["group.coordinator.rebalance.protocols=consumer"],
    ["group.coordinator.rebalance.protocols=classic"],
    ["offsets.topic.compression.codec=9"],
    ["cordoned.log.dirs=/x"],
    ["cordoned.log.dirs=*"],
    ["broker.id=3"],
    ["node.id=-1"],
    ["listeners=PLAINTEXT://h:1,PLAINTEXT://h:2,CONTROLLER://:9093"],
    ["listeners=PLAINTEXT://:1,FOO://:2,CONTROLLER://:9093"],
    ["listeners=PLAINTEXT://:1,SSL://:1,CONTROLLER://:9093"],
    ["listeners=PLAINTEXT://:0,SSL://:0,CONTROLLER://:9093", FULL_MAP],
    ["listeners=PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,CONTROLLER://:9093", FULL_MAP],
    ["listeners=plaintext://[::1]:9092,CONTROLLER://:9093"],
    ["listeners=PLAINTEXT:9092,CONTROLLER://:9093"],
    ["listeners=PLAINTEXT://:x,CONTROLLER://:9093"],
    ["listeners="],
    ["advertised.listeners=PLAINTEXT://0.0.0.0:9092"],
    ["advertised.listeners=PLAINTEXT://x:9092,PLAINTEXT://y:9092"],
    ["advertised.listeners=PLAINTEXT://x:7"],
    ["advertised.listeners=CONTROLLER://x:9093,PLAINTEXT://x:1"],
    ["listener.security.protocol.map=PLAINTEXT:FOO"],
    ["listener.security.protocol.map=PLAINTEXT"],
    ["listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"],
    ["listener.security.protocol.map="],
    ["inter.broker.listener.name=X"],
    ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
    ["security.inter.broker.protocol=SSL"],
    ["controller.listener.names=X"],
    ["early.start.listeners=Q"],
]


def test_rules_between_keys(kafka: Callable[..., list[list[str]]]) -> None:
    answers = kafka("load", ["\t".join([*KRAFT, *combination]) for combination in COMBINATIONS])
    wrong = []
    for combination, (verdict, *theirs) in zip(COMBINATIONS, answers, strict=True):
        settings = dict(setting.split("=", 1) for setting in [*KRAFT, *combination])
        try:
            config = Config(settings)
            advertised = ",".join(f"{listener.name}://{listener.port}" for listener in config.advertised_listeners)
            ours = ["ok", str(config.node_id), str(config["log.retention.ms"]), advertised]
        except ConfigError as error:
            ours = ["error", str(error)]
        if ([verdict, *theirs] != ours and verdict == "ok") or ours[0] != verdict:
            wrong.append((combination, ours, verdict, theirs))
    assert not wrong, f"{len(wrong)} differ: {wrong[:: max(1, len(wrong) // 25)]}"


def test_properties_syntax_is_javas(kafka: Callable[..., list[list[str]]]) -> None:
    chance = random.Random(7)
    pieces = ["a", "b", "=", ":", " ", "\t", "\f", "\\", "\n", "\r", "\r\n", "#", "!", "\\u0041", "\\u00g", "\\n", "é"]
    texts = ["".join(chance.choices(pieces, k=chance.randint(1, 14))) for _ in range(4000)]
    # In Java, a line of one backslash sometimes makes an entry without a name; here it is ignored.
    texts = [text for text in texts if not re.search(r"(^|[\r\n])[ \t\f]*\\(?=[\r\n]|$)", text)]
    answers = kafka("properties", [base64.b64encode(text.encode()).decode() for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        try:
            found = {key: value for key, (value, _line) in parse_properties(text).items()}
        except ConfigError:
            assert answer == ["error"], repr(text)
            continue
        assert answer[0] == "ok", repr(text)
        fields = base64.b64decode(answer[1]).decode().split("\0")[:-1]
        theirs = dict(zip(fields[::2], fields[1::2], strict=True))
        assert found == theirs, repr(text)
