"""`ottla consume` as a member of groups: partitions are shared, offsets kept, records acknowledged."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.conftest import COMMAND
from ottla.client.group_member import assign_ranges
from support.waiting import wait_for

pytestmark = pytest.mark.interop


class Member:
    """A running `ottla consume`, whose lines are read as they come."""

    def __init__(self, bootstrap: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "consume", *map(str, arguments), "-b", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._out, self._err = self.process.stdout, self.process.stderr
        os.set_blocking(self._out.fileno(), False)
        os.set_blocking(self._err.fileno(), False)
        self.out = b""
        self.err = ""

    def read(self) -> "Member":
        self.out += self._out.read() or b""
        self.err += (self._err.read() or b"").decode()
        return self

    def partitions(self) -> set[str]:
        """Those of its last line about an assignment."""
        notes = [line for line in self.read().err.splitlines() if " for " in line]
        return set(re.findall(r"\S+-\d+(?=,| for )", notes[-1].split(": ", 1)[1])) if notes else set()

    def lines(self) -> list[str]:
        return self.read().out.decode().splitlines()

    def stop(self, number: int = signal.SIGINT) -> str:
        self.process.send_signal(number)
        self.process.wait(30)
        return self.read().err


@pytest.fixture
def member(broker: Any) -> Iterator[Callable[..., Member]]:
    started: list[Member] = []

    def start(*arguments: object) -> Member:
        started.append(Member(broker.bootstrap, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share_the_partitions(cli: Any, topic: str, unique: Any, member: Any, protocol: str) -> None:
    group = unique("g")
    every = {f"{topic}-{index}" for index in range(3)}
    first = member(topic, "-g", group, "--join", "--protocol", protocol)
    wait_for(lambda: first.partitions() == every)
    second = member(topic, "-g", group, "--join", "--protocol", protocol)
    wait_for(
        lambda: (
            first.partitions() | second.partitions() == every
            and not first.partitions() & second.partitions()
            and second.partitions()
        ),
    )
    for index in range(3):
        cli("produce", topic, "-p", index, "-v", f"value {index}")
    wait_for(lambda: sorted(first.lines() + second.lines()) == ["value 0", "value 1", "value 2"])
    second.stop(signal.SIGTERM)
    wait_for(lambda: first.partitions() == every)
    first.stop()
    cli("produce", topic, "-p", 0, "-v", "later")
    # The offsets of all printed records were committed when they left.
    assert cli("consume", topic, "-g", group, "--join", "--protocol", protocol, "-n", 1).out == "later\n"


def test_a_static_member_comes_back_without_a_rebalance(cli: Any, topic: str, unique: Any, member: Any) -> None:
    group = unique("g")
    arguments = (topic, "-g", group, "--join", "--instance-id", "one")
    first = member(*arguments)
    wait_for(lambda: "generation 1" in first.read().err)
    first.stop()
    again = member(*arguments)
    wait_for(lambda: "generation 1, " in again.read().err)


def test_a_new_group_starts_where_from_says(cli: Any, topic: str, unique: Any) -> None:
    cli("produce", topic, "-p", 1, "-v", "old")
    assert cli("consume", topic, "-g", unique("g"), "--join", "-n", 1).out == "old\n"


def test_a_share_group_delivers_records(cli: Any, topic: str, unique: Any, member: Any) -> None:
    group = unique("s")
    cli("configs", "set", "group", group, "share.auto.offset.reset=earliest")
    cli("produce", topic, "-p", 0, "-v", "one")
    cli("produce", topic, "-p", 0, "-v", "two")
    released = cli("consume", topic, "--share", group, "--acknowledge", "release", "-n", 1)
    assert released.out == "one\n"
    again = cli("consume", topic, "--share", group, "-n", 2)
    assert again.out == "one\ntwo\n"
    assert "offsets 0 to 0, delivery 2" in again.err
    cli("produce", topic, "-p", 0, "-v", "three")
    assert cli("consume", topic, "--share", group, "-n", 1).out == "three\n"


def test_options_that_make_no_sense_together_are_refused(cli: Any, topic: str) -> None:
    assert "add --group NAME" in cli("consume", topic, "--join", code=2).err
    assert "cannot be combined" in cli("consume", topic, "-g", "g", "--join", "--share", "s", code=2).err
    assert "needs --join" in cli("consume", topic, "--instance-id", "i", code=2).err
    assert "the group decides" in cli("consume", topic, "-g", "g", "--join", "-p", "0", code=2).err


def test_ranges_are_runs_of_partitions() -> None:
    shares = assign_ranges({"a": ["t", "u"], "b": ["t"], "c": ["t"]}, {"t": 7, "u": 2})
    assert shares == {"a": {"t": [0, 1, 2], "u": [0, 1]}, "b": {"t": [3, 4]}, "c": {"t": [5, 6]}}
