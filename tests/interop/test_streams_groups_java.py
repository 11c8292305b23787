"""Kafka Streams with `group.protocol=streams`, and kafka-streams-groups: real programs on streams groups."""

import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.batches import batch
from support.interop import toolchains
from support.interop.streams import NO_WAITING, configure, described, tasks
from support.interop.transacting import read_committed
from support.waiting import wait_for
from support.wire import Wire

pytestmark = pytest.mark.jvm
WAIT_S = 120
WORDS = ("the", "quick", "fox")


class App:
    """The Java program: runs applications by name, and reads commands from its input."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        jar = toolchains.streams_jar()
        program = toolchains.HERE / "java" / "StreamsApp.java"
        command = [*toolchains.JAVA, "-cp", f"{jar}:{toolchains.kafka_jars()}/*", str(program), bootstrap]
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.states: dict[str, str] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self) -> str:
        line = self._lines.get(timeout=WAIT_S)
        assert line is not None, self.log.read_text()[-4000:]
        return line

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def await_state(self, name: str, state: str) -> None:
        while self.states.get(name) != state:
            word, _, said = self.line().partition(" ")
            self.states[word] = said

    def tool(self, *words: str) -> str:
        """The output of kafka-streams-groups."""
        self.tell("tool", *words)
        while (line := self.line()) != "begin":
            word, _, said = line.partition(" ")
            self.states[word] = said
        said = []
        while (line := self.line()) != "end":
            said.append(line)
        return "\n".join(said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._reader.join(30)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def app(broker: Any, tmp_path: Path) -> Iterator[App]:
    one = App(broker.bootstrap, tmp_path / "streams.log")
    yield one
    one.kill()


def rows(text: str, group: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(group)]


def values(wire: Wire, topic: str, partitions: int) -> list[bytes]:
    return [value for index in range(partitions) for value in read_committed(wire, topic, index)]


def awaited(app: App, look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := look()):
        assert app.process.poll() is None, app.log.read_text()[-4000:]
        assert time.monotonic() < deadline, app.log.read_text()[-4000:]
        time.sleep(0.05)
    return found


def feed(wire: Wire, topic: str, partitions: int, *lines: bytes) -> None:
    for index in range(partitions):
        for line in lines:
            assert wire.produce(topic, batch(line), index).error_code == 0


def test_a_stateless_application_and_the_tool(
    app: App, wire: Wire, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, name = make_topic(2), make_topic(1), unique("upper")
    configure(wire, name, NO_WAITING)
    feed(wire, source, 2, b"a", b"b", b"c")
    app.tell("start", "one", "upper", name, source, target, tmp_path / "one")
    app.await_state("one", "RUNNING")
    awaited(app, lambda: sorted(values(wire, target, 1)) == [b"A", b"A", b"B", b"B", b"C", b"C"])
    found = described(wire, name)
    (member,) = found.members
    assert (found.group_state, tasks(member.assignment.active_tasks)) == ("Stable", {"0": [0, 1]})
    assert member.user_endpoint.host == "localhost"

    assert name in app.tool("--list").split()
    assert rows(app.tool("--list", "--state"), name) == [[name, "Stable"]]

    def committed() -> dict[str, tuple[str, str, str]]:
        """Offset, end and lag by partition."""
        text = app.tool("--describe", "--group", name, "--verbose")
        return {row[2]: (row[3], row[5], row[6]) for row in rows(text, name) if row[1] == source}

    awaited(app, lambda: committed() == {"0": ("3", "3", "0"), "1": ("3", "3", "0")})
    state = app.tool("--describe", "--group", name, "--state")
    assert rows(state, name)[0][-2:] == ["Stable", "1"], state
    members = app.tool("--describe", "--group", name, "--members", "--verbose")
    assert member.member_id in members, members
    assert re.search(r"ACTIVE: 0:\[0,1\]; TARGET-ACTIVE: 0:\[0,1\];", members), members
    busy = app.tool("--reset-offsets", "--group", name, "--all-input-topics", "--to-earliest", "--execute")
    assert "is inactive, but the current state is Stable" in busy, busy
    refused = app.tool("--delete", "--group", name)
    assert "is not EMPTY" in refused, refused

    app.tell("close", "one")
    app.await_state("one", "closed")
    wait_for(lambda: described(wire, name).group_state == "Empty")
    again = app.tool("--reset-offsets", "--group", name, "--all-input-topics", "--to-offset", "2", "--execute")
    assert sorted(row[1:4] for row in rows(again, name)) == [[source, "0", "2"], [source, "1", "2"]], again
    app.tell("start", "two", "upper", name, source, target, tmp_path / "two")
    awaited(app, lambda: len(values(wire, target, 1)) == 8)
    app.tell("close", "two")
    app.await_state("two", "closed")
    wait_for(lambda: described(wire, name).group_state == "Empty")
    gone = app.tool("--delete", "--group", name)
    assert "successful" in gone, gone
    assert name not in app.tool("--list").split()


def test_an_aggregation_in_two_instances_of_which_one_leaves(
    app: App, wire: Wire, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, name = make_topic(2), make_topic(1), unique("count")
    configure(wire, name, {**NO_WAITING, "streams.num.standby.replicas": "1"})
    line = " ".join(WORDS).encode()
    feed(wire, source, 2, *[line] * 5)
    app.tell("start", "one", "count", name, source, target, tmp_path / "one")
    awaited(app, lambda: len(values(wire, target, 1)) == 10 * len(WORDS))
    app.tell("start", "two", "count", name, source, target, tmp_path / "two")

    def shares() -> list[int]:
        """The number of active tasks of each member, once they match the target."""
        found = described(wire, name)
        return sorted(
            sum(map(len, (tasks(each.assignment.active_tasks) or {}).values()))
            for each in found.members
            if found.group_state == "Stable"
        )

    awaited(app, lambda: shares() == [2, 2])
    feed(wire, source, 2, *[line] * 5)
    awaited(app, lambda: len(values(wire, target, 1)) == 20 * len(WORDS))
    app.tell("close", "one")
    app.await_state("one", "closed")
    awaited(app, lambda: shares() == [4])
    feed(wire, source, 2, *[line] * 5)
    awaited(app, lambda: len(values(wire, target, 1)) == 30 * len(WORDS))
    found = values(wire, target, 1)
    for word in WORDS:
        counts = [value for value in found if value.startswith(word.encode() + b"=")]
        assert counts == [b"%s=%d" % (word.encode(), number) for number in range(1, 31)]
    topology = described(wire, name).topology
    first, second = topology.subtopologies
    assert first.repartition_sink_topics == [f"{name}-counts-repartition"]
    assert [(each.name, each.partitions) for each in second.repartition_source_topics] == [
        (f"{name}-counts-repartition", 2)
    ]
    assert [(each.name, each.partitions) for each in second.state_changelog_topics] == [(f"{name}-counts-changelog", 2)]
