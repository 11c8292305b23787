"""Registry clients of other languages: each registers, compares, reads and deletes, and prints the results.

They decode values that Python encoded. Their own values are sent through the broker and decoded here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from support.interop.toolchains import JAVA, compiled_java, go_binary, maven_jar, node_modules

HERE = Path(__file__).parent / "clients"
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
# Confluent's artifacts are not in Maven Central, but Pinot's plugin is, with Confluent's client and serializers inside.
CONFLUENT_JAR = "org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded"
PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order { int32 id = 1; }\n'


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with ottla.serve(registry=0) as served:
        yield served


@pytest.fixture
def given(broker: Any) -> Iterator[list[str]]:
    """Values with ids 1 to 3 of the three formats."""
    registry = broker.registry
    registry.register("avro-value", ORDER)
    registry.register("json-value", JSON, "JSON")
    registry.register("proto-value", PROTO, "PROTOBUF")
    values = [registry.encode(f"{kind}-value", {"id": n}) for n, kind in enumerate(("avro", "json", "proto"), 1)]
    yield [value.hex() for value in values]
    broker.reset()


def report(broker: Any, command: list[str | Path], values: list[str], **environment: str) -> Any:
    done = subprocess.run(
        [*command, broker.registry_url, *values],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def node(broker: Any, client: str, values: list[str]) -> Any:
    modules = node_modules(HERE / "node" / "package.json")
    return report(broker, ["node", HERE / "node" / "main.js", client], values, NODE_PATH=str(modules))


def go(broker: Any, client: str, values: list[str]) -> Any:
    # Without C: the Kafka client in the same package would need librdkafka.
    return report(broker, [go_binary(HERE / "go", CGO_ENABLED="0"), client], values)


def java(broker: Any, client: str, values: list[str]) -> Any:
    jar = maven_jar(CONFLUENT_JAR)
    classes = compiled_java([HERE / "java" / "Main.java"], str(jar))
    return report(broker, [*JAVA, "-cp", f"{classes}:{jar}", "Main", client], values)


def decoded(broker: Any, values: list[str]) -> Any:
    topic = broker.topic("values")
    topic.append([bytes.fromhex(value) for value in values])
    return topic.decoded()


@pytest.mark.node
def test_confluents_client_for_node_works(broker: Any, given: list[str]) -> None:
    found = node(broker, "confluent", given)
    assert (found["id"], found["versions"], found["config"]) == (1, [1], "FULL")
    assert (found["incompatible"], found["missing"], found["compatible"]) == ([409, 40901], [404, 40401], False)
    assert found["read"] == [{"id": 1}, {"id": 2}]
    assert decoded(broker, found["values"]) == [{"id": 7}, {"id": 8}]
    assert broker.registry.subjects("node", deleted=True) == ["node-avro-value", "node-json-value"]
    assert broker.registry.subjects("node") == ["node-avro-value"]


@pytest.mark.node
def test_the_client_of_kafkajs_works(broker: Any, given: list[str]) -> None:
    found = node(broker, "kafkajs", given)
    assert (found["id"], found["latest"]) == (1, 1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found["incompatible"]
    assert found["missing"].endswith("Subject 'nothing' not found.")
    assert found["read"] == [{"id": 1}, {"id": 2}, {"id": 3}]
    # It writes Protobuf without the path of the message, which no other client reads.
    assert decoded(broker, found["values"][:2]) == [{"id": 7}, {"id": 8}]


@pytest.mark.go
def test_confluents_client_for_go_works(broker: Any, given: list[str]) -> None:
    found = go(broker, "confluent", given)
    assert (found["id"], found["versions"], found["config"], found["deleted"]) == (1, [1], "FULL", [1])
    assert (found["incompatible"], found["missing"], found["compatible"]) == (40901, 40401, False)
    assert json.loads(found["read"]) == JSON


@pytest.mark.go
def test_the_registry_client_of_franz_go_works(broker: Any, given: list[str]) -> None:
    found = go(broker, "franz", given)
    assert (found["id"], found["version"], found["config"], found["deleted"]) == (1, 1, "FULL", [1])
    assert (found["incompatible"], found["missing"], found["compatible"]) == ([409, 40901], [404, 40401], False)
    assert json.loads(found["text"]) == json.loads(found["read"]) == ORDER
    assert (found["subjects"], found["proto"]) == (2, True)
    assert found["values"] == ["0000000001" + b'{"id":7}'.hex()]


@pytest.mark.jvm
def test_confluents_client_for_java_works(broker: Any, given: list[str]) -> None:
    found = java(broker, "client", given)
    assert (found["id"], found["again"], found["version"], found["second"]) == (1, 1, 1, 1)
    assert (found["versions"], found["latest"][:3]) == ([1, 2], [found["latest"][0], 2, "AVRO"])
    assert (found["incompatible"], found["compatible"]) == ([409, 40901], False)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found["reasons"][0]
    assert (found["missing"], found["unknown_id"]) == ([404, 40401], [404, 40403])
    assert found["subjects_of_id"] == ["avro-value", "java-second", "java-value"]
    assert (found["referenced"], found["referred"]) == ("shop.Order", [422, 42206])
    assert (found["owned"], found["not_owned"]) == (1, [404, 40403])
    assert (found["config"], found["no_config"]) == ("FULL", [404, 40408])
    assert (found["mode"], found["read_only"]) == ("READONLY", [422, 42205])
    assert (found["contexts"], found["subjects"]) == ([".", ".other"], [":.other:java-value"])
    assert (found["deleted"], found["deleted_for_good"]) == ([1], [1])
    assert json.loads(found["read"]) == {"id": 1}


@pytest.mark.jvm
def test_confluents_serializers_for_java_with_every_subject_name_strategy(broker: Any) -> None:
    found = java(broker, "records", [broker.bootstrap])
    sent = [f'key-{number} {{"id": {number}}}' for number in (1, 2, 3)]
    strategies = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
    assert found["values"] == dict.fromkeys(strategies, sent)
    assert broker.topic("java-recordnamestrategy").decoded() == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert {"java-topicnamestrategy-value", "shop.Order", "java-topicrecordnamestrategy-shop.Order"} <= set(
        broker.registry.subjects()
    )
    broker.reset()
