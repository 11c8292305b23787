"""Command lines that are read without argparse are read as argparse reads them."""

from __future__ import annotations

import shlex

import pytest

from ottla.cli.main import build_parser
from ottla.cli.serve import at_once

USUAL = [
    "",
    "server.properties",
    "--port 0 --ephemeral --json",
    "--host=0.0.0.0 --port=9093",
    "--data /srv/kafka --metrics 9100 --set log.retention.hours=24 --set a= --set=b=c=d",
    "--metrics 0.0.0.0:9100 server.properties --fsync",
    "--workers 4 --log-level DEBUG",
    "--log-level warning",
    "--brokers 3 --control 9099 --preset test",
    "--port 1 --port 2 --preset dev --preset kafka",
]
UNUSUAL = [
    "--help",
    "-h",
    "--ephem",
    "--json=yes",
    "--host=",
    "--host ''",
    "--set -x=y",
    "--port",
    "--port x",
    "--port 70000",
    "--preset other",
    "--brokers 0",
    "--metrics nowhere",
    "--log-level INFO --verbose",
    "one two",
    "-- one",
    "''",
]


@pytest.mark.parametrize("line", USUAL)
def test_usual_lines(line: str) -> None:
    words = shlex.split(line)
    expected = vars(build_parser(["serve"], alone=True).parse_args(["serve", *words]))
    assert vars(at_once(words)) == {name: value for name, value in expected.items() if name != "command"}  # type: ignore[arg-type]


@pytest.mark.parametrize("line", UNUSUAL)
def test_unusual_lines_are_left_to_argparse(line: str) -> None:
    assert at_once(shlex.split(line)) is None


def test_defaults_are_made_anew() -> None:
    assert at_once(["--set", "a=b"]).settings == ["a=b"]  # type: ignore[union-attr]
    assert at_once([]).settings == []  # type: ignore[union-attr]
