"""The table of paths, and the code that finds the handler of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from .. import errors, names
from ..errors import RegistryError
from . import associations, schemas, settings, subjects
from .http import Handler, Request


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    # Segments; one in braces matches any text, and {id} a number.
    path: str
    handler: Handler
    # The answer is verbatim text, not JSON.
    raw: bool = False
    status: int = 200

    @property
    def writes(self) -> bool:
        """Whether it may return records. Look-ups and comparisons never do, although they are POST requests."""
        return self.method != "GET" and self.handler not in READING


READING: tuple[Handler, ...] = (subjects.look_up, subjects.check_version, subjects.check_subject, settings.get_root)

ROUTES = (
    Route("GET", "/", settings.get_root),
    Route("POST", "/", settings.get_root),
    Route("GET", "/schemas", schemas.list_schemas),
    Route("GET", "/schemas/types", schemas.get_types),
    Route("GET", "/schemas/ids/{id}", schemas.get_by_id),
    Route("GET", "/schemas/ids/{id}/schema", schemas.get_text_by_id, raw=True),
    Route("GET", "/schemas/ids/{id}/subjects", schemas.get_subjects),
    Route("GET", "/schemas/ids/{id}/versions", schemas.get_versions),
    Route("GET", "/schemas/guids/{guid}", schemas.get_by_guid),
    Route("GET", "/schemas/guids/{guid}/ids", schemas.get_ids_by_guid),
    Route("GET", "/subjects", subjects.list_subjects),
    Route("POST", "/subjects/{subject}", subjects.look_up),
    Route("DELETE", "/subjects/{subject}", subjects.remove_subject),
    Route("GET", "/subjects/{subject}/metadata", subjects.get_with_metadata),
    Route("GET", "/subjects/{subject}/versions", subjects.list_versions),
    Route("POST", "/subjects/{subject}/versions", subjects.register_version),
    Route("GET", "/subjects/{subject}/versions/{version}", subjects.get_version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", subjects.remove_version),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", subjects.get_version_text, raw=True),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.get_referrers),
    Route("POST", "/compatibility/subjects/{subject}/versions", subjects.check_subject),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check_version),
    *(Route("GET", path, settings.get_config) for path in ("/config", "/config/{subject}")),
    *(Route("PUT", path, settings.set_config) for path in ("/config", "/config/{subject}")),
    *(Route("DELETE", path, settings.remove_config) for path in ("/config", "/config/{subject}")),
    *(Route("GET", path, settings.get_mode) for path in ("/mode", "/mode/{subject}")),
    *(Route("PUT", path, settings.set_mode) for path in ("/mode", "/mode/{subject}")),
    *(Route("DELETE", path, settings.remove_mode) for path in ("/mode", "/mode/{subject}")),
    Route("GET", "/contexts", settings.list_contexts),
    Route("DELETE", "/contexts/{context}", settings.remove_context, status=204),
    Route("GET", "/v1/metadata/id", settings.get_cluster_id),
    Route("GET", "/v1/metadata/version", settings.get_server_version),
    Route("GET", "/v1/metadata/deployment", settings.get_deployment),
    Route("POST", "/associations", associations.create),
    Route("PUT", "/associations", associations.create_or_update),
    Route("PUT", "/associations/resources/{resource}", associations.create_or_update),
    Route("GET", "/associations/subjects/{subject}", associations.get_by_subject),
    Route("GET", "/associations/resources/{resource}", associations.get_by_resource_id),
    Route("DELETE", "/associations/resources/{resource}", associations.delete, status=204),
    Route("GET", "/associations/resources/{namespace}/{name}", associations.get_by_resource_name),
)


class Match(NamedTuple):
    route: Route
    params: Mapping[str, str]
    # Including the context from the path.
    query: Mapping[str, Sequence[str]]


def match(request: Request) -> Match:
    """Find the route of a request. The path is split before it is decoded, so a subject may contain a slash."""
    segments = [unquote(segment) for segment in request.path.strip("/").split("/")]
    query = dict(request.query)
    if segments[0] == "contexts" and len(segments) > 2:
        segments, query = _in_context(segments[1], segments[2:], query)
    others = []
    for route in _TABLE.get(len(segments), ()):
        params = _fit(route, segments)
        if params is None:
            continue
        if route.method == request.method or (request.method == "HEAD" and route.method == "GET"):
            return Match(route, params, query)
        others.append(route.method)
    if others:
        raise RegistryError(405, 405, "HTTP 405 Method Not Allowed")
    raise RegistryError(404, 404, "HTTP 404 Not Found")


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


_TABLE: dict[int, list[Route]] = {}
for _route in ROUTES:
    _TABLE.setdefault(len(_segments(_route.path)), []).append(_route)


def _fit(route: Route, segments: list[str]) -> dict[str, str] | None:
    params = {}
    for wanted, given in zip(_segments(route.path), segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != given:
                return None
        elif wanted == "{id}" and not _is_id(given):
            return None
        else:
            params[wanted[1:-1]] = given
    return params


def _is_id(text: str) -> bool:
    """Whether it is a number in the valid range; ids are never negative."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and int(digits[:11]) <= 2**31 - 1


def _in_context(
    named: str, segments: list[str], query: dict[str, Sequence[str]]
) -> tuple[list[str], dict[str, Sequence[str]]]:
    """The same request without the prefix /contexts/C: the context moves into the subject or the query."""
    context = names.context_from_path(named)
    if context is None:
        raise errors.bad_request(f"Context name '{named}' cannot contain a colon")
    prefix = names.context_prefix(context)

    def qualified(subject: str) -> str:
        return subject if subject.startswith((":.", names.ANY_CONTEXT_PREFIX)) else prefix + subject

    if segments[0] in ("config", "mode"):
        if len(segments) > 1:
            segments[1] = qualified(segments[1])
        elif prefix:
            segments.append(prefix)
    elif "subjects" in segments[:-1]:
        index = segments.index("subjects") + 1
        segments[index] = qualified(segments[index])
    elif segments[:2] == ["schemas", "ids"]:
        query["subject"] = [qualified(next(iter(query.get("subject", ())), ""))]
    elif segments in (["schemas"], ["subjects"]):
        given = next(iter(query.get("subjectPrefix", ())), "")
        query["subjectPrefix"] = [qualified(given) if prefix or given else names.context_prefix(context)]
    return segments, query
