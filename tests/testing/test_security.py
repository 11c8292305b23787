"""`tls=True, users={…}, acls=[…]`: real clients log in with the settings of `client_config`, and no other client
does."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import ottla
from ottla.embedded.client_config import client_properties
from ottla.testing import BrokerHandle, ServedBroker

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
ACLS = ["alice all topic:*", "alice all group:*", "bob read,describe topic:orders", "deny bob read topic:secret-*"]

# In a separate process: the import of the client emits a warning, which is an error here.
KAFKA_PYTHON = """
import json, sys
from kafka import KafkaProducer
producer = KafkaProducer(**json.loads(sys.argv[1]))
producer.send("orders", sys.argv[2].encode()).get(10)
producer.close()
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[ServedBroker]:
    with ottla.serve(tls=True, users=USERS, acls=ACLS) as broker:
        broker.topic("orders").create()
        yield broker


def produce(broker: BrokerHandle, topic: str, value: str, **who: str) -> str | None:
    """Returns the producer's error, or None."""
    producer = Producer({**broker.client_config("confluent", "producer", **who), "log_level": 0})  # type: ignore[arg-type]
    outcome: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(10)
    return outcome[0] and outcome[0].name()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_log_in_with_each_mechanism(secured: ServedBroker, mechanism: str) -> None:
    assert produce(secured, "orders", mechanism, mechanism=mechanism) is None
    assert secured.topic("orders").texts()[-1] == mechanism


def test_acls_limit_users(secured: ServedBroker) -> None:
    assert produce(secured, "orders", "x", user="bob") == "TOPIC_AUTHORIZATION_FAILED"
    assert "orders" in AdminClient(secured.client_config("confluent", user="bob")).list_topics(timeout=10).topics
    assert produce(secured, "orders", "y", user="alice") is None


def test_no_client_logs_in_without_a_password(secured: ServedBroker) -> None:
    wrong = {**secured.client_config("confluent"), "sasl.password": "wrong", "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=1.5)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.bootstrap, "log_level": 0}).list_topics(timeout=1.5)


def test_aiokafka_and_kafka_python(secured: ServedBroker, run: Any) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(**secured.client_config("aiokafka", "producer")) as producer:
            await producer.send_and_wait("orders", b"aiokafka")

    run(scenario())
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        settings = secured.client_config("kafka-python", "producer", mechanism=mechanism)
        subprocess.run([sys.executable, "-c", KAFKA_PYTHON, json.dumps(settings), mechanism], check=True, timeout=60)
    assert secured.topic("orders").texts()[-3:] == ["aiokafka", "PLAIN", "SCRAM-SHA-512"]


@pytest.mark.parametrize(("tls", "users"), list(itertools.product([False, True], [{}, USERS])))
def test_tls_and_users_work_separately(tls: bool, users: dict[str, str]) -> None:
    with ottla.serve(tls=tls, users=users) as broker:
        protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
        assert broker.bootstrap_for(protocol) == broker.bootstrap
        assert produce(broker, "t", "x") is None
        with pytest.raises(ValueError, match="no listener 'NOPE'"):
            broker.bootstrap_for("NOPE")


def test_a_consumer_in_a_child_process_and_after_a_restart(tmp_path: Path) -> None:
    with ottla.spawn(tls=True, users=USERS, data=tmp_path / "data") as broker:
        assert produce(broker, "t", "a", mechanism="SCRAM-SHA-256") is None
        assert broker.bootstrap_for("SASL_SSL") == broker.bootstrap
        broker.restart()
        settings = {**broker.client_config("confluent", "consumer"), "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        message = consumer.poll(15)
        assert message is not None and message.value() == b"a"
        consumer.close()


def test_a_branch_has_the_same_users(secured: ServedBroker) -> None:
    with secured.branch() as other:
        assert produce(other, "orders", "in-branch", mechanism="SCRAM-SHA-256") is None
        assert produce(other, "orders", "x", user="bob") == "TOPIC_AUTHORIZATION_FAILED"


def test_settings_of_other_clients(secured: ServedBroker) -> None:
    java = secured.client_config("java", "consumer", user="bob", mechanism="SCRAM-SHA-512")
    assert java["security.protocol"] == "SASL_SSL" and java["ssl.truststore.type"] == "PEM"
    assert java["sasl.jaas.config"].endswith('ScramLoginModule required username="bob" password="bob-secret";')
    sarama = secured.client_config("sarama", "consumer")
    assert sarama["Addrs"] == [secured.bootstrap] and sarama["Net.SASL.Enable"] and sarama["Net.TLS.Enable"]
    assert Path(sarama["CAFile"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert secured.client_config("kafkajs")["sasl"]["username"] == "alice"
    spark = secured.client_config("spark")
    assert spark["kafka.bootstrap.servers"] == secured.bootstrap and spark["kafka.security.protocol"] == "SASL_SSL"
    assert secured.client_config("librdkafka") == secured.client_config("confluent")
    assert "sasl.jaas.config=" in client_properties(secured.embedded.login)


def test_passwords_are_in_no_repr(secured: ServedBroker) -> None:
    assert "secret" not in repr(secured) + repr(secured.embedded.login)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": {"alice": ""}}, "needs a name and a password"),
        ({"users": {"alice": 'a"b'}}, "JAAS cannot hold"),
        ({"acls": ["alice read topic:t"]}, "leaves everybody anonymous"),
        ({"users": USERS, "acls": ["alice reads topic:t"]}, "no operation 'reads'"),
        ({"users": USERS, "acls": ["alice read topics:t"]}, "no kind of resource 'topics'"),
        ({"users": USERS, "acls": ["alice read topic"]}, "names no topic"),
        ({"users": USERS, "acls": ["alice"]}, "is not a rule: write"),
    ],
)
def test_wrong_security_options_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ottla.serve(**options)


def test_unknown_users_and_mechanisms(secured: ServedBroker) -> None:
    with pytest.raises(ValueError, match="no user 'carol'; the broker has alice, bob"):
        secured.client_config("java", user="carol")
    with pytest.raises(ValueError, match="choose one of PLAIN"):
        secured.client_config("java", mechanism="NTLM")
    with ottla.serve() as broker, pytest.raises(ValueError, match="the broker has no users"):
        broker.client_config("java", user="alice")
