"""Kafka's tools by Ottla print what Kafka's own print: both are run on the same broker."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main as ottla_command
from ottla.kafka_tools.__main__ import main
from ottla.kafka_tools.configs import parse_pairs
from support.interop import toolchains

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options that name a broker with a topic of two records and a group that has read them."""
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text("a:1\nb:2\n")
    with ottla.serve() as broker:
        server = ["--bootstrap-server", broker.bootstrap]
        create = ["--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=1000000"]
        assert main(["kafka-topics", *create, *server]) == 0
        produce = ["produce", "orders", "--key-separator", ":", "--input", str(lines), "--bootstrap", broker.bootstrap]
        assert ottla_command(produce) == 0
        reset = ["--reset-offsets", "--group", "readers", "--topic", "orders", "--to-latest", "--execute"]
        assert main(["kafka-consumer-groups", *reset, *server]) == 0
        yield server


@pytest.fixture
def tool(server: list[str], capfd: pytest.CaptureFixture[str]) -> Tool:
    """Ours: what it prints on standard output, or on standard error if it fails."""

    def run(name: str, *words: str, code: int = 0) -> str:
        capfd.readouterr()
        assert main([f"/opt/kafka/bin/{name}.sh", *words, *server]) == code, capfd.readouterr()
        found = capfd.readouterr()
        return found.err if code else found.out

    return run


RECORD = ("partition", "offset", "timestamp", "headers", "key")


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka-topics", ["--list"]),
        ("kafka-topics", ["--describe", "--topic", "orders"]),
        (
            "kafka-console-consumer",
            ["--topic", "orders", "--from-beginning", "--max-messages", "2"]
            + [word for each in RECORD for word in ("--formatter-property", f"print.{each}=true")],
        ),
        ("kafka-consumer-groups", ["--list"]),
        ("kafka-consumer-groups", ["--describe", "--group", "readers"]),
        ("kafka-configs", ["--describe", "--entity-type", "topics", "--entity-name", "orders"]),
        ("kafka-get-offsets", ["--topic", "orders"]),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0].strip("-"),
)
def test_the_output_is_that_of_apache_kafka(name: str, words: list[str], tool: Tool, server: list[str]) -> None:
    toolchains.need("java", "mvn")
    command = [*toolchains.JAVA, "-cp", f"{toolchains.kafka_jars()}/*", CLASSES[name], *words, *server]
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    ours = tool(name, *words)
    assert sorted(_lines(ours)) == sorted(_lines(theirs))
    assert _lines(ours)


def _lines(text: str) -> list[str]:
    """Without blanks at the ends of lines and advice about the group protocol; Kafka's settings are in no order."""
    found = [line.rstrip() for line in text.splitlines() if line.strip() and "KIP-848" not in line]
    return [re.sub(r"(?<=Configs: ).*", lambda each: ",".join(sorted(each[0].split(","))), line) for line in found]


def test_topics(tool: Tool) -> None:
    assert tool("kafka-topics", "--create", "--topic", "new", "--partitions", "1") == "Created topic new.\n"
    again = tool("kafka-topics", "--create", "--topic", "new", code=1)
    assert again.startswith("Error while executing topic command : Topic 'new' already exists.")
    assert tool("kafka-topics", "--create", "--topic", "new", "--if-not-exists") == ""
    tool("kafka-topics", "--alter", "--topic", "new", "--partitions", "3")
    assert "PartitionCount: 3" in tool("kafka-topics", "--describe", "--topic", "new")
    tool("kafka-topics", "--delete", "--topic", "new")
    missing = tool("kafka-topics", "--delete", "--topic", "new", code=1)
    assert missing == "Error while executing topic command : Topic 'new' does not exist as expected\n"


def test_settings(tool: Tool) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "orders")
    changes = ("--add-config", "segment.bytes=2000000,cleanup.policy=[compact,delete]", "--delete-config", "flush.ms")
    assert tool("kafka-configs", "--alter", *entity, *changes) == "Completed updating config for topic orders.\n"
    shown = tool("kafka-configs", "--describe", *entity)
    assert "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy" in shown
    assert "segment.bytes=2000000" in shown
    tool("kafka-configs", "--alter", *entity, "--delete-config", "segment.bytes,cleanup.policy")
    assert "segment.bytes" not in tool("kafka-configs", "--describe", *entity)


def test_lists_in_brackets() -> None:
    assert parse_pairs("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}


def test_offsets_are_reset_only_with_execute(tool: Tool) -> None:
    reset = ("--reset-offsets", "--group", "other", "--topic", "orders:0", "--to-earliest")
    assert tool("kafka-consumer-groups", *reset).split()[4:] == ["other", "orders", "0", "0"]
    assert "other" not in tool("kafka-consumer-groups", "--list").split()
    tool("kafka-consumer-groups", *reset, "--execute")
    assert "other" in tool("kafka-consumer-groups", "--list").split()
    done = tool("kafka-consumer-groups", "--delete", "--group", "other")
    assert done == "Deletion of requested consumer groups ('other') was successful.\n"


def test_a_consumer_without_records_ends_after_its_timeout(tool: Tool) -> None:
    assert tool("kafka-console-consumer", "--topic", "orders", "--timeout-ms", "50") == ""


def test_health_checks(tool: Tool) -> None:
    assert tool("kafka-cluster", "cluster-id").startswith("Cluster ID: ")
    assert "Produce(0): 0 to " in tool("kafka-broker-api-versions")


def test_a_broker_that_is_not_there_is_exit_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-cluster.sh", "cluster-id", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capfd.readouterr().err


def test_a_tool_that_is_not_here_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-mirror-maker.sh"]) == 1
    assert "there is no tool 'kafka-mirror-maker'" in capfd.readouterr().err


def test_a_folder_is_formatted_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=3\nlog.dirs={tmp_path / 'data'}\n")
    command = ["kafka-storage.sh", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(file)]
    assert main(command) == 0
    meta = (tmp_path / "data" / "meta.properties").read_text()
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in meta and "node.id=3" in meta
    assert main(command) == 1
    assert "already formatted" in capfd.readouterr().err
    assert main([*command, "--ignore-formatted"]) == 0
    assert (tmp_path / "data" / "meta.properties").read_text() == meta
