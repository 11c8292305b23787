"""/subjects and /compatibility: list, register, look up, delete and compare versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import errors, names
from ..errors import RegistryError
from ..operations import Outcome
from ..operations.delete import delete_subject, delete_version
from ..operations.lookup import look_up_anywhere, referrers, require_version, with_properties
from ..operations.register import register, test_compatibility
from .bodies import describe, read_schema, registered
from .http import Call


def _normalize(call: Call, subject: str) -> bool:
    return call.flag("normalize") or bool(call.state.config_in_scope(subject).get("normalize"))


def list_subjects(call: Call) -> Outcome[Any]:
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    prefix = call.text("subjectPrefix", names.ANY_CONTEXT_PREFIX)
    found = [
        subject
        for subject in call.state.with_prefix(prefix)
        if (not call.state.has_subject(subject, False) if deleted_only else call.state.has_subject(subject, deleted))
    ]
    return Outcome(call.page(found))


def look_up(call: Call) -> Outcome[Any]:
    subject = call.subject
    entry = replace(read_schema(call, subject), id=-1)
    found = look_up_anywhere(call.catalog, subject, entry, _normalize(call, subject), call.flag("deleted"))
    if found is None:
        if not call.state.has_subject(subject, call.flag("deleted")):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()
    return Outcome(describe(call, found))


def remove_subject(call: Call) -> Outcome[Any]:
    return delete_subject(call.state, call.subject, call.flag("permanent"))


def get_with_metadata(call: Call) -> Outcome[Any]:
    subject, deleted = call.subject, call.flag("deleted")
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    found = with_properties(call.state, subject, wanted, deleted)
    if found is None:
        if not call.state.has_subject(subject, deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()
    return Outcome(describe(call, found))


def list_versions(call: Call) -> Outcome[Any]:
    subject = call.subject
    deleted, deleted_only, negative = call.flag("deleted"), call.flag("deletedOnly"), call.flag("deletedAsNegative")
    if not call.state.has_subject(subject, deleted or deleted_only):
        raise errors.subject_not_found(subject)
    entries = call.state.versions(subject, deleted=deleted or deleted_only or negative)
    if negative:
        return Outcome(call.page([-entry.version if entry.deleted else entry.version for entry in entries]))
    return Outcome(call.page([entry.version for entry in entries if entry.deleted or not deleted_only]))


def register_version(call: Call) -> Outcome[Any]:
    subject = call.subject
    if not names.is_valid(subject):
        raise errors.invalid_subject(subject)
    outcome = register(call.catalog, read_schema(call, subject), _normalize(call, subject), call.flag("force"))
    return Outcome(registered(call, outcome.answer), outcome.records)


def get_version(call: Call) -> Outcome[Any]:
    entry = require_version(call.state, call.subject, call.version, call.flag("deleted"))
    return Outcome(describe(call, entry))


def get_version_text(call: Call) -> Outcome[Any]:
    entry = require_version(call.state, call.subject, call.version, call.flag("deleted"))
    return Outcome(call.catalog.formatted(entry, call.text("format")))


def get_referrers(call: Call) -> Outcome[Any]:
    entry = require_version(call.state, call.subject, call.version, True)
    found = referrers(call.state, entry.subject, entry.version, call.flag("deleted"))
    return Outcome(call.page([one.id for one in found]))


def remove_version(call: Call) -> Outcome[Any]:
    return delete_version(call.state, call.subject, call.version, call.flag("permanent"))


def check_version(call: Call) -> Outcome[Any]:
    """Compare with one version. If the subject has no latest version, everything is compatible."""
    subject, version = call.subject, call.version
    entry = call.state.latest(subject) if version == -1 else call.state.version(subject, version)
    if entry is None and version != -1:
        raise errors.version_not_found(version)
    return _compared(call, subject, [] if entry is None else [entry])


def check_subject(call: Call) -> Outcome[Any]:
    """Compare with the same versions as a registration would."""
    return _compared(call, call.subject, call.state.versions(call.subject))


def _compared(call: Call, subject: str, previous: list[Any]) -> Outcome[Any]:
    verbose = call.flag("verbose")
    entry = read_schema(call, subject)
    try:
        problems = test_compatibility(call.catalog, entry, previous, _normalize(call, subject))
    except RegistryError as error:
        if not verbose or error.code != errors.INVALID_SCHEMA:
            raise
        problems = [error.message]
    return Outcome({"is_compatible": not problems, **({"messages": problems} if verbose else {})})
