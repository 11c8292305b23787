"""A tiny run of the whole thing on a broker that it starts itself."""

import json

import pytest

from ottla.cli.main import main


@pytest.fixture
def bench(tmp_path, capfd):
    """Run `ottla bench`; returns its exit code, the JSON by (line, figure), and what it printed."""

    def run(*arguments):
        file = tmp_path / "results.json"
        folder = ["--data", str(tmp_path / "data"), "--base-port", "24600"]
        code = main(["bench", "--brokers", "ottla", "--quick", "--json", str(file), *folder, *arguments])
        rows = json.loads(file.read_text())["lines"] if file.exists() else []
        return code, {(row["line"], row["figure"]): row for row in rows}, capfd.readouterr()

    return run


def test_produce_fetch_requests_and_latency_are_measured(bench, tmp_path):
    lines = ["produce-1k-512k-none-1", "fetch-1", "requests-5", "latency"]
    code, rows, printed = bench("--only", *lines, "--svg", str(tmp_path / "plot.svg"))
    assert code == 0
    assert not any(row["problems"] for row in rows.values())
    for line, figure in [
        ("produce-1k-512k-none-1", "mb_s"),
        ("fetch-1", "mb_s"),
        ("requests-5", "rate"),
        ("latency", "p99_ms"),
    ]:
        assert rows[line, figure]["medians"]["ottla"] > 0
        assert f"{line} {figure}" in printed.out
    assert "[1/4" in printed.err  # long work shows where it is
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    assert not list((tmp_path / "data").iterdir())  # the broker is stopped and its folder gone


def test_list_starts_nothing(bench):
    code, rows, printed = bench("--list", "--only", "fetch-*")
    assert code == 0 and not rows
    assert "fetch-1" in printed.out and "produce" not in printed.out


def test_an_unknown_line_is_a_plain_error(bench):
    code, _, printed = bench("--only", "juggle")
    assert code == 2
    assert printed.err == "ottla bench: no bench line matches 'juggle'; see --list\n"


def test_an_unknown_broker_is_a_plain_error(bench):
    code, _, printed = bench("--only", "fetch-1", "--brokers", "rabbit")
    assert code == 2
    assert "--bootstrap" in printed.err


def test_a_quick_run_is_not_kept_as_the_page(bench):
    code, rows, printed = bench("--write", "--quick", "--only", "fetch-1")
    assert code == 2 and not rows
    assert "--write" in printed.err
