"""The registry on its HTTP address, in front of a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import ottla
from ottla.registry.server import RegistryServer
from support.console import served

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'


def server(broker: Any, **options: Any) -> RegistryServer:
    return RegistryServer(lambda: broker.bootstrap, "127.0.0.1", 0, **options)


def test_avro_records_go_through_broker_and_registry() -> None:
    with ottla.serve() as broker, served(lambda: server(broker)) as url:
        broker.topic("orders").create(1)
        client = SchemaRegistryClient({"url": url})
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
        assert AvroDeserializer(SchemaRegistryClient({"url": url}))(record.value(), context) == {"id": 7}


def test_schemas_outlive_the_registry() -> None:
    with ottla.serve() as broker:
        with served(lambda: server(broker)) as url:
            first = SchemaRegistryClient({"url": url}).register_schema("orders-value", Schema(AVRO, "AVRO"))
        with served(lambda: server(broker)) as url:
            client = SchemaRegistryClient({"url": url})
            assert client.register_schema("orders-value", Schema(AVRO, "AVRO")) == first
            assert client.get_subjects() == ["orders-value"]
        stored = [json.loads(record.key) for record in broker.topic("_schemas").records()]
        assert {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1} in stored


def test_users_need_their_password() -> None:
    with ottla.serve() as broker, served(lambda: server(broker, users={"alice": "secret"})) as url:
        known = SchemaRegistryClient({"url": url, "basic.auth.user.info": "alice:secret"})
        assert known.register_schema("s", Schema(AVRO, "AVRO")) == 1
        for credentials in ("alice:wrong", "bob:secret"):
            with pytest.raises(SchemaRegistryError) as refused:
                SchemaRegistryClient({"url": url, "basic.auth.user.info": credentials}).get_subjects()
            assert refused.value.http_status_code == 401
        with pytest.raises(SchemaRegistryError) as refused:
            SchemaRegistryClient({"url": url}).get_subjects()
        assert refused.value.http_status_code == 401


def test_other_machines_are_served_only_with_users() -> None:
    with pytest.raises(ValueError, match="needs users"):
        RegistryServer(lambda: "127.0.0.1:9092", "0.0.0.0", 0)


def test_a_cluster_that_is_away_is_an_error_and_comes_back() -> None:
    with ottla.serve() as broker, served(lambda: server(broker)) as url:
        client = SchemaRegistryClient({"url": url, "max.retries": 0})
        broker.down()
        with pytest.raises(SchemaRegistryError) as refused:
            client.get_subjects()
        assert (refused.value.http_status_code, refused.value.error_code) == (500, 50001)
        broker.up()
        assert client.get_subjects() == []
