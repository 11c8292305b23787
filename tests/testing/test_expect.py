"""What `topic.expect` accepts, what it refuses, and how it explains a refusal."""

import re
from typing import Any
from unittest import mock

import pytest

from ottla.embedded.matching import difference
from ottla.testing import ANY, Record, ServedBroker, approx

ORDER = b'{"total": 10, "id": 7, "paid": true, "lines": [{"sku": "a-1", "price": 9.99}]}'


def record(value: bytes | None, key: bytes | None = None, headers: Any = (), offset: int = 0) -> Record:
    return Record("t", 0, offset, 0, key, value, tuple(headers))


@pytest.mark.parametrize(
    "expected",
    [
        {"id": 7, "total": 10, "paid": True, "lines": [{"sku": "a-1", "price": 9.99}]},
        {"id": ANY, "total": 10.0, "paid": True, "lines": ANY},
        {
            "id": 7,
            "total": approx(10.4, within=0.5),
            "paid": True,
            "lines": [{"sku": re.compile(r"a-\d"), "price": ANY}],
        },
        {"id": mock.ANY, "total": pytest.approx(10), "paid": True, "lines": [ANY]},
        ORDER,
        ORDER.decode(),
        re.compile(r".*\bsku\b.*"),
        re.compile(rb".*sku.*"),
        ANY,
        mock.ANY,
        ("k", ANY),
        (b"k", {"id": 7, "total": 10, "paid": True, "lines": ANY}, {"source": "web", "n": 1}),
        (re.compile("[a-z]"), ANY, [("source", "web"), ("n", ANY)]),
        (ANY, ANY, {"n": "1", "source": re.compile("w..")}),
    ],
)
def test_equal_records_match(expected: Any) -> None:
    found = record(ORDER, b"k", [("source", b"web"), ("n", b"1")])
    assert difference([expected], [found]) is None


@pytest.mark.parametrize(
    ("expected", "why"),
    [
        ({"id": 7}, "value.total: not expected, found 10"),
        ({"id": 8, "total": 10, "paid": True, "lines": ANY}, "value.id: expected 8, found 7"),
        ({"id": 7, "total": 10, "paid": 1, "lines": ANY}, "value.paid: expected 1, found true"),
        ({"id": 7, "total": 10, "paid": True, "lines": ANY, "x": 1}, "value.x: missing"),
        (
            {"id": 7, "total": 10, "paid": True, "lines": [{"sku": re.compile("b.*"), "price": ANY}]},
            "value.lines[0].sku",
        ),
        ({"id": 7, "total": approx(11), "paid": True, "lines": ANY}, "value.total: expected 11 ± 1e-06, found 10"),
        ('{"id": 7}', 'value: expected "{'),
        (re.compile("sku"), "does not match /sku/"),
        (None, "value: expected null"),
        (("x", ANY), 'key: expected "x", found "k"'),
        ((None, ANY), 'key: expected null, found "k"'),
        (("k", ANY, {}), "header source: not expected"),
        (("k", ANY, {"source": "app", "n": "1"}), 'header source: expected "app", found "web"'),
        (("k", ANY, {"source": "web", "n": "1", "more": ANY}), "header more: missing"),
        (("k", ANY, [("n", "1"), ("source", "web")]), 'headers: expected n="1" source="web", found source="web" n="1"'),
    ],
)
def test_different_records_do_not_match(expected: Any, why: str) -> None:
    found = record(ORDER, b"k", [("source", b"web"), ("n", b"1")])
    diff = difference([expected], [found])
    assert diff is not None and why in diff.splitlines()[-1] and diff.splitlines()[-1].startswith("? ")


def test_json_is_shown_as_it_was_expected() -> None:
    found = [record(b'{"id":1,"name":"J\xc3\xbcrg"}', b"k"), record(b"[1]", offset=1), record(b"true", offset=2)]
    assert difference([{"id": 2, "name": "Jürg"}, [1]], found) == (
        '- {"id": 2, "name": "Jürg"}\n+ "k" → {"id": 1, "name": "Jürg"}\n? value.id: expected 2, found 1\n'
        '  [1]\n+ "true"'
    )
    assert difference([{"größe": 1}], [], any_order=True) == '- {"größe": 1}'
    assert difference(['{"id": 1}'], found[:1]) == (
        '- "{\\"id\\": 1}"\n+ "k" → "{\\"id\\":1,\\"name\\":\\"Jürg\\"}"\n'
        '? value: expected "{\\"id\\": 1}", found "{\\"id\\":1,\\"name\\":\\"Jürg\\"}"'
    )


def test_partial_matches() -> None:
    found = record(ORDER, b"k", [("source", b"web"), ("n", b"1")])
    assert difference([("k", {"lines": [{"sku": "a-1"}]}, {"n": "1"})], [found], partial=True) is None
    assert "value.lines[0].sku" in str(difference([{"lines": [{"sku": "b"}]}], [found], partial=True))
    assert difference([{"id": 7}, {"id": 8}], [found], partial=True) is not None


def test_any_order_finds_the_pairs_that_fit() -> None:
    found = [record(value, offset=number) for number, value in enumerate([b"a", b"b", b"c"])]
    assert difference([ANY, "a", re.compile("[ab]")], found, any_order=True) is None
    assert difference(["c", "b", "a"], found, any_order=True) is None
    assert difference(["c", "b", "a"], found) is not None
    assert difference(["c", "d", "a"], found, any_order=True) == (
        '  "a"\n  "c"\n- "d"\n+ "b"\n? value: expected "d", found "b"'
    )
    assert difference(["a", "a", "b", "c"], found, any_order=True) == '  "a"\n  "b"\n  "c"\n- "a"'


def test_a_diff_keeps_what_matches_in_its_place() -> None:
    found = [record(value, offset=number) for number, value in enumerate([b"a", b"new", b"b", b"x", b"d"])]
    assert difference(["a", "b", "c", "d"], found) == (
        '  "a"\n+ "new"\n  "b"\n- "c"\n+ "x"\n? value: expected "c", found "x"\n  "d"'
    )


def test_a_diff_says_why_a_record_differs_beside_matchers_that_accept_everything() -> None:
    found = [record(b"a", b"1", [("h", b"x")]), record(b"b", b"2"), record(b"c", b"3")]
    assert difference([("1", ANY, {"h": "y"}), ANY, ANY], found) == (
        '- "1" → ANY h="y"\n+ "1" → "a" h="x"\n? header h: expected "y", found "x"\n  "2" → "b"\n  "3" → "c"'
    )


def test_expect_on_a_broker(broker: ServedBroker) -> None:
    topic = broker.topic("t")
    topic.append([("k", {"id": 1, "at": 5}, {"source": "web"}), {"id": 2}])
    topic.expect([("k", {"at": 5, "id": 1}, {"source": "web"}), {"id": 2}])
    topic.expect([{"id": 2}, {"id": 1}], any_order=True, partial=True)
    with pytest.raises(AssertionError, match="header source: expected"):
        topic.expect([("k", {"id": 1, "at": 5}, {"source": "app"}), {"id": 2}])
    with pytest.raises(ValueError, match="tuple of 4"):
        topic.expect([(1, 2, 3, 4)])
