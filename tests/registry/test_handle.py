"""`broker.registry`: register, look up, assert, decode, inject faults and clean up, for every kind of broker."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import ottla
from ottla.registry.client import RegistryClient
from ottla.testing import ANY, RegistryError

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
RENAMED = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}
NOTED = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { bool there = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  State state = 2;
  repeated string tags = 3;
  map<string, Other> parts = 4;
  bytes raw = 5;
  google.protobuf.Timestamp at = 6;
  optional int32 count = 7;
  message Line { double price = 1; }
}
"""


@pytest.fixture(scope="module", params=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ottla.serve(registry=0) if request.param == "thread" else ottla.spawn(registry=0) as served:
        yield served


@pytest.fixture(autouse=True)
def empty(broker: Any) -> Iterator[None]:
    yield
    broker.registry.up()
    broker.reset()


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def test_all_subjects_include_those_of_all_contexts(broker: Any) -> None:
    registry = broker.registry
    registry.register("orders-value", ORDER)
    registry.register(":.staging:orders-value", ORDER)
    assert [each.subject for each in registry.all()] == [":.staging:orders-value", "orders-value"]
    assert [each.subject for each in registry.all("orders")] == ["orders-value"]


def test_listing_all_subjects_ends_on_a_registry_without_pages() -> None:
    answer = [{"subject": "s", "version": number, "id": number, "schema": '"int"'} for number in (1, 2)]
    client = RegistryClient(lambda method, path, body: answer)
    assert [each.version for each in client.all()] == [1, 2]


def test_it_registers_and_looks_up(broker: Any) -> None:
    registry = broker.registry
    first = registry.register("orders-value", ORDER)
    second = registry.register("orders-value", NOTED)
    assert (first.id, first.version, second.id, second.version) == (1, 1, 2, 2)
    assert registry.register("orders-value", json.dumps(ORDER)).version == 1
    assert registry.subjects() == ["orders-value"]
    assert registry.versions("orders-value") == [1, 2]
    assert registry.get("orders-value").id == 2
    assert registry.get("orders-value", 1).schema == registry.by_id(1).schema
    assert registry.by_guid(first.guid).schema == first.schema
    assert registry.look_up("orders-value", ORDER).version == 1
    assert [each.id for each in registry.all()] == [1, 2]
    assert fetch(f"{registry.url}/subjects") == ["orders-value"]
    with pytest.raises(RegistryError, match="Subject 'gone' not found") as refused:
        registry.get("gone")
    assert (refused.value.status, refused.value.code) == (404, 40401)


def test_it_deletes_and_changes_settings(broker: Any) -> None:
    registry = broker.registry
    registry.register("s", ORDER)
    registry.set_compatibility("FULL", "s")
    assert (registry.compatibility("s"), registry.compatibility()) == ("FULL", "BACKWARD")
    registry.set_config({"normalize": True})
    assert registry.config("s")["normalize"] is True
    assert registry.delete("s") == [1]
    assert registry.subjects() == [] and registry.subjects(deleted=True) == ["s"]
    assert registry.delete("s", permanent=True) == [1]
    registry.set_mode("READONLY")
    assert registry.mode("s") == "READONLY"
    with pytest.raises(RegistryError) as refused:
        registry.register("s", ORDER)
    assert refused.value.code == 42205


def test_it_asserts(broker: Any) -> None:
    registry = broker.registry
    registry.register("s", ORDER)
    registry.expect_compatible("s", NOTED)
    registry.expect_incompatible("s", RENAMED, error="READER_FIELD_MISSING_DEFAULT_VALUE")
    registry.expect_versions("s", [ORDER])
    registry.expect_versions("nothing", [])
    with pytest.raises(AssertionError, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
        registry.expect_compatible("s", RENAMED)
    with pytest.raises(AssertionError, match="is compatible"):
        registry.expect_incompatible("s", NOTED)
    with pytest.raises(AssertionError, match="not for TYPE_MISMATCH"):
        registry.expect_incompatible("s", RENAMED, error="TYPE_MISMATCH")
    with pytest.raises(AssertionError, match="does not have"):
        registry.expect_versions("s", [ORDER, NOTED])
    with pytest.raises(AssertionError, match="differs"):
        registry.expect_versions("s", [])


def test_records_that_a_serializer_wrote_are_decoded(broker: Any, confluent_client: Any) -> None:
    client = confluent_client(broker.registry_url)
    serializer = AvroSerializer(client, json.dumps(ORDER))
    topic = broker.topic("orders")
    topic.append([serializer({"id": 7}, SerializationContext("orders", MessageField.VALUE)), "plain text"])
    decoded, plain = topic.records()
    assert decoded.decoded == {"id": 7}
    assert str(decoded).endswith('{"id": 7}')
    with pytest.raises(ValueError, match="value of orders-0@1 cannot be decoded: it was not written with a schema"):
        _ = plain.decoded
    topic.expect([{"id": 7}, "plain text"])
    topic.expect([decoded.value, ANY])
    with pytest.raises(AssertionError, match=r"value.id: expected 8, found 7"):
        topic.expect([{"id": 8}, "plain text"])
    assert topic.wait_for(lambda record: record.offset == 0 and record.decoded["id"] == 7)


def test_values_are_encoded_and_decoded_in_every_format(broker: Any) -> None:
    registry = broker.registry
    registry.register("avro", ORDER)
    registry.register("json", JSON, "JSON")
    registry.register("proto", PROTO.replace("message Other", "message Z").replace("Other>", "Z>"), "PROTOBUF")
    topic = broker.topic("t")
    topic.append([registry.encode("avro", {"id": 1}), registry.encode("json", {"id": 2})])
    assert topic.decoded() == [{"id": 1}, {"id": 2}]
    assert [registry.decode(record.value) for record in topic.records()] == [{"id": 1}, {"id": 2}]
    assert registry.decode(None) is None
    with pytest.raises(ValueError, match=r"value.id: expected int, found 'x'"):
        registry.encode("avro", {"id": "x"})
    with pytest.raises(ValueError, match=r"\$.id: 'x' is not of type 'integer'"):
        registry.encode("json", {"id": "x"})


def test_avro_values_have_all_types(broker: Any) -> None:
    fields = [
        {"name": "raw", "type": "bytes"},
        {"name": "maybe", "type": ["null", "string", "long"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "other", "type": "Color", "default": "BLUE"},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "next", "type": ["null", "Node"], "default": None},
    ]
    registry = broker.registry
    registry.register("s", {"type": "record", "name": "Node", "namespace": "n", "fields": fields})
    inner = {"raw": "ÿ", "maybe": {"long": 5}, "price": "1.50", "at": 0, "color": "RED", "tags": {}}
    data = registry.encode("s", {**inner, "maybe": "x", "tags": {"a": [1]}, "next": {"n.Node": inner}})
    found = registry.decode(data)
    assert found["next"]["maybe"] == 5
    assert (found["raw"], found["maybe"], found["price"]) == (b"\xff", "x", Decimal("1.50"))
    assert found["at"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert (found["color"], found["other"], found["tags"]) == ("RED", "BLUE", {"a": [1]})
    with pytest.raises(ValueError, match="fits no branch of the union null, string, long"):
        registry.encode("s", {**inner, "maybe": 1.5})
    with pytest.raises(ValueError, match="has no such field"):
        registry.encode("s", {**inner, "unknown": 1})
    with pytest.raises(ValueError, match="missing, and it has no default"):
        registry.encode("s", {})


def test_protobuf_messages_are_found_by_their_path(broker: Any) -> None:
    registry = broker.registry
    schema = registry.register("s", PROTO, "PROTOBUF")
    start = b"\0" + schema.id.to_bytes(4, "big")
    assert registry.decode(start + b"\0" + b"\x08\x01") == {"there": True}
    order = b"\x08\x07\x10\x01\x1a\x01a\x22\x07\x0a\x01k\x12\x02\x08\x01\x2a\x01\xff\x32\x02\x08\x01"
    assert registry.decode(start + b"\x02\x02" + order) == {
        "id": 7,
        "state": "PAID",
        "tags": ["a"],
        "parts": {"k": {"there": True}},
        "raw": b"\xff",
        "at": "1970-01-01T00:00:01Z",
    }
    # The entries of a map are nested messages too, in the order of Protobuf's compiler.
    assert registry.decode(start + b"\x04\x02\x02" + b"\x09" + b"\0" * 8) in ({"price": 0.0}, {"key": "", "value": ANY})
    with pytest.raises(ValueError, match=r"no message at \[9\]"):
        registry.decode(start + b"\x02\x12")
    with pytest.raises(ValueError, match="path of its Protobuf message is damaged"):
        registry.decode(start + b"\xff\xff\xff\xff\xff\xff")
    with pytest.raises(ValueError, match="do not fit the schema"):
        registry.decode(start + b"\0" + b"\x0a\xff")


def test_references_and_guids_are_followed(broker: Any) -> None:
    registry = broker.registry
    registry.register("id", {"type": "fixed", "name": "Id", "size": 2})
    record = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "Id"}]}
    schema = registry.register("r", record, references=[("Id", "id", 1)])
    registry.register("item", 'syntax = "proto3"; message Item { int32 n = 1; }', "PROTOBUF")
    proto = 'syntax = "proto3"; import "item.proto"; message Cart { repeated Item items = 1; }'
    registry.register("cart", proto, "PROTOBUF", references=[("item.proto", "item", 1)])
    topic = broker.topic("t")
    header = ("__value_schema_id", b"\x01" + uuid.UUID(schema.guid).bytes)
    topic.append([registry.encode("r", {"id": "ab"}), (None, b"\0\0", [header])])
    topic.append([registry.encode("cart", {"items": [{"n": 1}]})])
    assert topic.decoded() == [{"id": b"ab"}, {"id": b"\0\0"}, {"items": [{"n": 1}]}]


def test_requests_can_fail_be_dropped_and_be_delayed(broker: Any) -> None:
    registry = broker.registry
    registry.register("s", ORDER)
    with registry.faults.error("GET /subjects*", 503, 50301, "no leader", times=1) as fault:
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{registry.url}/subjects")
        assert refused.value.code == 503
        assert json.load(refused.value) == {"error_code": 50301, "message": "no leader"}
        assert fetch(f"{registry.url}/subjects") == ["s"]
        fault.expect_fired(1)
    with registry.faults.drop("/subjects", times="every"), pytest.raises(OSError, match="closed connection"):
        fetch(f"{registry.url}/subjects")
    with registry.faults.delay("*", ms=30, when="after") as fault:
        assert fetch(f"{registry.url}/subjects") == ["s"]
        assert fault.fired == 1
    with registry.faults.black_hole("POST *"):
        assert fetch(f"{registry.url}/subjects") == ["s"]
        request = urllib.request.Request(f"{registry.url}/", data=b"{}", method="POST")
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=0.2)
    assert [each.status for each in registry.requests()][:3] == [503, 200, None]
    with pytest.raises(ValueError, match="no fault 'corrupt'"):
        registry.faults.apply("corrupt", call="*")


def test_the_registry_stops_and_starts_again(broker: Any) -> None:
    registry = broker.registry
    url = registry.url
    registry.register("s", ORDER)
    registry.down()
    with pytest.raises(urllib.error.URLError):
        fetch(f"{url}/subjects")
    assert registry.subjects() == ["s"], "the handle itself still works"
    registry.up()
    assert fetch(f"{url}/subjects") == ["s"] and registry.url == url


def test_a_reset_covers_subjects(broker: Any) -> None:
    registry = broker.registry
    registry.register("kept", ORDER)
    registry.register("gone", NOTED)
    registry.set_compatibility("NONE", "gone")
    registry.faults.error("*")
    broker.topic("t").append(["x"])
    broker.reset(topics=[], groups=[], subjects=["gone"])
    assert (registry.subjects(deleted=True), broker.topics()) == (["kept"], ["t"])
    assert registry.compatibility("gone") == "BACKWARD"
    assert fetch(f"{registry.url}/subjects") == ["kept"], "faults are removed as well"
    assert registry.register("gone", NOTED).version == 1
    broker.reset()
    assert (registry.subjects(deleted=True), broker.topics()) == ([], [])
    assert registry.register("new", ORDER).id == 1


def test_calls_on_an_event_loop_are_awaited() -> None:
    async def run() -> None:
        async with ottla.Broker(registry=0) as broker:
            schema = await broker.registry.register("orders-value", ORDER)
            assert schema.id == 1
            broker.topic("orders").append([await broker.registry.encode("orders-value", {"id": 1})])
            broker.topic("orders").expect([{"id": 1}])
            fault = broker.registry.faults.error("GET /subjects", 500)
            with pytest.raises(urllib.error.HTTPError):
                await asyncio.to_thread(fetch, f"{broker.registry.url}/subjects")
            fault.expect_fired(1)
            await broker.registry.down()
            await broker.registry.up()
            assert await broker.registry.subjects() == ["orders-value"]

    asyncio.run(run())


def test_a_cluster_has_the_same_handle() -> None:
    with ottla.Cluster(brokers=2, registry=0) as cluster:
        cluster.registry.register("orders-value", ORDER)
        topic = cluster.topic("orders")
        topic.append([cluster.registry.encode("orders-value", {"id": 1})])
        topic.wait_for(lambda record: record.decoded == {"id": 1})
        cluster.registry.faults.error("*")
        cluster.reset()
        assert (cluster.registry.subjects(), cluster.topics()) == ([], [])
        assert fetch(f"{cluster.registry_url}/subjects") == []


def test_clients_and_the_handle_see_the_same_schemas(broker: Any, confluent_client: Any) -> None:
    client = confluent_client(broker.registry_url)
    client.register_schema("s", Schema(json.dumps(ORDER), "AVRO"))
    broker.registry.expect_versions("s", [ORDER])
