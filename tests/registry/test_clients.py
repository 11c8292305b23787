"""confluent-kafka's registry client and its serializers against the registry, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
    AsyncSchemaRegistryClient,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from confluent_kafka.schema_registry.json_schema import (
    AsyncJSONDeserializer,
    AsyncJSONSerializer,
    JSONDeserializer,
    JSONSerializer,
)
from confluent_kafka.schema_registry.protobuf import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'
AVRO_2 = AVRO.replace("}]}", '},{"name":"note","type":"string","default":"-"}]}')
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
PLAIN = {"use.deprecated.format": False}


def field(name: str, number: int, type_: int, **more: Any) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=type_, label=more.pop("label", 1), **more)


@pytest.fixture(scope="module")
def order_class() -> Any:
    """A message with an import, a map, a oneof, an optional field and nested types, as protoc generates it."""
    pool = descriptor_pool.DescriptorPool()
    common = FileDescriptorProto(name="shop/common.proto", package="shop.common", syntax="proto3")
    common.message_type.add(name="Address").field.append(field("street", 1, 9))
    pool.Add(common)
    file = FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/common.proto"]
    )
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.append(field("id", 1, 9, proto3_optional=True, oneof_index=1))
    order.field.append(field("to", 2, 11, type_name=".shop.Order.ToEntry", label=3))
    order.field.append(field("cash", 3, 3, oneof_index=0))
    order.field.append(field("card", 4, 9, oneof_index=0))
    order.field.append(field("state", 5, 14, type_name=".shop.Order.State"))
    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_id")
    order.enum_type.add(name="State").value.add(name="NEW", number=0)
    entry = order.nested_type.add(name="ToEntry")
    entry.options.map_entry = True
    entry.field.append(field("key", 1, 9))
    entry.field.append(field("value", 2, 11, type_name=".shop.common.Address"))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def make_order(order_class: Any) -> Any:
    order = order_class(id="7", card="visa")
    order.to["home"].street = "Main"
    return order


@pytest.fixture
def make_client(http: Any) -> Iterator[Callable[[], SchemaRegistryClient]]:
    clients = []

    def make() -> SchemaRegistryClient:
        clients.append(SchemaRegistryClient({"url": http.url}))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client: Any) -> SchemaRegistryClient:
    return make_client()


def context(topic: str = "orders", field_: Any = MessageField.VALUE, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, field_, headers)


STRATEGIES = [
    (topic_subject_name_strategy, "orders-value"),
    (topic_record_subject_name_strategy, "orders-{}"),
    (record_subject_name_strategy, "{}"),
    (None, "orders-value"),
]


@pytest.mark.parametrize(("strategy", "subject"), STRATEGIES)
def test_every_serializer_with_every_subject_name_strategy(
    http: Any, client: SchemaRegistryClient, order_class: Any, strategy: Any, subject: str
) -> None:
    chosen = {} if strategy is None else {"subject.name.strategy": strategy}
    order = make_order(order_class)
    cases: list[tuple[Any, Any, Any, str]] = [
        (AvroSerializer(client, AVRO, conf=chosen), AvroDeserializer(client), {"id": 5}, "shop.Order"),
        (JSONSerializer(JSON, client, conf=chosen), JSONDeserializer(JSON, schema_registry_client=client), {"id": 5},
         "Order"),
        (ProtobufSerializer(order_class, client, {**chosen, **PLAIN}), ProtobufDeserializer(order_class, PLAIN, client),
         order, "shop.Order"),
    ]  # fmt: skip
    for serialize, deserialize, value, name in cases:
        topic = context()
        data = serialize(value, topic)
        assert data[0] == 0
        back = deserialize(data, topic)
        assert back == value
        wanted = subject.format(name)
        assert wanted in client.get_subjects()
        # The same subject for the next format.
        client.delete_subject(wanted)
        client.delete_subject(wanted, permanent=True)
        client.clear_latest_caches()
    assert http.registry.skipped == []


def test_a_reader_can_use_another_client_and_another_schema(make_client: Any, client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, AVRO)({"id": 5}, context())
    reader = AvroDeserializer(make_client(), AVRO_2)
    assert reader(data, context()) == {"id": 5, "note": "-"}


def test_use_latest_version(http: Any, make_client: Any, client: SchemaRegistryClient, order_class: Any) -> None:
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    client.register_schema("orders-value", Schema(AVRO, "AVRO"))
    second = client.register_schema("orders-value", Schema(AVRO_2, "AVRO"))
    data = AvroSerializer(client, AVRO, conf=latest)({"id": 5, "note": "x"}, context())
    assert int.from_bytes(data[1:5], "big") == second
    # Protobuf then asks for the descriptor, and for those of all references.
    topic = context("proto")
    first = ProtobufSerializer(order_class, client, PLAIN)(make_order(order_class), topic)
    fresh = make_client()
    again = ProtobufSerializer(order_class, fresh, {**latest, **PLAIN})(make_order(order_class), topic)
    assert again == first
    assert any("format=serialized" in request for request in http.requests)
    client.register_schema("json-value", Schema(JSON, "JSON"))
    data = JSONSerializer(JSON, fresh, conf=latest)({"id": 1}, context("json"))
    assert json.loads(data[5:]) == {"id": 1}


def test_the_latest_version_is_chosen_by_metadata(client: SchemaRegistryClient) -> None:
    for number, text in (("1", AVRO), ("2", AVRO_2)):
        metadata = Metadata(None, MetadataProperties({"major": number}), None)
        client.register_schema("orders-value", Schema(text, "AVRO", metadata=metadata))
    conf = {"auto.register.schemas": False, "use.latest.with.metadata": {"major": "1"}}
    data = AvroSerializer(client, AVRO, conf=conf)({"id": 5}, context())
    assert int.from_bytes(data[1:5], "big") == 1


def test_an_unregistered_schema_is_refused_without_auto_registration(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        AvroSerializer(client, AVRO, conf={"auto.register.schemas": False})({"id": 5}, context())
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


def test_avro_references(client: SchemaRegistryClient) -> None:
    inner = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"zip","type":"string"}]}'
    outer = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"to","type":"shop.Address"}]}'
    client.register_schema("address", Schema(inner, "AVRO"))
    schema = Schema(outer, "AVRO", [SchemaReference("shop.Address", "address", 1)])
    data = AvroSerializer(client, schema)({"to": {"zip": "1"}}, context())
    assert AvroDeserializer(client)(data, context()) == {"to": {"zip": "1"}}


def test_json_references(make_client: Any, client: SchemaRegistryClient) -> None:
    client.register_schema("zip", Schema('{"type":"string","maxLength":5}', "JSON"))
    text = '{"title":"O","type":"object","properties":{"zip":{"$ref":"zip.json"}}}'
    schema = Schema(text, "JSON", [SchemaReference("zip.json", "zip", 1)])
    data = JSONSerializer(schema, client)({"zip": "12345"}, context())
    fresh = make_client()
    assert JSONDeserializer(None, schema_registry_client=fresh)(data, context()) == {"zip": "12345"}


def test_protobuf_references_are_registered_by_the_serializer(client: SchemaRegistryClient, order_class: Any) -> None:
    ProtobufSerializer(order_class, client, PLAIN)(make_order(order_class), context())
    assert client.get_subjects() == ["orders-value", "shop/common.proto"]
    version = client.get_latest_version("orders-value")
    assert [(one.name, one.subject, one.version) for one in version.schema.references] == [
        ("shop/common.proto", "shop/common.proto", 1)
    ]
    text = version.schema.schema_str
    assert "map<string, common.Address> to = 2;" in text and "optional string id = 1;" in text


def test_ids_can_be_sent_in_headers(client: SchemaRegistryClient) -> None:
    headers: list[Any] = []
    topic = context(headers=headers)
    # The client treats values of up to five bytes as invalid.
    value = {"id": 5, "note": "a long one"}
    data = AvroSerializer(client, AVRO_2, conf={"schema.id.serializer": header_schema_id_serializer})(value, topic)
    assert data == b"\n\x14a long one" and headers[0][0] == "__value_schema_id"
    reader = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    assert reader(data, topic) == value


def test_an_association_chooses_the_subject(http: Any, client: SchemaRegistryClient) -> None:
    client.register_schema("shared", Schema(AVRO, "AVRO"))
    request = AssociationCreateOrUpdateRequest(
        resource_name="orders",
        resource_namespace="lkc",
        resource_id="id-1",
        resource_type="topic",
        associations=[AssociationCreateOrUpdateInfo(subject="shared", association_type="value")],
    )
    client.create_association(request)
    AvroSerializer(client, AVRO)({"id": 5}, context())
    assert client.get_subjects() == ["shared"]
    assert any(request.startswith("GET /associations/resources/") for request in http.requests)


def test_every_call_of_the_client_works(client: SchemaRegistryClient) -> None:
    first = client.register_schema("s", Schema(AVRO, "AVRO"))
    assert client.register_schema("s", Schema(AVRO_2, "AVRO"), normalize_schemas=True) == 2
    assert client.get_schema(first).schema_str == AVRO
    assert client.lookup_schema("s", Schema(AVRO, "AVRO")).version == 1
    assert client.get_versions("s") == [1, 2]
    assert client.get_latest_version("s").schema_id == 2
    assert client.get_version("s", 1).schema.schema_str == AVRO
    assert client.get_schema_by_guid(client.get_version("s", 1).guid).schema_str == AVRO
    assert client.test_compatibility("s", Schema(AVRO, "AVRO"))
    assert not client.test_compatibility("s", Schema(AVRO.replace("int", "string"), "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("s", Schema(AVRO.replace("int", "string"), "AVRO"))
    assert caught.value.http_status_code == 409
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("s").compatibility_level == "FULL"
    assert client.set_compatibility("s", "NONE") and client.get_compatibility("s") == "NONE"
    assert client.delete_version("s", 1) == 1
    assert client.delete_subject("s") == [2]
    assert client.delete_subject("s", permanent=True) == [1, 2]
    assert client.get_subjects() == []
    name = "a/b c%é:x"
    client.register_schema(name, Schema(AVRO, "AVRO"))
    assert client.get_subjects() == [name] and client.get_version(name, 1).subject == name


def test_fifty_clients_with_one_schema_get_one_id(http: Any, make_client: Any) -> None:
    def register(number: int) -> int:
        return int(make_client().register_schema(f"s{number % 3}", Schema(AVRO, "AVRO")))

    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(register, range(50))) == {1}
    assert len(http.log.records) == 3


def test_the_asynchronous_client_works(http: Any, order_class: Any) -> None:
    async def run() -> None:
        client = AsyncSchemaRegistryClient({"url": http.url})
        try:
            await round_trips(client)
        finally:
            await client.aclose()

    async def round_trips(client: AsyncSchemaRegistryClient) -> None:
        order = make_order(order_class)
        cases: list[tuple[Any, Any, Any]] = [
            (await AsyncAvroSerializer(client, AVRO), await AsyncAvroDeserializer(client), {"id": 5}),
            (
                await AsyncJSONSerializer(JSON, client),
                await AsyncJSONDeserializer(JSON, schema_registry_client=client),
                {"id": 5},
            ),
            (
                await AsyncProtobufSerializer(order_class, client, PLAIN),
                await AsyncProtobufDeserializer(order_class, PLAIN, client),
                order,
            ),
        ]
        for number, (serialize, deserialize, value) in enumerate(cases):
            topic = context(f"t{number}")
            assert await deserialize(await serialize(value, topic), topic) == value
        assert await client.get_subjects() == ["shop/common.proto", "t0-value", "t1-value", "t2-value"]

    asyncio.run(run())
