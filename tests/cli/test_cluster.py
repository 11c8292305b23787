"""`ottla cluster`, and `ottla serve --brokers`, as a user at a terminal runs them."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main
from ottla.client import admin
from ottla.client.routing import Client
from ottla.client.security import Security


def test_the_command_line_kills_pauses_and_partitions_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Cluster(3, control=0) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.wait_in_sync()

        def run(*words: str) -> tuple[int, str]:
            code = main(["cluster", "--control", cluster.control_url, *words])
            out, err = capsys.readouterr()
            return code, out + err

        code, said = run("status")
        assert code == 0 and "orders-0: leader 1, replicas [1, 2, 3]" in said
        said = run("status", "--offsets", "--control", cluster.control_url)[1]
        assert re.search(r"BROKER  LEO  HW  ROLE\n +1 +0 +0  leader\n +2 +0 +0  in sync", said)
        assert run("move-leader", "orders", "0", "3") == (0, "")
        assert cluster.leader("orders") == 3
        assert run("partition-network", "1", "2,3,controller")[0] == 0
        assert run("slow-link", "2", "3", "50")[0] == 0
        said = run("status")[1]
        assert "no connection between 1 and 2" in said and "from 2 to 3: 50 ms" in said
        assert run("heal")[0] == 0
        cluster.wait_in_sync()
        assert run("shrink-isr", "orders", "0", "1")[0] == 0
        assert 1 not in cluster.isr("orders")
        assert run("heal")[0] == 0
        cluster.wait_in_sync()
        assert run("reassign", "orders", "0", "2,3") == (0, "")
        cluster.wait_until(lambda c: c.partition("orders").replicas == [2, 3])
        code, said = run("reassign", "orders", "0", "cancel")
        assert code == 1 and "cannot be moved" in said
        assert run("kill", "2")[0] == 0
        assert json.loads(run("status", "--json")[1])["brokers"]["2"] == "down"
        assert run("start", "2")[0] == 0
        code, said = run("kill", "9")
        assert code == 1 and "the brokers are 1, 2, 3" in said
    assert main(["cluster", "--control", "http://127.0.0.1:1", "status"]) == 1
    assert "was it started with --control?" in capsys.readouterr().err


def test_a_broker_is_drained_and_removed_with_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Cluster(3, control=0) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2], [2, 3], [3, 1]])
        cluster.wait_in_sync()
        assert main(["cluster", "--control", cluster.control_url, "drain", "2"]) == 0
        first, *_, last = capsys.readouterr().out.splitlines()
        assert first == "draining broker 2: 2 partitions to move"
        assert last == "draining broker 2: 2 of 2 partitions moved"
        assert not any(2 in cluster.partition("orders", index).replicas for index in range(3))
        assert cluster.running() == [1, 2, 3]
        assert main(["cluster", "--control", cluster.control_url, "remove-broker", "2"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "broker 2 is removed"
        assert cluster.running() == [1, 3]


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


def test_brokers_can_be_controllers_too(capfd: pytest.CaptureFixture[str]) -> None:
    serve = [sys.executable, "-m", "ottla.cli.main", "serve", "--ephemeral", "--port", "0", "--combined"]
    with subprocess.Popen(
        [*serve, "--brokers", "3", "--controllers", "3", "--control", "0", "--json"], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            said = json.loads(child.stdout.readline())
            assert list(said["controllers"]) == ["c1", "c2", "c3"]
            with urllib.request.urlopen(said["control"]) as answer:
                state = json.load(answer)
            assert [each["node_id"] for each in state["controllers"].values()] == [1, 2, 3]
        finally:
            child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    capfd.readouterr()
    assert subprocess.run(serve, check=False).returncode == 1
    assert "combined roles need a number of controllers" in capfd.readouterr().err


PROPERTIES = """
process.roles=broker,controller
node.id=7
listeners=PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_alice="secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
no.such.key=1
num.partitions=2
"""


def test_a_properties_file_metrics_and_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    command = [sys.executable, "-m", "ottla.cli.main", "serve", str(path), "--brokers", "2", "--ephemeral"]
    options = ["--json", "--metrics", "0", "--control", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        try:
            said = json.loads(child.stdout.readline())
            assert list(said["brokers"]) == ["1", "2"]
            assert [list(listeners) for listeners in said["brokers"].values()] == [["PLAINTEXT", "CLIENT"]] * 2
            inner = [listeners["PLAINTEXT"] for listeners in said["brokers"].values()]
            assert said["bootstrap"] == ",".join(inner)

            async def look() -> tuple[int, list[str]]:
                login = Security(mechanism="PLAIN", username="alice", password="secret")
                async with Client(said["bootstrap"]) as client:
                    await admin.create_topics(client, [admin.NewTopic("t")])
                    partitions = len((await client.topic("t")).partitions)
                async with Client(said["brokers"]["2"]["CLIENT"], security=login) as client:
                    known = (await client.refresh()).nodes.values()
                    return partitions, [f"{node.host}:{node.port}" for node in known]

            partitions, outer = asyncio.run(look())
            assert partitions == 2
            assert outer == [listeners["CLIENT"] for listeners in said["brokers"].values()]
            with urllib.request.urlopen(said["metrics"], timeout=60) as answer:
                page = answer.read().decode()
            assert re.search(r'ottla_requests_total{api="Metadata",broker="2",version="\d+"} [1-9]', page)
            assert 'ottla_topics{broker="1"} 1.0' in page and 'ottla_topics{broker="2"} 1.0' in page
            with urllib.request.urlopen(f"{said['control']}/", timeout=60) as answer:
                assert json.load(answer)["brokers"] == {"1": "running", "2": "running"}
        finally:
            child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert "unknown configuration key 'no.such.key'" in child.stderr.read()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["--workers", "2"], "cannot be combined with --workers"),
        (["--set", "listeners=A://:0,A://:0"], "listener"),
        (["--port", "65535"], "begin lower"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    wrong: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--brokers", "2", "--ephemeral", *wrong]) == 1
    assert text in capsys.readouterr().err


def test_brokers_names_the_active_controller(capsys: pytest.CaptureFixture[str]) -> None:
    """Metadata returns any broker as the controller, even if the controllers are separate nodes."""
    with ottla.serve() as alone, ottla.Cluster(2, controllers=3) as quorum:
        for cluster, wanted in ((alone, [True]), (quorum, [False, False])):
            assert main(["brokers", "--json", "-b", cluster.bootstrap]) == 0
            found = json.loads(capsys.readouterr().out)
            assert [each["controller"] for each in found["brokers"]] == wanted
        assert found["controller"] == quorum.controller(quorum.active_controller).node_id
