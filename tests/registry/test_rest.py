"""The REST API: paths, status codes, error codes, messages and bodies of Confluent's registry."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from typing import Any

import pytest

from ottla.registry.rest.http import Request

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
# It can read A, and A can read it.
AB = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
INCOMPATIBLE = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
V1 = "application/vnd.schemaregistry.v1+json"


def guid_of(text: str) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(text.encode()).digest()))


def body(text: str = A, **more: Any) -> dict[str, Any]:
    return {"schema": text, **more}


# HTTP in general.


def test_media_types(api: Any) -> None:
    for accept, wanted in (
        (None, V1),
        ("*/*", V1),
        (V1, V1),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{V1}, application/json", V1),
        ("application/json, text/plain", "application/json"),
        ("application/json, text/plain, */*", V1),
        ("application/json, */*;q=0.1", "application/json"),
        (f"{V1};q=0.5, application/json; q=0.9", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", V1),
        ("application/*", V1),
    ):
        answer = api.send("GET", "/subjects", accept=accept)
        assert (answer.status, answer.media_type) == (200, wanted)
    for accept in ("text/html", "application/json;q=0", "application/json;q=x"):
        answer = api.send("GET", "/subjects", accept=accept)
        assert (answer.status, answer.media_type) == (406, V1)
        assert answer.body == {"error_code": 406, "message": "HTTP 406 Not Acceptable"}
    assert api.send("GET", "/nowhere", accept="text/html").status == 404
    for content_type in (None, V1, "application/json", "application/json; charset=utf-8"):
        assert api.send("POST", "/subjects/s/versions", body(), content_type=content_type).status == 200
    answer = api.send("POST", "/subjects/s/versions", body(), content_type="text/plain")
    assert (answer.status, answer.body["error_code"]) == (415, 415)


def test_invalid_requests_are_refused(api: Any) -> None:
    assert api.error("GET", "/nowhere") == (404, 404, "HTTP 404 Not Found")
    assert api.error("GET", "/schemas/ids/abc")[:2] == (404, 404)
    assert api.error("GET", "/schemas/ids/99999999999")[:2] == (404, 404)
    assert api.error("GET", "/schemas/ids/-1") == (404, 40403, "Schema -1 not found")
    assert api.error("POST", "/subjects/s/versions", b"null")[:2] == (422, 422)
    assert api.error("PUT", "/subjects")[:2] == (405, 405)
    assert api.error("POST", "/subjects/s/versions", b"{")[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", b"[1]")[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", b"\xff\xfe")[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", b"[" * 100_000)[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", {"schema": 1})[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", b'{"schema":"\\ud800"}')[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", body(references=5))[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions", body(id="x"))[:2] == (400, 400)
    assert api.error("POST", "/subjects/s/versions")[:2] == (422, 422)
    assert api.error("POST", "/subjects/s/versions", body("x" * 9_000_000))[:2] == (413, 413)
    assert api.error("POST", "/subjects/s/versions", body("x" * 2_000_000))[:2] == (422, 42209)
    assert api.ok("GET", "/subjects") == []


def test_the_root_the_types_and_the_metadata_are_served(api: Any) -> None:
    assert api.ok("GET", "/") == {} == api.ok("POST", "/", {})
    assert sorted(api.ok("GET", "/schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    clusters = {"kafka-cluster": "test-cluster", "schema-registry-cluster": "schema-registry"}
    assert api.ok("GET", "/v1/metadata/id") == {"scope": {"path": [], "clusters": clusters}}
    assert api.ok("GET", "/v1/metadata/version") == {"version": "8.1.0", "commitId": "abc"}
    assert api.ok("GET", "/v1/metadata/deployment") == {"attributes": []}


@pytest.mark.parametrize(
    ("path", "name"),
    [("a%2Fb", "a/b"), ("50%25", "50%"), ("a%20b", "a b"), ("%C3%A9", "é"), ("a%3Ab", "a:b"), ("%3A.c%3Ax", ":.c:x")],
)
def test_subjects_are_decoded_after_splitting(api: Any, path: str, name: str) -> None:
    api.register(path, A)
    assert api.ok("GET", "/subjects") == [name]
    assert api.ok("GET", f"/subjects/{path}/versions/1")["subject"] == name


def test_fields_have_confluents_order(api: Any) -> None:
    api.register("t", A)
    extra = {"references": [{"name": "R", "subject": "t", "version": 1}], "metadata": {"properties": {"a": "b"}}}
    rules = {"domainRules": [{"name": "r", "type": "CEL"}]}
    answer = api.ok("POST", "/subjects/s/versions", body('{"type":"array","items":"R"}', **extra, ruleSet=rules))
    common = ["guid", "schemaType", "references", "metadata", "ruleSet", "schema"]
    assert list(answer) == ["id", "version", *common]
    assert list(api.ok("GET", "/subjects/s/versions/1")) == ["subject", "version", "id", *common, "ts", "deleted"]
    by_id = ["guid", "schemaType", "schema", "references", "metadata", "ruleSet"]
    api.ok("DELETE", "/subjects/s")
    assert list(api.ok("GET", "/schemas/ids/2?subject=s&fetchMaxId=true")) == [
        "subject", "version", *by_id, "maxId", "ts", "deleted",
    ]  # fmt: skip
    assert list(api.ok("GET", f"/schemas/guids/{answer['guid']}")) == [*by_id, "ts", "deleted"]
    settings = {"compatibilityGroup": "g", "compatibility": "FULL", "normalize": True, "alias": "x"}
    names = ["alias", "normalize", "compatibility", "compatibilityGroup"]
    assert list(api.ok("PUT", "/config/c", settings)) == names
    names[2] = "compatibilityLevel"
    assert list(api.ok("GET", "/config/c")) == names == list(api.ok("DELETE", "/config/c"))


def test_query_booleans_may_have_any_case(api: Any) -> None:
    api.register("s", A)
    api.ok("DELETE", "/subjects/s")
    assert api.ok("GET", "/subjects?deleted=True&unknown=1") == ["s"] == api.ok("GET", "/subjects?deleted=true")
    assert api.ok("GET", "/subjects?deleted=False") == []


# Registering and looking up.


def test_a_registered_schema_is_returned(api: Any) -> None:
    answer = api.ok("POST", "/subjects/s/versions", body(' { "type":"int" } '))
    assert answer == {"version": 1, "id": 1, "guid": guid_of('"int"'), "schemaType": "AVRO", "schema": '"int"'}
    stored = {"subject": "s", **answer, "ts": 1_700_000_000_000, "deleted": False}
    for version in ("1", "latest", "LATEST", "-1"):
        assert api.ok("GET", f"/subjects/s/versions/{version}") == stored
    assert api.ok("POST", "/subjects/s", body('"int"')) == stored
    assert api.ok("GET", "/schemas") == [stored]
    plain = {name: stored[name] for name in ("guid", "schemaType", "schema", "ts", "deleted")}
    assert api.ok("GET", "/schemas/ids/1") == plain == api.ok("GET", f"/schemas/guids/{stored['guid']}")
    assert api.ok("GET", "/schemas/ids/1?subject=s&fetchMaxId=true") == {
        **plain,
        "subject": "s",
        "version": 1,
        "maxId": 1,
    }
    assert api.ok("GET", f"/schemas/guids/{stored['guid']}/ids") == [{"context": ".", "id": 1}]
    raw = api.send("GET", "/schemas/ids/1/schema")
    assert (raw.body, raw.raw) == ('"int"', True)
    assert api.ok("GET", "/subjects/s/versions/1/schema") == '"int"'
    assert api.ok("GET", "/schemas/ids/1/subjects") == ["s"]
    assert api.ok("GET", "/schemas/ids/1/versions") == [{"subject": "s", "version": 1}]


def test_unknown_subjects_versions_and_ids_are_404(api: Any) -> None:
    api.register("s", A)
    assert api.error("GET", "/subjects/x/versions") == (404, 40401, "Subject 'x' not found.")
    assert api.error("GET", "/subjects/x/versions/1") == (404, 40401, "Subject 'x' not found.")
    assert api.error("GET", "/subjects/s/versions/2") == (404, 40402, "Version 2 not found.")
    assert api.error("GET", "/schemas/ids/7") == (404, 40403, "Schema 7 not found")
    assert api.error("GET", "/schemas/ids/7/subjects") == (404, 40403, "Schema not found")
    assert api.error("GET", f"/schemas/guids/{uuid.UUID(int=0)}")[:2] == (404, 40403)
    assert api.error("GET", "/schemas/guids/nonsense") == (404, 40403, "Schema nonsense not found")
    assert api.ok("GET", "/schemas/guids/nonsense/ids") == []
    assert api.error("POST", "/subjects/x", body()) == (404, 40401, "Subject 'x' not found.")
    assert api.error("POST", "/subjects/s", body(AB)) == (404, 40403, "Schema not found")
    for version in ("0", "-2", "abc", "2147483648"):
        assert api.error("GET", f"/subjects/s/versions/{version}") == (
            422,
            42202,
            f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and"
            ' the string "latest"',
        )


def test_one_schema_has_one_id(api: Any) -> None:
    assert api.register("s", A) == 1 == api.register("t", json.dumps(json.loads(A), indent=2))
    assert api.register("s", AB) == 2
    # Registering an old version again creates no new version, and skips the compatibility check.
    assert api.register("s", A) == 1
    assert api.ok("GET", "/subjects/s/versions") == [1, 2]
    assert api.ok("GET", "/schemas/ids/1/subjects") == ["s", "t"]


def test_incompatible_schemas(api: Any) -> None:
    api.register("s", A)
    status, code, message = api.error("POST", "/subjects/s/versions", body(INCOMPATIBLE))
    assert (status, code) == (409, 40901)
    assert message == (
        'Schema being registered is incompatible with an earlier schema for subject "s", details:'
        " [{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema does"
        " not match with the old schema', additionalInfo:'reader type: STRING not compatible with writer type: INT'},"
        " {oldSchemaVersion: 1}, {oldSchema: '" + A + "'}, {validateFields: 'false', compatibility: 'BACKWARD'}]"
    )
    assert api.ok("GET", "/subjects/s/versions") == [1]
    assert api.error("POST", "/subjects/s/versions", body('{"type":"string"}', schemaType="JSON"))[2].endswith(
        "details: [Incompatible because of different schema type, {validateFields: 'false', compatibility: 'BACKWARD'}]"
    )
    assert api.register("s", INCOMPATIBLE, query="?force=true") == 2


def test_invalid_schemas(api: Any) -> None:
    assert api.error("POST", "/subjects/s/versions", body("nonsense")) == (
        422,
        42201,
        "Invalid schema of type AVRO, details: not JSON: Expecting value at line 1 column 1",
    )
    too_large = '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999}]}'
    assert api.error("POST", "/subjects/s/versions", body(too_large))[:2] == (422, 42201)
    assert api.error("POST", "/subjects/s/versions", body("")) == (422, 42201, "Empty schema")
    assert api.error("POST", "/subjects/s/versions", {}) == (422, 42201, "Empty schema")
    assert api.error("POST", "/subjects/s", body("")) == (404, 40401, "Subject 's' not found.")
    assert api.error("POST", "/subjects/s/versions", body(schemaType="XML"))[2] == "Invalid schema type XML"
    missing = body(references=[{"name": "N", "subject": "n", "version": 1}])
    assert api.error("POST", "/subjects/s/versions", missing) == (
        422,
        42201,
        'Invalid schema of type AVRO, details: No schema reference found for subject "n" and version 1',
    )
    assert api.error("POST", "/subjects/s/versions", body(version=5))[:2] == (422, 42201)
    for name in ("__GLOBAL", "__EMPTY", "a%00b", ":.__GLOBAL:x"):
        assert api.error("POST", f"/subjects/{name}/versions", body())[:2] == (422, 42208)
    assert api.ok("GET", "/subjects") == [] and api.log.records == []


def test_paging(api: Any) -> None:
    for number in range(5):
        api.register(f"s{number}", A)
    assert api.ok("GET", "/subjects?offset=1&limit=2") == ["s1", "s2"]
    assert api.ok("GET", "/subjects?offset=0&limit=-1") == [f"s{number}" for number in range(5)]
    assert api.ok("GET", "/subjects?subjectPrefix=s3") == ["s3"]
    assert [one["subject"] for one in api.ok("GET", "/schemas?offset=3&limit=9")] == ["s3", "s4"]
    assert api.ok("GET", "/schemas/ids/1/subjects?limit=1") == ["s0"]
    assert api.error("GET", "/subjects?limit=x")[:2] == (404, 404)


# Versions and deleting.


def test_soft_and_hard_delete_of_versions(api: Any) -> None:
    api.register("s", A)
    api.register("s", AB)
    assert api.error("DELETE", "/subjects/s/versions/1?permanent=true") == (
        404,
        40407,
        "Subject 's' Version 1 was not deleted first before being permanently deleted",
    )
    assert api.ok("DELETE", "/subjects/s/versions/latest") == 2
    assert api.error("DELETE", "/subjects/s/versions/2") == (
        404,
        40406,
        "Subject 's' Version 2 was soft deleted.Set permanent=true to delete permanently",
    )
    assert api.ok("GET", "/subjects/s/versions") == [1]
    assert api.ok("GET", "/subjects/s/versions/latest")["version"] == 1
    assert api.ok("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert api.ok("GET", "/subjects/s/versions?deletedOnly=true") == [2]
    assert api.ok("GET", "/subjects/s/versions?deletedAsNegative=true") == [1, -2]
    assert api.error("GET", "/subjects/s/versions/2")[:2] == (404, 40402)
    assert api.ok("GET", "/subjects/s/versions/2?deleted=true")["deleted"] is True
    assert api.ok("GET", "/schemas/ids/2")["deleted"] is True
    # The same schema again gets its old id and a new version; the old version stays deleted.
    assert api.ok("POST", "/subjects/s/versions", body(AB))["version"] == 3
    assert api.ok("GET", "/subjects/s/versions?deleted=true") == [1, 3]
    assert api.ok("DELETE", "/subjects/s/versions/3") == 3
    assert api.ok("DELETE", "/subjects/s/versions/3?permanent=true") == 3
    assert api.error("GET", "/schemas/ids/2")[:2] == (404, 40403)
    # Its id is never reused, even for the same schema.
    assert api.ok("POST", "/subjects/s/versions", body(AB)) | {"ts": 0} == {
        "version": 2, "id": 3, "guid": guid_of(AB), "schemaType": "AVRO", "schema": AB, "ts": 0,
    }  # fmt: skip


def test_soft_and_hard_delete_of_subjects(api: Any) -> None:
    api.register("s", A)
    api.register("s", AB)
    api.ok("PUT", "/config/s", {"compatibility": "NONE"})
    assert api.error("DELETE", "/subjects/none")[:2] == (404, 40401)
    assert api.error("DELETE", "/subjects/s?permanent=true") == (
        404,
        40405,
        "Subject 's' was not deleted first before being permanently deleted",
    )
    assert api.ok("DELETE", "/subjects/s") == [1, 2]
    assert api.error("DELETE", "/subjects/s") == (
        404,
        40404,
        "Subject 's' was soft deleted.Set permanent=true to delete permanently",
    )
    assert api.error("POST", "/subjects/s", body()) == (404, 40401, "Subject 's' not found.")
    assert api.ok("POST", "/subjects/s?deleted=true", body())["version"] == 1
    assert api.ok("GET", "/subjects?deletedOnly=true") == ["s"]
    assert api.ok("POST", "/subjects/s/versions", body(INCOMPATIBLE))["version"] == 3
    assert api.ok("DELETE", "/subjects/s") == [3]
    assert api.ok("GET", "/config/s")["compatibilityLevel"] == "NONE"
    assert api.ok("DELETE", "/subjects/s?permanent=true") == [1, 2, 3]
    assert api.error("GET", "/config/s")[:2] == (404, 40408)
    assert api.ok("POST", "/subjects/s/versions", body())["version"] == 1


INNER = '{"type":"record","name":"In","fields":[]}'
OUTER = '{"type":"record","name":"Out","fields":[{"name":"i","type":"In"}]}'
INLINED = OUTER.replace('"In"', INNER)


def test_references(api: Any) -> None:
    api.register("in", INNER)
    reference = {"name": "In", "subject": "in", "version": -1}
    outer = api.register("out", OUTER, references=[reference])
    assert api.ok("GET", "/subjects/out/versions/1")["references"] == [{**reference, "version": 1}]
    assert api.ok("GET", "/subjects/in/versions/1/referencedby") == [outer]
    assert api.ok("GET", "/subjects/out/versions/1?format=resolved")["schema"] == INLINED
    # With its references inlined it is the same schema.
    assert api.ok("POST", "/subjects/out", body(INLINED))["id"] == outer == api.register("out", INLINED)
    message = "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=in,version=1}."
    assert api.error("DELETE", "/subjects/in/versions/1") == (422, 42206, message)
    assert api.error("DELETE", "/subjects/in") == (422, 42206, message)
    api.ok("DELETE", "/subjects/out")
    assert api.ok("GET", "/subjects/in/versions/1/referencedby") == []
    assert api.ok("GET", "/subjects/in/versions/1/referencedby?deleted=true") == [outer]
    assert api.ok("DELETE", "/subjects/in") == [1]
    assert api.error("DELETE", "/subjects/in?permanent=true")[:2] == (422, 42206)
    # A stored schema may refer to a deleted one, a new schema may not.
    assert api.ok("GET", "/subjects/out/versions/1?deleted=true&format=resolved")["schema"] == INLINED
    assert (
        api.error("POST", "/subjects/new/versions", body(OUTER, references=[{**reference, "version": 1}]))[1] == 42201
    )
    assert api.error("DELETE", "/subjects/in/versions/1?permanent=true")[:2] == (422, 42206)
    api.ok("DELETE", "/subjects/out?permanent=true")
    assert api.ok("DELETE", "/subjects/in/versions/1?permanent=true") == 1


def test_references_within_a_subject_do_not_prevent_its_deletion(api: Any) -> None:
    api.ok("PUT", "/config", {"compatibility": "NONE"})
    api.register("s", INNER)
    api.register("s", OUTER, references=[{"name": "In", "subject": "s", "version": 1}])
    assert api.error("DELETE", "/subjects/s/versions/1")[:2] == (422, 42206)
    assert api.ok("DELETE", "/subjects/s") == [1, 2]
    before = len(api.log.records)
    assert api.ok("DELETE", "/subjects/s?permanent=true") == [1, 2]
    # The newest first: a reader of the topic never sees a version without its references.
    assert [json.loads(record.key)["version"] for record in api.log.records[before:]] == [2, 1]


def test_references_of_references(api: Any) -> None:
    chain = 300
    api.register("t0", '{"type":"record","name":"T0","fields":[]}')
    for number in range(1, chain):
        text = f'{{"type":"record","name":"T{number}","fields":[{{"name":"f","type":"T{number - 1}"}}]}}'
        reference = {"name": f"T{number - 1}", "subject": f"t{number - 1}", "version": 1}
        status = api.send("POST", f"/subjects/t{number}/versions", body(text, references=[reference])).status
        assert status in (200, 422)
        if status == 422:
            break
    # Inlined, they exceed the nesting limit at some point. All earlier ones are registered.
    assert number > 40


# Compatibility.


def test_compatibility_checks(api: Any) -> None:
    path = "/compatibility/subjects/s/versions"
    assert api.ok("POST", f"{path}/latest", body()) == {"is_compatible": True}
    assert api.error("POST", f"{path}/1", body())[:2] == (404, 40402)
    api.register("s", A)
    api.register("s", AB)
    assert api.ok("POST", f"{path}/1?verbose=true", body()) == {"is_compatible": True, "messages": []}
    assert api.ok("POST", path, body(INCOMPATIBLE)) == {"is_compatible": False}
    messages = api.ok("POST", f"{path}?verbose=true", body(INCOMPATIBLE))["messages"]
    assert messages[1:] == [
        "{oldSchemaVersion: 2}",
        "{oldSchema: '" + AB + "'}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]
    assert api.error("POST", f"{path}/latest", body("nonsense"))[:2] == (422, 42201)
    verbose = api.ok("POST", f"{path}/latest?verbose=true", body("nonsense"))
    assert verbose["is_compatible"] is False and "not JSON" in verbose["messages"][0]
    assert api.ok("GET", "/subjects/s/versions") == [1, 2]


def field(name: str, default: bool) -> dict[str, Any]:
    return {"name": name, "type": "int", **({"default": 0} if default else {})}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [*fields]}, separators=(",", ":"))


# Versions of a subject, a new schema, and the levels that accept it.
LEVELS = {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}
BACKWARD = {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}
FORWARD = {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}
LEVEL_ROWS = [
    ([record(field("a", False))], record(field("a", False), field("b", True)), LEVELS),
    ([record(field("a", False))], record(field("a", False), field("b", False)), FORWARD),
    ([record(field("a", False), field("b", False))], record(field("a", False)), BACKWARD),
    ([record(field("a", False))], INCOMPATIBLE, {"NONE"}),
    # The last version alone would be fine: it has b with a default. The first one has no b.
    (
        [record(field("a", False)), record(field("a", False), field("b", True))],
        record(field("a", False), field("b", False)),
        {"NONE", "BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"},
    ),
    (
        [record(field("a", False), field("b", False)), record(field("a", False), field("b", True))],
        record(field("a", False)),
        {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FULL"},
    ),
]


@pytest.mark.parametrize("level", sorted(LEVELS))
@pytest.mark.parametrize(("versions", "new", "accepting"), LEVEL_ROWS)
def test_levels(api: Any, versions: list[str], new: str, accepting: set[str], level: str) -> None:
    api.ok("PUT", "/config/s", {"compatibility": "NONE"})
    for version in versions:
        api.register("s", version)
    api.ok("PUT", "/config/s", {"compatibility": level})
    checked = api.ok("POST", "/compatibility/subjects/s/versions", body(new))["is_compatible"]
    assert checked is (level in accepting)
    assert api.send("POST", "/subjects/s/versions", body(new)).status == (200 if level in accepting else 409)


def test_compatibility_groups(api: Any) -> None:
    api.ok("PUT", "/config/s", {"compatibilityGroup": "major"})
    api.register("s", A, metadata={"properties": {"major": "1"}})
    assert (
        api.send("POST", "/subjects/s/versions", body(INCOMPATIBLE, metadata={"properties": {"major": "1"}})).status
        == 409
    )
    assert api.register("s", INCOMPATIBLE, metadata={"properties": {"major": "2"}}) == 2


def test_reserved_fields(api: Any) -> None:
    api.ok("PUT", "/config/s", {"validateFields": True})
    metadata = {"properties": {"confluent:reserved": "b, c"}}
    api.register("s", A, metadata=metadata)
    assert "conflicts with the reserved field b." in api.error("POST", "/subjects/s/versions", body(AB))[2]
    other = body(AB, metadata={"properties": {"confluent:reserved": "c"}})
    assert "reserved field b removed" in api.error("POST", "/subjects/s/versions", other)[2]


# At the same time.


def test_fifty_registrations_at_once_give_one_id(api: Any) -> None:
    async def slow_append(records: Any) -> Any:
        await asyncio.sleep(0)
        return await fast_append(records)

    fast_append, api.log.append = api.log.append, slow_append

    async def run() -> list[Any]:
        requests = [
            Request("POST", f"/subjects/s{number % 5}/versions", {}, json.dumps(body()).encode())
            for number in range(50)
        ]
        return await asyncio.gather(*(api.registry.handle(request) for request in requests))

    answers = asyncio.run(run())
    assert {answer.status for answer in answers} == {200}
    assert {(answer.body["id"], answer.body["version"]) for answer in answers} == {(1, 1)}
    assert api.ok("GET", "/schemas/ids/1/subjects") == [f"s{number}" for number in range(5)]
    assert len(api.log.records) == 5


def test_a_library_that_is_not_installed_is_named(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'jsonschema'", name="jsonschema")

    monkeypatch.setattr("ottla.registry.formats.parse", missing)
    status, _, message = api.error("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "JSON"})
    assert status == 500 and message.endswith("pip install 'ottla[registry]'")
