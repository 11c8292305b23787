"""The registry's state: a fold over the records of its topic. Only `replay` changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, NamedTuple

from . import names
from .entities import SchemaEntry
from .names import ANY_CONTEXT_PREFIX, DEFAULT_CONTEXT, GLOBAL_CONTEXT
from .records import (
    AssociationSet,
    Config,
    ConfigSet,
    ContextSet,
    CorruptRecord,
    ModeSet,
    SchemaPut,
    SchemaRemoved,
    StoredRecord,
    SubjectCleared,
    SubjectDeleted,
    read_record,
)  # fmt: skip

DEFAULT_COMPATIBILITY = "BACKWARD"
DEFAULT_MODE = "READWRITE"
GLOBAL_SUBJECT = names.context_prefix(GLOBAL_CONTEXT)


class ContextId(NamedTuple):
    """A schema id and its context."""

    context: str
    id: int


@dataclass(slots=True)
class ContextState:
    """The ids of one context. Each context counts separately, and a schema has the same id in all its subjects."""

    # The highest id ever seen. It never decreases, so no id is assigned twice.
    max_id: int = 0
    # For each id, the version of each subject that has it. Only imports produce several versions; the last one wins.
    versions: dict[int, dict[str, int]] = field(default_factory=dict)
    ids: dict[bytes, int] = field(default_factory=dict)


class State:
    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaEntry]] = {}
        self.contexts: dict[str, ContextState] = {}
        # Contexts with registrations, except the default one.
        self.named_contexts: set[str] = set()
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, str] = {}
        # For each referenced version, the schemas that refer to it.
        self.referrers: dict[tuple[str, int], set[ContextId]] = {}
        self.associations: dict[tuple[str, ...], dict[str, Any]] = {}
        # The offset after the last replayed record.
        self.next_offset = 0

    # The fold.

    def replay(self, record: StoredRecord) -> None:
        """Apply a record. Raises CorruptRecord if it cannot be applied; then it only advances `next_offset`."""
        self.next_offset = max(self.next_offset, record.offset + 1)
        event = read_record(record)
        match event:
            case SchemaPut(entry):
                self._put(entry)
            case SchemaRemoved(subject, version):
                self._remove(subject, version)
            case ConfigSet(subject, config):
                _set(self.configs, subject, config)
            case ModeSet(subject, mode):
                _set(self.modes, subject, mode)
            case SubjectDeleted(subject, version):
                for entry in list(self.subjects.get(subject, {}).values()):
                    if entry.version <= version and not entry.deleted:
                        self.subjects[subject][entry.version] = changed(entry, deleted=True)
            case SubjectCleared(subject):
                self._clear(subject)
            case ContextSet(context, exists):
                if exists:
                    self.named_contexts.add(context)
                else:
                    self.named_contexts.discard(context)
            case AssociationSet(key, value):
                created = self.associations.get(key, {}).get("createTs", record.timestamp)
                stamped = None if value is None else {**value, "createTs": created, "updateTs": record.timestamp}
                _set(self.associations, key, stamped)

    def _put(self, entry: SchemaEntry) -> None:
        context = self.contexts.setdefault(names.context_of(entry.subject), ContextState())
        known = self.by_id(ContextId(names.context_of(entry.subject), entry.id))
        if known is not None and known.text != entry.text:
            raise CorruptRecord(f"schema id {entry.id} belongs to another schema already, in {known.subject}")
        self._forget(entry.subject, entry.version)
        self.subjects.setdefault(entry.subject, {})[entry.version] = entry
        context.max_id = max(context.max_id, entry.id)
        context.versions.setdefault(entry.id, {})[entry.subject] = entry.version
        context.ids[entry.md5] = entry.id
        for target in self.targets(entry):
            self.referrers.setdefault(target, set()).add(ContextId(names.context_of(entry.subject), entry.id))

    def _remove(self, subject: str, version: int) -> None:
        self._forget(subject, version)
        versions = self.subjects.get(subject, {})
        versions.pop(version, None)
        if not versions:
            self.subjects.pop(subject, None)

    def _forget(self, subject: str, version: int) -> None:
        """Remove a version from all indexes, but keep the version itself."""
        entry = self.subjects.get(subject, {}).get(version)
        if entry is None:
            return
        place = names.context_of(subject)
        versions = self.contexts[place].versions.get(entry.id, {})
        if versions.get(subject) == version:
            del versions[subject]
        if versions:
            return
        self.contexts[place].versions.pop(entry.id, None)
        for target in self.targets(entry):
            referrers = self.referrers.get(target, set())
            referrers.discard(ContextId(place, entry.id))
            if not referrers:
                self.referrers.pop(target, None)

    def _clear(self, subject: str | None) -> None:
        gone = [
            (entry.subject, entry.version)
            for name in self.matching(subject)
            for entry in self.subjects[name].values()
            if entry.deleted
        ]
        for name, version in gone:
            self._remove(name, version)

    # Schemas.

    def targets(self, entry: SchemaEntry) -> list[tuple[str, int]]:
        """The versions that a schema refers to."""
        return [(names.beside(entry.subject, one.subject), one.version) for one in entry.references]

    def by_id(self, which: ContextId) -> SchemaEntry | None:
        context = self.contexts.get(which.context)
        versions = context.versions.get(which.id) if context else None
        if not versions:
            return None
        subject, version = next(iter(versions.items()))
        return self.subjects[subject][version]

    def id_of(self, context: str, md5: bytes) -> tuple[int, dict[str, int]] | None:
        """The id of a schema in a context, and the version in each subject that has it."""
        known = self.contexts.get(context)
        found = known.ids.get(md5) if known else None
        versions = known.versions.get(found) if known and found is not None else None
        return None if found is None or not versions else (found, versions)

    def next_id(self, context: str) -> int:
        known = self.contexts.get(context)
        return known.max_id + 1 if known else 1

    def skip_ids(self, context: str, last: int) -> None:
        """Never assign ids up to this one: a write failed, and its records may be in the log."""
        known = self.contexts.setdefault(context, ContextState())
        known.max_id = max(known.max_id, last)

    def version(self, subject: str, version: int, deleted: bool = False) -> SchemaEntry | None:
        entry = self.subjects.get(subject, {}).get(version)
        return entry if entry is not None and (deleted or not entry.deleted) else None

    def versions(self, subject: str, deleted: bool = False) -> list[SchemaEntry]:
        """The versions of a subject, oldest first."""
        entries = self.subjects.get(subject, {})
        return [entries[number] for number in sorted(entries) if deleted or not entries[number].deleted]

    def latest(self, subject: str) -> SchemaEntry | None:
        return max(self.versions(subject), key=lambda entry: entry.version, default=None)

    def has_subject(self, subject: str, deleted: bool) -> bool:
        return any(deleted or not entry.deleted for entry in self.subjects.get(subject, {}).values())

    def matching(self, subject: str | None) -> list[str]:
        """One subject, all subjects of a context if the argument is a context, or all subjects if it is None."""
        if subject is None or subject == GLOBAL_SUBJECT:
            return list(self.subjects)
        parsed = names.parse(subject)
        if parsed.name:
            return [subject] if subject in self.subjects else []
        return [name for name in self.subjects if names.context_of(name) == parsed.context]

    def with_prefix(self, prefix: str) -> Iterator[str]:
        """Subjects by prefix, sorted. `:*:` before the prefix searches all contexts; otherwise only the default one."""
        everywhere = prefix.startswith(ANY_CONTEXT_PREFIX)
        wanted = prefix[len(ANY_CONTEXT_PREFIX) :] if everywhere else names.normalize(prefix)
        for subject in sorted(self.subjects):
            if everywhere:
                if names.parse(subject).name.startswith(wanted):
                    yield subject
            elif subject.startswith(wanted) and (wanted.startswith(":") or not subject.startswith(":.")):
                yield subject

    # Settings: the subject's own, then its context's, then those for all contexts.

    def config(self, subject: str | None) -> Config | None:
        """The config of exactly this subject or context. The global one always has a config."""
        config = self.configs.get(subject)
        if config is None:
            return {"compatibilityLevel": DEFAULT_COMPATIBILITY} if subject in (None, GLOBAL_SUBJECT) else None
        return {"compatibilityLevel": DEFAULT_COMPATIBILITY, **config}

    def config_in_scope(self, subject: str | None) -> Config:
        own = self.configs.get(subject)
        if own is not None and subject is not None:
            # A subject with a config inherits no metadata, rules or aliases; the rest falls back to the global config.
            shared = {name: value for name, value in (self.config(None) or {}).items() if name in INHERITED}
            return {"compatibilityLevel": DEFAULT_COMPATIBILITY, **shared, **own}
        for scope in self._scopes(subject):
            if scope in self.configs:
                return {"compatibilityLevel": DEFAULT_COMPATIBILITY, **self.configs[scope]}
        return {"compatibilityLevel": DEFAULT_COMPATIBILITY}

    def mode(self, subject: str | None) -> str | None:
        return self.modes.get(subject, DEFAULT_MODE if subject in (None, GLOBAL_SUBJECT) else None)

    def mode_in_scope(self, subject: str | None) -> str:
        # None is a scope too, but only that of the default context.
        modes = (self.modes[scope] for scope in (subject, *self._scopes(subject)) if scope in self.modes)
        return next(modes, DEFAULT_MODE)

    def _scopes(self, subject: str | None) -> tuple[str | None, ...]:
        context = names.context_of(subject)
        return (None if context == DEFAULT_CONTEXT else names.context_prefix(context), GLOBAL_SUBJECT)


# The fields that a subject's config inherits from the global one.
INHERITED = (
    "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibilityPolicy", "compatibilityGroup",
)  # fmt: skip


def _set(where: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value
