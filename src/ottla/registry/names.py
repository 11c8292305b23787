"""Subjects and contexts: a qualified subject is `:.context:name`, a plain name is in the default context `.`."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."
# Its config and mode apply to every context that does not have its own.
GLOBAL_CONTEXT = ".__GLOBAL"
ANY_CONTEXT = "*"
ANY_CONTEXT_PREFIX = ":*:"
# Names with a special meaning in Confluent's permissions.
RESERVED_NAMES = ("__GLOBAL", "__EMPTY")


class QualifiedSubject(NamedTuple):
    """The parts of a subject. An empty name means the context itself."""

    context: str
    name: str

    @property
    def qualified(self) -> str:
        return context_prefix(self.context) + self.name

    @property
    def is_default_context(self) -> bool:
        return self.context == DEFAULT_CONTEXT and not self.name


def parse(subject: str) -> QualifiedSubject:
    """Split a subject. Text that does not start like a context is always a name."""
    if subject.startswith(":."):
        context, _, name = subject[1:].partition(":")
        return QualifiedSubject(context, name)
    if subject.startswith(ANY_CONTEXT_PREFIX):
        return QualifiedSubject(ANY_CONTEXT, subject[len(ANY_CONTEXT_PREFIX) :])
    return QualifiedSubject(DEFAULT_CONTEXT, subject)


def normalize(subject: str) -> str:
    """The canonical spelling of a subject: the default context is never written."""
    return parse(subject).qualified if subject.startswith(":") else subject


def context_of(subject: str | None) -> str:
    return parse(subject).context if subject and subject.startswith(":") else DEFAULT_CONTEXT


def context_prefix(context: str) -> str:
    """The prefix of a context's subjects; empty for the default context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def beside(subject: str, other: str) -> str:
    """Resolve `other` relative to `subject`: without a context it is in the context of `subject`."""
    parsed = parse(other)
    if parsed.context != DEFAULT_CONTEXT:
        return parsed.qualified
    return context_prefix(context_of(subject)) + parsed.name


def context_from_path(text: str) -> str | None:
    """The context in a path, with a missing dot or extra colons fixed; None if it is not valid."""
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        return None
    return name if name.startswith(".") else f".{name}"


def is_valid(subject: str, for_settings: bool = False) -> bool:
    """Whether a subject may have schemas or, with `for_settings`, a config and a mode."""
    if any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in subject):
        return False
    parsed = parse(subject)
    if parsed.name in RESERVED_NAMES:
        return False
    return for_settings or parsed.context != GLOBAL_CONTEXT
