"""Controlling a broker over HTTP, from the command line, and with scenarios."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.main import main
from ottla.embedded.scenario import ScenarioError, load
from ottla.testing import ServedBroker, serve
from ottla.testing.over_http import Control, RemoteBroker, RemoteError


@pytest.fixture
def steered() -> Iterator[ServedBroker]:
    with serve(control=0, clock="virtual") as broker:
        yield broker


@pytest.fixture
def control(steered: ServedBroker) -> Control:
    return Control(steered.control_url)


def test_faults_over_http(steered: ServedBroker, control: Control, produce: Any) -> None:
    steered.topic("t").create()
    made = control.ask("POST", "/faults", {"kind": "error", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"})
    assert made == {"id": 1, "kind": "error", "text": made["text"], "fired": 0, "active": True}
    assert produce(steered.bootstrap, "t") is None
    assert control.ask("GET", "/faults/1")["fired"] == 1
    assert [fault["active"] for fault in control.ask("GET", "/faults")] == [False]
    control.ask("DELETE", "/faults")
    assert control.ask("GET", "/faults") == []


def test_records_groups_and_requests_are_inspected_over_http(
    steered: ServedBroker, control: Control, produce: Any, consumer: Any
) -> None:
    control.ask("POST", "/topics/t", {"partitions": 2})
    control.ask(
        "POST", "/topics/t/records", {"records": [["k", {"base64": "/w=="}, [["h", "v"]]], "plain"], "partition": 1}
    )
    assert [(r.key, r.value, r.headers) for r in steered.topic("t").records()] == [
        (b"k", b"\xff", (("h", b"v"),)),
        (None, b"plain", ()),
    ]
    reader = consumer(steered.bootstrap, client_id="reader")
    reader.subscribe(["t"])
    assert reader.poll(10) is not None
    reader.commit(asynchronous=False)
    remote = RemoteBroker(steered.bootstrap, steered.control_url)
    assert remote.topic("t").records() == steered.topic("t").records()
    assert remote.group("g").committed() == steered.group("g").committed()
    assert remote.group("g").lag() == 1 and remote.group("g").state == "Stable"
    assert remote.group("g").members() == steered.group("g").members()
    assert remote.group("g").members()[0].client_id == "reader"
    assert {request.api for request in remote.requests(client_id="reader")} >= {"Fetch", "JoinGroup"}
    assert control.ask("GET", "/") == {
        "running": True,
        "bootstrap": steered.bootstrap,
        "listeners": {"PLAINTEXT": steered.bootstrap},
        "topics": ["t"],
        "groups": ["g"],
        "faults": [],
    }
    assert "topic t: 2 records" in remote.report()
    assert remote.topic("t").wait_for(lambda record: record.key == b"k", timeout=1)
    remote.reset()
    assert remote.topics() == [] and remote.groups() == []


def test_time_and_life_over_http(steered: ServedBroker, control: Control) -> None:
    before = steered.clock.now_ms()
    assert control.ask("POST", "/clock/advance", {"hours": 1})["now_ms"] >= before + 3_600_000
    first = steered.bootstrap
    assert control.ask("POST", "/broker/kill") == {"running": False}
    assert control.ask("GET", "/")["running"] is False
    with pytest.raises(RemoteError, match="not running"):
        control.ask("GET", "/topics")
    assert control.ask("POST", "/broker/up") == {"running": True}
    assert steered.bootstrap == first


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "use "),
        ("PUT", "/faults", None, 405, "use GET or POST"),
        ("POST", "/faults", b"{", 400, "not JSON"),
        ("POST", "/faults", b"[]", 400, "JSON object"),
        ("POST", "/faults", b"{}", 400, "kind"),
        ("POST", "/faults", b'{"kind": "error", "api": "Nope", "error": 3}', 400, "serves no API"),
        ("GET", "/faults/77", None, 404, "no fault 77"),
        ("GET", "/faults/x", None, 404, "not the number"),
        ("GET", "/topics/nope/records", None, 404, "there is no topic 'nope'"),
        ("GET", "/topics/nope", None, 404, "there is no topic 'nope'"),
        ("GET", "/groups/none", None, 404, "there is no group 'none'"),
        ("GET", "/groups/none/lag", None, 404, "there is no group 'none'"),
        ("GET", "/groups/none/lag?of=nope", None, 404, "there is no topic 'nope'"),
        ("POST", "/clock/advance", b'{"minutes": -1}', 400, "cannot go back"),
        ("POST", "/broker/sideways", None, 404, "down, up"),
        ("GET", "/requests?api=Nope", None, 400, "serves no API"),
    ],
)
def test_bad_requests_say_what_to_do(
    steered: ServedBroker, method: str, path: str, body: bytes | None, status: int, message: str
) -> None:
    found, answer = _ask(steered, method, path, body)
    assert (found, message in answer["error"]) == (status, True), answer


def test_web_pages_and_other_hosts_are_refused(steered: ServedBroker) -> None:
    assert _ask(steered, "GET", "/", None, Host="localhost")[0] == 200
    for host in ("evil.example:80", "evil.example", "127.0.0.1.evil.example"):
        assert _ask(steered, "GET", "/", None, Host=host)[0] == 403
    assert _ask(steered, "GET", "/", None, Origin="http://evil.example")[0] == 403


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whose a connection is")
def test_other_users_of_the_machine_are_refused(steered: ServedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ask(steered, "GET", "/", None)[0] == 200

    user = os.getuid()
    connection = http.client.HTTPConnection(steered.control_url.removeprefix("http://"))
    if user == 0:
        os.seteuid(65534)  # a socket belongs to the user that creates it
        try:
            connection.sock = socket.socket()
        finally:
            os.seteuid(0)
        connection.sock.connect((connection.host, connection.port))
    else:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)) == (
        403,
        {"error": "only programs of the user who runs the broker are served"},
    )
    connection.close()


def _ask(broker: ServedBroker, method: str, path: str, body: bytes | None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(broker.control_url.removeprefix("http://"))
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.load(response)
    finally:
        connection.close()


SCENARIO = """
name: the broker has a bad day
steps:
  - create: {topic: t, partitions: 2}
  - append: {topic: t, records: [a, {n: 1}], partition: 1}
  - error: {api: Produce, error: NOT_LEADER_OR_FOLLOWER, times: every, as: moved}
  - remove: moved
  - kill
  - up
  - records: {topic: t, count: 2}
  - advance: {minutes: 10}
  - sleep: 0
  - clear
"""


def test_a_scenario_in_yaml_runs(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad-day.yaml"
    path.write_text(SCENARIO)

    async def main() -> None:
        async with ottla.Broker(clock="virtual") as broker:
            done = await broker.run_scenario(path)
            assert [step["verb"] for step in done] == [verb for verb, _ in load(path)]
            assert broker.topic("t").values() == [b"a", b'{"n": 1}']
            assert broker.clock.ahead_ms >= 600_000

    run(main())


def test_a_scenario_waits_for_its_faults(steered: ServedBroker, produce: Any) -> None:
    steered.topic("t").create()
    broker: Any = steered.embedded
    steps = [{"error": {"api": "Produce", "error": 6, "as": "f"}}, {"wait": {"fault": "f", "timeout": 10}}]
    waiting = broker.submit(broker.run_scenario(steps))
    assert produce(steered.bootstrap, "t") is None
    assert waiting.result(10)[-1]["fired"] == 1


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({"stages": []}, "has `steps:`"),
        ({"steps": "kill"}, "must be a list"),
        ([{"explode": {}}], "step 1: there is no 'explode'"),
        ([{"kill": {}, "up": {}}], "one verb"),
        ([{"wait": {"fault": "nobody"}}], r"step 1 \(wait\): no fault is called 'nobody'"),
        ([{"error": {"api": "Produce"}}], r"step 1 \(error\): error needs error="),
        ([{"append": {"topic": "t"}}], "records"),
        ([{"error": {"api": "Produce", "error": 6}}, {"wait": {"timeout": 0}}], "0 of 1 times"),
    ],
)
def test_bad_scenarios_say_what_to_do(steered: ServedBroker, scenario: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        steered.run_scenario(scenario)


def test_the_command_line(steered: ServedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["faults", "--control", steered.control_url]
    assert main([*at, "add", "error", "api=Produce,Fetch", "error=NOT_LEADER_OR_FOLLOWER", "times=every"]) == 0
    assert main([*at, "list"]) == 0
    assert "1: NOT_LEADER_OR_FOLLOWER for Produce, Fetch (fired 0 times, active)" in capsys.readouterr().out
    assert main([*at, "remove", "1"]) == 0
    assert not list(steered.faults)
    assert main([*at, "advance", "minutes=2"]) == 0
    assert steered.clock.ahead_ms >= 120_000
    assert main([*at, "broker", "restart"]) == 0
    path = tmp_path / "s.yaml"
    path.write_text("steps: [{create: t}]")
    assert main([*at, "run", str(path)]) == 0
    assert steered.topics() == ["t"]
    assert main([*at, "add", "error", "api=Nope", "error=3"]) == 1
    assert "serves no API" in capsys.readouterr().err
    assert main([*at, "add", "error", "api"]) == 2
    assert main(["faults", "--control", "1", "list"]) == 1
    assert "--control" in capsys.readouterr().err


def test_serve_with_control_metrics_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--ephemeral", "--control", "0"]
    with subprocess.Popen([*command, "--metrics", "0", "--json"], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            said = json.loads(child.stdout.readline())
            remote = RemoteBroker(said["bootstrap"], said["control"])
            remote.topic("t").append(["x"])
            assert main(["topics", "list", "--bootstrap", said["bootstrap"]]) == 0
            assert "t" in capsys.readouterr().out.split()
            with urllib.request.urlopen(said["metrics"], timeout=60) as answer:
                page = answer.read().decode()
            assert "ottla_topics 1.0" in page
            assert re.search(r'ottla_requests_total{api="Metadata",version="\d+"} [1-9]', page)
            with urllib.request.urlopen(said["metrics"].replace("/metrics", "/ready"), timeout=60) as answer:
                assert answer.status == 200
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()


def test_serve_with_control(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--ephemeral", "--control", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            found = re.search(r"listening on (\S+) .*control at (\S+)", line)
            assert found is not None, line
            remote = RemoteBroker(found[1], found[2])
            remote.topic("t").append(["x"])
            assert remote.topic("t").texts() == ["x"]
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0
        finally:
            child.kill()
