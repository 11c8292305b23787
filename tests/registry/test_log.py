"""The `_schemas` topic: the record format, replays of records from other registries, and failures."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry import records
from ottla.registry.entities import Reference, SchemaEntry
from ottla.registry.records import Record, StoredRecord, read_record
from ottla.registry.state import State
from support.schema_log import MemoryLog

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


def append(log: MemoryLog, *pairs: tuple[Any, Any]) -> None:
    """Write JSON, or unchanged bytes."""

    def data(value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    asyncio.run(log.append([Record(data(key) or b"", data(value)) for key, value in pairs]))


def written(api: Any) -> list[tuple[str, str | None]]:
    return [
        (record.key.decode(), None if record.value is None else record.value.decode()) for record in api.log.records
    ]


def test_the_records_equal_confluents_byte_for_byte(api: Any) -> None:
    api.register("s", '"int"')
    api.ok("PUT", "/config", {"compatibility": "NONE"})
    api.ok("PUT", "/config/s", {"compatibility": "FULL", "normalize": True})
    api.ok("PUT", "/mode/s", {"mode": "READWRITE"})
    api.register(":.c:p", 'syntax = "proto3";', "PROTOBUF", metadata={"properties": {"k": "v"}})
    api.ok("DELETE", "/subjects/s/versions/1")
    api.ok("DELETE", "/subjects/s?permanent=true")
    api.ok("DELETE", "/subjects/:.c:p")
    api.ok("PUT", "/mode/:.c:", {"mode": "IMPORT"})
    assert written(api) == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"schemaType":"AVRO","schema":"\\"int\\"","deleted":false}',
        ),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"NONE"}'),
        (
            '{"keytype":"CONFIG","subject":"s","magic":0}',
            '{"subject":"s","normalize":true,"compatibilityLevel":"FULL"}',
        ),
        ('{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"READWRITE"}'),
        (
            '{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
            '{"tenant":"default","context":".c"}',
        ),
        (
            '{"keytype":"SCHEMA","subject":":.c:p","version":1,"magic":1}',
            '{"subject":":.c:p","version":1,"id":1,"schemaType":"PROTOBUF","metadata":{"properties":{"k":"v"}},'
            '"schema":"syntax = \\"proto3\\";\\n","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"schemaType":"AVRO","schema":"\\"int\\"","deleted":true}',
        ),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', None),
        ('{"keytype":"DELETE_SUBJECT","subject":":.c:p","magic":0}', '{"subject":":.c:p","version":1}'),
        ('{"keytype":"SCHEMA","subject":":.c:p","version":1,"magic":1}', None),
        ('{"keytype":"CLEAR_SUBJECT","subject":":.c:","magic":0}', '{"subject":":.c:"}'),
        ('{"keytype":"MODE","subject":":.c:","magic":0}', '{"subject":":.c:","mode":"IMPORT"}'),
    ]


names = st.text(min_size=1, max_size=8)
entries = st.builds(
    SchemaEntry,
    names,
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(["AVRO", "JSON", "PROTOBUF"]),
    st.text(),
    st.lists(st.builds(Reference, names, names, st.integers(1, 99))).map(tuple),
    st.none()
    | st.fixed_dictionaries({"properties": st.dictionaries(names, names).map(lambda d: dict(sorted(d.items())))}),
    st.none(),
    st.booleans(),
    st.just(5),
)


@given(entries)
def test_a_schema_is_read_back_unchanged(entry: SchemaEntry) -> None:
    event = read_record(StoredRecord(0, 5, *records.schema_record(entry)))
    assert isinstance(event, records.SchemaPut)
    assert event.entry == entry


def karapace(subject: str, version: int, id_: int, schema: str, deleted: bool = False) -> tuple[Any, Any]:
    return (
        {"subject": subject, "version": version, "magic": 1, "keytype": "SCHEMA"},
        {"deleted": deleted, "id": id_, "schema": schema, "subject": subject, "version": version},
    )


def test_records_of_karapace_and_old_registries_are_read(api: Any) -> None:
    append(
        api.log,
        karapace("s", 1, 1, '"int"'),
        karapace("s", 2, 2, '"long"'),
        karapace("t", 1, 3, '"string"'),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"subject": "s", "magic": 0, "keytype": "CONFIG"}, {"compatibilityLevel": "NONE"}),
        karapace("t", 1, 3, '"string"', deleted=True),
        # There, a tombstone is an empty value.
        ({"subject": "t", "version": 1, "magic": 1, "keytype": "SCHEMA"}, b""),
        ({"keytype": "NOOP", "magic": 0}, None),
        ({"subject": "s", "magic": 0, "keytype": "DELETE_SUBJECT"}, {"subject": "s", "version": 1}),
    )
    other = api.restarted()
    assert other.registry.skipped == []
    assert other.ok("GET", "/subjects?deleted=true") == ["s"]
    assert other.ok("GET", "/subjects/s/versions") == [2]
    assert other.ok("GET", "/subjects/s/versions/2")["schemaType"] == "AVRO"
    assert other.ok("GET", "/config") == {"compatibilityLevel": "FULL"}
    assert other.ok("GET", "/config/s") == {"compatibilityLevel": "NONE"}
    # The highest id counts, although no schema has it any more.
    assert other.register("u", '"bytes"') == 4


def test_a_compacted_topic_is_replayed(api: Any) -> None:
    """The last record of each key is enough, in any order."""
    append(
        api.log,
        karapace("s", 2, 2, '"long"', deleted=True),
        ({"keytype": "DELETE_SUBJECT", "subject": "t", "magic": 0}, {"subject": "t", "version": 3}),
        karapace("t", 4, 5, '"string"'),
    )
    other = api.restarted()
    assert other.ok("GET", "/subjects") == ["t"]
    assert other.ok("GET", "/subjects/s/versions?deleted=true") == [2]
    assert other.ok("POST", "/subjects/s/versions", {"schema": '"long"'})["id"] == 2


BROKEN: list[tuple[Any, Any]] = [
    (b"", {}),
    (b"not json", {}),
    (b"[1]", {}),
    (b'{"keytype":', {}),
    (b"[" * 100_000, {}),
    ({"keytype": "SOMETHING"}, {}),
    ({"magic": 0}, {}),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, b"broken"),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, {"id": 1}),
    ({"keytype": "SCHEMA", "subject": "s", "version": "x", "magic": 1}, {"id": 1, "schema": "x"}),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, {"id": 1, "schema": "x", "references": [{}]}),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, {"id": 1, "schema": "x", "deleted": "no"}),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, {"id": 1, "schema": "x", "metadata": 5}),
    ({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, {"id": 1, "schema": "x", "md5": "!"}),
    ({"keytype": "CONFIG", "subject": 5, "magic": 0}, {"compatibilityLevel": "FULL"}),
    ({"keytype": "CONFIG", "magic": 0}, {"compatibilityLevel": 5}),
    ({"keytype": "MODE", "magic": 0}, {}),
    ({"keytype": "CONTEXT", "magic": 0}, {}),
    # Another schema has this id.
    ({"keytype": "SCHEMA", "subject": "x", "version": 1, "magic": 1}, {"id": 1, "schema": '"other"'}),
]


@pytest.mark.parametrize(("key", "value"), BROKEN)
def test_a_corrupt_record_is_reported_and_skipped(api: Any, key: Any, value: Any, caplog: Any) -> None:
    api.register("good", A)
    before = api.ok("GET", "/schemas")
    append(api.log, (key, value))
    append(api.log, karapace("later", 1, 2, '"int"'))
    other = api.restarted()
    assert [offset for offset, _ in other.registry.skipped] == [1]
    assert "skipped the record at offset 1" in caplog.text
    assert other.ok("GET", "/schemas?subjectPrefix=good") == before
    assert other.ok("GET", "/subjects") == ["good", "later"]


def test_a_restart_is_the_same_replay(api: Any) -> None:
    api.register("s", A)
    api.register("s", '"int"', query="?force=true")
    api.register(":.c:s", A)
    api.ok("DELETE", "/subjects/s/versions/2")
    api.ok("PUT", "/config/s", {"compatibility": "NONE"})
    api.ok("PUT", "/mode/:.c:", {"mode": "READONLY"})
    other = api.restarted()
    for name in ("subjects", "contexts", "named_contexts", "configs", "modes", "referrers", "next_offset"):
        assert getattr(other.registry.state, name) == getattr(api.registry.state, name), name


class FailingLog(MemoryLog):
    """Fails the next append, before or after writing."""

    fail: str | None = None

    async def append(self, written: Any) -> Any:
        if self.fail == "before":
            self.fail = None
            raise OSError("no leader")
        stored = await super().append(written)
        if self.fail == "after":
            self.fail = None
            raise OSError("timed out")
        return stored


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_write_assigns_no_id_twice(make_api: Any, when: str) -> None:
    log = FailingLog()
    api = make_api(log)
    api.register("s", '"int"')
    log.fail = when
    status, code, message = api.error("POST", "/subjects/t/versions", {"schema": '"long"'})
    assert (status, code) == (500, 50001) and "The write to the schema log failed" in message
    # The next write first checks whether it arrived.
    assert api.register("u", '"string"') == 3
    assert api.ok("GET", "/subjects") == (["s", "t", "u"] if when == "after" else ["s", "u"])
    retried = api.register("t", '"long"')
    assert retried == (2 if when == "after" else 4)


def test_only_the_replay_changes_the_state(api: Any) -> None:
    api.register("s", A)
    blank = State()
    for record in api.log.records:
        blank.replay(record)
    api.log.append = None
    assert api.error("POST", "/subjects/t/versions", {"schema": '"int"'}) == (500, 500, "Internal Server Error")
    assert blank.subjects == api.registry.state.subjects and blank.contexts == api.registry.state.contexts
