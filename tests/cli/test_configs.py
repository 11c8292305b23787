"""`ottla configs`, on Ottla or, with --bootstrap, on Apache Kafka."""

from collections.abc import Callable
from typing import Any


def settings(done: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for one in done.json for entry in one["configs"]}


def test_topics(cli: Any, topic: str, eventually: Any) -> None:
    assert "nothing is set" in cli("configs", "get", "topic", topic).out
    cli("configs", "set", "topic", topic, "retention.ms=5000", "cleanup.policy+=compact")
    get = ("configs", "get", "topics", topic, "--json")
    eventually(
        lambda: settings(cli(*get)) == {"retention.ms": "5000", "cleanup.policy": "delete,compact"}, "the change"
    )
    cli("configs", "set", "topic", topic, "cleanup.policy-=delete")
    eventually(lambda: settings(cli(*get))["cleanup.policy"] == "compact", "the change")
    cli("configs", "delete", "topic", topic, "retention.ms", "cleanup.policy")
    eventually(lambda: settings(cli(*get)) == {}, "the defaults")
    everything = settings(cli(*get, "--all"))
    assert everything["cleanup.policy"] == "delete"
    assert len(everything) > 20


def test_one_key_is_shown_with_its_sources(cli: Any, topic: str) -> None:
    (one,) = cli("configs", "get", "topic", topic, "retention.ms", "--explain", "--json").json
    (entry,) = one["configs"]
    assert (entry["name"], entry["value"], entry["source"]) == ("retention.ms", "604800000", "default")
    assert entry["documentation"]
    assert "default" in cli("configs", "get", "topic", topic, "--key", "retention.ms", "--explain").out


def test_a_wrong_setting_changes_nothing(cli: Any, topic: str) -> None:
    done = cli("configs", "set", "topic", topic, "retention.ms=5000", "no.such=1", code=1)
    assert "no.such" in done.err
    assert settings(cli("configs", "get", "topic", topic, "--json")) == {}
    assert "not KEY=VALUE" in cli("configs", "set", "topic", topic, "retention.ms", code=2).err
    assert "at least one" in cli("configs", "set", "topic", topic, code=2).err
    assert "does not exist" in cli("configs", "set", "topic", f"{topic}-not", "retention.ms=1", code=1).err
    cli("configs", "set", "topic", topic, "retention.ms=5000", "--dry-run")
    assert settings(cli("configs", "get", "topic", topic, "--json")) == {}


def test_brokers(cli: Any, eventually: Any) -> None:
    before = settings(cli("configs", "get", "broker", "log.cleaner.threads", "--json"))
    assert before == {"log.cleaner.threads": "1"}
    cli("configs", "set", "broker", "--default", "log.cleaner.threads=2")
    try:
        eventually(
            lambda: (
                settings(cli("configs", "get", "broker", "log.cleaner.threads", "--json"))
                == {"log.cleaner.threads": "2"}
            ),
            "the change",
        )
        assert settings(cli("configs", "get", "broker", "--default", "--json"))["log.cleaner.threads"] == "2"
    finally:
        cli("configs", "delete", "broker", "--default", "log.cleaner.threads")
    assert "no broker has the id 77" in cli("configs", "get", "broker", 77, code=1).err


def test_groups(cli: Any, unique: Callable[[str], str], eventually: Any) -> None:
    group = unique("g")
    cli("configs", "set", "group", group, "consumer.session.timeout.ms=50000")
    get = ("configs", "get", "group", group, "--json")
    eventually(lambda: settings(cli(*get)) == {"consumer.session.timeout.ms": "50000"}, "the change")
    cli("configs", "delete", "group", group, "consumer.session.timeout.ms")
    eventually(lambda: settings(cli(*get)) == {}, "the default")


def test_quotas_of_clients(cli: Any, unique: Callable[[str], str], eventually: Any) -> None:
    client = unique("client")
    cli("configs", "set", "client", client, "consumer_byte_rate=1048576", "request_percentage=12.5")
    get = ("configs", "get", "client", client)
    eventually(lambda: cli(*get, "--json").json, "the quota")
    assert cli(*get, "--json").json == [
        {"entity": {"client-id": client}, "quotas": {"consumer_byte_rate": 1048576.0, "request_percentage": 12.5}}
    ]
    assert f"client-id {client}" in cli("configs", "get", "clients").out
    assert {"  consumer_byte_rate=1048576", "  request_percentage=12.5"} <= set(cli(*get).out.splitlines())
    cli("configs", "delete", "client", client, "consumer_byte_rate", "request_percentage")
    eventually(lambda: cli(*get, "--json").json == [], "the quota to go")
    assert "must be a number" in cli("configs", "set", "client", client, "consumer_byte_rate=fast", code=2).err
