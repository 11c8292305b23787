"""The REST API: config and mode at all levels, metadata and rules, contexts, associations, formats."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
AB = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
INCOMPATIBLE = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
INNER = '{"type":"record","name":"In","fields":[]}'
OUTER = '{"type":"record","name":"Out","fields":[{"name":"i","type":"In"}]}'


def guid_of(text: str) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(text.encode()).digest()))


def body(text: str = A, **more: Any) -> dict[str, Any]:
    return {"schema": text, **more}


# Config and mode.


def test_config(api: Any) -> None:
    assert api.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert api.ok("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert api.error("GET", "/config/s") == (
        404,
        40408,
        "Subject 's' does not have subject-level compatibility configured",
    )
    assert api.ok("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert api.ok("PUT", "/config/s", {"normalize": True, "compatibility": "NONE"}) == {
        "normalize": True,
        "compatibility": "NONE",
    }
    assert api.ok("PUT", "/config/s", {"compatibilityPolicy": "lenient"}) == {
        "normalize": True,
        "compatibility": "NONE",
        "compatibilityPolicy": "LENIENT",
    }
    assert api.ok("DELETE", "/config/s")["compatibilityLevel"] == "NONE"
    assert api.error("DELETE", "/config/s") == (404, 40401, "Subject 's' not found.")
    assert api.ok("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert api.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert api.error("PUT", "/config", {"compatibility": "BEST"}) == (
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive,"
        " forward_transitive, and full_transitive",
    )
    assert api.error("PUT", "/config", {"normalize": "yes"})[:2] == (400, 400)
    assert api.error("PUT", "/config/__GLOBAL", {"compatibility": "FULL"})[:2] == (422, 42208)


def test_config_of_contexts(api: Any) -> None:
    def level(subject: str) -> str:
        config: dict[str, str] = api.ok("GET", f"/config/{subject}?defaultToGlobal=true")
        return config["compatibilityLevel"]

    api.ok("PUT", "/config/:.__GLOBAL:", {"compatibility": "NONE"})
    assert (level("s"), level(":.c:s")) == ("NONE", "NONE")
    api.ok("PUT", "/config", {"compatibility": "FULL"})
    assert (level("s"), level(":.c:s")) == ("FULL", "NONE")
    api.ok("PUT", "/contexts/.c/config", {"compatibility": "FORWARD"})
    assert (level("s"), level(":.c:s"), level(":.d:s")) == ("FULL", "FORWARD", "NONE")
    api.ok("PUT", "/contexts/c/config/s", {"compatibility": "BACKWARD"})
    assert (level(":.c:s"), level(":.c:t")) == ("BACKWARD", "FORWARD")
    # A subject without its own level has the default one, and the rest of the global config.
    api.ok("PUT", "/config", {"normalize": True})
    api.ok("PUT", "/config/s", {"compatibilityGroup": "g"})
    assert api.ok("GET", "/config/s?defaultToGlobal=true") == {
        "compatibilityLevel": "BACKWARD",
        "normalize": True,
        "compatibilityGroup": "g",
    }


def test_defaults_and_overrides(api: Any) -> None:
    defaults = {"defaultMetadata": {"properties": {"a": "1", "b": "1"}}, "overrideMetadata": {"properties": {"c": "9"}}}
    api.ok("PUT", "/config/s", defaults)
    api.register("s", A, metadata={"properties": {"b": "2", "c": "2"}})
    assert api.ok("GET", "/subjects/s/versions/1")["metadata"] == {"properties": {"a": "1", "b": "2", "c": "9"}}
    # A version without its own metadata inherits that of the version before.
    api.register("s", AB)
    assert api.ok("GET", "/subjects/s/versions/2")["metadata"]["properties"]["b"] == "2"


def test_metadata_and_rules(api: Any) -> None:
    rule = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "a > 0"}
    api.register("s", A, metadata={"properties": {"owner": "me", "app": "x"}}, ruleSet={"domainRules": [rule]})
    version = api.ok("GET", "/subjects/s/versions/1")
    assert version["ruleSet"] == {"domainRules": [{**rule, "disabled": False}]}
    assert version["guid"] != guid_of(A)
    assert api.ok("GET", "/subjects/s/metadata?key=owner&value=me&key=app&value=x")["version"] == 1
    assert api.error("GET", "/subjects/s/metadata?key=owner&value=you")[:2] == (404, 40403)
    assert api.error("GET", "/subjects/x/metadata?key=owner&value=me")[:2] == (404, 40401)
    assert [one["version"] for one in api.ok("GET", "/schemas?ruleType=CEL")] == [1]
    assert api.ok("GET", "/schemas?ruleType=AVRO") == []
    # The lookup also finds it without the metadata, because registering would inherit them.
    assert api.ok("POST", "/subjects/s", body())["version"] == 1
    assert api.register("s", A) == 1
    for broken, problem in (
        ({"name": "1x"}, "Illegal initial character"),
        ({"name": None}, "Missing rule name"),
        ({"type": None}, "Missing rule type"),
        ({"mode": "UPGRADE"}, "Domain rules can only be WRITE, READ, WRITEREAD"),
    ):
        request = body(ruleSet={"domainRules": [{**rule, **broken}]})
        assert api.error("POST", "/subjects/s/versions", request)[:2] == (422, 42210)
        assert problem in api.error("POST", "/subjects/s/versions", request)[2]
    for broken in ({"kind": "GUESS"}, {"mode": "SOMETIMES"}):
        request = body(ruleSet={"domainRules": [{**rule, **broken}]})
        assert api.error("POST", "/subjects/s/versions", request)[:2] == (400, 400)


def test_a_rule_transforms_writes_and_reads_unless_it_says_otherwise(api: Any) -> None:
    api.register("s", A, ruleSet={"domainRules": [{"name": "r", "type": "CEL"}]})
    (rule,) = api.ok("GET", "/subjects/s/versions/1")["ruleSet"]["domainRules"]
    assert rule == {"name": "r", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "CEL", "disabled": False}


def test_a_version_in_the_metadata(api: Any) -> None:
    assert api.ok("POST", "/subjects/s/versions", body(version=-1))["metadata"] == {
        "properties": {"confluent:version": "1"}
    }
    # The latest version without it is still that version.
    assert api.ok("POST", "/subjects/s/versions", body())["version"] == 1
    assert api.ok("POST", "/subjects/s/versions", body(AB))["metadata"]["properties"]["confluent:version"] == "2"


def test_a_wrong_version_in_the_metadata_is_refused(api: Any) -> None:
    api.register("s", A)
    right, wrong = ({"properties": {"confluent:version": number}} for number in ("1", "5"))
    assert api.ok("POST", "/subjects/s", body(metadata=right))["version"] == 1
    assert api.error("POST", "/subjects/s", body(metadata=wrong))[:2] == (404, 40403)


def test_deleting_the_last_version_deletes_the_settings(api: Any) -> None:
    api.register("s", A)
    api.ok("PUT", "/config/s", {"compatibility": "NONE"})
    api.ok("PUT", "/mode/s", {"mode": "READWRITE"})
    api.ok("DELETE", "/subjects/s/versions/1")
    assert api.ok("GET", "/config/s")["compatibilityLevel"] == "NONE"
    api.ok("DELETE", "/subjects/s/versions/1?permanent=true")
    assert api.error("GET", "/config/s")[:2] == (404, 40408)
    assert api.error("GET", "/mode/s")[:2] == (404, 40409)


def test_the_global_mode_is_that_of_the_default_context(api: Any) -> None:
    api.ok("PUT", "/mode", {"mode": "READONLY"})
    assert api.error("POST", "/subjects/s/versions", body())[:2] == (422, 42205)
    assert api.ok("GET", "/mode/:.c:s?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert api.register(":.c:s", A) == 1
    api.ok("PUT", "/mode/:.__GLOBAL:", {"mode": "READONLY"})
    assert api.error("POST", "/subjects/:.c:t/versions", body()) == (
        422, 42205, "Subject :.c:t in context :.c: is in read-only mode"
    )  # fmt: skip


def test_normalizing(api: Any) -> None:
    one, other = '{"type":"object","title":"x"}', '{"title":"x","type":"object"}'
    assert api.register("s", one, "JSON") == 1
    assert api.register("s", other, "JSON") == 2
    assert api.register("t", one, "JSON", query="?normalize=true") == 2
    assert api.ok("POST", "/subjects/t?normalize=True", body(one, schemaType="JSON"))["id"] == 2
    assert api.error("POST", "/subjects/t", body(one, schemaType="JSON"))[1] == 40403
    api.ok("PUT", "/config/t", {"normalize": True})
    assert api.ok("POST", "/subjects/t", body(one, schemaType="JSON"))["id"] == 2


def test_aliases(api: Any) -> None:
    api.register("same", A)
    api.register("real", A)
    api.ok("PUT", "/config/alias", {"alias": "real"})
    assert api.ok("GET", "/subjects/alias/versions/1")["subject"] == "real"
    assert api.ok("POST", "/subjects/alias", body())["subject"] == "real"
    assert api.ok("GET", "/schemas/ids/1?subject=alias")["subject"] == "real"
    assert api.ok("POST", "/subjects/alias/versions", body(AB))["version"] == 2
    assert api.ok("GET", "/schemas?aliases=true&latestOnly=true")[0]["aliases"] == ["alias"]


def test_modes(api: Any) -> None:
    assert api.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert api.error("GET", "/mode/s") == (404, 40409, "Subject 's' does not have subject-level mode configured")
    api.register("s", A)
    assert api.ok("PUT", "/mode", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert api.ok("GET", "/mode/s?defaultToGlobal=true") == {"mode": "READONLY"}
    refused = (422, 42205, "Subject s in context  is in read-only mode")
    assert api.error("POST", "/subjects/s/versions", body(AB)) == refused
    assert api.error("DELETE", "/subjects/s/versions/1") == refused
    assert api.error("DELETE", "/subjects/s") == refused
    assert api.error("PUT", "/config/s", {"compatibility": "NONE"}) == refused
    # An existing schema can be read, looked up, and "registered".
    assert api.ok("POST", "/subjects/s", body())["id"] == 1 == api.register("s", A)
    assert api.ok("PUT", "/mode/s", {"mode": "READWRITE"}) == {"mode": "READWRITE"}
    assert api.register("s", AB) == 2
    assert api.ok("DELETE", "/mode/s") == {"mode": "READWRITE"}
    assert api.error("DELETE", "/mode/s")[:2] == (404, 40401)
    assert api.error("PUT", "/mode", {"mode": "NONE"})[:2] == (422, 42204)
    assert api.error("PUT", "/mode", {"mode": 5})[:2] == (422, 42204)
    assert api.error("PUT", "/mode", {"mode": "FORWARD"})[2] == "Forward mode only supported on global level"
    assert api.ok("PUT", "/mode/:.__GLOBAL:", {"mode": "FORWARD"}) == {"mode": "FORWARD"}
    assert api.ok("PUT", "/mode/s", {"mode": "READONLY"}) and api.ok("DELETE", "/mode?recursive=true")
    assert api.error("GET", "/mode/s")[:2] == (404, 40409)


def test_import_mode(api: Any) -> None:
    assert api.error("POST", "/subjects/s/versions", body(id=7)) == (
        422,
        42205,
        "Subject s in context  is not in import mode",
    )
    api.register("s", A)
    assert api.error("PUT", "/mode", {"mode": "IMPORT"}) == (
        422,
        42205,
        "Cannot import since found existing subjects",
    )
    api.ok("DELETE", "/subjects/s")
    api.ok("PUT", "/mode", {"mode": "IMPORT"})
    # This removes soft-deleted versions.
    assert api.ok("GET", "/subjects?deleted=true") == []
    assert api.error("POST", "/subjects/s/versions", body())[2] == "Subject s in context  is not in read-write mode"
    assert api.ok("POST", "/subjects/s/versions", body(id=100, version=5)) | {"ts": 0} == {
        "version": 5, "id": 100, "guid": guid_of(A), "schemaType": "AVRO", "schema": A, "ts": 0,
    }  # fmt: skip
    # No comparison while importing.
    assert api.register("s", INCOMPATIBLE, id=50) == 50
    assert api.ok("GET", "/subjects/s/versions") == [5, 6]
    assert api.error("POST", "/subjects/s/versions", body(AB, id=100))[2] == (
        "Overwrite new schema with id 100 in context  is not permitted."
    )
    api.ok("PUT", "/mode", {"mode": "READWRITE"})
    assert api.register("t", AB) == 101
    assert api.ok("PUT", "/mode/t?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


# Contexts.


def test_contexts(api: Any) -> None:
    assert api.ok("GET", "/contexts") == ["."]
    assert api.register("s", A) == 1
    assert api.register("s", AB) == 2
    # Ids count in each context from 1, GUIDs are the same in all.
    assert api.ok("POST", "/contexts/.c/subjects/s/versions", body(AB))["id"] == 1
    assert api.ok("GET", "/contexts") == [".", ".c"]
    assert api.ok("GET", f"/schemas/guids/{guid_of(AB)}/ids") == [{"context": ".", "id": 2}, {"context": ".c", "id": 1}]
    assert api.ok("GET", "/subjects") == [":.c:s", "s"]
    assert api.ok("GET", "/contexts/.c/subjects") == [":.c:s"] == api.ok("GET", "/subjects?subjectPrefix=:.c:")
    assert api.ok("GET", "/subjects?subjectPrefix=s") == ["s"]
    assert api.ok("GET", "/subjects?subjectPrefix=:*:s") == [":.c:s", "s"]
    for prefix, found in (("", ["s"]), ("?subjectPrefix=:.c:", [":.c:s"]), ("?subjectPrefix=:*:", [":.c:s", "s"])):
        assert [one["subject"] for one in api.ok("GET", f"/schemas{prefix}") if one["version"] == 1] == found
    assert api.ok("GET", "/contexts/c/subjects/s/versions/1")["subject"] == ":.c:s"
    assert api.ok("GET", "/subjects/:.:s/versions/1")["subject"] == "s"
    assert api.ok("GET", "/contexts/:.c:/schemas/ids/1")["schema"] == AB
    assert api.ok("GET", "/schemas/ids/1?subject=:.c:s")["schema"] == AB
    assert api.ok("GET", "/schemas/ids/1")["schema"] == A
    assert len(api.ok("GET", "/contexts/.c/schemas")) == 1
    assert api.error("GET", "/contexts/a:b/subjects")[:2] == (400, 400)
    # A plain subject that is not in the default context is searched in the others.
    api.ok("POST", "/contexts/.c/subjects/only/versions", body('"int"'))
    assert api.ok("GET", "/subjects/only/versions/1")["subject"] == ":.c:only"
    assert api.ok("POST", "/subjects/only", body('"int"'))["subject"] == ":.c:only"
    assert api.ok("GET", "/schemas/ids/2?subject=only")["schema"] == '"int"'
    assert api.error("DELETE", "/contexts/.c") == (422, 42211, "The specified context ':.c:' is not empty.")
    for subject in ("s", "only"):
        api.ok("DELETE", f"/subjects/:.c:{subject}")
        api.ok("DELETE", f"/subjects/:.c:{subject}?permanent=true")
    answer = api.send("DELETE", "/contexts/.c")
    assert (answer.status, answer.body) == (204, None)
    assert api.ok("GET", "/contexts") == ["."]


def test_references_within_a_context(api: Any) -> None:
    api.register(":.c:in", INNER)
    api.register(":.c:out", OUTER, references=[{"name": "In", "subject": "in", "version": 1}])
    answer = api.ok("GET", "/subjects/:.c:out/versions/1?referenceFormat=qualified")
    assert answer["references"] == [{"name": "In", "subject": ":.c:in", "version": 1}]
    assert api.error("DELETE", "/subjects/:.c:in")[:2] == (422, 42206)
    assert api.error("POST", "/subjects/out/versions", body(OUTER, references=answer["references"][:0]))[1] == 42201
    api.register("out", OUTER, references=[{"name": "In", "subject": ":.c:in", "version": 1}])


# Associations.


def test_associations(api: Any) -> None:
    path = "/associations/resources/-/orders?resourceType=topic&associationType=value&offset=0&limit=-1"
    assert api.ok("GET", path) == []
    request = {
        "resourceName": "orders",
        "resourceNamespace": "lkc-1",
        "resourceId": "id-1",
        "associations": [{"subject": "shared", "associationType": "value"}],
    }
    assert api.error("POST", "/associations", request)[:2] == (409, 40907)
    api.register("shared", A)
    assert api.ok("POST", "/associations", request)["associations"][0]["lifecycle"] == "WEAK"
    assert [one["subject"] for one in api.ok("GET", path)] == ["shared"]
    assert api.ok("GET", path.replace("/-/", "/other/")) == []
    assert len(api.ok("GET", "/associations/subjects/shared")) == 1
    assert api.error("DELETE", "/subjects/shared") == (
        409,
        40904,
        "An association already exists for subject 'shared'",
    )
    assert api.restarted().ok("GET", path) == api.ok("GET", path)
    assert api.send("DELETE", "/associations/resources/id-1").status == 204
    assert api.error("DELETE", "/associations/resources/id-1")[:2] == (404, 40410)
    assert api.ok("GET", path) == []
    assert api.error("POST", "/associations", {**request, "resourceId": ""})[:2] == (422, 42212)


# Formats.


def test_formats(api: Any) -> None:
    text = 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n'
    api.register("p", text, "PROTOBUF")
    serialized = api.ok("GET", "/schemas/ids/1?format=serialized")["schema"]
    assert serialized != text and api.ok("GET", "/schemas/ids/1/schema") == text
    assert api.ok("GET", "/schemas/ids/1?format=nonsense")["schema"] == text
    # As a descriptor it is the same schema, and is returned as it was sent.
    answer = api.ok("POST", "/subjects/q/versions", body(serialized, schemaType="PROTOBUF"))
    assert (answer["id"], answer["schema"]) == (1, serialized)
    assert api.ok("GET", "/subjects/q/versions/1")["schema"] == text
