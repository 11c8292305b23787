"""What `ottla serve` sets up before it is ready, and the commands that wait for it, create users and write ACLs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import ottla as ottla_package
from ottla.cli.serve_setup import parse_topic
from ottla.config import ConfigError
from support.ports import free_ports

COMMAND = [sys.executable, "-m", "ottla.cli.main"]
Serve = Callable[..., dict[str, Any]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `ottla serve --json` and returns what it prints."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, code: int = 0) -> dict[str, Any]:
        command = [*COMMAND, "serve", "--json", "--no-console", "--port", "0", *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        started.append(process)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            assert process.wait(10) == 1
            return {"error": process.stderr.read()}
        return {**json.loads(line), "stop": lambda: (process.terminate(), process.wait(20))}

    yield start
    for process in started:
        process.terminate()
        process.wait(20)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize("way", [[], ["--control", 0], ["--brokers", 3]])
def test_topics_and_records_exist_when_serve_is_ready(serve: Serve, ottla: Any, tmp_path: Path, way: list[Any]) -> None:
    seed = tmp_path / "seed.jsonl"
    lines = [{"topic": "orders", "key": f"k{n}", "value": f"v{n}", "headers": {"h": "x"}} for n in range(600)]
    lines += [{"topic": "new", "partition": 2, "value": "there", "timestamp": 1_700_000_000_000}]
    seed.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    ready = serve(
        "--topic", "orders:3:cleanup.policy=compact,delete,retention.ms=86400000", "--topic", "plain",
        "--seed-file", seed, *way, "--ephemeral",
    )  # fmt: skip
    on = ["-b", ready["bootstrap"]]
    topics = {each["name"]: each["partitions"] for each in ottla("topics", "list", *on, "--json").json}
    assert topics == {"orders": 3, "plain": 1, "new": 3}
    settings = ottla("configs", "get", "topic", "orders", *on, "--json").out
    assert '"compact,delete"' in settings and '"86400000"' in settings
    found = ottla("consume", "orders", *on, "--from", "earliest", "--format", "json").lines
    assert sorted(each["value"] for each in found) == sorted(f"v{n}" for n in range(600))
    assert found[0]["headers"] == [["h", "x"]]
    (record,) = ottla("consume", "new", *on, "--from", "earliest", "--format", "json").lines
    assert (record["partition"], record["timestamp"]) == (2, 1_700_000_000_000)


def test_a_restart_does_not_seed_again(serve: Serve, ottla: Any, tmp_path: Path) -> None:
    (tmp_path / "seed.jsonl").write_text('{"topic": "t", "value": "once"}\n')
    for _ in range(2):
        ready = serve("--data", tmp_path / "data", "--topic", "t", "--seed-file", "seed.jsonl")
        values = ottla("consume", "t", "-b", ready["bootstrap"], "--from", "earliest").out
        assert values.splitlines() == ["once"]
        ready["stop"]()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--topic", "orders:many"], "--topic takes NAME[:PARTITIONS[:KEY=VALUE,…]], not 'orders:many'"),
        (["--topic", "orders:1:nope=1"], "Unknown topic config name: nope"),
        (["--seed-file", "missing.jsonl"], "there is no such file"),
        (["--seed-file", "bad.jsonl"], "--seed-file bad.jsonl, line 2: unknown field 'vlaue'"),
        (["--user", "alice"], "--user takes NAME:PASSWORD"),
        (["--acl", "alice read topic:t"], "leaves everybody anonymous"),
        (["--user", "a:b", "--acl", "alice fly topic:t"], "there is no operation 'fly'"),
    ],
)
def test_a_wrong_setup_is_reported(serve: Serve, tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"topic": "t", "value": "x"}\n{"topic": "t", "vlaue": "x"}\n')
    assert message in serve("--ephemeral", *options)["error"]


def test_a_topic_in_words() -> None:
    assert parse_topic("a")[:2] == ("a", -1)
    assert parse_topic("a::retention.ms=1").configs == {"retention.ms": "1"}
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        parse_topic("a:1:compact")


@pytest.mark.parametrize("way", [[], ["--control", 0]])
def test_a_broker_with_tls_users_and_rules(serve: Serve, ottla: Any, tmp_path: Path, way: list[Any]) -> None:
    ready = serve(
        "--data", "data", "--tls", "--user", "alice:secret", "--user", "bob:other",
        "--acl", "alice all cluster", "--acl", "alice all topic:*", "--topic", "orders", *way,
    )  # fmt: skip
    assert ready["security"]["protocol"] == "SASL_SSL"
    on = ["-b", ready["bootstrap"], "--client-config", ready["security"]["client_config"]]
    assert ottla("topics", "list", "--names", *on).out.split() == ["orders"]
    assert ottla("acls", "list", *on).out.splitlines() == ["alice all topic:*", "alice all cluster"]
    ottla("acls", "add", "bob read,describe topic:ord*", "deny bob write topic:orders from 10.0.0.1", *on)
    assert [each["rule"] for each in ottla("acls", "list", "--user", "bob", *on, "--json").json] == [
        "bob read topic:ord*",
        "bob describe topic:ord*",
        "deny bob write topic:orders from 10.0.0.1",
    ]
    assert len(ottla("acls", "list", "--for", "topic:orders", *on).out.splitlines()) == 4
    ottla("acls", "delete", "bob read topic:ord*", *on)
    assert "there is no such rule" in ottla("acls", "delete", "bob read topic:ord*", *on, code=1).err
    assert "is not a rule" in ottla("acls", "add", "bob", *on, code=2).err
    bob = {
        "bootstrap.servers": ready["bootstrap"], "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": ready["security"]["ca_file"], "sasl.username": "bob", "sasl.password": "other",
    }  # fmt: skip
    assert "orders" in AdminClient(bob).list_topics(timeout=10).topics
    assert oct((tmp_path / "data-security/server.pem").stat().st_mode)[-3:] == "600"


def test_users(ottla: Any, child: Any, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=a\n")
    with ottla_package.serve(users={"admin": "a"}) as broker:
        on = ["-b", broker.bootstrap, "--client-config", str(path)]
        assert "SCRAM-SHA-256" in ottla("users", "list", *on).out
        child("users", "create", "carol", "--password-stdin", *on, stdin=b"pass\n")
        ottla("users", "create", "carol", "--password", "pass", "--mechanism", "scram-sha-256", *on)
        listed = ottla("users", "list", *on, "--json").json
        assert [each["mechanism"] for each in listed if each["user"] == "carol"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        carol = {
            **broker.client_config("confluent"), "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "carol", "sasl.password": "pass",
        }  # fmt: skip
        assert AdminClient(carol).list_topics(timeout=10).brokers
        assert "removed carol" in ottla("users", "delete", "carol", *on).out
        assert "there is no SCRAM user 'carol'" in ottla("users", "delete", "carol", *on, code=1).err
        assert "--password-stdin" in child("users", "create", "dave", *on, code=2).err


def test_wait_and_commands_are_patient_with_a_broker_that_is_starting(ottla: Any) -> None:
    (port,) = free_ports(1)
    running: list[Any] = []

    def later() -> None:
        broker = ottla_package.serve(port=port)
        broker.start()
        running.append(broker)

    on = ["-b", f"127.0.0.1:{port}"]
    timer = threading.Timer(1.3, later)
    timer.start()
    assert "nothing listens at" in ottla("topics", "list", *on, "--timeout", "30").err
    assert ottla("wait", *on, "--json").json["ready"]
    timer.join()
    threading.Timer(0.3, lambda: running[0].topic("late").create(2)).start()
    ottla("wait", *on, "--topic", "late", "--timeout", "20")
    refused = ottla("wait", *on, "--topic", "never", "--timeout", "0.3", code=1).err
    assert "was not ready within 0.3 s: topic 'never' does not exist" in refused
    running[0].stop()
    assert "was not ready within 0.2 s" in ottla("wait", *on, "--timeout", "0.2", code=1).err
