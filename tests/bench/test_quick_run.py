"""A tiny run of the whole benchmark on a broker that it starts itself."""

import json
import sys

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


def test_any_command_that_takes_a_port_is_a_peer(bench):
    command = f"{sys.executable} -m ottla.cli.main serve --port {{port}} --data {{folder}}/logs"
    peers = ["--brokers", "ottla,other", "--command", f"other={command}"]
    code, rows, printed = bench("--only", "memory-fetch-1", "memory-kept", *peers)
    assert code == 0
    assert not any(row["problems"] for row in rows.values())
    assert rows["memory-fetch-1", "mb_s"]["ratios"]["other"] > 0
    assert "ottla ÷ other" in printed.out


def test_a_peer_needs_a_command_with_a_port(bench):
    code, _, printed = bench("--only", "fetch-1", "--brokers", "other", "--command", "other=serve")
    assert code == 2 and "{port}" in printed.err
    code, _, printed = bench("--only", "fetch-1", "--brokers", "other", "--command", "serve")
    assert code == 2 and "NAME=COMMAND" in printed.err


def test_starts_states_of_the_page_cache_and_long_work_are_measured(bench):
    lines = [
        "recovery",
        "partitions-10k",
        "produce-growing-64k-4",
        "produce-recompressed",
        "longest-wait",
        "new-python",
    ]
    code, rows, _ = bench("--only", *lines)
    assert code == 0
    assert not any(row["problems"] for row in rows.values())
    assert all(row["medians"]["ottla"] > 0 for row in rows.values())


def test_a_quorum_fails_over_makes_partitions_and_rests(bench):
    code, rows, _ = bench("--only", "quorum-*")
    assert code == 0
    assert not any(row["problems"] for row in rows.values())
    assert [name for name, _ in rows] == [
        "quorum-failover", "quorum-partitions", "quorum-partitions", "quorum-idle", "quorum-idle",
    ]  # fmt: skip
    # The processor time of a second at rest can be less than the kernel counts.
    assert all(row["medians"]["ottla"] > 0 for (name, _), row in rows.items() if name != "quorum-idle")


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
    assert "--bootstrap" in printed.err and "--command" in printed.err


def test_a_quick_run_is_not_kept_as_the_page(bench):
    code, rows, printed = bench("--write", "--quick", "--only", "fetch-1")
    assert code == 2 and not rows
    assert "--write" in printed.err
