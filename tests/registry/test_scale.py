"""What many schemas cost. Times are the processor's, so that a busy machine does not count."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from typing import Any

from ottla.registry.entities import SchemaEntry
from ottla.registry.log import MemoryLog
from ottla.registry.records import schema_record
from ottla.registry.registry import Registry


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


def test_a_start_with_ten_thousand_schemas() -> None:
    registry = Registry(log_of(10_000))
    started = time.process_time()
    asyncio.run(registry.start())
    assert time.process_time() - started < 0.5
    assert len(registry.state.subjects) == 10_000 and registry.skipped == []


def test_the_memory_that_schemas_take() -> None:
    log = log_of(2_000)
    tracemalloc.start()
    registry = Registry(log)
    asyncio.run(registry.start())
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 60 MB for ten thousand.
    assert used < 12_000_000
    assert len(registry.state.subjects) == 2_000


def test_a_thousand_versions_under_a_transitive_level(make_api: Any) -> None:
    log = MemoryLog()
    versions = [
        SchemaEntry("s", number, number, "AVRO", text_of(0).replace('"name":"R0"', f'"name":"R0","doc":"{number}"'))
        for number in range(1, 1_001)
    ]
    asyncio.run(log.append([schema_record(entry) for entry in versions]))
    api = make_api(log)
    api.ok("PUT", "/config/s", {"compatibility": "FULL_TRANSITIVE"})
    # The first time, all versions are read; from then on they are only compared.
    for wanted, limit_s in ((1_001, 3), (1_002, 0.5)):
        body = {"schema": text_of(0).replace('"name":"R0"', f'"name":"R0","doc":"{wanted}"')}
        started = time.process_time()
        assert api.ok("POST", "/subjects/s/versions", body)["version"] == wanted
        assert time.process_time() - started < limit_s
    incompatible = {"schema": '{"type":"record","name":"R0","fields":[{"name":"field_0","type":"int"}]}'}
    assert api.error("POST", "/subjects/s/versions", incompatible)[:2] == (409, 40901)
