"""`ottla groups`, on Ottla or, with --bootstrap, on Apache Kafka."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def group(cli: Any, topic: str, unique: Callable[[str], str]) -> str:
    """A group that read 4 of 10 records of partition 0, and nothing of the others."""
    name = unique("g")
    base = 1_700_000_000_000
    for number in range(10):
        cli("produce", topic, "-p", 0, "-t", base + number, "-v", number)
    cli("consume", topic, "-p", 0, "-g", name, "-n", 4, "-f", "raw")
    return name


def offsets(cli: Any, group: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] for row in cli("groups", "describe", group, "--json").json[0]["offsets"]}


def test_lag(cli: Any, topic: str, group: str) -> None:
    (described,) = cli("groups", "describe", group, "--json").json
    (row,) = described["offsets"]
    assert (row["topic"], row["offset"], row["end_offset"], row["lag"]) == (topic, 4, 10, 6)
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 6)
    listed = {row["group"]: row for row in cli("groups", "list", "--lag", "--json").json}
    assert (listed[group]["state"], listed[group]["lag"]) == ("Empty", 6)
    assert group in cli("groups", "list", "--state", "empty").out
    assert group not in cli("groups", "list", "--state", "stable", "--json").out
    assert "lag of all partitions: 6" in cli("groups", "describe", group).out


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-3"], 1),
        (["--shift-by", "2"], 6),
        (["--to-time", "1700000000005"], 5),
        (["--to-time", "2023-11-14T22:13:20.008Z"], 8),
        (["--by-duration", "1h"], 10),
    ],
)
def test_resets(cli: Any, topic: str, group: str, how: list[str], expected: int) -> None:
    planned = cli("groups", "reset-offsets", group, "--topic", f"{topic}:0", *how, "--json")
    assert [row["offset"] for row in planned.json["offsets"]] == [expected]
    assert planned.json["executed"] is False
    assert "dry run" in planned.err
    assert offsets(cli, group) == {0: 4}, "nothing changes without --execute"
    cli("groups", "reset-offsets", group, "--all-topics", *how, "--execute")
    assert offsets(cli, group) == {0: expected}


def test_a_plan_can_be_kept_in_a_file(cli: Any, topic: str, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_bytes(cli("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--json").raw)
    cli("groups", "reset-offsets", group, "--from-file", plan, "--execute")
    assert offsets(cli, group) == {0: 0, 1: 0, 2: 0}
    plan.write_text(f'"{topic}",0,6\n')
    cli("groups", "reset-offsets", group, "--from-file", plan, "--execute")
    assert offsets(cli, group)[0] == 6
    plan.write_text(json.dumps({"offsets": [{"topic": topic}]}))
    assert "is not an offset plan" in cli("groups", "reset-offsets", group, "--from-file", plan, code=1).err


def test_mistakes(cli: Any, topic: str, group: str, unique: Callable[[str], str]) -> None:
    nobody = unique("nobody")
    assert f"group '{nobody}' does not exist" in cli("groups", "describe", nobody, code=1).err
    assert "GROUP_ID_NOT_FOUND" in cli("groups", "delete", nobody, code=1).err
    reset = ("groups", "reset-offsets", group)
    assert "--topic" in cli(*reset, "--to-earliest", code=2).err
    assert "has no partition 9" in cli(*reset, "--topic", f"{topic}:9", "--to-earliest", code=1).err
    assert "no committed offset" in cli(*reset, "--topic", topic, "--shift-by", 1, code=1).err
    assert "is required" in cli(*reset, "--topic", topic, code=2).err
    assert "does not exist" in cli(*reset, "--topic", nobody, "--to-earliest", code=1).err


def test_deleting(cli: Any, topic: str, group: str) -> None:
    cli("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    cli("groups", "delete", group, "--topic", f"{topic}:0,1")
    assert offsets(cli, group) == {2: 0}
    assert cli("groups", "delete", group).out == f"deleted {group}\n"
    cli("groups", "describe", group, code=1)


@pytest.fixture
def consumer(broker: Any, topic: str, group: str) -> Iterator[Any]:
    from confluent_kafka import Consumer

    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    made.subscribe([topic])
    while not made.assignment():
        made.poll(0.1)
    yield made
    made.close()


def test_members(cli: Any, topic: str, group: str, consumer: Any) -> None:
    (described,) = cli("groups", "describe", group, "--json").json
    assert described["state"] == "Stable"
    (member,) = described["members"]
    assert member["client_id"] == "reader"
    assert member["partitions"] == [{"topic": topic, "partition": n} for n in range(3)]
    assert {row["partition"]: row["member"] for row in described["offsets"]} == dict.fromkeys(
        range(3), member["member"]
    )
    assert "reader" in cli("groups", "describe", group, "--members").out
    assert "lag of 1 partition: 6; 2 without a committed offset" in cli("groups", "describe", group).out
    refused = cli("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute", code=1)
    assert "stop its consumers first" in refused.err
    assert "NON_EMPTY_GROUP" in cli("groups", "delete", group, code=1).err


def test_a_streams_group(
    cli: Any, broker: Any, topic: str, unique: Callable[[str], str], streams_beat: Callable[..., Any]
) -> None:
    """Its members show the partitions that their tasks read; its offsets can be reset when it is empty."""
    name = unique("app")
    answer = streams_beat(broker, name, topic, 0)
    deadline = time.monotonic() + 60
    while not answer.active_tasks:
        assert time.monotonic() < deadline
        answer = streams_beat(broker, name, topic, answer.member_epoch)
    (described,) = cli("groups", "describe", name, "--json").json
    assert (described["type"], described["state"]) == ("streams", "Stable")
    (member,) = described["members"]
    places = [(place["topic"], place["partition"]) for place in member["partitions"]]
    assert places == [(topic, index) for index in range(len(places))]
    assert [(row["topic"], row["member"]) for row in described["offsets"]] == [(topic, "m")] * len(places)
    # Nothing is committed, so its lag is unknown.
    assert described["lag"] is None
    assert "lag: unknown, no partition has a committed offset" in cli("groups", "describe", name).out
    assert (
        "stop its consumers first"
        in cli("groups", "reset-offsets", name, "--topic", topic, "--to-latest", "--execute", code=1).err
    )
    streams_beat(broker, name, topic, -1)
    cli("groups", "reset-offsets", name, "--topic", topic, "--to-latest", "--execute")
    assert offsets(cli, name) == dict.fromkeys(range(len(places)), 0)
    assert "lag of all partitions: 0" in cli("groups", "describe", name).out
    cli("groups", "delete", name)
