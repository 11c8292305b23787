"""The checker must find each kind of broken promise."""

import pytest

from support.crashing.history import Commit, History, Outcome, Violation, Write

P = ("t", 0)
OK, NO, DOUBT = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.IN_DOUBT


def history(*writes: tuple[bytes, Outcome, int], producer: str = "p") -> History:
    return History(writes=[Write(producer, P, value, outcome, offset) for value, outcome, offset in writes])


def test_a_correct_history_passes() -> None:
    one = history((b"a", OK, 0), (b"b", DOUBT, -1), (b"c", OK, 2), (b"d", NO, -1), (b"e", DOUBT, -1))
    one.check_log(P, [(0, b"a"), (1, b"b"), (2, b"c")])


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([(0, b"a")], "was acknowledged at 2"),  # lost
        ([(0, b"a"), (1, b"a"), (2, b"c")], "2 times"),  # stored twice
        ([(0, b"a"), (3, b"c")], "was acknowledged at 2, and is at"),  # moved
        ([(0, b"a"), (2, b"c"), (1, b"b")], "do not grow"),
        ([(0, b"a"), (2, b"c"), (3, b"d")], "was refused"),
        ([(0, b"a"), (2, b"c"), (3, b"z")], "nobody wrote"),
        ([(0, b"a"), (2, b"c"), (3, b"b")], "out of order"),
    ],
)
def test_violations_in_a_log_are_found(records: list[tuple[int, bytes]], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        history((b"a", OK, 0), (b"b", DOUBT, -1), (b"c", OK, 2), (b"d", NO, -1)).check_log(P, records)


def test_an_offset_never_changes_its_record() -> None:
    one = history((b"a", DOUBT, -1), (b"b", DOUBT, -1))
    one.check_log(P, [(0, b"a")])
    with pytest.raises(Violation, match="was b'a' and is now b'b'"):
        one.check_log(P, [(0, b"b")])


def test_commits() -> None:
    one = History(commits=[Commit("g", P, 1, OK), Commit("g", P, 5, OK), Commit("g", P, 7, DOUBT)])
    one.check_committed("g", P, 5)
    one.check_committed("g", P, 7)
    one.check_committed("other", P, -1)
    for wrong in (1, -1, 6):
        with pytest.raises(Violation, match="possible are"):
            one.check_committed("g", P, wrong)


@pytest.mark.parametrize(
    ("decided", "undecided", "visible", "complaint"),
    [
        ({1: True}, set(), {b"a"}, "half visible"),
        ({1: True}, set(), set(), "was committed"),
        ({1: False}, set(), {b"a", b"b"}, "was aborted"),
        ({}, {1}, {b"a", b"b"}, "never ended"),
        ({1: None}, set(), {b"b"}, "half visible"),
    ],
)
def test_transactions(
    decided: dict[int, bool | None], undecided: set[int], visible: set[bytes], complaint: str
) -> None:
    writes = [Write("x", P, b"a", OK, 0, 1), Write("x", ("t", 1), b"b", OK, 0, 1)]
    with pytest.raises(Violation, match=complaint):
        History(writes=writes).check_transactions(decided, visible, undecided)
    History(writes=writes).check_transactions({1: None}, {b"a", b"b"}, set())
    History(writes=writes).check_transactions({1: None}, set(), set())


def keyed(key: bytes, value: bytes | None, outcome: Outcome, offset: int) -> Write:
    return Write("p", P, value or b"gone-%d" % offset, outcome, offset, key=key, is_deletion=value is None)


def compacted() -> History:
    return History(
        writes=[
            keyed(b"a", b"1", OK, 0),
            keyed(b"b", b"1", OK, 1),
            keyed(b"a", b"2", OK, 2),
            keyed(b"c", None, OK, 3),
            keyed(b"b", b"2", DOUBT, -1),
        ]
    )


@pytest.mark.parametrize(
    "records",
    [
        [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", None)],
        [(1, b"b", b"1"), (2, b"a", b"2")],
        [(2, b"a", b"2"), (4, b"b", b"2")],
    ],
)
def test_a_correct_compacted_partition_has_no_problems(records: list[tuple[int, bytes, bytes | None]]) -> None:
    compacted().check_compacted(P, records)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([(0, b"a", b"1"), (1, b"b", b"1")], "b'a' is b'1', and was b'2'"),
        ([(1, b"b", b"1")], "b'a' is gone"),
        ([(2, b"a", b"2")], "b'b' is gone"),
        ([(1, b"b", b"1"), (5, b"a", b"2")], "nobody wrote"),
        ([(1, b"b", b"1"), (2, b"a", b"1")], "nobody wrote"),
        ([(2, b"a", b"2"), (1, b"b", b"1")], "offsets do not grow"),
        ([(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"x")], "nobody wrote"),
    ],
)
def test_a_wrong_compacted_partition_has_problems(
    records: list[tuple[int, bytes, bytes | None]], complaint: str
) -> None:
    with pytest.raises(Violation, match=complaint):
        compacted().check_compacted(P, records)
