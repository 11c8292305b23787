"""Config and mode: global, per context, or per subject."""

from __future__ import annotations

from typing import Any

from .. import errors, names
from ..compatibility import POLICIES, level_of
from ..entities import check_rule_set
from ..names import DEFAULT_CONTEXT, GLOBAL_CONTEXT
from ..records import Config, clear_subject_record, config_record, mode_record, read_config, schema_tombstone
from ..state import State
from . import Outcome
from .lookup import referrers
from .register import check_writable

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


def setting_subject(subject: str | None) -> str | None:
    """The subject that settings are stored under: None, the global one, for the default context."""
    if subject is None or names.parse(subject).is_default_context:
        return None
    return names.normalize(subject)


def update_config(state: State, subject: str | None, request: dict[str, Any]) -> Outcome[Config]:
    """Change the settings in the request and keep the others."""
    check_writable(state, subject)
    named = {("compatibilityLevel" if name == "compatibility" else name): value for name, value in request.items()}
    try:
        given = read_config(named)
    except (ValueError, TypeError, AttributeError) as error:
        raise errors.bad_request(f"The config cannot be read: {error}") from error
    if "compatibilityLevel" in given:
        level = level_of(given["compatibilityLevel"])
        if level is None:
            raise errors.invalid_compatibility_level()
        given["compatibilityLevel"] = level
    if "compatibilityPolicy" in given:
        given["compatibilityPolicy"] = given["compatibilityPolicy"].upper()
        if given["compatibilityPolicy"] not in POLICIES:
            raise errors.bad_request(f"Invalid compatibility policy. Valid values are {', '.join(POLICIES)}")
    check_rule_set(given.get("defaultRuleSet"))
    check_rule_set(given.get("overrideRuleSet"))
    removed = {name for name, value in named.items() if value is None}
    kept = {name: value for name, value in state.configs.get(subject, {}).items() if name not in removed}
    config = {**kept, **given}
    return Outcome(config, [config_record(subject, config)])


def delete_config(state: State, subject: str | None) -> Outcome[Config]:
    """Remove a config and return it."""
    config = state.config(subject)
    if config is None:
        raise errors.subject_not_found(subject or "")
    check_writable(state, subject)
    return Outcome(config, [config_record(subject, None)] if subject in state.configs else [])


def update_mode(state: State, subject: str | None, mode: str | None, force: bool) -> Outcome[str | None]:
    """Set the mode, or remove it if it is None. IMPORT is refused if there are live schemas, unless forced."""
    if mode is not None:
        mode = mode.upper()
        if mode not in MODES:
            raise errors.invalid_mode()
    if mode == "FORWARD" and names.context_of(subject) != GLOBAL_CONTEXT:
        raise errors.invalid_mode("Forward mode only supported on global level")
    records = []
    if mode == "IMPORT" and state.mode_in_scope(subject) != "IMPORT" and not force:
        matching = state.matching(subject)
        if any(state.has_subject(name, deleted=False) for name in matching):
            raise errors.not_permitted("Cannot import since found existing subjects")
        for name in matching:
            for entry in state.versions(name, deleted=True):
                if referrers(state, name, entry.version, True):
                    raise errors.reference_exists(name, entry.version)
                records.append(schema_tombstone(name, entry.version))
        records.append(clear_subject_record(subject))
    if mode is not None or subject in state.modes:
        records.append(mode_record(subject, mode))
    return Outcome(mode, records)


def delete_mode(state: State, subject: str | None, recursive: bool) -> Outcome[str | None]:
    """Remove a mode; if `recursive`, also the modes of all subjects in the context."""
    mode = state.mode(subject)
    if mode is None and not recursive:
        raise errors.subject_not_found(subject or "")
    records = [mode_record(subject, None)] if subject in state.modes else []
    is_context = subject is None or not names.parse(subject).name
    if recursive and is_context:
        context = names.context_of(subject) if subject is not None else DEFAULT_CONTEXT
        inner = [name for name in state.modes if name is not None and name != subject]
        records += [mode_record(name, None) for name in sorted(inner) if names.context_of(name) == context]
    return Outcome(mode, records)
