"""A Python client for registries: register, look up, compare, delete. It works with every registry that has this API.

`ask` transports the requests: over HTTP (`http_client`), or directly to a registry in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from . import names
from .entities import AVRO, Reference
from .errors import RegistryError
from .formats import Source
from .serde.codec import codec_of
from .serde.decoder import Decoder, Writer
from .serde.framing import frame

Ask: TypeAlias = Callable[[str, str, Any], Any]
"""Called with a method, a path with its query, and a body; returns the answer. Raises RegistryError for an error."""
References: TypeAlias = Iterable[Reference | tuple[str, str, int]]
LATEST: Final = "latest"


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject. `references` are (name, subject, version)."""

    subject: str
    version: int
    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    guid: str | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)
    rule_set: Mapping[str, Any] | None = field(default=None, hash=False)
    deleted: bool = False

    @classmethod
    def of(cls, answer: Mapping[str, Any], **known: Any) -> RegisteredSchema:
        """From an answer of the API, which omits empty fields and fields that the request contained."""
        found = {**known, **answer}
        return cls(
            found.get("subject", ""),
            found.get("version", 0),
            found.get("id", 0),
            found.get("schemaType", AVRO),
            found.get("schema", ""),
            tuple(Reference(each["name"], each["subject"], each["version"]) for each in found.get("references", ())),
            found.get("guid"),
            found.get("metadata"),
            found.get("ruleSet"),
            bool(found.get("deleted", False)),
        )


class RegistryClient:
    """The operations of a registry. A schema is text, or its parsed JSON (a dictionary)."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._decoder = Decoder(self._writer)

    # -- schemas -----------------------------------------------------------------------------------------------

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """The names of all subjects, or of those that begin with `prefix`; `deleted` includes deleted ones."""
        query = _query(subjectPrefix=prefix, deleted=deleted)
        return list(self._ask("GET", f"/subjects{query}", None))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The version numbers of a subject."""
        return list(self._ask("GET", f"/subjects/{_part(subject)}/versions{_query(deleted=deleted)}", None))

    def get(self, subject: str, version: int | str = LATEST, *, deleted: bool = False) -> RegisteredSchema:
        """One version of a subject; the latest by default."""
        path = f"/subjects/{_part(subject)}/versions/{_part(str(version))}"
        return RegisteredSchema.of(self._ask("GET", path + _query(deleted=deleted), None))

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """A schema by its id. An id outside the default context needs a subject, or `:.context:`."""
        answer = self._ask("GET", f"/schemas/ids/{schema_id}{_query(subject=subject)}", None)
        return RegisteredSchema.of(answer, id=schema_id)

    def by_guid(self, guid: str) -> RegisteredSchema:
        """A schema by its GUID."""
        return RegisteredSchema.of(self._ask("GET", f"/schemas/guids/{_part(guid)}", None), guid=guid)

    def all(self, prefix: str = "", *, deleted: bool = False) -> list[RegisteredSchema]:
        """Every version of every subject in all contexts, or of the subjects with a prefix."""
        found: list[RegisteredSchema] = []
        while True:
            query = _query(subjectPrefix=prefix or names.ANY_CONTEXT_PREFIX, deleted=deleted, offset=len(found))
            page = [RegisteredSchema.of(each) for each in self._ask("GET", f"/schemas{query}", None)]
            # Karapace has no pages: it returns all schemas, regardless of the offset.
            if not page or page[0] == next(iter(found), None):
                return found
            found += page

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | list[Any],
        schema_type: str = AVRO,
        *,
        references: References = (),
        normalize: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> RegisteredSchema:
        """Register a schema; an existing one keeps its id and version. `extra` adds fields to the request, such as
        metadata, or id and version for an import."""
        body = {**_body(schema, schema_type, references), **(extra or {})}
        path = f"/subjects/{_part(subject)}/versions{_query(normalize=normalize)}"
        answer = self._ask("POST", path, body)
        if "version" not in answer:  # registries before 8.0 return only the id
            return self.look_up(subject, schema, schema_type, references=references, normalize=normalize)
        return RegisteredSchema.of(answer, subject=subject)

    def look_up(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | list[Any],
        schema_type: str = AVRO,
        *,
        references: References = (),
        normalize: bool = False,
        deleted: bool = False,
    ) -> RegisteredSchema:
        """Find the version of a subject that has this schema."""
        path = f"/subjects/{_part(subject)}{_query(normalize=normalize, deleted=deleted)}"
        return RegisteredSchema.of(self._ask("POST", path, _body(schema, schema_type, references)))

    def check(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | list[Any],
        schema_type: str = AVRO,
        *,
        references: References = (),
        version: int | str | None = None,
    ) -> list[str]:
        """Why a schema cannot be registered; empty if it can. It is compared with the same versions as when
        registering it, or only with `version`."""
        path = f"/compatibility/subjects/{_part(subject)}/versions"
        if version is not None:
            path += f"/{_part(str(version))}"
        answer = self._ask("POST", f"{path}?verbose=true", _body(schema, schema_type, references))
        if answer["is_compatible"]:
            return []
        return list(answer.get("messages") or ["it is not compatible"])

    def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        """Delete a subject or one version, and return the versions. `permanent` needs an earlier soft delete."""
        path = f"/subjects/{_part(subject)}" + ("" if version is None else f"/versions/{_part(str(version))}")
        answer = self._ask("DELETE", path + _query(permanent=permanent), None)
        return list(answer) if isinstance(answer, list) else [answer]

    # -- settings ----------------------------------------------------------------------------------------------

    def compatibility(self, subject: str | None = None) -> str:
        """The level that applies to a subject, or the global one."""
        return str(self.config(subject)["compatibilityLevel"])

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set BACKWARD, FORWARD, FULL, one of these with _TRANSITIVE, or NONE."""
        self._ask("PUT", _setting("config", subject), {"compatibility": level})

    def config(self, subject: str | None = None) -> dict[str, Any]:
        """All settings that apply to a subject, or the global ones."""
        return dict(self._ask("GET", _setting("config", subject) + "?defaultToGlobal=true", None))

    def own_config(self, subject: str | None = None) -> dict[str, Any] | None:
        """The settings of exactly this subject, or the global ones; None if nothing is set."""
        try:
            return dict(self._ask("GET", _setting("config", subject), None))
        except RegistryError as error:
            if error.status != 404:
                raise
            return None

    def set_config(self, settings: Mapping[str, Any], subject: str | None = None) -> None:
        """Change settings by their names in the API, such as normalize."""
        self._ask("PUT", _setting("config", subject), dict(settings))

    def mode(self, subject: str | None = None) -> str:
        """READWRITE, READONLY, IMPORT or FORWARD."""
        return str(self._ask("GET", _setting("mode", subject) + "?defaultToGlobal=true", None)["mode"])

    def own_mode(self, subject: str | None = None) -> str | None:
        """The mode that was set for exactly this subject; None if it has none."""
        try:
            return str(self._ask("GET", _setting("mode", subject), None)["mode"])
        except RegistryError as error:
            if error.status != 404:
                raise
            return None

    def set_mode(self, mode: str | None, subject: str | None = None, *, force: bool = False) -> None:
        """Change the mode of a subject, or the global one; None removes it. IMPORT needs `force` if there are
        schemas."""
        if mode is None:
            self._ask("DELETE", _setting("mode", subject), None)
            return
        self._ask("PUT", _setting("mode", subject) + _query(force=force), {"mode": mode})

    # -- values ------------------------------------------------------------------------------------------------

    def decode(
        self, data: bytes | None, headers: Iterable[tuple[str, bytes | None]] = (), *, is_key: bool = False
    ) -> Any:
        """Decode a key or a value with the schema that it refers to."""
        return None if data is None else self._decoder.decode(data, headers, is_key=is_key)

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    def encode(self, subject: str, value: Any, version: int | str = LATEST) -> bytes:
        """Encode a value as a serializer would, with a version of a subject."""
        schema = self.get(subject, version)
        return frame(schema.id, codec_of(schema.schema_type, self.source_of(schema)).encode(value))

    def source_of(self, schema: RegisteredSchema) -> Source:
        """The text of a schema and the texts of its references, inner ones first."""
        texts: dict[str, str] = {}
        self._collect(schema, texts, ())
        return Source(schema.schema, schema.references, tuple(texts.items()))

    def _collect(self, schema: RegisteredSchema, texts: dict[str, str], within: tuple[str, ...]) -> None:
        for reference in schema.references:
            if reference.name not in texts and reference.name not in within:
                wanted = names.beside(schema.subject, reference.subject) if schema.subject else reference.subject
                target = self.get(wanted, reference.version, deleted=True)
                self._collect(target, texts, (*within, reference.name))
                texts[reference.name] = target.schema

    def _writer(self, schema: int | str) -> Writer:
        try:
            found = self.by_id(schema) if isinstance(schema, int) else self.by_guid(schema)
        except RegistryError as error:
            if error.status == 404:
                raise LookupError(f"the registry has no schema {schema}") from error
            raise
        return Writer(found.schema_type, self.source_of(found))


def _part(text: str) -> str:
    return quote(text, safe="")


def _setting(name: str, subject: str | None) -> str:
    return f"/{name}" if subject is None else f"/{name}/{_part(subject)}"


def _query(**options: Any) -> str:
    """A query string of the options that are set."""
    given = {name: "true" if value is True else value for name, value in options.items() if value}
    return f"?{urlencode(given)}" if given else ""


def _body(schema: str | Mapping[str, Any] | list[Any], schema_type: str, references: References) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    listed = [Reference(*each).to_json() for each in references]
    return {"schema": text, "schemaType": schema_type, **({"references": listed} if listed else {})}
