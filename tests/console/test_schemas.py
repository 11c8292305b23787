"""The schema registry in the console's API: the broker's own, and one given on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import ottla
from ottla.console.server import ConsoleServer
from ottla.registry.http_client import HttpRegistry
from support.console import Console, served

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
RENAMED = '{"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}'
NOTED = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, '
    '{"name": "note", "type": "string", "default": ""}]}'
)


@pytest.fixture(params=["own", "outside"])
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    with ottla.serve(console=0, registry=0) as broker:
        if request.param == "own":
            yield Console(broker.console_url, broker)
            return
        registry = HttpRegistry(broker.registry_url)

        async def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
            return await asyncio.to_thread(registry.answer, method, path, body)

        console = served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0, registry=ask))
        with closing(registry), console as url:
            yield Console(url, broker)


def test_subjects_are_listed_checked_registered_and_deleted(console: Console) -> None:
    assert console.get("/schemas") == {"compatibility": "BACKWARD", "subjects": []}
    console.broker.registry.register("orders-value", ORDER)
    refused = console.ask("POST", "/schemas/orders-value/check", {"schema": RENAMED, "type": "AVRO"}).data
    assert not refused["compatible"] and "READER_FIELD_MISSING_DEFAULT_VALUE" in refused["messages"][0]
    checked = console.ask("POST", "/schemas/orders-value/check", {"schema": NOTED, "type": "AVRO"}).data
    assert checked == {"compatible": True, "messages": []}
    registered = console.ask("POST", "/schemas/orders-value", {"schema": NOTED, "type": "AVRO"}).data
    assert registered == {"id": 2, "version": 2}
    (subject,) = console.get("/schemas")["subjects"]
    assert (subject["subject"], subject["version"], subject["id"]) == ("orders-value", 2, 2)
    found = console.get("/schemas/orders-value")
    assert [each["version"] for each in found["versions"]] == [1, 2]
    assert found["versions"][0]["text"].startswith('{\n  "type": "record"')
    failed = console.ask("POST", "/schemas/orders-value", {"schema": RENAMED, "type": "AVRO"})
    assert failed.status == 400 and "40901" in failed.data["error"]
    assert console.ask("DELETE", "/schemas/orders-value", version=1).data == {"versions": [1]}
    assert console.ask("DELETE", "/schemas/orders-value").data == {"versions": [2]}
    missing = console.ask("GET", "/schemas/orders-value")
    assert missing.status == 404 and "40401" in missing.data["error"]


def test_a_subject_gets_its_own_compatibility(console: Console) -> None:
    console.broker.registry.register("orders-value", ORDER)

    def level() -> tuple[str, str | None]:
        found = console.get("/schemas/orders-value")
        return found["compatibility"], found["own_compatibility"]

    assert level() == ("BACKWARD", None)
    assert console.ask("POST", "/schemas/orders-value/compatibility", {"level": "NONE"}).status == 200
    assert level() == ("NONE", "NONE")
    wrong = console.ask("POST", "/schemas/orders-value/compatibility", {"level": "SOMETIMES"})
    assert wrong.status == 400 and "42203" in wrong.data["error"]
    assert console.ask("POST", "/schemas/orders-value/compatibility", {"level": ""}).status == 200
    assert level() == ("BACKWARD", None)


def test_a_subject_may_have_slashes(console: Console) -> None:
    """Protobuf's imports are registered under their paths."""
    schema = {"schema": 'syntax = "proto3"; message Date { int32 year = 1; }', "type": "PROTOBUF"}
    path = "/schemas/google%2Ftype%2Fdate.proto"
    assert console.ask("POST", path, schema).status == 200
    assert [each["subject"] for each in console.get("/schemas")["subjects"]] == ["google/type/date.proto"]
    assert [each["version"] for each in console.get(path)["versions"]] == [1]


def test_records_are_decoded(console: Console) -> None:
    registry = console.broker.registry
    registry.register("money", 'syntax = "proto3"; message Money { int64 cents = 1; }', "PROTOBUF")
    payment = 'syntax = "proto3"; import "money.proto"; message Payment { Money sum = 1; }'
    registry.register("payments-value", payment, "PROTOBUF", references=[("money.proto", "money", 1)])
    topic = console.broker.topic("payments")
    topic.create(1)
    topic.append([registry.encode("payments-value", {"sum": {"cents": 5}}), "text", b"\0\0\0\0\x63x", b"\0\0"])
    found = console.get("/topics/payments/records", from_="oldest")["records"]
    values = [each["value"].get("decoded") for each in found]
    assert values == [
        {"schema": "payments-value, version 1 (id 2)", "value": {"sum": {"cents": 5}}},
        None,
        {"schema": "schema 99", "problem": "Schema 99 not found (40403)"},
        None,
    ]


@pytest.mark.parametrize(
    ("query", "wanted"), [({"json": "id >= 2"}, [2, 3]), ({"value": "Ada"}, [1, 3]), ({"json": "name = Grace"}, [2])]
)
def test_filters_see_decoded_values(console: Console, query: dict[str, str], wanted: list[int]) -> None:
    registry = console.broker.registry
    named = {**ORDER, "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}
    registry.register("orders-value", named)
    orders = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}, {"id": 3, "name": "Ada"}]
    topic = console.broker.topic("orders")
    topic.create(1)
    topic.append([registry.encode("orders-value", each) for each in orders])
    found = console.get("/topics/orders/records", from_="oldest", **query)["records"]
    assert [each["value"]["decoded"]["value"]["id"] for each in found] == wanted


def test_without_a_registry_the_console_says_how_to_get_one() -> None:
    with ottla.serve(console=0) as broker:
        refused = Console(broker.console_url).ask("GET", "/schemas")
        assert refused.status == 404 and "--registry" in refused.data["error"]
