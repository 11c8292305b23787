"""kafka-consumer-groups, run inside the Java driver."""

import pytest
from interop.drivers import clients
from interop.groups import Group
from interop.wire import Wire, batch, now_ms

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
