"""Schemas: subjects and their versions, compatibility checks, registration, and decoded records."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from ottla.console.operations import BadRequest, Call, NotFound, Parameter, operation
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.console.console_source import AskRegistry, ConsoleSource, Decode
    from ottla.registry import entities, formats
    from ottla.registry.serde import codec as codecs
    from ottla.registry.serde import framing
    from ottla.registry.serde.codec import Codec
else:
    codecs = lazy("ottla.registry.serde.codec")
    entities = lazy("ottla.registry.entities")
    formats = lazy("ottla.registry.formats")
    framing = lazy("ottla.registry.serde.framing")

NO_REGISTRY: Final = (
    "This console has no schema registry. Serve one with `ottla serve --registry 8081`, or name one with "
    "`ottla console --registry URL`."
)
_PROTOBUF: Final = "PROTOBUF"
_KEPT_S: Final = 5.0
"""How long a schema is remembered: a test may delete all schemas and start again."""

_SCHEMA_BODY: Final = {
    "type": "object",
    "required": ["schema"],
    "properties": {"schema": {"type": "string"}, "type": {"type": "string"}, "references": {"type": "array"}},
}


async def _ask(source: ConsoleSource, method: str, path: str, body: Any = None) -> Any:
    """The answer of the registry, or its own error message."""
    registry = source.registry
    if registry is None:
        raise NotFound(NO_REGISTRY)
    return await _answer(registry, method, path, body)


async def _answer(registry: AskRegistry, method: str, path: str, body: Any = None) -> Any:
    status, answer = await registry(method, path, body)
    if status >= 400:
        raise (NotFound if status == 404 else BadRequest)(f"{answer['message']} ({answer['error_code']})")
    return answer


def _part(text: str) -> str:
    return quote(text, safe="")


@operation("GET", "/schemas")
async def list_subjects(call: Call) -> Any:
    """The subjects of the schema registry, each with its latest version."""
    latest: list[dict[str, Any]] = []
    while page := await _ask(call.source, "GET", f"/schemas?subjectPrefix=:*:&latestOnly=true&offset={len(latest)}"):
        latest += page
    level = (await _ask(call.source, "GET", "/config"))["compatibilityLevel"]
    return {
        "compatibility": level,
        "subjects": [
            {
                "subject": each["subject"],
                "type": each.get("schemaType", "AVRO"),
                "version": each["version"],
                "id": each["id"],
                "registered": each.get("ts"),
            }
            for each in latest
        ],
    }


@operation("GET", "/schemas/{subject}")
async def describe_subject(call: Call) -> Any:
    """All versions of a subject, oldest first, and its settings."""
    subject = _part(call.path["subject"])
    versions = [
        await _ask(call.source, "GET", f"/subjects/{subject}/versions/{number}")
        for number in await _ask(call.source, "GET", f"/subjects/{subject}/versions")
    ]
    config = await _ask(call.source, "GET", f"/config/{subject}?defaultToGlobal=true")
    mode = await _ask(call.source, "GET", f"/mode/{subject}?defaultToGlobal=true")
    try:
        own = await _ask(call.source, "GET", f"/config/{subject}")
    except NotFound:
        own = {}
    return {
        "subject": call.path["subject"],
        "compatibility": config["compatibilityLevel"],
        "own_compatibility": own.get("compatibilityLevel"),
        "mode": mode["mode"],
        "versions": [
            {
                "version": each["version"],
                "id": each["id"],
                "guid": each.get("guid"),
                "type": each.get("schemaType", "AVRO"),
                "references": each.get("references", []),
                "registered": each.get("ts"),
                "text": _readable(each.get("schemaType", "AVRO"), each["schema"]),
            }
            for each in versions
        ],
    }


def _readable(schema_type: str, text: str) -> str:
    if schema_type == _PROTOBUF:
        return text.rstrip()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _given(call: Call) -> dict[str, Any]:
    return {
        "schema": call.text("schema"),
        "schemaType": call.text("type", "AVRO"),
        "references": call.body.get("references", []),
    }


@operation("POST", "/schemas/{subject}/check", body=_SCHEMA_BODY, changes=False)
async def check_schema(call: Call) -> Any:
    """Whether a schema could be registered as the next version, and why not."""
    path = f"/compatibility/subjects/{_part(call.path['subject'])}/versions?verbose=true"
    answer = await _ask(call.source, "POST", path, _given(call))
    return {"compatible": answer["is_compatible"], "messages": answer.get("messages", [])}


@operation("POST", "/schemas/{subject}", body=_SCHEMA_BODY)
async def register_schema(call: Call) -> Any:
    """Register a schema as the next version; an existing schema keeps its number."""
    path = f"/subjects/{_part(call.path['subject'])}/versions"
    answer = await _ask(call.source, "POST", path, _given(call))
    return {"id": answer["id"], "version": answer.get("version")}


@operation(
    "POST",
    "/schemas/{subject}/compatibility",
    body={
        "type": "object",
        "required": ["level"],
        "properties": {"level": {"type": "string", "description": "such as FULL; empty for what holds for all"}},
    },
)
async def set_compatibility(call: Call) -> Any:
    """Set the compatibility of a subject, or take its own one away."""
    path, level = f"/config/{_part(call.path['subject'])}", call.text("level")
    if level:
        await _ask(call.source, "PUT", path, {"compatibility": level})
    else:
        await _ask(call.source, "DELETE", path)
    return {"subject": call.path["subject"], "level": level or None}


@operation(
    "DELETE",
    "/schemas/{subject}",
    query=(Parameter("version", "integer", minimum=1, maximum=(1 << 31) - 1, help="only this one"),),
)
async def delete_subject(call: Call) -> Any:
    """Delete a subject or one version. Its ids stay readable."""
    path = f"/subjects/{_part(call.path['subject'])}"
    if call.query["version"] is not None:
        path += f"/versions/{call.query['version']}"
    answer = await _ask(call.source, "DELETE", path)
    return {"versions": answer if isinstance(answer, list) else [answer]}


# --- records ---------------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """A schema that was looked up."""

    name: str
    codec: Codec | None
    problem: str | None
    until: float


def decoder(source: ConsoleSource) -> Decode:
    """Decodes keys and values with the current registry of the source."""
    known: dict[int | str, _Known] = {}

    async def decode(topic: str, is_key: bool, data: bytes) -> dict[str, Any] | None:
        registry = source.registry
        if registry is None or data[:1] != b"\0":
            return None
        try:
            framed = framing.unframe(data, is_key=is_key)
        except framing.NotFramed:
            return None
        schema = known.get(framed.schema)
        if schema is None or schema.until < time.monotonic():
            schema = known[framed.schema] = await _known(registry, framed.schema)
        if schema.codec is None:
            return {"schema": schema.name, "problem": schema.problem}
        try:
            value = codecs.jsonable(schema.codec.decode(framed), schema.codec.bytes_as)
        except ValueError as error:
            return {"schema": schema.name, "problem": str(error)}
        return {"schema": schema.name, "value": value}

    return decode


async def _known(registry: AskRegistry, schema: int | str) -> _Known:
    until = time.monotonic() + _KEPT_S
    name = f"schema {schema}"
    try:
        found = await _answer(registry, "GET", f"/schemas/ids/{schema}")
        uses = await _answer(registry, "GET", f"/schemas/ids/{schema}/versions?deleted=true")
        if uses:
            name = f"{uses[0]['subject']}, version {uses[0]['version']} (id {schema})"
        texts: dict[str, str] = {}
        await _collect(registry, found.get("references", []), texts)
        source = formats.Source(found["schema"], (), tuple(texts.items()))
        return _Known(name, codecs.codec_of(found.get("schemaType", entities.AVRO), source), None, until)
    except (NotFound, BadRequest, ValueError) as error:
        return _Known(name, None, str(error), until)


async def _collect(registry: AskRegistry, references: list[dict[str, Any]], texts: dict[str, str]) -> None:
    """The texts of references by name, inner ones first."""
    for each in references:
        if each["name"] not in texts:
            path = f"/subjects/{_part(each['subject'])}/versions/{each['version']}?deleted=true"
            target = await _answer(registry, "GET", path)
            await _collect(registry, target.get("references", []), texts)
            texts[each["name"]] = target["schema"]
