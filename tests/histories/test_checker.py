"""The checker finds each anomaly by its name, and nothing in correct histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.histories.checker import ALLOWED, check, cycles
from support.histories.events import FAIL, INFO, OK, Operation, Poll, Send, read_history, write_history


def txn(process: int, *steps: Send | Poll, outcome: str = OK, moves: bool = False) -> Operation:
    return Operation(process, outcome, list(steps), moves)


def poll(*records: tuple[int, int], partition: int = 0) -> Poll:
    return Poll({partition: list(records)})


def send(value: int, offset: int | None = None, partition: int = 0) -> Send:
    return Send(partition, value, offset)


def names(*operations: Operation, final_reads: bool = True) -> set[str]:
    return check(operations, final_reads=final_reads).names()


SOUND = {
    "nothing": [],
    "sent and read": [txn(0, send(1, 0)), txn(1, poll((0, 1)))],
    "aborted and not read": [txn(0, send(1, 0), outcome=FAIL), txn(0, send(2, 2)), txn(1, poll((2, 2)))],
    "markers between records": [
        txn(0, send(1, 0), send(2, 1)),
        txn(0, send(3, 3)),
        txn(1, poll((0, 1), (1, 2), (3, 3))),
    ],
    "in doubt and read": [txn(0, send(1), send(2), outcome=INFO), txn(1, poll((0, 1), (1, 2)))],
    "in doubt and not read": [txn(0, send(1), outcome=INFO), txn(0, send(2, 5)), txn(1, poll((5, 2)))],
    "a consumer that starts again": [
        txn(0, send(1, 0), send(2, 1)),
        txn(1, poll((0, 1), (1, 2))),
        txn(1, poll((0, 1)), moves=True),
    ],
    "a seek forward": [txn(0, send(1, 0), send(2, 1)), txn(1, poll((1, 2)), moves=True), txn(2, poll((0, 1), (1, 2)))],
    "read and written on": [txn(0, send(1, 0)), txn(1, poll((0, 1)), send(1, 0, 1)), txn(2, poll((0, 1), partition=1))],
}

ANOMALIES = {
    "inconsistent-offsets": [
        txn(0, send(1, 0)),
        txn(1, send(2, 1)),
        txn(2, poll((0, 1), (1, 2))),
        txn(3, poll((0, 2))),
    ],
    "duplicate": [txn(0, send(1, 0)), txn(1, poll((0, 1), (1, 1)))],
    "lost-write": [txn(0, send(1, 0)), txn(0, send(2, 1)), txn(1, poll((1, 2)))],
    "unseen": [txn(0, send(1, 0)), txn(0, send(2, 1)), txn(1, poll((0, 1)))],
    "aborted-read": [txn(0, send(1, 0), outcome=FAIL), txn(1, poll((0, 1)))],
    "precommitted-read": [txn(0, send(1, 0), poll((0, 1))), txn(1, poll((0, 1)))],
    "int-poll-skip": [
        txn(0, send(1, 0), send(2, 1), send(3, 2)),
        txn(1, poll((0, 1), (2, 3))),
        txn(2, poll((0, 1), (1, 2), (2, 3))),
    ],
    "int-nonmonotonic-poll": [txn(0, send(1, 0), send(2, 1)), txn(1, poll((1, 2), (0, 1)))],
    "int-send-skip": [
        txn(0, send(1, 0), send(3, 2)),
        txn(1, send(2, 1)),
        txn(2, poll((0, 1), (1, 2), (2, 3))),
    ],
    "int-nonmonotonic-send": [txn(0, send(1, 1), send(2, 0)), txn(1, poll((0, 2), (1, 1)))],
    "poll-skip": [
        txn(0, send(1, 0), send(2, 1), send(3, 2)),
        txn(1, poll((0, 1))),
        txn(1, poll((2, 3))),
        txn(2, poll((0, 1), (1, 2), (2, 3))),
    ],
    "nonmonotonic-poll": [txn(0, send(1, 0), send(2, 1)), txn(1, poll((0, 1), (1, 2))), txn(1, poll((0, 1)))],
    "nonmonotonic-send": [txn(0, send(1, 1)), txn(0, send(2, 0)), txn(1, poll((0, 2), (1, 1)))],
    "G0": [
        txn(0, send(1, 0, 0), send(1, 1, 1)),
        txn(1, send(2, 1, 0), send(2, 0, 1)),
        txn(2, poll((0, 1), (1, 2)), poll((0, 2), (1, 1), partition=1)),
    ],
    "G1c": [
        txn(0, send(1, 0, 0), poll((0, 1), partition=1)),
        txn(1, send(1, 0, 1), poll((0, 1), partition=0)),
        txn(2, poll((0, 1)), poll((0, 1), partition=1)),
    ],
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_has_no_anomaly(name: str) -> None:
    assert names(*SOUND[name]) == set()


@pytest.mark.parametrize("name", ANOMALIES)
def test_each_anomaly_is_found(name: str) -> None:
    found = names(*ANOMALIES[name])
    assert name in found
    # Two of them imply others: interleaved sends are also a cycle of writes.
    assert found - {name} <= {"int-send-skip": {"G0"}, "inconsistent-offsets": {"duplicate"}}.get(name, set())


def test_reading_a_record_that_was_never_sent_is_an_anomaly() -> None:
    assert names(txn(0, poll((0, 7)))) == {"inconsistent-offsets"}


def test_half_of_a_transaction_in_doubt_is_a_lost_write() -> None:
    assert names(txn(0, send(1), send(2), outcome=INFO), txn(1, poll((0, 1)))) == {"lost-write"}


def test_without_final_reads_no_record_counts_as_unseen() -> None:
    assert names(*ANOMALIES["unseen"], final_reads=False) == set()


def test_anomalies_that_kafka_allows_are_not_errors() -> None:
    for name in ALLOWED:
        verdict = check(ANOMALIES[name])
        assert name in verdict.names()
        assert not verdict.errors()
    assert check(ANOMALIES["G1c"]).errors()


def test_cycles_of_any_length_are_found_once() -> None:
    ring = {number: {(number + 1) % 5000} for number in range(5000)}
    assert cycles(ring) == [list(range(5000))]
    assert cycles({1: {2}, 2: {3}, 3: {2}, 4: {1}}) == [[2, 3]]
    assert cycles({1: {2}, 2: {3}}) == []


def test_a_history_is_kept_as_lines(tmp_path: Path) -> None:
    history = [*ANOMALIES["G1c"], txn(4, moves=True), txn(5, send(9), outcome=INFO)]
    path = tmp_path / "history.jsonl"
    write_history(path, history)
    again = list(read_history(path.read_text().splitlines()))
    assert check(again).names() == check(history).names()
    assert [operation.to_json() for operation in again] == [operation.to_json() for operation in history]
