"""The parts of a partition, and how an offset or a time is found in it."""

from typing import Any

import pytest

from support.console import Console


@pytest.fixture
def filled(own_console: Console) -> Console:
    """300 batches of 10 KB in three segments, one second apart."""
    topic = own_console.broker.topic("t")
    topic.create(1, {"segment.bytes": str(1 << 20), "index.interval.bytes": "30000"})
    for _ in range(300):
        topic.append(["x" * 10_000])
        own_console.broker.clock.advance(seconds=1)
    return own_console


def lookup(console: Console, **query: int) -> Any:
    return console.get("/topics/t/partitions/0/lookup", **query)


def test_segments_and_offset_bounds_are_shown(filled: Console) -> None:
    found = filled.get("/topics/t/partitions/0/storage")
    assert (found["start_offset"], found["high_watermark"], found["end_offset"]) == (0, 300, 300)
    bases = [each["base_offset"] for each in found["segments"]]
    assert len(bases) == 3
    assert [each["next_offset"] for each in found["segments"]] == [*bases[1:], 300]
    assert [each["active"] for each in found["segments"]] == [False, False, True]
    assert all(each["index_entries"] == len(each["entries"]) > 20 for each in found["segments"][:2])


def test_an_offset_is_found_by_index_and_scan(filled: Console) -> None:
    found = lookup(filled, offset=150)
    segment, index, scan = found["steps"]
    assert segment["base_offset"] <= 150
    assert index["probes"][-1]["slot"] >= 0
    assert all(each["goes"] == ("right" if each["key"] <= 150 else "left") for each in index["probes"])
    assert [each["last_offset"] >= 150 for each in scan["batches"]] == [False] * (len(scan["batches"]) - 1) + [True]
    assert len(scan["batches"]) <= 4, "the index brings the scan close"
    assert found["found"]["base_offset"] == 150


def test_a_time_is_found_by_both_indexes(filled: Console) -> None:
    (record,) = [each for each in filled.broker.topic("t").records() if each.offset == 220]
    found = lookup(filled, time=record.timestamp_ms)
    assert [each["where"] for each in found["steps"]] == ["segments", "timeindex", "index", "scan"]
    assert found["found"]["offset"] == 220


def test_a_look_up_outside_the_log_is_reported(filled: Console) -> None:
    assert lookup(filled, time=1 << 50)["found"] is None
    answer = filled.ask("GET", "/topics/t/partitions/0/lookup", offset=300)
    assert (answer.status, answer.data["error"]) == (400, "the log has offsets 0 to 299")
    assert filled.ask("GET", "/topics/t/partitions/0/lookup").status == 400
    assert filled.ask("GET", "/topics/t/partitions/7/storage").status == 404


def test_batches_are_listed_from_an_offset_or_from_the_end(filled: Console) -> None:
    newest = filled.get("/topics/t/partitions/0/batches", limit=3)
    end = filled.get("/topics/t/partitions/0/storage")["end_offset"]
    assert [each["last_offset"] for each in newest] == [end - 3, end - 2, end - 1]
    assert (newest[0]["records"], newest[0]["compression"], newest[0]["control"]) == (1, "none", False)
    (first,) = filled.get("/topics/t/partitions/0/batches", offset=5, limit=1)
    assert first["base_offset"] == 5


def test_compaction_keeps_the_last_record_of_each_key(own_console: Console) -> None:
    topic = own_console.broker.topic("users")
    # The cleaner would not run by itself: too little of the log is dirty.
    topic.create(1, {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "1"})
    for number in range(6):
        topic.append([(f"k{number % 2}", "x" * 400)])
        if number == 3:
            own_console.broker.clock.advance(seconds=2)  # the next append begins a new segment
    before = own_console.get("/topics/users/partitions/0/compaction")
    assert before["compacted"]
    assert len(before["records"]) == 6
    survivors = [each["offset"] for each in before["records"] if each["kept"]]
    assert survivors == [2, 3, 4, 5], "the active segment is not compacted"
    done = own_console.ask("POST", "/topics/users/partitions/0/compact", {}).data
    assert done["bytes_after"] < done["bytes_before"]
    after = own_console.get("/topics/users/partitions/0/compaction")
    assert [each["offset"] for each in after["records"]] == survivors
    own_console.broker.topic("plain").create(1)
    refused = own_console.ask("POST", "/topics/plain/partitions/0/compact", {})
    assert (refused.status, "cleanup.policy=compact" in refused.data["error"]) == (400, True)
