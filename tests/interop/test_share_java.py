"""Share groups in the Java client, and Kafka's command line tools for them."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch
from support.interop.drivers import clients
from support.interop.sharing import DEADLINE_S, Sharer
from support.wire import Wire

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]


@pytest.fixture
def tool(driver: Any, broker: Any) -> Callable[..., str]:
    def run(name: str, *words: str) -> str:
        args = ["--bootstrap-server", broker.bootstrap, *words]
        done = driver.call("tool", name=f"org.apache.kafka.tools.{name}", args=args)
        return str(done["stdout"] + done["stderr"])

    return run


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> Sharer:
    one = Sharer(wire, unique("s"))
    one.configure(share_auto_offset_reset="earliest")
    return one


def fill(wire: Wire, topic: str, partitions: int, each: int) -> set[str]:
    values = set()
    for partition in range(partitions):
        mine = [f"{partition}-{number}" for number in range(each)]
        assert wire.produce(topic, batch(*map(str.encode, mine)), partition).error_code == 0
        values |= set(mine)
    return values


def test_two_consumers_share_the_work(driver: Any, group: Sharer, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    values = fill(wire, topic, 2, 30)
    options = {"group": group.group, "topics": [topic], "mode": "explicit", "max_records": 10}
    members = [driver.call("share_open", **options) for _ in range(2)]
    done: dict[str, int] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(done) < len(values):
        assert time.monotonic() < deadline, sorted(values - done.keys())
        for member in members:
            for record in driver.call("share_poll", id=member, timeout_ms=300):
                place = {"id": member, "partition": record["partition"], "offset": record["offset"]}
                is_late = record["offset"] % 10 == 3 and record["delivery_count"] == 1
                if not is_late:
                    assert record["value"] not in done, "an acknowledged record was delivered again"
                    done[record["value"]] = record["delivery_count"]
                kind = "release" if is_late else "reject" if record["offset"] % 10 == 4 else "accept"
                driver.call("share_acknowledge", type=kind, **place)
            assert driver.call("share_commit", id=member) == []
    assert {value for value, count in done.items() if count == 2} >= {
        value for value in values if int(value.split("-")[1]) % 10 == 3
    }
    for member in members:
        driver.call("share_close", id=member)
    lags = [one.lag for one in group.offsets().topics[0].partitions]
    assert lags == [0, 0]


def test_another_consumer_continues(driver: Any, group: Sharer, topic: str, wire: Wire) -> None:
    values = fill(wire, topic, 1, 10)
    options = {"group": group.group, "topics": [topic], "max_records": 5}
    seen: list[str] = []
    for mode in ("explicit", "implicit"):
        member = driver.call("share_open", mode=mode, **options)
        deadline = time.monotonic() + DEADLINE_S
        found: list[Any] = []
        while not found:
            assert time.monotonic() < deadline
            found = driver.call("share_poll", id=member, timeout_ms=300)
        if mode == "explicit":
            for record in found[:1]:
                driver.call("share_acknowledge", id=member, partition=0, offset=record["offset"], type="accept")
            seen.append(found[0]["value"])
            for record in found[1:]:
                driver.call("share_acknowledge", id=member, partition=0, offset=record["offset"], type="release")
            assert driver.call("share_commit", id=member) == []
        else:
            while len(seen) < len(values):
                assert time.monotonic() < deadline
                seen += [record["value"] for record in found]
                found = driver.call("share_poll", id=member, timeout_ms=300)
        driver.call("share_close", id=member)
    assert sorted(seen) == sorted(values), "each record once"


def test_tools(driver: Any, tool: Callable[..., str], group: Sharer, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    fill(wire, topic, 1, 10)

    def groups(*words: str) -> str:
        return tool("consumer.group.ShareGroupCommand", *words)

    words = ["--topic", topic, "--group", group.group, "--max-messages", "10", "--timeout-ms", "60000"]
    read = tool("consumer.ConsoleShareConsumer", *words)
    assert set(re.findall(r"0-\d", read)) == {f"0-{number}" for number in range(10)}, read
    named = ("--group", group.group)
    assert group.group in groups("--list").split()
    deadline = time.monotonic() + DEADLINE_S
    while "Empty" not in (state := groups("--describe", "--state", *named)):
        assert time.monotonic() < deadline, state
    rows = [line.split() for line in groups("--describe", *named).splitlines() if line.startswith(group.group)]
    assert {row[2]: row[4] for row in rows}["0"] == "0", "there is no lag left"
    out = groups("--reset-offsets", *named, "--topic", topic, "--to-earliest", "--execute")
    assert {tuple(row[2:4]) for row in map(str.split, out.splitlines()) if row[:1] == [group.group]} == {
        ("0", "0"),
        ("1", "0"),
    }
    assert group.stands(topic) == (0, 10)
    assert "Successful" in groups("--delete-offsets", *named, "--topic", topic)
    assert "no offset information" in groups("--describe", *named)
    assert "successful" in groups("--delete", *named)
    assert group.group not in groups("--list").split()
