"""Ottla's versions of Kafka's tools print the same as Kafka's own: both run on the same broker."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import ottla
from ottla.cli.common import CommandError
from ottla.cli.main import main as ottla_command
from ottla.kafka_tools.__main__ import main
from ottla.kafka_tools.configs import parse_pairs
from ottla.kafka_tools.formatter import Line
from ottla.records.record import Record
from support.interop import toolchains

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options that name a broker with a topic of two records and a group that has read them."""
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text("a:1\nb:2\n")
    with ottla.serve(settings={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}) as broker:
        server = ["--bootstrap-server", broker.bootstrap]
        create = ["--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=1000000"]
        assert main(["kafka-topics", *create, *server]) == 0
        produce = ["produce", "orders", "--key-separator", ":", "--input", str(lines), "--bootstrap", broker.bootstrap]
        assert ottla_command(produce) == 0
        reset = ["--reset-offsets", "--group", "readers", "--topic", "orders", "--to-latest", "--execute"]
        assert main(["kafka-consumer-groups", *reset, *server]) == 0
        user = [
            "--user",
            "alice",
            "--add-config",
            "SCRAM-SHA-256=[iterations=8192,password=secret],request_percentage=50",
        ]
        assert main(["kafka-configs", "--alter", *user, *server]) == 0
        acl = ["--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers"]
        assert main(["kafka-acls", *acl, *server]) == 0
        readers = [
            _reader(broker.bootstrap, "reading", {"group.protocol": "classic"}),
            _reader(broker.bootstrap, "reading-too", {"group.protocol": "consumer"}),
        ]
        for group in ("reading", "reading-too"):
            broker.group(group).wait_until_stable(members=1)
        yield server
        for reader in readers:
            reader.close()


def _reader(bootstrap: str, group: str, settings: dict[str, str]) -> Consumer:
    """A member of a group that has its partitions."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": group, **settings})
    reader.subscribe(["orders"])
    for _ in range(100):
        reader.poll(0.1)
        if reader.assignment():
            return reader
    raise AssertionError(f"{group} got no partitions")


@pytest.fixture
def tool(server: list[str], capfd: pytest.CaptureFixture[str]) -> Tool:
    """Runs Ottla's tool. Returns its standard output."""

    def run(name: str, *words: str, code: int = 0) -> str:
        capfd.readouterr()
        assert main([f"/opt/kafka/bin/{name}.sh", *words, *server]) == code, capfd.readouterr()
        found = capfd.readouterr()
        return found.out

    return run


def run(name: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs Ottla's tool in its own process, with a standard input."""
    command = [sys.executable, "-m", "ottla.kafka_tools", name, *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


RECORD = ("partition", "offset", "timestamp", "headers", "key")


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka-topics", ["--list"]),
        ("kafka-topics", ["--describe", "--topic", "orders"]),
        ("kafka-topics", ["--describe", "--topic", "orders", "--at-min-isr-partitions"]),
        ("kafka-topics", ["--describe", "--topics-with-overrides", "--topic", "orders"]),
        (
            "kafka-console-consumer",
            ["--topic", "orders", "--from-beginning", "--max-messages", "2"]
            + [word for each in RECORD for word in ("--formatter-property", f"print.{each}=true")],
        ),
        ("kafka-consumer-groups", ["--list"]),
        ("kafka-consumer-groups", ["--describe", "--group", "readers"]),
        ("kafka-consumer-groups", ["--list", "--state", "--type"]),
        ("kafka-consumer-groups", ["--describe", "--group", "readers", "--state"]),
        (
            "kafka-consumer-groups",
            ["--reset-offsets", "--group", "readers", "--all-topics", "--shift-by", "-9", "--export"],
        ),
        ("kafka-consumer-groups", ["--describe", "--group", "reading", "--members"]),
        ("kafka-consumer-groups", ["--describe", "--group", "reading", "--members", "--verbose"]),
        ("kafka-consumer-groups", ["--describe", "--group", "reading-too", "--members", "--verbose"]),
        ("kafka-consumer-groups", ["--describe", "--group", "reading", "--state", "--verbose"]),
        ("kafka-consumer-groups", ["--describe", "--group", "reading-too", "--state", "--verbose"]),
        (
            "kafka-consumer-groups",
            ["--reset-offsets", "--group", "reading", "--topic", "orders", "--to-earliest", "--execute"],
        ),
        (
            "kafka-consumer-groups",
            ["--reset-offsets", "--group", "new", "--topic", "missing", "--to-earliest", "--execute"],
        ),
        ("kafka-consumer-groups", ["--delete", "--group", "reading", "--group", "missing"]),
        (
            "kafka-consumer-groups",
            ["--delete-offsets", "--group", "reading", "--topic", "orders", "--topic", "missing"],
        ),
        ("kafka-consumer-groups", ["--delete-offsets", "--group", "missing", "--topic", "orders:0"]),
        ("kafka-configs", ["--describe", "--entity-type", "topics", "--entity-name", "missing"]),
        ("kafka-configs", ["--describe", "--entity-type", "groups", "--entity-name", "missing"]),
        ("kafka-configs", ["--describe", "--entity-type", "brokers", "--entity-name", "9"]),
        ("kafka-configs", ["--describe", "--entity-type", "topics", "--entity-name", "orders"]),
        ("kafka-configs", ["--describe", "--topic", "orders", "--all"]),
        ("kafka-configs", ["--describe", "--entity-type", "users"]),
        ("kafka-configs", ["--describe", "--entity-type", "brokers"]),
        ("kafka-get-offsets", ["--topic", "orders"]),
        ("kafka-get-offsets", ["--topic-partitions", "or.*:0-1,:9", "--time", "max-timestamp"]),
        ("kafka-cluster", ["list-endpoints"]),
        ("kafka-acls", ["--list", "--topic", "orders", "--principal", "User:alice"]),
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


def test_members_and_epochs(tool: Tool) -> None:
    describe = ("--describe", "--verbose", "--group")
    (head, row) = tool("kafka-consumer-groups", *describe, "reading-too", "--members").splitlines()[1:]
    assert head.split()[5:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    count, epoch, assignment, target_epoch, target = row.split()[4:]
    assert (count, assignment, target) == ("2", "orders:0,1", "orders:0,1") and row.endswith("orders:0,1          ")
    assert int(epoch) == int(target_epoch) > 0
    classic = tool("kafka-consumer-groups", *describe, "reading", "--members").split()
    assert classic[-4:] == ["-", "orders:0,1", "-", "-"]
    state = tool("kafka-consumer-groups", *describe, "reading-too", "--state").split()
    assert state[-11:-8] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert state[-3:] == [epoch, epoch, "1"]


def test_refusals_of_groups(tool: Tool) -> None:
    java = "org.apache.kafka.common.errors"
    deleted = tool("kafka-consumer-groups", "--delete", "--group", "reading")
    assert f"* Group 'reading' could not be deleted due to: {java}.GroupNotEmptyException: The group is not" in deleted
    reset = ("--reset-offsets", "--group", "reading", "--topic", "orders", "--to-earliest", "--execute")
    assert tool("kafka-consumer-groups", *reset).splitlines() == [
        "",
        "Error: Assignments can only be reset if the group 'reading' is inactive, but the current state is Stable.",
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
    ]
    offsets = ("--delete-offsets", "--group", "reading", "--topic", "orders:0", "--topic", "missing")
    lines = tool("kafka-consumer-groups", *offsets).splitlines()
    assert lines[1] == "Error: Encountered some partition-level error, see the follow-up details."
    assert lines[4].startswith(
        f"missing         -          Error: {java}.UnknownTopicOrPartitionException: This server"
    )
    assert lines[5].startswith(f"orders          0          Error: {java}.GroupSubscribedToTopicException: Deleting")


def test_without_groups_there_is_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    with ottla.serve() as broker:
        assert main(["kafka-consumer-groups", "--list", "--bootstrap-server", broker.bootstrap]) == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("kind", ["topic", "group", "broker", "client-metric"])
def test_missing_resources_have_no_settings(kind: str, tool: Tool) -> None:
    named = ("--entity-type", kind + "s", "--entity-name", "99")
    said = f"The {kind} '99' doesn't exist and doesn't have dynamic config.\n"
    assert tool("kafka-configs", "--describe", *named) == said


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("kafka-topics", ["--list", "--create"], "Command must include exactly one action"),
        ("kafka-topics", ["--create"], 'Missing required argument "[topic]"'),
        ("kafka-topics", ["--list", "--if-not-exists"], 'Option "[list]" can\'t be used with option "[if-not-exists]"'),
        ("kafka-topics", ["--list", "--nothing"], "unrecognized arguments: --nothing"),
        ("kafka-consumer-groups", ["--list", "--state", "Nope"], "Invalid state list 'Nope'"),
        ("kafka-configs", ["--describe"], "At least one entity type must be specified"),
        ("kafka-configs", ["--alter", "--topic", "t"], "At least one of --add-config"),
        ("kafka-console-consumer", [], "Exactly one of the following arguments is required: [topic], [include]"),
        ("kafka-acls", ["--add", "--topic", "t"], "You must specify one of: --allow-principal, --deny-principal"),
        (
            "kafka-acls",
            ["--add", "--allow-principal", "User:a", "--operation", "Write", "--group", "g"],
            "ResourceType GROUP only supports operations",
        ),
    ],
)
def test_a_wrong_command_line_is_exit_code_1(
    name: str, words: list[str], message: str, server: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, *words, *server])
    assert ended.value.code == 1
    assert capfd.readouterr().err.startswith(message)


def test_topics_with_replicas_of_choice(tool: Tool) -> None:
    tool("kafka-topics", "--create", "--topic", "placed", "--replica-assignment", "1,1,1")
    assert "PartitionCount: 3" in tool("kafka-topics", "--describe", "--topic", "placed")
    refused = tool("kafka-topics", "--create", "--topic", "none", "--partitions", "0", code=1)
    assert refused == "Error while executing topic command : The partitions must be greater than 0\n"


def test_quotas_and_passwords(tool: Tool) -> None:
    both = ("--user", "bob", "--entity-type", "clients", "--entity-default")
    tool("kafka-configs", "--alter", *both, "--add-config", "producer_byte_rate=1024")
    shown = "Quota configs for user-principal 'bob', the default client-id are producer_byte_rate=1024.0\n"
    assert tool("kafka-configs", "--describe", *both) == shown
    tool("kafka-configs", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-512=[password=secret]")
    shown = "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=4096\n"
    assert tool("kafka-configs", "--describe", "--user", "bob") == shown
    tool("kafka-configs", "--alter", "--user", "bob", "--delete-config", "SCRAM-SHA-512")
    assert tool("kafka-configs", "--describe", "--user", "bob") == ""


def test_acls_are_added_and_removed(tool: Tool) -> None:
    add = ("--add", "--allow-principal", "User:eve", "--producer", "--idempotent", "--topic", "secret")
    assert "operation=IDEMPOTENT_WRITE" in tool("kafka-acls", *add)
    assert tool("kafka-acls", *add).count("already exists.") == 4
    assert "name=secret" in tool("kafka-acls", "--list", "--topic", "secret")
    tool("kafka-acls", "--remove", "--topic", "secret", "--force")
    assert tool("kafka-acls", "--list", "--topic", "secret") == ""


def test_a_producer_creates_its_topic_and_reads_headers(server: list[str], tool: Tool) -> None:
    properties = [f"--reader-property={each}" for each in ("parse.key=true", "parse.headers=true", "key.separator=:")]
    done = run("kafka-console-producer", *server, "--topic", "fresh", *properties, given="h1:a,h2:b\tkey:value\n")
    assert (done.returncode, done.stderr) == (0, "")
    shown = [f"--formatter-property=print.{each}=true" for each in ("headers", "key")]
    read = tool("kafka-console-consumer", "--topic", "fresh", "--from-beginning", "--max-messages", "1", *shown)
    assert read == "h1:a,h2:b\tkey\tvalue\n"
    bad = run("kafka-console-producer", *server, "--topic", "fresh", *properties, given="nothing\n")
    assert (bad.returncode, bad.stderr.strip().rpartition(": ")[0][-40:]) == (
        1,
        "No headers delimiter found on line number 1"[-40:],
    )
    ignored = run("kafka-console-producer", *server, "--topic", "bad/name", given="x\n")
    assert ignored.returncode == 0 and "Error when sending message to topic bad/name" in ignored.stderr


def test_a_consumer_without_records_ends_after_its_timeout(server: list[str]) -> None:
    for topic in ("orders", "not-yet"):
        done = run("kafka-console-consumer", *server, "--topic", topic, "--timeout-ms", "1500")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith("Processed a total of 0 messages\n")


def test_a_consumer_joins_its_group(server: list[str], tool: Tool) -> None:
    words = ["--topic", "orders", "--from-beginning", "--group", "joined"]
    command = [sys.executable, "-m", "ottla.kafka_tools", "kafka-console-consumer", *words, *server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert sorted(child.stdout.readline() for _ in range(2)) == ["1\n", "2\n"]
        members = tool("kafka-consumer-groups", "--describe", "--group", "joined", "--members", "--verbose")
        child.terminate()
        assert child.wait(30) == 143
    assert members.split()[-5:] == ["2", "-", "orders:0,1", "-", "-"]
    assert "Empty" in tool("kafka-consumer-groups", "--describe", "--group", "joined", "--state")
    again = tool("kafka-console-consumer", *words, "--timeout-ms", "1000")
    assert again == ""


def test_numbers_are_read_with_their_deserializer() -> None:
    line = Line({"print.key": "true", "value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"})
    assert line(("t", 0), Record(0, 0, b"word", (7).to_bytes(8, "big"))) == b"word\t7\n"
    assert line(("t", 0), Record(0, 0, None, None)) == b"null\tnull\n"
    with pytest.raises(CommandError, match="no deserializer Mine"):
        Line({"key.deserializer": "Mine"})


def test_health_checks(tool: Tool) -> None:
    assert tool("kafka-cluster", "cluster-id").startswith("Cluster ID: ")
    assert "Produce(0): 0 to " in tool("kafka-broker-api-versions")


def test_an_unreachable_broker_gives_exit_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-cluster.sh", "cluster-id", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capfd.readouterr().err


def test_an_unknown_tool_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
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
