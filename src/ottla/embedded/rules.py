"""When a fault fires: which requests it matches, and which of them it hits."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

from ottla.enums import ApiKey
from ottla.errors import BY_CODE, KafkaError, name_of
from ottla.server import request_contents as contents
from ottla.server.request_contents import Target

if TYPE_CHECKING:
    from ottla.server.api import Api, RequestContext
    from ottla.wire.schema import Message

Times: TypeAlias = int | Literal["every"] | None
Apis: TypeAlias = str | Sequence[str]
Versions: TypeAlias = int | str | None


class NamedTopic(Protocol):
    """A handle on a topic; `str` of it is the topic's name."""

    name: str


class NamedGroup(Protocol):
    """A handle on a group; `str` of it is the group's id."""

    group_id: str


TopicName: TypeAlias = str | NamedTopic
GroupName: TypeAlias = str | NamedGroup


class Turns(TypedDict, total=False):
    """Which of the matching requests a fault hits."""

    times: Times
    after: int
    chance: float
    seed: int


class Targets(Turns, total=False):
    """Which topics and partitions of requests it matches."""

    client_id: str | None
    topic: TopicName | None
    partition: int | None


class Conditions(Targets, total=False):
    """All conditions of a fault on requests."""

    version: Versions
    group: GroupName | None
    transactional_id: str | None


EVERY: Final = "every"
_ANY_API: Final = "*"


def named(given: TopicName | GroupName | None) -> str | None:
    """The name of a topic or group that a test passes as text or as a handle."""
    return None if given is None else str(given)


def error_of(error: str | int | KafkaError | type[KafkaError]) -> KafkaError:
    """An error by its class, its name in Kafka, or its code."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, type) and issubclass(error, KafkaError):
        return error()
    if isinstance(error, int):
        if error in BY_CODE:
            return BY_CODE[error]()
        raise ValueError(f"{error} is not one of Kafka's error codes; see docs/faults.md or `ottla.errors`")
    by_name = {name_of(code): kind for code, kind in BY_CODE.items()}
    if isinstance(error, str) and error.upper() in by_name:
        return by_name[error.upper()]()
    close = get_close_matches(str(error).upper(), by_name, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; use a name such as NOT_LEADER_OR_FOLLOWER"
    raise ValueError(f"{error!r} is not one of Kafka's errors{hint}")


@dataclass(frozen=True, slots=True)
class Where:
    """Which requests a fault matches. None matches everything."""

    apis: frozenset[int] | None = None
    versions: tuple[int, int] = (-1, 1 << 15)
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None

    @classmethod
    def of(
        cls,
        served: Iterable[Api],
        api: Apis,
        *,
        version: Versions = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        partition: int | None = None,
        group: GroupName | None = None,
        transactional_id: str | None = None,
    ) -> Where:
        """Check the options against the APIs that the broker serves: a fault that can never match is a mistake."""
        by_name = {each.name.lower(): each for each in served}
        chosen = list(by_name.values()) if api == _ANY_API else [_api(name, by_name) for name in _as_list(api)]
        if not chosen:
            raise ValueError("name at least one API, or '*' for all of them")
        if partition is not None and topic is None:
            raise ValueError("partition= needs the topic= that it belongs to")
        low, high = _versions(version)
        if not any(low <= each.max_version and high >= each.min_version for each in chosen):
            ranges = ", ".join(f"{each.name} {each.min_version} to {each.max_version}" for each in chosen)
            raise ValueError(f"version={version!r} matches no request: the broker serves {ranges}")
        if api != _ANY_API:
            requests = [each.request for each in chosen]
            _check(topic is None or any(map(contents.names_topics, requests)), "topic", "topics", chosen)
            _check(group is None or any(map(contents.names_groups, requests)), "group", "groups", chosen)
            has_ids = transactional_id is None or any(map(contents.names_transactions, requests))
            _check(has_ids, "transactional_id", "transactional ids", chosen)
        apis = None if api == _ANY_API else frozenset(each.key for each in chosen)
        return cls(apis, (low, high), client_id, named(topic), partition, named(group), transactional_id)

    @property
    def is_partial(self) -> bool:
        """Whether it may match only part of a request."""
        return self.topic is not None

    def concerns(self, target: Target) -> bool:
        topic, index = target
        return topic == self.topic and (self.partition is None or index is None or index == self.partition)

    def matches(self, ctx: RequestContext, request: Message) -> bool:
        if self.apis is not None and ctx.api_key not in self.apis:
            return False
        if not self.versions[0] <= ctx.version <= self.versions[1]:
            return False
        if self.client_id is not None and ctx.client_id != self.client_id:
            return False
        if self.group is not None and self.group not in contents.groups(request):
            return False
        if self.transactional_id is not None and self.transactional_id not in contents.transactional_ids(request):
            return False
        return self.topic is None or any(map(self.concerns, targets_of(ctx, request)))


def targets_of(ctx: RequestContext, request: Any) -> Iterable[Target]:
    """The topics and partitions of a request. A fetch request may have them only in its session."""
    topics = ctx.services.metadata.topics_by_id

    def name(topic_id: bytes) -> str | None:
        return topics[topic_id].name if topic_id in topics else None

    yield from contents.targets(request, name)
    if ctx.api_key == ApiKey.FETCH and request.session_id:
        session = ctx.services.fetch_sessions.get(request.session_id)
        for key, index in session.partitions if session is not None else ():
            found = key if isinstance(key, str) else name(key)
            if found is not None:
                yield found, index


class Turn:
    """Which of the matching requests are hit: the first, some, all, or a seeded share of them."""

    __slots__ = ("_chance", "_random", "skip", "times")

    def __init__(self, times: Times = 1, after: int = 0, chance: float = 1.0, seed: int = 0) -> None:
        if times == EVERY:
            times = None
        if times is not None and (not isinstance(times, int) or times < 1):
            raise ValueError(f"times={times!r}: pass a count of at least 1, or 'every'")
        if after < 0:
            raise ValueError(f"after={after}: pass how many requests to let pass first")
        if not 0 < chance <= 1:
            raise ValueError(f"chance={chance}: pass a share above 0 and up to 1")
        self.times = times
        self.skip = after
        self._chance = chance
        self._random = random.Random(seed)

    def strikes(self) -> bool:
        if self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self._chance < 1 and self._random.random() >= self._chance:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Condition(NamedTuple):
    """When a fault fires: which requests match, and which of those it hits."""

    where: Where
    turn: Turn

    @classmethod
    def of(cls, served: Iterable[Api], api: Apis, given: Mapping[str, Any]) -> Condition:
        turns = {key: value for key, value in given.items() if key in Turns.__annotations__}
        matching = {key: value for key, value in given.items() if key not in turns}
        return cls(Where.of(served, api, **matching), Turn(**turns))


def _as_list(api: Apis) -> Collection[str]:
    return [api] if isinstance(api, str) else api


def _api(name: str, by_name: dict[str, Api]) -> Api:
    found = by_name.get(name.lower().removesuffix("request"))
    if found is not None:
        return found
    close = get_close_matches(name.lower(), by_name, n=1)
    hint = (
        f"; did you mean {by_name[close[0]].name}?"
        if close
        else f"; it has {', '.join(a.name for a in by_name.values())}"
    )
    raise ValueError(f"the broker serves no API {name!r}{hint}")


def _versions(version: Versions) -> tuple[int, int]:
    if version is None:
        return -1, 1 << 15
    if isinstance(version, int):
        return version, version
    low, dash, high = version.partition("-")
    try:
        if version.endswith("+"):
            return int(version[:-1]), 1 << 15
        return int(low), int(high if dash else low)
    except ValueError:
        raise ValueError(f"version={version!r}: pass a number, or text such as '3-5' or '9+'") from None


def _check(holds: bool, option: str, what: str, apis: list[Api]) -> None:
    if not holds:
        names = ", ".join(api.name for api in apis)
        raise ValueError(f"{option}= would never match: requests of {names} name no {what}; leave it out")
