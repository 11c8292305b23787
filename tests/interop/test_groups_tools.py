"""kafka-consumer-groups, run inside the Java driver."""

import datetime

import pytest

from support.batches import batch, now_ms
from support.interop.drivers import clients
from support.interop.groups import Group
from support.wire import Wire

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]


@pytest.fixture
def groups(driver, broker):
    def run(*words: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        done = driver.call("tool", name=name, args=["--bootstrap-server", broker.bootstrap, *words])
        return str(done["stdout"] + done["stderr"])

    return run


def rows(text: str, group: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(group)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_describe_reset_delete(groups, drive, protocol: str, make_topic, wire: Wire, unique) -> None:
    topic = make_topic(2)
    now = now_ms()
    for i in range(4):
        wire.produce(topic, batch(b"%d" % i, timestamp=now - 10_000 + i * 1000), 0)
    group = Group(unique("g"), [topic], 2, protocol=protocol)
    member = group.join(drive("confluent-kafka"))
    group.read(4)
    place = {"topic": topic, "partition": 0, "offset": 3, "metadata": ""}
    drive("confluent-kafka").call("consumer_commit", id=member, offsets=[place])
    described = rows(groups("--describe", "--group", group.name), group.name)
    by_partition = {row[2]: row for row in described}
    assert by_partition["0"][1:6] == [topic, "0", "3", "4", "1"]
    state = groups("--describe", "--group", group.name, "--state")
    assert "Stable" in state
    members = groups("--describe", "--group", group.name, "--members", "--verbose")
    assert f"{topic}" in members
    assert group.name in groups("--list").split()
    busy = groups("--reset-offsets", "--group", group.name, "--topic", topic, "--to-earliest", "--execute")
    assert "only reset if" in busy or "inactive" in busy or "is Stable" in busy, busy
    group.leave(member)

    def reset(*how: str) -> dict[str, str]:
        out = groups("--reset-offsets", "--group", group.name, "--topic", topic, *how, "--execute")
        return {row[2]: row[3] for row in rows(out, group.name)}

    assert reset("--to-earliest") == {"0": "0", "1": "0"}
    assert reset("--to-latest") == {"0": "4", "1": "0"}
    assert reset("--to-offset", "2")["0"] == "2"
    assert reset("--shift-by", "1")["0"] == "3"
    described = rows(groups("--describe", "--group", group.name), group.name)
    assert {row[2]: row[3] for row in described}["0"] == "3"
    assert "Deletion of requested consumer groups" in groups("--delete", "--group", group.name)
    assert group.name not in groups("--list").split()
    assert "GroupIdNotFoundException" in groups("--describe", "--group", group.name)


@pytest.fixture
def read_group(drive, make_topic, wire: Wire, unique):
    """A group that has read and committed two partitions of five records, one second apart, and has no members any
    more."""

    def make(protocol: str = "classic") -> tuple[Group, str, int]:
        topic, start = make_topic(2), now_ms() - 100_000
        for partition in (0, 1):
            for i in range(5):
                wire.produce(topic, batch(b"%d" % i, timestamp=start + i * 1000), partition)
        group = Group(unique("g"), [topic], 2, protocol=protocol)
        member = group.join(drive("confluent-kafka"))
        group.read(10)
        drive("confluent-kafka").call("consumer_commit", id=member)
        group.leave(member)
        return group, topic, start

    return make


def committed(groups, group: str) -> dict[str, str]:
    """Partition -> committed offset, as the tool describes them."""
    return {row[2]: row[3] for row in rows(groups("--describe", "--group", group), group)}


def utc(timestamp_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_reset_by_time_shift_and_file(groups, read_group, protocol: str, tmp_path) -> None:
    group, topic, start = read_group(protocol)

    def reset(*how: str, to: str = "--execute", where: str = topic) -> dict[str, str]:
        out = groups("--reset-offsets", "--group", group.name, "--topic", where, *how, to)
        found = {row[2]: row[3] for row in rows(out, group.name)}
        assert found, out
        return found

    assert committed(groups, group.name) == {"0": "5", "1": "5"}
    # A plan changes nothing.
    assert reset("--to-earliest", to="--dry-run") == {"0": "0", "1": "0"}
    assert committed(groups, group.name) == {"0": "5", "1": "5"}
    assert reset("--to-datetime", utc(start + 2500)) == {"0": "3", "1": "3"}
    assert committed(groups, group.name) == {"0": "3", "1": "3"}
    assert reset("--shift-by", "-2", where=f"{topic}:1") == {"1": "1"}
    assert committed(groups, group.name) == {"0": "3", "1": "1"}
    # An offset beyond the end becomes the end.
    assert reset("--shift-by", "100") == {"0": "5", "1": "5"}
    assert reset("--shift-by", "-100") == {"0": "0", "1": "0"}
    assert reset("--by-duration", "PT1H") == {"0": "0", "1": "0"}
    assert reset("--to-current") == {"0": "0", "1": "0"}
    assert reset("--to-datetime", utc(now_ms() + 3_600_000)) == {"0": "5", "1": "5"}
    plan = tmp_path / "plan.csv"
    plan.write_text(f'"{topic}",0,2\n"{topic}",1,4\n')
    assert reset("--from-file", str(plan)) == {"0": "2", "1": "4"}
    assert committed(groups, group.name) == {"0": "2", "1": "4"}
    exported = groups(
        "--reset-offsets", "--group", group.name, "--topic", topic, "--to-current", "--export", "--dry-run"
    )
    assert {line for line in exported.splitlines() if topic in line} == {f'"{topic}",0,2', f'"{topic}",1,4'}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_delete_offsets(groups, drive, read_group, protocol: str, wire: Wire) -> None:
    group, topic, _ = read_group(protocol)
    out = groups("--delete-offsets", "--group", group.name, "--topic", f"{topic}:0")
    assert "Successful" in out, out
    assert committed(groups, group.name) == {"1": "5"}
    # Not while a member is subscribed to the topic.
    member = group.join(drive("confluent-kafka"))
    group.settle()
    out = groups("--delete-offsets", "--group", group.name, "--topic", topic)
    assert "Successful" not in out, out
    assert "subscribed" in out, out
    assert committed(groups, group.name)["1"] == "5"
    group.leave(member)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_states_and_lists(groups, drive, make_topic, protocol: str, wire: Wire, unique) -> None:
    topic = make_topic(2)
    group = Group(unique("g"), [topic], 2, protocol=protocol, client_id="shown")
    member = group.join(drive("confluent-kafka"))
    group.settle()
    described = rows(groups("--describe", "--group", group.name, "--offsets"), group.name)
    assert [(row[1], row[2], row[3], row[7]) for row in sorted(described)] == [
        (topic, "0", "-", "/127.0.0.1"),
        (topic, "1", "-", "/127.0.0.1"),
    ]
    assert all(row[8] == "shown" for row in described)
    (row,) = rows(groups("--describe", "--group", group.name, "--members"), group.name)
    assert row[2:5] == ["/127.0.0.1", "shown", "2"]
    (row,) = rows(groups("--describe", "--group", group.name, "--members", "--verbose"), group.name)
    assert f"{topic}:0,1" in "".join(row) or f"{topic}(0,1)" in "".join(row), row
    (row,) = rows(groups("--describe", "--group", group.name, "--state"), group.name)
    assert row[-2:] == ["Stable", "1"], row
    assert ("range" if protocol == "classic" else "uniform") in row
    (row,) = rows(groups("--list", "--state"), group.name)
    assert row[-1] == "Stable"
    kind = "Classic" if protocol == "classic" else "Consumer"
    (row,) = rows(groups("--list", "--type"), group.name)
    assert row[1] == kind
    assert rows(groups("--list", "--type", kind, "--state", "Stable"), group.name)
    assert not rows(groups("--list", "--state", "Empty"), group.name)
    # A group with members is neither deleted nor reset.
    refused = groups("--delete", "--group", group.name)
    assert "GroupNotEmptyException" in refused, refused
    refused = groups("--reset-offsets", "--group", group.name, "--topic", topic, "--to-latest", "--execute")
    assert "only be reset if" in refused, refused
    group.leave(member)
