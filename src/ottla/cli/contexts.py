"""Saved contexts: names for clusters in a user's file, instead of --bootstrap and --client-config."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

CONTEXT_VARIABLE: Final = "OTTLA_CONTEXT"


class ContextError(Exception):
    """The file of contexts is damaged or cannot be written, or a context does not exist."""


class Context(NamedTuple):
    bootstrap: str
    client_config: str | None = None


class Contexts(NamedTuple):
    current: str | None
    known: dict[str, Context]


def contexts_path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(folder) if folder else Path.home() / ".config") / "ottla" / "contexts.json"
    except RuntimeError:  # a user without a home folder, such as a numeric user id in a container
        raise ContextError("you have no home folder: set XDG_CONFIG_HOME to the folder for contexts") from None


def load_contexts() -> Contexts:
    try:
        path = contexts_path()
    except ContextError:
        return Contexts(None, {})
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return Contexts(found["current"], {name: Context(**fields) for name, fields in found["contexts"].items()})
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Contexts(None, {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContextError(f"{path} is damaged ({error}); repair or remove it") from None


def save_contexts(contexts: Contexts) -> None:
    path = contexts_path()
    fields = {name: context._asdict() for name, context in sorted(contexts.known.items())}
    written = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps({"current": contexts.current, "contexts": fields}, indent=2) + "\n")
        written.replace(path)
    except OSError as error:
        raise ContextError(
            f"{path} cannot be written ({error.strerror}); set XDG_CONFIG_HOME to a folder that can"
        ) from None


def current_context() -> Context | None:
    """The context of $OTTLA_CONTEXT or of `ottla context use`, or None."""
    named = os.environ.get(CONTEXT_VARIABLE)
    contexts = load_contexts()
    name = named or contexts.current
    if name is None:
        return None
    if name not in contexts.known:
        raise ContextError(f"there is no context '{name}'; `ottla context list` shows those that exist")
    return contexts.known[name]
