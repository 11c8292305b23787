"""Schemas from a registry with Confluent's REST protocol: by subject, and by the id at the start of each value.

A schema may refer to others. The references are resolved here, so that executors get a complete schema.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.login import client_properties

_TIMEOUT_S: Final = 30
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_OPTIONS: Final = ("basic.auth.user.info", "bearer.auth.token", "ssl.ca.location")
FORMATS: Final = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}


class UnknownSchema(PipelineError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema with everything it refers to: Avro or JSON text, or a set of Protobuf descriptors."""

    id: int
    format: str
    content: bytes
    subject: str = ""
    version: int = 0


@dataclass(frozen=True)
class Registry:
    """The address and login of a registry. Can be sent to executors; its repr hides the login."""

    url: str
    login: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def at(cls, url: str, options: Mapping[str, str] | None = None) -> Registry:
        """A registry at a URL, which may hold `user:password@`. The options have the names of Confluent's clients."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PipelineError(f"the registry's address is http://HOST:PORT, not '{url}'")
        login = client_properties(options)
        unknown = sorted(set(login) - set(_OPTIONS))
        if unknown:
            raise PipelineError(f"a registry has no option {unknown[0]}; the options are {', '.join(_OPTIONS)}")
        if parts.username:
            login.setdefault("basic.auth.user.info", f"{unquote(parts.username)}:{unquote(parts.password or '')}")
        host = parts.netloc.rpartition("@")[2]
        return cls(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), tuple(sorted(login.items())))

    # --- asking ------------------------------------------------------------------------------------------------------

    def _ask(self, path: str, body: object = None) -> Any:
        login = dict(self.login)
        headers = {"Accept": _TYPE}
        if "basic.auth.user.info" in login:
            headers["Authorization"] = f"Basic {base64.b64encode(login['basic.auth.user.info'].encode()).decode()}"
        elif "bearer.auth.token" in login:
            headers["Authorization"] = f"Bearer {login['bearer.auth.token']}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), _TYPE
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        trusted = ssl.create_default_context(cafile=login.get("ssl.ca.location")) if "https" in self.url[:5] else None
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trusted) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error, path) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise PipelineError(f"the schema registry {self.url} does not answer: {reason}") from None

    def _refused(self, error: urllib.error.HTTPError, path: str) -> PipelineError:
        try:
            with error:
                reason = json.load(error)["message"]
        except (ValueError, KeyError, TypeError):
            reason = error.reason
        if error.code == 404:
            return UnknownSchema(f"the schema registry {self.url} has no {path.lstrip('/')}: {reason}")
        if error.code in (401, 403):
            return PipelineError(f"the schema registry {self.url} refuses the login; see --registry-option")
        return PipelineError(f"the schema registry {self.url} refuses {path}: {reason}")

    def latest(self, subject: str) -> Schema:
        """The newest version of a subject."""
        return self._version(subject, "latest")

    def _version(self, subject: str, version: int | str) -> Schema:
        found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        content = self._complete(found, f"/subjects/{quote(subject, safe='')}/versions/{found['version']}")
        return Schema(found["id"], FORMATS[found.get("schemaType", "AVRO")], content, subject, found["version"])

    def by_id(self, number: int) -> Schema:
        """The schema that values with this id were written with. Requested once per process."""
        return _by_id(self, number)

    def register(self, subject: str, format: str, text: str) -> int:
        """The id of a schema, which is registered as a new version of the subject if necessary."""
        names = {format: name for name, format in FORMATS.items()}
        body = {"schema": text, "schemaType": names[format]}
        return int(self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    # --- references --------------------------------------------------------------------------------------------------

    def _complete(self, found: Mapping[str, Any], path: str) -> bytes:
        kind = found.get("schemaType", "AVRO")
        if kind == "PROTOBUF":
            return self._descriptors(found, path)
        refers = self._referred(found.get("references", ()), {})
        content = json.loads(found["schema"])
        whole = _AvroNames(refers).inlined(content, "") if kind == "AVRO" else _inlined_json(content, content, refers)
        return json.dumps(whole).encode()

    def _referred(self, references: Any, known: dict[str, Any]) -> dict[str, Any]:
        """All schemas that these references lead to, by name."""
        for one in references or ():
            if one["name"] not in known:
                found = self._ask(f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}")
                known[one["name"]] = json.loads(found["schema"])
                self._referred(found.get("references", ()), known)
        return known

    def _descriptors(self, found: Mapping[str, Any], path: str) -> bytes:
        from google.protobuf import descriptor_pb2

        files: dict[str, Any] = {}

        def add(schema: Mapping[str, Any], where: str, name: str) -> None:
            for one in schema.get("references", ()) or ():
                if one["name"] not in files:
                    path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}"
                    add(self._ask(path), path, one["name"])
            mark = "&" if "?" in where else "?"
            text = self._ask(f"{where}{mark}format=serialized")["schema"]
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
            file.name = name
            for needed in file.dependency:
                if needed not in files:
                    files[needed] = _well_known(needed)
            files[name] = file

        add(found, path, "value.proto")
        return bytes(descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString())


@lru_cache(maxsize=1000)
def _by_id(registry: Registry, number: int) -> Schema:
    path = f"/schemas/ids/{number}"
    found = registry._ask(path)
    return Schema(number, FORMATS[found.get("schemaType", "AVRO")], registry._complete(found, path))


def _well_known(name: str) -> Any:
    """A file that is part of Protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    try:
        __import__(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        found = descriptor_pool.Default().FindFileByName(name)
    except (ImportError, KeyError):
        raise PipelineError(f"the Protobuf schema imports {name}, which it does not refer to") from None
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    return file


class _AvroNames:
    """Inlines each referenced schema at the first use of its name."""

    def __init__(self, refers: Mapping[str, Any]) -> None:
        self._refers = refers
        self._used: set[str] = set()

    def inlined(self, node: Any, namespace: str) -> Any:
        if isinstance(node, list):
            return [self.inlined(one, namespace) for one in node]
        if isinstance(node, str):
            full = node if "." in node or not namespace else f"{namespace}.{node}"
            if full not in self._refers or full in self._used:
                return node
            self._used.add(full)
            return self.inlined(self._refers[full], "")
        if not isinstance(node, dict):
            return node
        name = str(node.get("name", ""))
        inner = node.get("namespace") or (name.rpartition(".")[0] if "." in name else namespace)
        if name:
            self._used.add(name if "." in name or not inner else f"{inner}.{name}")
        found = dict(node)
        for key in ("items", "values"):
            if key in node:
                found[key] = self.inlined(node[key], inner)
        if "type" in node and node["type"] not in ("record", "enum", "fixed", "error"):
            found["type"] = self.inlined(node["type"], inner)
        if "fields" in node:
            found["fields"] = [
                {**one, "type": self.inlined(one["type"], inner)} if isinstance(one, dict) else one
                for one in node["fields"]
            ]
        return found


_DEEPEST: Final = 20


def _inlined_json(node: Any, root: Any, refers: Mapping[str, Any], depth: int = 0) -> Any:
    """JSON Schema with every `$ref` replaced by its target."""
    if depth > _DEEPEST:
        raise PipelineError("the JSON schema is recursive; columns cannot express that")
    if isinstance(node, list):
        return [_inlined_json(one, root, refers, depth) for one in node]
    if not isinstance(node, dict):
        return node
    target = node.get("$ref")
    if isinstance(target, str):
        document, _, pointer = target.partition("#")
        if document and document not in refers:
            raise PipelineError(f"the JSON schema refers to {document}, which is not among its references")
        start = refers[document] if document else root
        return _inlined_json(_pointed(start, pointer, target), start, refers, depth + 1)
    # Definitions may refer to themselves. That only matters if one is used.
    return {
        key: value if key in ("definitions", "$defs") else _inlined_json(value, root, refers, depth)
        for key, value in node.items()
    }


def _pointed(document: Any, pointer: str, target: str) -> Any:
    for part in filter(None, pointer.split("/")):
        try:
            document = document[unquote(part).replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise PipelineError(f"the JSON schema refers to {target}, which is not there") from None
    return document
