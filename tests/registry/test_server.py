"""The registry on its HTTP address, in front of a real broker."""

from __future__ import annotations

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import ottla
from ottla.registry import packages
from ottla.registry.options import RegistryOptions
from ottla.registry.server import RegistryServer, clients_of
from support.console import served

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'


def server(broker: Any, **options: Any) -> RegistryServer:
    return RegistryServer(clients_of(lambda: broker.bootstrap), RegistryOptions(**options))


def test_avro_records_go_through_broker_and_registry(confluent_client: Any) -> None:
    with ottla.serve() as broker, served(lambda: server(broker)) as url:
        broker.topic("orders").create(1)
        client = confluent_client(url)
        context = SerializationContext("orders", MessageField.VALUE)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", AvroSerializer(client, AVRO)({"id": 7}, context))
        producer.flush()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe(["orders"])
            (record,) = consumer.consume(1, 30)
        finally:
            consumer.close()
        assert AvroDeserializer(confluent_client(url))(record.value(), context) == {"id": 7}


def test_schemas_outlive_the_registry(confluent_client: Any) -> None:
    with ottla.serve() as broker:
        with served(lambda: server(broker)) as url:
            first = confluent_client(url).register_schema("orders-value", Schema(AVRO, "AVRO"))
        with served(lambda: server(broker)) as url:
            client = confluent_client(url)
            assert client.register_schema("orders-value", Schema(AVRO, "AVRO")) == first
            assert client.get_subjects() == ["orders-value"]
        stored = [json.loads(record.key) for record in broker.topic("_schemas").records()]
        assert {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1} in stored


def test_users_need_their_password(confluent_client: Any) -> None:
    with ottla.serve() as broker, served(lambda: server(broker, users={"alice": "secret"})) as url:
        known = confluent_client(url, {"basic.auth.user.info": "alice:secret"})
        assert known.register_schema("s", Schema(AVRO, "AVRO")) == 1
        for credentials in ("alice:wrong", "bob:secret"):
            with pytest.raises(SchemaRegistryError) as refused:
                confluent_client(url, {"basic.auth.user.info": credentials}).get_subjects()
            assert refused.value.http_status_code == 401
        with pytest.raises(SchemaRegistryError) as refused:
            confluent_client(url).get_subjects()
        assert refused.value.http_status_code == 401


def test_other_machines_are_served_only_with_users() -> None:
    with pytest.raises(ValueError, match="needs users"):
        RegistryOptions(host="0.0.0.0")


def test_an_unreachable_cluster_is_an_error_until_it_returns(confluent_client: Any) -> None:
    with ottla.serve() as broker, served(lambda: server(broker)) as url:
        client = confluent_client(url, {"max.retries": 0})
        broker.down()
        with pytest.raises(SchemaRegistryError) as refused:
            client.get_subjects()
        assert (refused.value.http_status_code, refused.value.error_code) == (500, 50001)
        broker.up()
        assert client.get_subjects() == []


def test_the_start_logs_which_formats_lack_their_packages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)  # as if it was not installed
    with ottla.serve(registry=0):
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
            "registry: schemas of JSON Schema will be refused: Python lacks re2; pip install 'ottla[registry]' brings"
            " what they need"
        ]


def test_all_optional_packages_are_installed_in_the_tests() -> None:
    assert packages.missing_formats() == {}


def test_every_answer_has_a_request_id() -> None:
    with ottla.serve(registry=0) as broker:
        request = urllib.request.Request(f"{broker.registry_url}/subjects", headers={"X-Request-ID": "mine"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["X-Request-ID"] == "mine"
        with urllib.request.urlopen(f"{broker.registry_url}/subjects", timeout=30) as answer:
            assert len(answer.headers["X-Request-ID"]) == 36


def test_a_long_comparison_does_not_keep_the_broker_from_serving() -> None:
    """Two unions whose members must all be compared with each other, close to the limit."""
    kinds = [{"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": n}}} for n in range(120)]
    old = {"type": "object", "properties": {"a": {"oneOf": kinds}}}
    new = {"type": "object", "properties": {"a": {"oneOf": [*reversed(kinds), {"type": "null"}]}}}
    with ottla.serve(registry=0) as broker:
        broker.registry.register("s", old, "JSON")
        with ThreadPoolExecutor(1) as pool:
            checking = pool.submit(broker.registry.check, "s", new, "JSON")
            served = 0
            while not checking.done():
                broker.topic("t").append(["x"])
                served += 1
            checking.result()
        assert served > 1
