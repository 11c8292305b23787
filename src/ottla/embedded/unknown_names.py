"""Errors for names that a broker does not know: the test has a typo, or its application never ran."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_MAX = 10


class NotFoundError(LookupError):
    """There is no such topic or group; the message lists the existing ones."""


def unknown_topic(name: str, known: Iterable[str]) -> NotFoundError:
    return NotFoundError(f"there is no topic {name!r}; {_existing('topics', name, known)}")


def unknown_group(group_id: str, known: Iterable[str]) -> NotFoundError:
    return NotFoundError(f"there is no group {group_id!r}; {_existing('groups', group_id, known)}")


def no_commits(group_id: str, known: Iterable[str]) -> NotFoundError:
    """The reason why the lag of a group is unknown."""
    groups = sorted(known)
    why = (
        f"group {group_id!r} has not committed an offset yet"
        if group_id in groups
        else f"there is no group {group_id!r} ({_existing('groups', group_id, groups)})"
    )
    return NotFoundError(
        f"{why}, so its lag is not known: wait for its first commit, "
        "or use lag(of=topic), which counts every record of the topic that the group has not read"
    )


def _existing(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if not names:
        return f"there are no {what}"
    shown = ", ".join(names[:_SHOWN_MAX]) + (", …" if len(names) > _SHOWN_MAX else "")
    close = get_close_matches(name, names, n=1)
    return f"the {what} are {shown}" + (f"; did you mean {close[0]!r}?" if close else "")
