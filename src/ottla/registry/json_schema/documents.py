"""The documents that a JSON Schema consists of: itself, its references, and the schemas of the drafts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urljoin

import jsonschema
import referencing.exceptions
import referencing.jsonschema
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY as DRAFTS

from ..errors import InvalidSchema
from ..json_text import loads

VALIDATORS: dict[str, type[Validator]] = {
    "draft-04": jsonschema.Draft4Validator,
    "draft-06": jsonschema.Draft6Validator,
    "draft-07": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}
SPECIFICATIONS = {
    "draft-04": referencing.jsonschema.DRAFT4,
    "draft-06": referencing.jsonschema.DRAFT6,
    "draft-07": referencing.jsonschema.DRAFT7,
    "2019-09": referencing.jsonschema.DRAFT201909,
    "2020-12": referencing.jsonschema.DRAFT202012,
}
# The draft of a schema without `$schema`, as in Confluent's registry.
DEFAULT_DRAFT = "draft-07"
MODERN_DRAFTS = ("2019-09", "2020-12")


def draft_of(value: Any) -> str:
    """The draft that `$schema` refers to."""
    named = value.get("$schema") if isinstance(value, dict) else None
    if isinstance(named, str):
        return next((draft for draft in VALIDATORS if f"/{draft}/" in named), DEFAULT_DRAFT)
    return DEFAULT_DRAFT


class Documents:
    """Finds the target of a `$ref`. Never fetches anything over the network."""

    def __init__(self, root: Any, references: Iterable[tuple[str, str]]) -> None:
        self.draft = draft_of(root)
        specification = SPECIFICATIONS[self.draft]
        own_id = root.get("id" if self.draft == "draft-04" else "$id") if isinstance(root, dict) else None
        base = own_id if isinstance(own_id, str) else ""
        self.root = _with_defs(root)
        resources: list[tuple[str, Any]] = [(base.removesuffix("#"), specification.create_resource(self.root))]
        for name, text in references:
            content = _with_defs(loads(text))
            resource = SPECIFICATIONS[draft_of(content)].create_resource(content)
            resources += [(uri, resource) for uri in dict.fromkeys((name, f"./{name}", urljoin(base, name)))]
        self.names = {name for name, _ in references}
        self.found: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        try:
            registry = DRAFTS.with_resources(resources).crawl()
        except (referencing.exceptions.Unresolvable, ValueError, AttributeError, TypeError) as error:
            raise InvalidSchema(f"an id or anchor in it cannot be used: {error}") from error
        self.resolver = registry.resolver(base.removesuffix("#"))

    def resolve(self, reference: str, resolver: Any) -> tuple[Any, Any]:
        """The target of a `$ref`, and the resolver for the references within it."""
        key = (id(resolver), reference)
        if key not in self.found:
            # Holds the resolver as well, so that its id is not reused.
            self.found[key] = (resolver, *self._resolve(reference, resolver))
        return self.found[key][1:]

    def _resolve(self, reference: str, resolver: Any) -> tuple[Any, Any]:
        try:
            found = resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError, AttributeError, TypeError, KeyError) as error:
            name, hash_sign, fragment = reference.partition("#")
            if resolver is not self.resolver and name in self.names:
                return self.resolve(f"{name}{hash_sign}{fragment}", self.resolver)
            remote = " and nothing is fetched over HTTP" if name.startswith(("http://", "https://")) else ""
            raise InvalidSchema(f"Unresolved $ref '{reference}': no reference of that name{remote}") from error
        return found.contents, found.resolver

    def within(self, value: dict[str, Any], resolver: Any) -> Any:
        """The resolver for a part with its own id: its references are relative to that id."""
        return resolver.in_subresource(SPECIFICATIONS[self.draft].create_resource(value))


def check_against_draft(value: Any) -> None:
    """Refuse a schema that breaks the rules of its draft."""
    validator = VALIDATORS[draft_of(value)]
    try:
        # Formats are not checked here: a pattern is checked when it is parsed, with the engine that will run it.
        problem = next(validator(validator.META_SCHEMA).iter_errors(value), None)
    except RecursionError as error:
        raise InvalidSchema("nested too deeply") from error
    if problem is not None:
        path = "/".join(str(part) for part in problem.absolute_path)
        raise InvalidSchema(f"#/{path}: {problem.message[:500]}")


def _with_defs(root: Any) -> Any:
    """A document in which `#/$defs/X` also finds definitions under `definitions`, as in Confluent's registry."""
    if not isinstance(root, dict) or not isinstance(root.get("definitions"), dict):
        return root
    own = root.get("$defs", {})
    return {**root, "$defs": {**root["definitions"], **own}} if isinstance(own, dict) else root
