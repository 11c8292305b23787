"""The rights of each user, by prefixes of subject names.

The rights are `read:orders-`, `write:orders-` (register) and `manage:orders-` (delete, and change settings), each of
which includes the previous one, and `admin` for everything. A right without a prefix applies to all subjects. Rights of
the user `*` apply to everyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from . import names
from .errors import RegistryError
from .operations.lookup import by_id, require_version

if TYPE_CHECKING:
    from .rest.http import Call
    from .rest.routes import Match

READ, WRITE, MANAGE, ADMIN = "read", "write", "manage", "admin"
_LEVELS: Final = {READ: 1, WRITE: 2, MANAGE: 3}
EVERYBODY: Final = "*"
_LISTS: Final = ("list_subjects", "list_schemas", "get_subjects", "get_versions")
_OPEN: Final = ("get_root", "get_types", "get_cluster_id", "get_server_version", "get_deployment", "list_contexts")


class Rights:
    """The rights of all users. Raises ValueError for an unknown right."""

    def __init__(self, by_user: Mapping[str, Iterable[str]]) -> None:
        self._admins: set[str] = set()
        self._prefixes: dict[str, list[tuple[int, str]]] = {}
        for user, rights in by_user.items():
            for right in rights:
                word, _, prefix = right.partition(":")
                if right == ADMIN:
                    self._admins.add(user)
                elif word in _LEVELS:
                    self._prefixes.setdefault(user, []).append((_LEVELS[word], prefix.removesuffix("*")))
                else:
                    raise ValueError(
                        f"{right!r} is not a right: write read:PREFIX, write:PREFIX, manage:PREFIX or admin"
                    )

    def may(self, user: str, what: str, subject: str) -> bool:
        """Whether a user may do this to a subject."""
        return self._is_admin(user) or any(
            level >= _LEVELS[what] and subject.startswith(prefix)
            for name in (user, EVERYBODY)
            for level, prefix in self._prefixes.get(name, ())
        )

    def _is_admin(self, user: str) -> bool:
        return user in self._admins or EVERYBODY in self._admins

    def check(self, user: str, found: Match, call: Call) -> None:
        """Refuse a request that the user may not make. Lists are always allowed; `visible` filters them."""
        route, name = found.route, found.route.handler.__name__
        if name in _LISTS or name in _OPEN or self._is_admin(user):
            return
        if "id" in found.params or "guid" in found.params:
            return  # `visible` checks the subjects
        what = _level(found)
        subject = found.params.get("subject")
        if subject is not None:
            # Settings belong to an alias itself, schemas to its target.
            aliased = route.path.startswith(("/subjects", "/compatibility"))
            subject = call.aliased(subject) if aliased else names.normalize(subject)
            self._need(user, what, subject)
            for referenced in _referenced(subject, call.body):
                self._need(user, READ, referenced)
        elif route.path.startswith("/associations") and isinstance(call.body, dict):
            for each in call.body.get("associations") or ():
                self._need(user, WRITE, str(each.get("subject")) if isinstance(each, dict) else "")
        elif route.writes:
            raise _denied("manage", "the whole registry")

    def _need(self, user: str, what: str, subject: str) -> None:
        if not self.may(user, what, subject):
            raise _denied(what, f"Subject: {subject}")

    def visible(self, user: str, found: Match, call: Call, answer: Any) -> Any:
        """The answer, restricted to what the user may read."""
        if self._is_admin(user):
            return answer
        name = found.route.handler.__name__
        if name in ("list_subjects", "get_subjects"):
            return [subject for subject in answer if self.may(user, READ, subject)]
        if name in ("list_schemas", "get_versions"):
            return [each for each in answer if self.may(user, READ, each["subject"])]
        if name in ("get_by_id", "get_text_by_id") and not self._reads_id(user, call):
            raise _denied(READ, f"Schema: {call.id}")
        # A plain subject may have been found in another context.
        if name in ("get_version", "look_up"):
            self._need(user, READ, answer["subject"])
        if name in ("get_version_text", "get_referrers"):
            self._need(user, READ, require_version(call.state, call.subject, call.version, True).subject)
        if name in ("get_by_guid", "get_ids_by_guid") and not self._reads_guid(user, call):
            raise _denied(READ, f"Schema: {found.params['guid']}")
        return answer

    def _reads_id(self, user: str, call: Call) -> bool:
        entry = by_id(call.state, call.id, call.aliased(call.text("subject")))
        known = call.state.contexts.get(names.context_of(entry.subject)) if entry is not None else None
        return any(self.may(user, READ, subject) for subject in (known.versions.get(call.id, ()) if known else ()))

    def _reads_guid(self, user: str, call: Call) -> bool:
        guid = call.params["guid"].lower()
        return any(
            entry.guid == guid and self.may(user, READ, subject)
            for subject, versions in call.state.subjects.items()
            for entry in versions.values()
        )


def _referenced(subject: str, body: Any) -> Iterator[str]:
    """The subjects that the schema of a request refers to. Using a schema requires the right to read it."""
    for each in (body.get("references") if isinstance(body, dict) else None) or ():
        if isinstance(each, dict) and isinstance(each.get("subject"), str):
            yield names.beside(subject, each["subject"])


def _level(found: Match) -> str:
    if not found.route.writes:
        return READ
    return WRITE if found.route.handler.__name__ == "register_version" else MANAGE


def _denied(what: str, on: str) -> RegistryError:
    return RegistryError(403, 40301, f"User is denied operation {what.capitalize()} on {on}")
