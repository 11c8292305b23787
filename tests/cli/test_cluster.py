"""`ottla cluster`, and `ottla serve --brokers`, as somebody at a terminal has them."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main


def test_a_cluster_is_troubled_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Cluster(3, control=0) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.wait_in_sync()

        def run(*words: str) -> tuple[int, str]:
            code = main(["cluster", "--control", cluster.control_url, *words])
            out, err = capsys.readouterr()
            return code, out + err

        code, said = run("status")
        assert code == 0 and "orders-0: leader 1, replicas [1, 2, 3]" in said
        assert run("move-leader", "orders", "0", "3") == (0, "")
        assert cluster.leader("orders") == 3
        assert run("partition-network", "1", "2,3,controller")[0] == 0
        assert run("slow-link", "2", "3", "50")[0] == 0
        said = run("status")[1]
        assert "no way between 1 and 2" in said and "from 2 to 3: 50 ms" in said
        assert run("heal")[0] == 0
        cluster.wait_in_sync()
        assert run("shrink-isr", "orders", "0", "1")[0] == 0
        assert 1 not in cluster.isr("orders")
        assert run("kill", "2")[0] == 0
        assert json.loads(run("status", "--json")[1])["brokers"]["2"] == "down"
        assert run("start", "2")[0] == 0
        code, said = run("kill", "9")
        assert code == 1 and "there are 1 to 3" in said
    assert main(["cluster", "--control", "http://127.0.0.1:1", "status"]) == 1
    assert "was it started with --control?" in capsys.readouterr().err


def test_several_brokers_are_served(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--brokers", "2", "--port", "0", "--control", "0"]
    with subprocess.Popen([*command, "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline()
            assert re.search(r"2 brokers listening on \S+:\d+,\S+:\d+ \(data in .*\), control at http://", said), said
        finally:
            child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    assert (tmp_path / "data" / "broker-2" / "meta.properties").exists()


@pytest.mark.parametrize("wrong", [["--workers", "2"], ["--metrics", "0"]])
def test_what_does_not_go_together(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--brokers", "2", "--ephemeral", "--port", "0", *wrong]) == 1
    assert "--brokers" in capsys.readouterr().err
