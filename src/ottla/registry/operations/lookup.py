"""Finds schemas: by content, by id, by version, across contexts."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from .. import errors, names
from ..catalog import Catalog, invalid
from ..compatibility import Candidate
from ..entities import AVRO, SchemaEntry, version_property, with_version_property
from ..names import DEFAULT_CONTEXT
from ..records import Config
from ..state import ContextId, State
from .metadata import with_settings

IMPORT_MODES = ("IMPORT", "FORWARD")


def canonical(catalog: Catalog, entry: SchemaEntry, config: Config, new: bool, normalize: bool) -> Candidate:
    """Parse and check a schema from a request, and convert it to the form in which it is stored."""
    if not entry.text.strip():
        raise errors.invalid_schema("Empty schema")
    schema = catalog.parse(entry, new)
    try:
        if catalog.state.mode_in_scope(entry.subject) not in IMPORT_MODES:
            schema.check(bool(config.get("validateFields")))
            if normalize:
                schema = schema.normalized()
        return Candidate(catalog.canonical(entry, schema), schema)
    except errors.InvalidSchema as error:
        raise invalid(entry.schema_type, error) from error
    except RecursionError as error:
        raise invalid(entry.schema_type, "it is nested too deeply") from error


def find(catalog: Catalog, subject: str, wanted: Candidate, deleted: bool) -> SchemaEntry | None:
    """The version of a subject that has this schema: by its hash, or else by its content with references inlined."""
    state = catalog.state
    known = state.id_of(names.context_of(subject), wanted.entry.md5)
    if known is not None and subject in known[1]:
        entry = state.version(subject, known[1][subject], deleted)
        if entry is not None:
            return entry
    for entry in reversed(state.versions(subject, deleted)):
        if says_the_same(catalog, wanted, entry):
            return entry
    return None


def says_the_same(catalog: Catalog, wanted: Candidate, entry: SchemaEntry) -> bool:
    """Whether two schemas differ at most in how they write references, or in a version property that only one has."""
    if entry.schema_type != wanted.entry.schema_type or wanted.entry.rule_set != entry.rule_set:
        return False
    if not _same_metadata(wanted.entry, entry):
        return False
    if wanted.entry.references == entry.references:
        return entry.text == wanted.entry.text
    # An Avro schema can be equivalent without references, with all types written out.
    inlined = entry.schema_type == AVRO and not wanted.entry.references
    return inlined and catalog.parsed(entry).resolved() == wanted.schema.resolved()


def _same_metadata(wanted: SchemaEntry, entry: SchemaEntry) -> bool:
    ours, theirs = version_property(wanted.metadata), version_property(entry.metadata)
    if (ours is None) == (theirs is None):
        return wanted.metadata == entry.metadata
    if ours is not None and ours != str(entry.version):
        return False
    return with_version_property(wanted.metadata, None) == with_version_property(entry.metadata, None)


def look_up(catalog: Catalog, subject: str, entry: SchemaEntry, normalize: bool, deleted: bool) -> SchemaEntry | None:
    """The stored version with this schema, either unchanged or with the metadata that it would inherit."""
    if not entry.text.strip():
        return None
    config = catalog.state.config_in_scope(subject)
    wanted = canonical(catalog, entry, config, new=False, normalize=normalize)
    found = find(catalog, subject, wanted, deleted)
    latest = catalog.state.latest(subject)
    if found is not None or latest is None:
        return found
    filled = with_settings(config, entry, latest, None)
    if filled.metadata == entry.metadata and filled.rule_set == entry.rule_set:
        return None
    return find(catalog, subject, canonical(catalog, filled, config, new=False, normalize=normalize), deleted)


def look_up_anywhere(
    catalog: Catalog, subject: str, entry: SchemaEntry, normalize: bool, deleted: bool
) -> SchemaEntry | None:
    """Like `look_up`, but searches all contexts for a subject of the default context."""
    found = look_up(catalog, subject, entry, normalize, deleted)
    if found is not None or names.context_of(subject) != DEFAULT_CONTEXT:
        return found
    for context in sorted(catalog.state.named_contexts):
        other = names.context_prefix(context) + subject
        try:
            found = look_up(catalog, other, replace(entry, subject=other, md5=b""), normalize, deleted)
        except errors.RegistryError:
            # It may refer to a schema that this context does not have.
            continue
        if found is not None:
            return found
    return None


def get_version(state: State, subject: str, version: int, deleted: bool) -> SchemaEntry | None:
    """A version, -1 for the latest. Searches all contexts for a subject of the default context."""
    candidates = [subject]
    if names.context_of(subject) == DEFAULT_CONTEXT:
        candidates += [names.context_prefix(context) + subject for context in sorted(state.named_contexts)]
    for candidate in candidates:
        found = state.latest(candidate) if version == -1 else state.version(candidate, version, deleted)
        if found is not None:
            return found
    return None


def require_version(state: State, subject: str, version: int, deleted: bool) -> SchemaEntry:
    found = get_version(state, subject, version, deleted)
    if found is None:
        if not state.has_subject(subject, deleted):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(version)
    return found


def by_id(state: State, id_: int, subject: str) -> SchemaEntry | None:
    """A schema by its id in the context of a subject. The subject is only a hint for finding the context."""
    parsed = names.parse(subject)
    found = _by_id_in(state, id_, subject)
    if found is not None or not parsed.name or parsed.context != DEFAULT_CONTEXT:
        return found
    for context in sorted(state.named_contexts):
        found = _by_id_in(state, id_, names.context_prefix(context) + parsed.name)
        if found is not None:
            return found
    return state.by_id(ContextId(DEFAULT_CONTEXT, id_))


def _by_id_in(state: State, id_: int, subject: str) -> SchemaEntry | None:
    parsed = names.parse(subject)
    if not parsed.name:
        return state.by_id(ContextId(parsed.context, id_))
    context = state.contexts.get(parsed.context)
    version = context.versions.get(id_, {}).get(subject) if context else None
    return None if version is None else state.version(subject, version, deleted=True)


def by_guid(state: State, guid: str) -> list[ContextId]:
    """The ids of a GUID, one per context."""
    try:
        md5 = UUID(guid).bytes
    except ValueError:
        return []
    contexts = [DEFAULT_CONTEXT, *sorted(state.named_contexts)]
    found = ((context, state.id_of(context, md5)) for context in contexts)
    return [ContextId(context, known[0]) for context, known in found if known is not None]


def versions_with_id(state: State, id_: int, subject: str, deleted: bool) -> list[SchemaEntry] | None:
    """The version of each subject that has this id; None if the id is unknown."""
    entry = by_id(state, id_, subject)
    if entry is None:
        return None
    versions = state.contexts[names.context_of(entry.subject)].versions.get(id_, {})
    found = (state.version(name, version, deleted) for name, version in versions.items())
    return sorted((one for one in found if one is not None), key=lambda one: (one.subject, one.version))


def referrers(state: State, subject: str, version: int, deleted: bool) -> list[ContextId]:
    """The schemas that refer to a version; unless `deleted`, only those with a live version."""
    found = state.referrers.get((subject, version), set())
    return sorted(one for one in found if deleted or referring_subjects(state, one, False))


def referring_subjects(state: State, which: ContextId, deleted: bool) -> set[str]:
    context = state.contexts.get(which.context)
    versions = context.versions.get(which.id, {}) if context else {}
    return {name for name, version in versions.items() if state.version(name, version, deleted) is not None}


def with_properties(state: State, subject: str, properties: dict[str, str], deleted: bool) -> SchemaEntry | None:
    """The latest version whose metadata has all these properties."""
    for entry in reversed(state.versions(subject, deleted)):
        own = (entry.metadata or {}).get("properties")
        if own is not None and properties.items() <= own.items():
            return entry
    return None
