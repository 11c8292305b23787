"""`ottla schemas`, `ottla consume --decode` and `ottla produce --schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla as package
from ottla.testing import RegistryOptions

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NOTED = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
RENAMED = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}
ITEM = 'syntax = "proto3";\nmessage Item { int32 n = 1; }\n'
CART = 'syntax = "proto3";\nimport "item.proto";\nmessage Cart { repeated Item items = 1; }\n'


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    with package.serve(registry=0) as broker:
        yield broker


@pytest.fixture
def broker(served: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("OTTLA_REGISTRY", served.registry_url)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", served.bootstrap)
    yield served
    served.reset()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, schema in (("order", ORDER), ("noted", NOTED), ("renamed", RENAMED)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    (tmp_path / "item.proto").write_text(ITEM)
    (tmp_path / "cart.proto").write_text(CART)
    return tmp_path


def test_schemas_are_registered_listed_and_printed(ottla: Any, broker: Any, files: Path) -> None:
    done = ottla("schemas", "register", "orders-value", files / "order.avsc")
    assert done.out == "orders-value version 1 has id 1\n"
    assert ottla("schemas", "register", "orders-value", files / "noted.avsc", "--json").json == {
        "subject": "orders-value",
        "version": 2,
        "id": 2,
    }
    ottla("schemas", "register", "item", files / "item.proto")
    ottla("schemas", "register", "cart", files / "cart.proto", "--reference", "item.proto=item:1")
    rows = [line.split() for line in ottla("schemas", "list").out.splitlines()[1:]]
    assert [(row[0], row[1]) for row in rows] == [("cart", "PROTOBUF"), ("item", "PROTOBUF"), ("orders-value", "AVRO")]
    assert ottla("schemas", "list", "orders*", "--json").json == [
        {
            "subject": "orders-value",
            "type": "AVRO",
            "versions": [1, 2],
            "ids": [1, 2],
            "compatibility": "BACKWARD",
            "deleted": False,
        }
    ]
    assert json.loads(ottla("schemas", "get", "orders-value", "--version", 1).out) == ORDER
    assert json.loads(ottla("schemas", "get", "--id", 2).out) == NOTED
    assert "repeated Item items = 1;" in ottla("schemas", "get", "cart").out
    assert ottla("schemas", "get", "cart", "--json").json["references"][0]["subject"] == "item"


def test_check_shows_why_a_schema_is_incompatible(ottla: Any, broker: Any, files: Path) -> None:
    ottla("schemas", "register", "s", files / "order.avsc")
    assert "could be registered" in ottla("schemas", "check", "s", files / "noted.avsc").out
    done = ottla("schemas", "check", "s", files / "renamed.avsc", code=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in done.err
    assert ottla("schemas", "check", "s", files / "renamed.avsc", "--json", code=1).json["compatible"] is False
    done = ottla("schemas", "register", "s", files / "renamed.avsc", code=1)
    assert "incompatible with an earlier schema" in done.err and "error code 40901" in done.err


def test_delete_is_soft_then_permanent(ottla: Any, broker: Any, files: Path) -> None:
    ottla("schemas", "register", "s", files / "order.avsc")
    ottla("schemas", "register", "s", files / "noted.avsc")
    assert ottla("schemas", "delete", "s", "--version", 1).out == "s: deleted version 1\n"
    assert "1 (deleted), 2" in ottla("schemas", "list", "--deleted").out
    assert ottla("schemas", "delete", "s", "--permanent").out == "s: permanently deleted version 1, 2\n"
    assert broker.registry.subjects(deleted=True) == []
    assert "Subject 's' not found" in ottla("schemas", "delete", "s", code=1).err


def test_a_registry_is_copied_with_its_ids(ottla: Any, broker: Any, files: Path) -> None:
    broker.registry.register("gone", {"type": "string"})
    broker.reset(topics=[], groups=[], subjects=["gone"])  # so that ids do not begin with 1
    ottla("schemas", "register", "item", files / "item.proto")
    ottla("schemas", "register", "cart", files / "cart.proto", "--reference", "item.proto=item:1")
    ottla("schemas", "register", "s", files / "order.avsc")
    ottla("schemas", "register", ":.staging:s", files / "noted.avsc")
    broker.registry.set_compatibility("FULL", "s")
    exported = files / "all.jsonl"
    exported.write_bytes(ottla("schemas", "export").raw)
    with package.serve(registry=0) as other:
        there = ("--registry", other.registry_url)
        assert ottla("schemas", "import", exported, *there).out == "imported 4 schemas\n"
        assert other.registry.all() == broker.registry.all()
        assert other.registry.compatibility("s") == "FULL"
        assert other.registry.mode() == other.registry.mode(":.staging:") == "READWRITE"
        refused = ottla("schemas", "import", exported, *there, code=1)
        assert "use --new-ids" in refused.err
        assert ottla("schemas", "import", exported, "--new-ids", *there).out == "imported 4 schemas\n"
    (files / "bad.jsonl").write_text("{}\n")
    assert "bad.jsonl, line 1: not what" in ottla("schemas", "import", files / "bad.jsonl", code=1).err


def test_errors_are_one_line(ottla: Any, broker: Any, files: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.txt").write_text("{}")
    assert "use --type" in ottla("schemas", "register", "s", tmp_path / "schema.txt", code=2).err
    assert "cannot read" in ottla("schemas", "register", "s", tmp_path / "none.avsc", code=1).err
    assert "name a subject, or an id" in ottla("schemas", "get", code=2).err
    away = ottla("schemas", "list", "--registry", "http://127.0.0.1:1", code=1)
    assert "no registry answers at http://127.0.0.1:1" in away.err
    assert "is not the address" in ottla("schemas", "list", "--registry", "127.0.0.1:8081", code=2).err


def test_users_come_with_the_url_or_a_file(ottla: Any, tmp_path: Path) -> None:
    with package.serve(registry=RegistryOptions(users={"alice": "p@ss"}, tokens={"bob": "t0ken"})) as broker:
        address = broker.registry_url.removeprefix("http://")
        assert "HTTP 401" in ottla("schemas", "list", "--registry", broker.registry_url, code=1).err
        ottla("schemas", "list", "--registry", f"http://alice:p%40ss@{address}")
        path = tmp_path / "registry.properties"
        for line in ("basic.auth.user.info=alice:p@ss", "schema.registry.bearer.auth.token=t0ken"):
            path.write_text(f"schema.registry.url={broker.registry_url}\n{line}\n")
            ottla("schemas", "list", "--registry-config", path)


@pytest.mark.parametrize("source", ["registry", "topic"])
def test_values_are_encoded_and_decoded(
    ottla: Any, broker: Any, files: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    broker.topic("orders").create(1)
    ottla("produce", "orders", "--schema", files / "order.avsc", "-v", '{"id": 7}')
    ottla("produce", "orders", "--schema", "latest", "-v", '{"id": 8}')
    ottla("produce", "orders", "--schema", "orders-value:1", "-v", '{"id": 9}')
    ottla("produce", "orders", "-v", "plain")
    if source == "topic":
        monkeypatch.delenv("OTTLA_REGISTRY")
    assert ottla("consume", "orders", "--decode", "-f", "raw").out == '{"id": 7}\n{"id": 8}\n{"id": 9}\nplain\n'
    lines = ottla("consume", "orders", "--decode", "-f", "json").lines
    assert [line["value"] for line in lines] == [{"id": 7}, {"id": 8}, {"id": 9}, "plain"]


def test_keys_have_schemas_too(ottla: Any, broker: Any, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('"string"')
    broker.topic("t").create(1)
    ottla("produce", "t", "--key-schema", tmp_path / "key.avsc", "-k", "a", "-s", ":", "-v", "k:v")
    assert broker.topic("t").records()[0].decoded_key == "k"
    assert ottla("consume", "t", "--decode", "-f", "raw", "-s", "=").out == '"k"=v\n'


def test_a_value_that_does_not_fit_names_its_line(ottla: Any, broker: Any, files: Path) -> None:
    broker.topic("t").create(1)
    done = ottla("produce", "t", "--schema", files / "order.avsc", "-v", '{"id": "x"}', code=1)
    assert "line 1: value.id: expected int, found 'x'" in done.err
    assert broker.topic("t").records() == []
    broker.topic("t").append([b"\0\0\0\0\x63damaged"])
    done = ottla("consume", "t", "--decode", "-f", "hex")
    assert done.out == b"\0\0\0\0\x63damaged".hex() + "\n"
    assert "the registry has no schema 99" in done.err
