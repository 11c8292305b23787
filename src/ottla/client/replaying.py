"""Replays the clients' side of a recording (`broker.record`) on any broker.

The requests of a connection keep their order. A request is sent when all requests that were answered before it in the
recording are answered again, so concurrent requests stay concurrent. Ids that a broker chooses (member, producer and
topic ids, fetch sessions) are replaced by those of this run. A request that fails because the broker is
still creating a topic, or an internal topic, is sent again, as clients do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.client.connection import Connection, ConnectionLost, open_connection
from ottla.client.routing import parse_bootstrap
from ottla.client.security import Security
from ottla.enums import ApiKey
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    name_of,
)
from ottla.records import message_json
from ottla.records.batch import batches, build_batch
from ottla.wire.messages import REQUESTS
from ottla.wire.schema import Struct

FORMAT: Final = "ottla-requests-1"
DEFAULT_TIMEOUT_S: Final = 30.0
_MADE_UP: Final = {
    "member_id": "member_id",
    "leader": "member_id",
    "generation_id": "generation",
    "generation_id_or_member_epoch": "generation",
    "member_epoch": "generation",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "topic_id": "topic_id",
    "session_id": "session_id",
}
"""Fields with values that a broker chooses and clients send back, with the kind of each value."""
_NO_NAME: Final = frozenset({"", None, -1})
_NO_ANSWER: Final = ["no answer"]
_NOT_YET: Final = frozenset(
    name_of(error.code)
    for error in (
        UnknownTopicOrPartition,
        LeaderNotAvailable,
        NotLeaderOrFollower,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
    )
)
_LOOKUPS: Final = frozenset({"Metadata", "FindCoordinator", "ListOffsets"})
"""Requests that may be sent again even if part of the answer was successful."""
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class Recorded:
    """One request of a recording."""

    number: int
    connection: str
    client_id: str | None
    api: str
    version: int
    started_us: int
    ended_us: int | None
    errors: list[str]
    request: Mapping[str, Any]
    response: Mapping[str, Any] | None


class Difference(NamedTuple):
    """A request whose answer has other errors than in the recording."""

    number: int
    api: str
    recorded: list[str]
    now: list[str]

    def __str__(self) -> str:
        recorded, now = (", ".join(each) or "no error" for each in (self.recorded, self.now))
        return f"request {self.number} ({self.api}): {recorded} in the recording, {now} now"


@dataclass
class Replayed:
    """The result of a replayed recording."""

    requests: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """How many requests got each error in this run, by Kafka's names."""
    differences: list[Difference] = field(default_factory=list)


def read_recording(path: str | PathLike[str]) -> list[Recorded]:
    """The requests of a file, in order of arrival. Raises ValueError if it is not a recording."""
    with Path(path).open(encoding="utf-8") as file:
        try:
            if json.loads(file.readline() or "null") != {"format": FORMAT}:
                raise ValueError
        except ValueError:
            raise ValueError(f"{path} is not a recording of requests: its first line is not {FORMAT}") from None
        found = []
        for number, line in enumerate(file, 2):
            try:
                fields = json.loads(line)
                found.append(Recorded(**{name: fields[name] for name in Recorded.__slots__}))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a request of a recording ({error!r})") from None
    return sorted(found, key=lambda each: (each.started_us, each.number))


async def replay(
    path: str | PathLike[str],
    bootstrap: str,
    *,
    security: Security | None = None,
    client_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Replayed:
    """Send the requests of a recording, or those of one client id, to a broker."""
    recorded = [each for each in read_recording(path) if client_id in (None, each.client_id)]
    host, port = parse_bootstrap(bootstrap)[0]
    player = _Player(recorded, timeout_s)
    try:
        for name in dict.fromkeys(each.connection for each in recorded):
            player.connections[name] = await open_connection(host, port, security or Security())
        await asyncio.gather(*(player.play(name) for name in player.connections))
    finally:
        await asyncio.gather(*(connection.close() for connection in player.connections.values()))
    player.outcome.differences.sort()
    return player.outcome


class _Player:
    def __init__(self, recorded: list[Recorded], timeout_s: float) -> None:
        self.connections: dict[str, Connection] = {}
        self.outcome = Replayed(len(recorded))
        self._recorded = recorded
        self._timeout_s = timeout_s
        self._replaced: dict[tuple[str, Any], Any] = {}
        answered = sorted((each for each in recorded if each.ended_us is not None), key=lambda each: each.ended_us or 0)
        self._order = [each.number for each in answered]
        self._ends_us = [each.ended_us or 0 for each in answered]
        self._done: set[int] = set()
        self._reached = 0
        self._patience_s = _PATIENCE_S  # for all requests together
        self._moved = asyncio.Condition()

    async def play(self, name: str) -> None:
        """Send the requests of one connection, one at a time."""
        connection = self.connections[name]
        for each in self._recorded:
            if each.connection == name:
                await self._wait_for_those_before(each)
                now = await self._send(connection, each)
                if now != each.errors:
                    self.outcome.differences.append(Difference(each.number, each.api, each.errors, now))
                for error in now:
                    self.outcome.errors[error] = self.outcome.errors.get(error, 0) + 1
                async with self._moved:
                    self._done.add(each.number)
                    while self._reached < len(self._order) and self._order[self._reached] in self._done:
                        self._reached += 1
                    self._moved.notify_all()

    async def _wait_for_those_before(self, each: Recorded) -> None:
        before = sum(end_us <= each.started_us for end_us in self._ends_us)
        async with self._moved:
            await self._moved.wait_for(lambda: self._reached >= before)

    async def _send(self, connection: Connection, each: Recorded) -> list[str]:
        """Send a request and return the errors in its answer."""
        request = message_json.from_json(REQUESTS[ApiKey[_upper(each.api)]], self._with_new_names(each.request))
        _renumber_batches(request, self._replaced)
        connection.client_id = each.client_id
        answered = each.ended_us is not None and getattr(request, "acks", None) != 0
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    response = await connection.send(request, each.version, answered=answered)
            except (TimeoutError, ConnectionLost):
                return _NO_ANSWER
            if response is None:
                return []
            fields = message_json.to_json(response, each.version)
            codes = list(_error_codes(fields))
            errors = list(dict.fromkeys(name_of(code) for code in codes if code))
            refused = bool(errors) and (all(codes) or each.api in _LOOKUPS) and _NOT_YET.issuperset(errors)
            if errors == each.errors or not refused or self._patience_s <= 0:
                self._learn(each.response, fields)
                return errors
            self._patience_s -= _PAUSE_S
            await asyncio.sleep(_PAUSE_S)

    def _learn(self, recorded: Any, now: Any, name: str = "") -> None:
        """Remember which id of this run replaces which recorded id."""
        if isinstance(recorded, Mapping) and isinstance(now, Mapping):
            for key in recorded.keys() & now.keys():
                self._learn(recorded[key], now[key], key)
        elif isinstance(recorded, list) and isinstance(now, list):
            for old, new in zip(recorded, now, strict=False):
                self._learn(old, new, name)
        elif name in _MADE_UP and recorded != now and not {recorded, now} & _NO_NAME:
            self._replaced[_MADE_UP[name], recorded] = now

    def _with_new_names(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._with_new_names(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_new_names(item, name) for item in value]
        if isinstance(value, (str, int)) and name in _MADE_UP:
            return self._replaced.get((_MADE_UP[name], value), value)
        return value


def _upper(api: str) -> str:
    """The spelling of a name such as `OffsetCommit` in the enum of the protocol."""
    known = {each.name.replace("_", "").lower(): each.name for each in ApiKey}
    return known[api.lower()]


def _renumber_batches(message: Struct, replaced: Mapping[tuple[str, Any], Any]) -> None:
    """Replace the producer ids in batches of idempotent producers. The checksum covers them, so batches are rebuilt."""
    for part in message.FIELDS:
        value = getattr(message, part.name)
        if part.kind == "records" and value:
            setattr(message, part.name, _renumbered(value, replaced))
        elif part.kind == "struct" and value is not None:
            _renumber_batches(value, replaced)
        elif part.kind == "array" and part.struct is not None:
            for item in value or ():
                _renumber_batches(item, replaced)


def _renumbered(data: bytes, replaced: Mapping[tuple[str, Any], Any]) -> bytes:
    found = list(batches(data))
    ids = {("producer_id", batch.producer_id) for batch in found}
    if not (ids | {("producer_epoch", batch.producer_epoch) for batch in found}) & replaced.keys():
        return data
    return b"".join(
        bytes(
            build_batch(
                list(batch.records()),
                batch.base_offset,
                batch.attributes & 0x07,
                replaced.get(("producer_id", batch.producer_id), batch.producer_id),
                replaced.get(("producer_epoch", batch.producer_epoch), batch.producer_epoch),
                batch.base_sequence,
                transactional=batch.is_transactional,
            )
        )
        for batch in found
    )


def _error_codes(value: Any, name: str = "") -> Iterator[int]:
    """All error codes, including 0 for the parts that succeeded."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _error_codes(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _error_codes(item)
    elif name.endswith("error_code"):
        yield value
