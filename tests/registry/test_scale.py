"""The cost of many schemas: how many are parsed, and the memory. `scripts/bench --only registry` measures the times."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest

from ottla.registry import formats
from ottla.registry.entities import SchemaEntry
from ottla.registry.records import schema_record
from ottla.registry.registry import Registry
from support.schema_log import MemoryLog


def text_of(number: int) -> str:
    fields = [
        {"name": f"field_{index}", "type": ["null", "string"], "default": None, "doc": "some words about it"}
        for index in range(8)
    ]
    return json.dumps({"type": "record", "name": f"R{number}", "fields": fields}, separators=(",", ":"))


def log_of(count: int) -> MemoryLog:
    log = MemoryLog()
    entries = [SchemaEntry(f"subject-{number}", 1, number + 1, "AVRO", text_of(number)) for number in range(count)]
    asyncio.run(log.append([schema_record(entry) for entry in entries]))
    return log


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of each schema that is parsed, in order."""
    texts: list[str] = []
    parse = formats.parse

    def counting(schema_type: str, source: formats.Source) -> formats.ParsedSchema:
        texts.append(source.text)
        return parse(schema_type, source)

    monkeypatch.setattr(formats, "parse", counting)
    return texts


def test_a_start_with_ten_thousand_schemas_parses_none(parsed: list[str]) -> None:
    registry = Registry(log_of(10_000))
    asyncio.run(registry.start())
    assert len(registry.state.subjects) == 10_000 and registry.skipped == []
    assert parsed == []


def test_the_memory_of_schemas_is_bounded() -> None:
    log = log_of(2_000)
    tracemalloc.start()
    registry = Registry(log)
    asyncio.run(registry.start())
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 60 MB for ten thousand.
    assert used < 12_000_000
    assert len(registry.state.subjects) == 2_000


def test_a_transitive_level_parses_each_of_a_thousand_versions_once(make_api: Any, parsed: list[str]) -> None:
    log = MemoryLog()
    versions = [
        SchemaEntry("s", number, number, "AVRO", text_of(0).replace('"name":"R0"', f'"name":"R0","doc":"{number}"'))
        for number in range(1, 1_001)
    ]
    asyncio.run(log.append([schema_record(entry) for entry in versions]))
    api = make_api(log)
    api.ok("PUT", "/config/s", {"compatibility": "FULL_TRANSITIVE"})
    # The first time, all versions are parsed. From then on: the new one, its canonical form, and the version before.
    for wanted, most_parsed in ((1_001, 1_003), (1_002, 3)):
        body = {"schema": text_of(0).replace('"name":"R0"', f'"name":"R0","doc":"{wanted}"')}
        parsed.clear()
        assert api.ok("POST", "/subjects/s/versions", body)["version"] == wanted
        assert len(parsed) <= most_parsed
    incompatible = {"schema": '{"type":"record","name":"R0","fields":[{"name":"field_0","type":"int"}]}'}
    assert api.error("POST", "/subjects/s/versions", incompatible)[:2] == (409, 40901)
