"""Registers schemas, and checks whether one could be registered."""

from __future__ import annotations

from dataclasses import replace

from .. import errors, names
from ..catalog import Catalog
from ..compatibility import Candidate, find_problems
from ..entities import SchemaEntry
from ..names import DEFAULT_CONTEXT
from ..records import Config, Record, context_record, schema_record, schema_tombstone
from ..state import ContextId, State
from . import Outcome
from .lookup import IMPORT_MODES, canonical, find, referrers, says_the_same
from .metadata import with_settings

READ_ONLY_MODES = ("READONLY", "READONLY_OVERRIDE")
# The parts of a config that change registered schemas.
CHANGING = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
# A larger record would not fit into a batch of the default size.
MAX_SCHEMA_BYTES = 1_000_000


def check_writable(state: State, subject: str | None) -> None:
    if state.mode_in_scope(subject) in READ_ONLY_MODES:
        context = names.context_prefix(names.context_of(subject))
        raise errors.not_permitted(f"Subject {subject or 'null'} in context {context} is in read-only mode")


def _check_mode(state: State, entry: SchemaEntry) -> None:
    """A request must contain an id when importing, and must not contain one otherwise."""
    check_writable(state, entry.subject)
    mode = state.mode_in_scope(entry.subject)
    where = f"Subject {entry.subject} in context {names.context_prefix(names.context_of(entry.subject))}"
    if entry.id >= 0 and mode not in IMPORT_MODES:
        raise errors.not_permitted(f"{where} is not in import mode")
    if entry.id < 0 and mode != "READWRITE":
        raise errors.not_permitted(f"{where} is not in read-write mode")


def register(catalog: Catalog, entry: SchemaEntry, normalize: bool, force: bool = False) -> Outcome[SchemaEntry]:
    """Register a schema. `id` is -1 and `version` is 0 if the request does not contain them.

    If the subject already has the schema, return the existing version, without comparing or writing anything.
    """
    if len(entry.text) > MAX_SCHEMA_BYTES or len(entry.text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise errors.schema_too_large()
    state = catalog.state
    subject = entry.subject
    config = state.config_in_scope(subject)
    known = _known_already(catalog, config, entry, normalize)
    if known is not None:
        return Outcome(known)
    _check_mode(state, entry)
    importing = state.mode_in_scope(subject) in IMPORT_MODES
    previous = state.versions(subject)
    if not importing:
        entry = _filled(config, entry, previous[-1] if previous else None, _next_version(state, subject))
    check_new = entry.id < 0 and config.get("validateNewSchemas", True)
    candidate = canonical(catalog, entry, config, new=check_new, normalize=normalize)
    found = _existing(catalog, candidate)
    if found is not None:
        return Outcome(found)
    if not importing and not force:
        problems = find_problems(catalog, config, candidate, previous)
        if problems:
            raise errors.incompatible_schema(subject, problems)
    return _write(state, candidate.entry, importing)


def _known_already(catalog: Catalog, config: Config, entry: SchemaEntry, normalize: bool) -> SchemaEntry | None:
    """The existing version of a schema that arrives in its stored form, if no defaults of the config could change it.

    This works in every mode: producers that register known schemas keep working with a read-only registry.
    """
    if not entry.text.strip() or any(config.get(name) for name in CHANGING):
        return None
    wanted = canonical(catalog, entry, config, new=False, normalize=normalize)
    if entry.version == -1:
        latest = catalog.state.latest(entry.subject)
        found = latest if latest is not None and says_the_same(catalog, wanted, latest) else None
    else:
        found = find(catalog, entry.subject, wanted, deleted=False)
    if found is None or entry.id not in (-1, found.id):
        return None
    return found if entry.version in (0, -1) or (entry.id == found.id and entry.version == found.version) else None


def _filled(config: Config, entry: SchemaEntry, previous: SchemaEntry | None, version: int) -> SchemaEntry:
    """The entry with the parts that it inherits from the previous version, including the text if it has none."""
    if not entry.text.strip():
        if previous is None:
            raise errors.invalid_schema("Empty schema")
        entry = replace(
            entry, text=previous.text, schema_type=previous.schema_type, references=previous.references, md5=b""
        )
    return with_settings(config, entry, previous, version)


def _existing(catalog: Catalog, candidate: Candidate) -> SchemaEntry | None:
    """The live version that already has this schema, unless the request contains a version or a different id."""
    if candidate.entry.version != 0:
        return None
    found = find(catalog, candidate.entry.subject, candidate, deleted=False)
    return found if found is not None and candidate.entry.id in (-1, found.id) else None


def _next_version(state: State, subject: str) -> int:
    """One more than the highest version, including soft-deleted ones."""
    return max(state.subjects.get(subject, {}), default=0) + 1


def _write(state: State, entry: SchemaEntry, importing: bool) -> Outcome[SchemaEntry]:
    subject = entry.subject
    context = names.context_of(subject)
    next_version = _next_version(state, subject)
    if entry.version > 0 and entry.version != next_version and not importing:
        raise errors.invalid_schema("Version is not one more than previous version")
    version = entry.version if entry.version > 0 else next_version
    known = state.id_of(context, entry.md5)
    if entry.id >= 0:
        _check_id(state, context, entry)
        id_ = entry.id
    else:
        id_ = known[0] if known is not None else state.next_id(context)
    entry = replace(entry, version=version, id=id_)
    records: list[Record] = []
    if context != DEFAULT_CONTEXT and context not in state.named_contexts:
        records.append(context_record(context))
    for old in state.versions(subject, deleted=True):
        # The same schema, soft deleted under an earlier number: the new version replaces it.
        if old.deleted and old.id == id_ and old.version < version and not referrers(state, subject, old.version, True):
            records.append(schema_tombstone(subject, old.version))
    records.append(schema_record(entry))
    return Outcome(entry, records)


def _check_id(state: State, context: str, entry: SchemaEntry) -> None:
    """An imported id must be unused, or belong to the same schema."""
    known = state.by_id(ContextId(context, entry.id))
    if known is not None and known.md5 != entry.md5:
        where = names.context_prefix(context)
        raise errors.not_permitted(f"Overwrite new schema with id {entry.id} in context {where} is not permitted.")


def test_compatibility(catalog: Catalog, entry: SchemaEntry, previous: list[SchemaEntry], normalize: bool) -> list[str]:
    """The problems that a registration would report, compared with the given versions."""
    config = catalog.state.config_in_scope(entry.subject)
    check_new = bool(config.get("validateNewSchemas", True))
    candidate = canonical(catalog, replace(entry, id=-1), config, new=check_new, normalize=normalize)
    return find_problems(catalog, config, candidate, previous)
