"""The data folder is a Kafka log dir: Kafka reads what Ottla writes, and each broker continues with the other's
folder."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from ottla.enums import OffsetTimestamp
from ottla.replication.replicas import MADE_AT_ONCE
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.security import DescribeUserScramCredentialsRequest
from support.batches import batch, now_ms, records_of
from support.interop import toolchains
from support.interop.drivers import CLIENTS, Driver
from support.interop.streams import NO_WAITING, Member, configure, described, find_coordinator
from support.kafka import Kafka
from support.streams import info, subtopology, topology
from support.waiting import wait_for
from support.wire import Wire

pytestmark = [pytest.mark.jvm]
# What DumpLogSegments prints about a damaged file. It prints "-1 is followed by N" for every segment that does not
# start at 0, even for Kafka's own.
COMPLAINTS = (
    "mismatch",
    "Mismatch",
    "out of order",
    "Exception",
    "not valid",
    "corrupt",
    "is followed by",
    "isvalid: false",
)
HARMLESS = "  -1 is followed by "
VALUES = [b"value %d" % i for i in range(40)]
HOUR_MS = 3_600_000
MANY = MADE_AT_ONCE + 10


@pytest.fixture
def dump():
    """Kafka's dump-log on some files, all in one JVM."""
    java = Driver(CLIENTS["java"], "nowhere:1")

    def run(files: list[Path], *words: str) -> str:
        assert files
        joined = ",".join(str(file) for file in files)
        done = java.call("tool", name="org.apache.kafka.tools.DumpLogSegments", args=["--files", joined, *words])
        assert done["status"] == 0, done["stderr"]
        out = done["stdout"] + done["stderr"]
        bad = [line for line in out.splitlines() if any(word in line for word in COMPLAINTS) and HARMLESS not in line]
        assert not bad, bad[:10]
        return done["stdout"]

    yield run
    java.close()


@dataclasses.dataclass
class Written:
    """What a folder holds: topic -> records in each of its two partitions, and the last batch of each topic."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    last: dict[str, tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    ids: dict[str, bytes] = dataclasses.field(default_factory=dict)


def write_all_sorts(wire: Wire, unique) -> Written:
    """Topics of every kind, with enough records for several segments."""
    now = now_ms()
    written = Written()
    for kind, configs in {
        "plain": {},
        "small": {"segment_bytes": 1 << 20},
        "stamped": {"message_timestamp_type": "LogAppendTime"},
        "gzip": {"compression_type": "gzip"},
        "compacted": {"cleanup_policy": "compact"},
    }.items():
        topic = wire.create_topic(unique(kind), 2, **configs)
        me = wire.producer_id()
        count = 0
        for i in range(60 if kind == "small" else 8):
            for partition in (0, 1):
                values = [os.urandom(30_000)] if kind == "small" else VALUES
                data = batch(
                    *values,
                    key=b"k%d" % i,
                    codec=0 if kind == "small" else i % 5,
                    timestamp=now - HOUR_MS + i * 1000,
                    producer_id=me[0],
                    producer_epoch=me[1],
                    base_sequence=count,
                )
                answer = wire.produce(topic, data, partition)
                assert answer.error_code == 0, answer
            written.last[topic] = bytes(data), count
            count += len(values)
        written.counts[topic] = count
        written.ids[topic] = wire.topic_id(topic)
    return written


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def test_dump_log_reads_everything_that_ottla_writes(start_broker, dump, unique) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        topics = write_all_sorts(wire, unique).counts
    assert broker.stop() in (0, 143, -signal.SIGTERM)
    assert broker.data is not None
    logs = [file for file in files(broker.data, "*-[0-9]*/*.log") if "__cluster_metadata" not in str(file)]
    assert len(logs) > 2 * len(topics), "the topic with small segments has several"
    data = dump(logs, "--deep-iteration", "--print-data-log")
    assert data.count("payload: value 7") >= 4 * 2 * 8
    dump(files(broker.data, "*-[0-9]*/*.index"))
    dump(files(broker.data, "*-[0-9]*/*.index"), "--index-sanity-check")
    dump(files(broker.data, "*-[0-9]*/*.timeindex"))
    dump(files(broker.data, "*-[0-9]*/*.timeindex"), "--index-sanity-check")
    snapshots = files(broker.data, "*-[0-9]*/*.snapshot")
    assert "producerId" in dump(snapshots)
    metadata = dump(files(broker.data, "__cluster_metadata-0/*.log"), "--cluster-metadata-decoder")
    for topic in topics:
        assert f'"name":"{topic}"' in metadata
    for kind in ("TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "FEATURE_LEVEL_RECORD"):
        assert kind in metadata


def check_all(wire: Wire, written: Written) -> None:
    for topic, count in written.counts.items():
        assert wire.topic_id(topic) == written.ids[topic]
        for partition in (0, 1):
            wire.wait_until_ready(topic, 2)
            assert wire.list_offsets(topic, OffsetTimestamp.EARLIEST, partition).offset == 0
            assert wire.list_offsets(topic, OffsetTimestamp.LATEST, partition).offset == count
            assert wire.list_offsets(topic, OffsetTimestamp.MAX_TIMESTAMP, partition).offset >= 0
            found, at = [], 0
            while at < count:
                records = records_of(wire.fetch(topic, at, partition, partition_max_bytes=1 << 20))
                found += [record for record in records if record.offset >= at]
                at = found[-1].offset + 1
            assert [record.offset for record in found] == list(range(count))
        # Sequences are kept too: a producer's last batch is a duplicate, and its first offset is returned.
        data, offset = written.last[topic]
        again = wire.produce(topic, data, 1)
        assert (again.error_code, again.base_offset) == (0, offset)
        assert wire.produce(topic, batch(b"more", key=b"k"), 1).base_offset == count
    plain = next(topic for topic in written.counts if topic.startswith("plain"))
    assert [record.value for record in records_of(wire.fetch(plain, 0))][:40] == VALUES


def run_streams(wire: Wire, unique) -> tuple[Member, Member]:
    """A streams group of two processes, with standby tasks for those with state."""
    group, source = unique("app"), wire.create_topic(unique("in"), 4)
    find_coordinator(wire, group)
    configure(wire, group, {**NO_WAITING, "streams.num.standby.replicas": "1"})
    middle, store = info(f"{group}-re", cleanup_policy="delete"), info(f"{group}-store", cleanup_policy="compact")
    shape = topology(
        subtopology("0", source, repartition_sink_topics=[middle.name]),
        subtopology("1", repartition_source_topics=[middle], state_changelog_topics=[store]),
    )
    members = Member(wire, group, shape, "p1", rack_id="r"), Member(wire, group, shape, "p2")

    def is_shared() -> bool:
        for member in members:
            member.own() if member.epoch else member.beat()
        counts = [[sum(map(len, each.values())) for each in (member.active, member.standby)] for member in members]
        return counts == [[4, 2], [4, 2]] and described(wire, group).group_state == "Stable"

    wait_for(is_shared)
    return members


def check_streams(wire: Wire, members: tuple[Member, Member]) -> None:
    """Another broker continues with the unchanged group."""
    first, second = members
    find_coordinator(wire, first.group)
    found = wait_for(lambda: (seen := described(wire, first.group)).error_code == 0 and seen)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", first.epoch, first.epoch)
    for member in members:
        member.wire = wire
        before = member.epoch, member.active, member.standby
        assert member.own().active_tasks is None
        assert (member.epoch, member.active, member.standby) == before
    # Same topics, same hash: nothing was reassigned.
    assert described(wire, first.group).group_epoch == first.epoch
    second.leave()
    first.follow(lambda: first.active == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]})


@pytest.fixture
def start_kafka(tmp_path: Path, request: pytest.FixtureRequest):
    """Starts Apache Kafka with the project's script. Returns its address, and a function to stop it."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("starts both brokers itself")
    running: list[Kafka] = []

    def start(folder: Path, *settings: str) -> tuple[str, int]:
        running.append(Kafka(folder, *settings))
        return running[-1].address

    def stop() -> None:
        while running:
            running.pop().stop()

    start.stop = stop
    yield start
    stop()


def test_ottla_serves_a_folder_that_kafka_wrote(start_broker, start_kafka, tmp_path: Path, unique) -> None:
    address = start_kafka(tmp_path / "kafka")
    with Wire(address) as wire:
        written = write_all_sorts(wire, unique)
        members = run_streams(wire, unique)
        cluster = wire.metadata().cluster_id
    start_kafka.stop()
    data = next((tmp_path / "kafka").rglob("meta.properties")).parent
    broker = start_broker(data)
    with Wire(broker.address) as wire:
        assert wire.metadata().cluster_id == cluster
        check_streams(wire, members)
        check_all(wire, written)


def test_kafka_serves_a_folder_that_ottla_wrote(start_broker, start_kafka, tmp_path: Path, unique) -> None:
    # The script keeps Kafka's data there, and formats the folder only if it is not formatted.
    broker = start_broker(tmp_path / "kafka" / "logs")
    with Wire(broker.address) as wire:
        written = write_all_sorts(wire, unique)
        members = run_streams(wire, unique)
        node = wire.metadata().brokers[0].node_id
        many = unique("many")
        assert wire.create_topic_result(many, MANY).error_code == 0
    broker.stop()
    assert node == 1, "the script's node id"
    assert not (tmp_path / "kafka" / "logs" / f"{many}-{MANY - 1}").exists(), "its folder is created on first use"
    address = start_kafka(tmp_path / "kafka")
    with Wire(address) as wire:
        check_streams(wire, members)
        check_all(wire, written)
        wire.wait_until_ready(many, MANY)
        assert wire.produce(many, batch(b"hello"), partition=MANY - 1).base_offset == 0


def test_both_brokers_continue_with_several_folders(start_broker, start_kafka, tmp_path: Path, unique) -> None:
    """Ottla spreads partitions and moves one, Kafka continues and moves it back, and Ottla finds it there."""
    # The script keeps Kafka's data in `logs`, and formats the folder only if it is not formatted.
    folders = [tmp_path / "kafka" / name for name in ("logs", "more", "most")]
    joined = ",".join(map(str, folders))
    broker = start_broker(folders[0], log_dirs=joined)
    with Wire(broker.address) as wire:
        written = write_all_sorts(wire, unique)
        plain = next(topic for topic in written.counts if topic.startswith("plain"))
        assert len({holder_of(wire, topic, index) for topic in written.counts for index in (0, 1)}) == 3
        away = move_on(wire, plain, folders)
    broker.stop()
    address = start_kafka(tmp_path / "kafka", f"log.dirs={joined}")
    with Wire(address) as wire:
        wire.wait_until_ready(plain, 2)
        assert holder_of(wire, plain, 1) == str(away)
        again = move_on(wire, plain, folders)
        check_all(wire, written)
    start_kafka.stop()
    with Wire(start_broker(folders[0], log_dirs=joined).address) as wire:
        assert holder_of(wire, plain, 1) == str(again)
        values = [record.value for record in records_of(wire.fetch(plain, 0, 1))]
        assert values[:40] == VALUES and values[-1] == b"more"


def holder_of(wire: Wire, topic: str, index: int) -> str | None:
    """The folder of a partition; None while it is being moved."""
    asked = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[index])
    found = [
        (folder.log_dir, each.is_future_key)
        for folder in wire.call(DescribeLogDirsRequest(topics=[asked]), 4).results
        for entry in folder.topics
        for each in entry.partitions
    ]
    return found[0][0] if len(found) == 1 and not found[0][1] else None


def move_on(wire: Wire, topic: str, folders: list[Path]) -> Path:
    """Move partition 1 to the next folder."""
    target = folders[(folders.index(Path(holder_of(wire, topic, 1))) + 1) % len(folders)]
    alter = AlterReplicaLogDirsRequest
    entry = alter.AlterReplicaLogDirTopic(name=topic, partitions=[1])
    answer = wire.call(alter(dirs=[alter.AlterReplicaLogDir(path=str(target), topics=[entry])]), 2)
    assert answer.results[0].partitions[0].error_code == 0
    wait_for(lambda: holder_of(wire, topic, 1) == str(target))
    return target


def test_ottla_starts_on_a_folder_that_kafka_formatted(start_broker, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:2\nlog.dirs={tmp_path / 'logs'}\n"
    )
    words = ["format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(properties)]
    words += ["--feature", "share.version=0", "--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]"]
    toolchains.run(["java", "-cp", f"{toolchains.kafka_jars()}/*", "kafka.tools.StorageTool", *words])
    broker = start_broker(tmp_path / "logs")
    with Wire(broker.address) as wire:
        [user] = wire.call(DescribeUserScramCredentialsRequest(users=None), 0).results
        assert (user.user, [info.mechanism for info in user.credential_infos]) == ("alice", [1])
        versions = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        levels = {feature.name: feature.max_version_level for feature in versions.finalized_features}
        assert levels["metadata.version"] == 30
        assert "share.version" not in levels


def test_kafka_serves_a_folder_that_workers_wrote(start_broker, start_kafka, tmp_path: Path, unique) -> None:
    """After one process has used it: Kafka is one node, and the workers were several."""
    data = tmp_path / "kafka" / "logs"
    topic = unique("shared")
    broker = start_broker(data, workers=2)
    with Wire(broker.address) as wire:
        assert wire.create_topic_result(topic, 4).error_code == 0
        found = wire.metadata(topic)
    ports = {node.node_id: node.port for node in found.brokers}
    leaders = {partition.partition_index: partition.leader_id for partition in found.topics[0].partitions}
    assert set(leaders.values()) == {1, 2}
    for index, leader in leaders.items():
        with Wire((broker.host, ports[leader])) as wire:
            assert wire.produce(topic, batch(b"value %d" % index), index).error_code == 0
    assert broker.stop() == 0
    assert start_broker(data).stop() == 0
    with Wire(start_kafka(tmp_path / "kafka")) as wire:
        wire.wait_until_ready(topic, 4)
        values = [[record.value for record in records_of(wire.fetch(topic, 0, index))] for index in leaders]
        assert values == [[b"value %d" % index] for index in leaders]
