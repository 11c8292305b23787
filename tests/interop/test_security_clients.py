"""Real clients on every kind of listener: TLS, client certificates, and each SASL mechanism. On both brokers."""

import asyncio
import base64
import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire import messages as m
from support.interop import toolchains
from support.interop.drivers import Client, ClientError, Driver
from support.interop.secured import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, Secured

pytestmark = pytest.mark.filterwarnings("ignore")  # the clients' own

SCRAM_USER, SCRAM_PASSWORD = "scram-user", "scram-password"

DOORS = {
    "SSL": ("SSL", None),
    "mTLS": ("SSL", "certificate"),
    "PLAIN": ("SASL_PLAINTEXT", "PLAIN"),
    "PLAIN in TLS": ("SASL_SSL", "PLAIN"),
    "SCRAM-SHA-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "SCRAM-SHA-512 in TLS": ("SASL_SSL", "SCRAM-SHA-512"),
    "OAUTHBEARER": ("SASL_PLAINTEXT", "OAUTHBEARER"),
}


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("clients") / request.param
    everybody = {"allow.everyone.if.no.acl.found": "true", "connections.max.reauth.ms": "60000"}
    broker = Secured(request.param, folder, **everybody)
    with broker.wire() as admin:
        for number, name in ((1, "sha256"), (2, "sha512")):
            import hashlib

            salted = hashlib.pbkdf2_hmac(name, SCRAM_PASSWORD.encode(), b"salt-and-pepper", 4096)
            upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=SCRAM_USER, mechanism=number, iterations=4096, salt=b"salt-and-pepper", salted_password=salted
            )
            request_ = m.AlterUserScramCredentialsRequest(upsertions=[upsertion])
            assert admin.call(request_, 0).results[0].error_code == 0
    yield broker
    broker.stop()


def unsecured_token(user: str) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + 300})}."


def librdkafka_config(secured: Secured, door: str) -> dict[str, Any]:
    protocol, how = DOORS[door]
    config: dict[str, Any] = {"bootstrap.servers": secured.bootstrap(protocol), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl.ca.location"] = str(secured.trust)
    if how == "certificate":
        config["ssl.key.location"] = config["ssl.certificate.location"] = str(secured.identity("alice"))
    elif how == "OAUTHBEARER":
        config |= {"sasl.mechanisms": how, "oauth_cb": lambda _: (unsecured_token("alice"), time.time() + 300)}
    elif how == "PLAIN":
        config |= {"sasl.mechanisms": how, "sasl.username": "alice", "sasl.password": "alice-secret"}
    elif how is not None:
        config |= {"sasl.mechanisms": how, "sasl.username": SCRAM_USER, "sasl.password": SCRAM_PASSWORD}
    return config


@pytest.mark.parametrize("door", DOORS)
def test_librdkafka(secured: Secured, door: str, unique: Callable[[str], str]) -> None:
    from confluent_kafka import Consumer, Producer

    topic, config = unique("t"), librdkafka_config(secured, door)
    producer = Producer({**config, "linger.ms": 0})
    values = [f"{n}".encode() * 1000 for n in range(100)]
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * 100
    consumer = Consumer({**config, "group.id": unique("g"), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(got) < len(values) and time.monotonic() < deadline:
        got += [message.value() for message in consumer.consume(100, 1.0) if message.error() is None]
    consumer.close()
    assert got == values


@pytest.mark.parametrize("wrong", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_with_a_wrong_password(secured: Secured, wrong: str) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    seen: list[Any] = []
    config = {**librdkafka_config(secured, wrong), "sasl.password": "wrong", "error_cb": seen.append}
    admin = AdminClient(config)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in seen}


def kafka_python_config(secured: Secured, door: str) -> dict[str, Any]:
    protocol, how = DOORS[door]
    config: dict[str, Any] = {"bootstrap_servers": secured.bootstrap(protocol), "security_protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl_cafile"] = str(secured.trust)
    if how == "certificate":
        config["ssl_certfile"] = config["ssl_keyfile"] = str(secured.identity("alice"))
    elif how == "PLAIN":
        config |= {"sasl_mechanism": how, "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
    elif how is not None:
        config |= {"sasl_mechanism": how, "sasl_plain_username": SCRAM_USER, "sasl_plain_password": SCRAM_PASSWORD}
    return config


@pytest.mark.parametrize("door", [door for door in DOORS if door != "OAUTHBEARER"])
def test_kafka_python(secured: Secured, door: str, unique: Callable[[str], str]) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic, config = unique("t"), kafka_python_config(secured, door)
    producer = KafkaProducer(**config)
    for n in range(20):
        producer.send(topic, f"{n}".encode()).get(60)
    producer.close()
    consumer = KafkaConsumer(topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    got = []
    for message in consumer:
        got.append(message.value)
        if len(got) == 20:
            break
    consumer.close()
    assert got == [f"{n}".encode() for n in range(20)]


@pytest.mark.parametrize("door", ["mTLS", "SCRAM-SHA-512 in TLS"])
def test_aiokafka(secured: Secured, door: str, unique: Callable[[str], str]) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    config = kafka_python_config(secured, door)
    keys = {key: config.pop(f"ssl_{key}", None) for key in ("cafile", "certfile", "keyfile")}

    async def main() -> None:
        async with AIOKafkaProducer(**config, ssl_context=create_ssl_context(**keys)) as producer:
            sent = await producer.send_and_wait(unique("t"), b"value")
            assert sent.offset == 0

    asyncio.run(main())


GO_CLIENTS = {"franz-go": "franz-secured", "sarama": "sarama-secured"}


def go_config(secured: Secured, door: str) -> dict[str, str]:
    protocol, how = DOORS[door]
    config: dict[str, str] = {}
    if protocol.endswith("SSL"):
        config["ca"] = str(secured.trust)
    if how == "certificate":
        config["certificate"] = str(secured.identity("alice"))
    elif how == "OAUTHBEARER":
        config |= {"mechanism": how, "token": unsecured_token("alice")}
    elif how == "PLAIN":
        config |= {"mechanism": how, "user": "alice", "password": "alice-secret"}
    elif how is not None:
        config |= {"mechanism": how, "user": SCRAM_USER, "password": SCRAM_PASSWORD}
    return config


@contextlib.contextmanager
def go_client(secured: Secured, name: str, door: str) -> Iterator[Driver]:
    client = Client(name, lambda: ([str(toolchains.go_binary()), GO_CLIENTS[name]], {}))
    driver = Driver(client, secured.bootstrap(DOORS[door][0]))
    yield driver
    driver.close()


@pytest.mark.go
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", GO_CLIENTS)
def test_go(secured: Secured, name: str, door: str, unique: Callable[[str], str]) -> None:
    values = [str(number) for number in range(20)]
    with go_client(secured, name, door) as driver:
        got = driver.call(
            "round", configs=go_config(secured, door), topic=unique("t"), group=unique("g"), values=values
        )
    assert got == values


@pytest.mark.go
@pytest.mark.parametrize("door", ["PLAIN in TLS", "SCRAM-SHA-256", "SCRAM-SHA-512 in TLS", "OAUTHBEARER"])
@pytest.mark.parametrize("name", GO_CLIENTS)
def test_go_with_wrong_credentials(secured: Secured, name: str, door: str) -> None:
    right = go_config(secured, door)
    wrong = right | ({"token": unsecured_token("")} if "token" in right else {"password": "wrong"})
    with go_client(secured, name, door) as driver:
        # franz-go does not read why a bearer token was refused, and reports only that the answer was not empty.
        with pytest.raises(ClientError, match=r"SASL Authentication failed|unexpected data in oauth"):
            driver.call("ping", configs=wrong)
        driver.call("ping", configs=right)


def java_config(secured: Secured, door: str) -> dict[str, str]:
    protocol, how = DOORS[door]
    config = {"bootstrap.servers": secured.bootstrap(protocol), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(secured.trust)}
    if how == "certificate":
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.identity("alice"))}
    elif how == "OAUTHBEARER":
        config |= {"sasl.mechanism": how, "sasl.jaas.config": f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="alice";'}
    elif how == "PLAIN":
        line = f'{PLAIN_MODULE} username="alice" password="alice-secret";'
        config |= {"sasl.mechanism": how, "sasl.jaas.config": line}
    elif how is not None:
        line = f'{SCRAM_MODULE} username="{SCRAM_USER}" password="{SCRAM_PASSWORD}";'
        config |= {"sasl.mechanism": how, "sasl.jaas.config": line}
    return config


def java_tool(secured: Secured, config: dict[str, str], tool: str, *words: str, stdin: str = "") -> str:
    """Runs one of Kafka's tools with a client configuration. Returns its output."""
    path = secured.folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    jars = toolchains.run([toolchains.ROOT / "scripts" / "kafka-jars"]).strip()
    command = ["java", "-Xmx256M", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}"]
    command += ["--bootstrap-server", config["bootstrap.servers"], *(w.replace("CONFIG", str(path)) for w in words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.jvm
@pytest.mark.parametrize("door", DOORS)
def test_java(secured: Secured, door: str, unique: Callable[[str], str]) -> None:
    toolchains.need("java", "mvn")
    topic, config = unique("t"), java_config(secured, door)
    words = ["--topic", topic, "--command-config", "CONFIG"]
    java_tool(secured, config, "ConsoleProducer", *words, stdin="one\ntwo\n")
    printed = java_tool(secured, config, "consumer.ConsoleConsumer", *words, "--from-beginning", "--max-messages", "2")
    assert printed.split() == ["one", "two"]


@pytest.mark.jvm
def test_a_delegation_token_of_the_java_tool(secured: Secured, unique: Callable[[str], str]) -> None:
    toolchains.need("java", "mvn")
    config = java_config(secured, "PLAIN")
    made = java_tool(
        secured,
        config,
        "DelegationTokenCommand",
        "--create",
        "--max-life-time-period",
        "-1",
        "--command-config",
        "CONFIG",
    )
    token_id, hmac = made.strip().splitlines()[-1].split()[:2]
    line = f'{SCRAM_MODULE} username="{token_id}" password="{hmac}" tokenauth="true";'
    by_token = {**config, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    java_tool(secured, by_token, "ConsoleProducer", "--topic", unique("t"), "--command-config", "CONFIG", stdin="one\n")
