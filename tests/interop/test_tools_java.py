"""Kafka's own command line tools. They run inside the Java driver, one JVM for all of them."""

import re

import pytest

from support.batches import batch, records_of
from support.interop.drivers import clients
from support.wire import Wire

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]


@pytest.fixture
def tool(driver, broker):
    def run(name: str, *words: str, stdin: str = "", status: int = 0, bootstrap: str = "--bootstrap-server") -> str:
        where = (bootstrap, broker.bootstrap) if bootstrap else ()
        done = driver.call("tool", name=f"org.apache.kafka.{name}", args=[*where, *words], stdin=stdin)
        assert done["status"] == status, done
        return done["stdout"] + (done["stderr"] if status else "")

    return run


def test_topics(tool, unique, wire: Wire) -> None:
    topic = unique("t")
    out = tool(
        "tools.TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=1000000"
    )
    assert f"Created topic {topic}" in out
    wire.wait_until_ready(topic, 3)
    described = tool("tools.TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1", described), described
    assert "retention.ms=1000000" in described or "Configs:" in described
    assert topic in tool("tools.TopicCommand", "--list").split()
    again = tool("tools.TopicCommand", "--create", "--topic", topic, status=1)
    assert "already exists" in again
    tool("tools.TopicCommand", "--delete", "--topic", topic)
    missing = tool("tools.TopicCommand", "--describe", "--topic", unique("nowhere"), status=1)
    assert "does not exist" in missing


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(tool, codec: str, topic: str, wire: Wire) -> None:
    # --sync, because otherwise a shutdown hook flushes the producer, and this JVM does not shut down.
    more = (
        "--sync",
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
        "--compression-codec",
        codec,
    )
    tool("tools.ConsoleProducer", "--topic", topic, *more, stdin="k1:one\nk2:two\n")
    assert [(r.key, r.value) for r in records_of(wire.fetch(topic, 0))] == [(b"k1", b"one"), (b"k2", b"two")]
    out = tool(
        "tools.consumer.ConsoleConsumer",
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        "2",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "print.offset=true",
    )
    assert out.splitlines()[:2] == ["Offset:0\tk1\tone", "Offset:1\tk2\ttwo"]


def test_offsets(tool, make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    wire.produce(topic, batch(b"a", b"b", timestamp=1_700_000_000_000), 1)
    latest = tool("tools.GetOffsetShell", "--topic", topic)
    assert sorted(latest.split()) == [f"{topic}:0:0", f"{topic}:1:2"]
    assert sorted(tool("tools.GetOffsetShell", "--topic", topic, "--time", "earliest").split()) == [
        f"{topic}:0:0",
        f"{topic}:1:0",
    ]
    assert f"{topic}:1:0" in tool("tools.GetOffsetShell", "--topic", topic, "--time", "max-timestamp").split()


def test_performance_tools(tool, topic: str, wire: Wire, broker) -> None:
    produced = tool(
        "tools.ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "2000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--command-property",
        f"bootstrap.servers={broker.bootstrap}",
        bootstrap="",
    )
    assert "2000 records sent" in produced
    assert wire.list_offsets(topic, -1).offset == 2000


def test_broker_versions(tool) -> None:
    out = tool("tools.BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", out), out
    assert re.search(r"ApiVersions\(18\): 0 to 4 \[usable: 4\]", out), out
