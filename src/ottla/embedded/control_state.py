"""The part of the HTTP control that has state: snapshots, branches and recordings, by number."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.http.requests import HttpError

if TYPE_CHECKING:
    from ottla.embedded.broker import Broker
    from ottla.embedded.recording import Recording
    from ottla.embedded.snapshots import Snapshot


class KeptState:
    """Objects that programs created over HTTP and may use again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = count(1)
        self._snapshots: dict[int, Snapshot] = {}
        self._branches: dict[int, Broker] = {}
        self._recordings: dict[int, Recording] = {}

    async def snapshots(self, method: str, parts: list[str]) -> Any:
        """POST /snapshots, POST /snapshots/1/restore, DELETE /snapshots/1."""
        if not parts:
            _only(method, "POST")
            number = next(self._numbers)
            self._snapshots[number] = self._broker.snapshot()
            return {"snapshot": number}
        state = _found(self._snapshots, parts[0], "snapshot")
        if parts[1:] == ["restore"]:
            _only(method, "POST")
            await self._broker.restore(state)
            return {"bootstrap": self._broker.bootstrap}
        _only(method, "DELETE")
        state.close()
        del self._snapshots[int(parts[0])]
        return {}

    async def branches(self, method: str, parts: list[str], options: dict[str, Any]) -> Any:
        """POST /branches, DELETE /branches/1."""
        if not parts:
            _only(method, "POST")
            branch = self._broker.branch(options.get("data"))
            await branch.start()
            number = next(self._numbers)
            self._branches[number] = branch
            return {"branch": number, "bootstrap": branch.bootstrap, "control": branch.control_url}
        _only(method, "DELETE")
        await _found(self._branches, parts[0], "branch").stop()
        del self._branches[int(parts[0])]
        return {}

    async def recordings(self, method: str, parts: list[str], options: dict[str, Any]) -> Any:
        """POST /recordings {"path": "run.jsonl"}, DELETE /recordings/1."""
        if not parts:
            _only(method, "POST")
            if "path" not in options:
                raise HttpError(400, 'name the file: {"path": "run.jsonl"}')
            number = next(self._numbers)
            recording = self._recordings[number] = self._broker.record(options["path"])
            return {"recording": number, "path": recording.path}
        _only(method, "DELETE")
        recording = _found(self._recordings, parts[0], "recording")
        recording.stop()
        del self._recordings[int(parts[0])]
        return {"path": recording.path, "requests": recording.count}

    async def close(self) -> None:
        """Stop the branches and release the snapshots."""
        for branch in self._branches.values():
            await branch.stop()
        for state in self._snapshots.values():
            state.close()
        self._branches.clear()
        self._snapshots.clear()


def _found(kept: dict[int, Any], number: str, what: str) -> Any:
    if not number.isdigit() or int(number) not in kept:
        raise HttpError(404, f"there is no {what} {number}; the numbers are {', '.join(map(str, kept)) or 'none'}")
    return kept[int(number)]


def _only(method: str, allowed: str) -> None:
    if method != allowed:
        raise HttpError(405, f"{method} is not possible here; use {allowed}")
