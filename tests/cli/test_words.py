"""Times, durations, partitions and positions as text; tables and numbers for people."""

import pytest

from ottla.cli import terminal
from ottla.cli.common import matching, parse_duration, parse_numbers, parse_time
from ottla.cli.consume import Where, parse_where

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14", 1_699_920_000_000),
        ("-2h", NOW - 7_200_000),
        ("now", NOW),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-2", "2023-13-01", "1e3"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("5 m", 300_000),
        ("250ms", 250),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT0.5S", 86_400_500),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "h", "-1h", "5 parsecs"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_lists_of_partitions() -> None:
    assert parse_numbers("0,2, 5-7,2") == [0, 2, 5, 6, 7]
    for wrong in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(ValueError, match="not a list"):
            parse_numbers(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Where("earliest")),
        ("latest", Where("latest")),
        ("42", Where("offset", 42)),
        ("-10", Where("back", 10)),
        ("-0", Where("back", 0)),
        ("@1700000000000", Where("time", 1_700_000_000_000)),
    ],
)
def test_places(text: str, expected: Where) -> None:
    assert parse_where(text) == expected


def test_patterns_match_and_plain_names_must_be_there() -> None:
    names = ["orders", "orders-dlq", "pay[1]"]
    assert matching(names, ["ord*"]) == ["orders", "orders-dlq"]
    assert matching(names, ["pay[1]"]) == ["pay[1]"], "a name that looks like a pattern is a name first"
    with pytest.raises(Exception, match="no topic is named 'nope'"):
        matching(names, ["orders", "nope"])


def test_numbers_for_people() -> None:
    assert [terminal.human_bytes(n) for n in (0, 1023, 1536, 5 << 20, 3 << 30, 2 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "2.0 TiB",
    ]
    assert terminal.human_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert terminal.human_time(-1) == "-"
    assert terminal.human_time(1 << 62) == str(1 << 62), "a year that no calendar has"


def test_a_table_is_as_wide_as_it_must_be() -> None:
    text = terminal.table(("NAME", "N"), [("a", 1), ("long-name", None)], right=("N",))
    assert text.splitlines() == ["NAME       N", "a          1", "long-name  -"]
