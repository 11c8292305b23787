"""Deletes versions and subjects, first softly and then permanently, and empty contexts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .. import errors, names
from ..records import (
    Record,
    association_record,
    config_record,
    context_record,
    delete_subject_record,
    mode_record,
    schema_record,
    schema_tombstone,
)  # fmt: skip
from ..state import State
from . import Outcome
from .lookup import referrers, referring_subjects
from .register import check_writable


def delete_version(state: State, subject: str, version: int, permanent: bool) -> Outcome[int]:
    """Delete one version; -1 is the latest."""
    if version != -1 and not permanent:
        entry = state.version(subject, version, deleted=True)
        if entry is not None and entry.deleted:
            raise errors.version_soft_deleted(subject, version)
    entry = state.latest(subject) if version == -1 else state.version(subject, version, deleted=True)
    if entry is None:
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(version)
    check_writable(state, subject)
    version = entry.version
    if not permanent and _associations(state, subject) and len(state.versions(subject)) == 1:
        raise errors.no_active_version(subject)
    if referrers(state, subject, version, permanent):
        raise errors.reference_exists(subject, version)
    if not permanent:
        return Outcome(version, [schema_record(replace(entry, deleted=True))])
    if not entry.deleted:
        raise errors.version_not_soft_deleted(subject, version)
    records = [schema_tombstone(subject, version)]
    if len(state.subjects[subject]) == 1:
        records += _settings_tombstones(state, subject)
    return Outcome(version, records)


def delete_subject(state: State, subject: str, permanent: bool) -> Outcome[list[int]]:
    if not state.has_subject(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not state.has_subject(subject, deleted=False):
        raise errors.subject_soft_deleted(subject)
    check_writable(state, subject)
    if _associations(state, subject):
        raise errors.association_exists_for_subject(subject)
    entries = state.versions(subject, deleted=permanent)
    for entry in entries:
        others = {
            name
            for which in referrers(state, subject, entry.version, True)
            for name in referring_subjects(state, which, permanent)
        }
        if others - {subject}:
            raise errors.reference_exists(subject, entry.version)
        if permanent and not entry.deleted:
            raise errors.subject_not_soft_deleted(subject)
    versions = [entry.version for entry in entries]
    if not permanent:
        return Outcome(versions, [delete_subject_record(subject, versions[-1])])
    # Newest first, because versions of a subject may refer to earlier ones.
    records = [schema_tombstone(subject, version) for version in reversed(versions)]
    return Outcome(versions, records + _settings_tombstones(state, subject))


def purge(state: State, subjects: Iterable[str]) -> list[Record]:
    """The records that remove subjects with everything that belongs to them. Not available to clients."""
    records: list[Record] = []
    for subject in subjects:
        records += [
            schema_tombstone(subject, version) for version in sorted(state.subjects.get(subject, ()), reverse=True)
        ]
        records += _settings_tombstones(state, subject)
        records += [association_record(key, None) for key in _associations(state, subject)]
    return records


def delete_context(state: State, context: str) -> Outcome[None]:
    """Delete a context that no longer has any subjects."""
    if any(names.context_of(subject) == context for subject in state.subjects):
        raise errors.context_not_empty(names.context_prefix(context))
    return Outcome(None, [context_record(context, exists=False)] if context in state.named_contexts else [])


def _settings_tombstones(state: State, subject: str) -> list[Record]:
    records = [mode_record(subject, None)] if subject in state.modes else []
    return records + ([config_record(subject, None)] if subject in state.configs else [])


def _associations(state: State, subject: str) -> list[tuple[str, ...]]:
    """The keys of a subject's associations."""
    return [key for key, value in state.associations.items() if value.get("subject", key[-1]) == subject]
