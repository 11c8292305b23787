"""Faults on demand: deterministic and counted, so that a test can check that they fired.

Rules match requests (or disk operations) and hit some of them; the first rule that hits decides. Actions happen
immediately. Both return a `Fault`, whose `fired` counts the hits.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from ottla.embedded import actions, disk
from ottla.embedded.fault_handle import FaultHandle, shown_faults
from ottla.embedded.rules import (
    EVERY,
    Apis,
    Condition,
    Conditions,
    GroupName,
    Targets,
    Times,
    TopicName,
    Turn,
    Where,
    error_of,
    named,
)
from ottla.errors import KafkaError, NotCoordinator, NotLeaderOrFollower
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.embedded import effects
    from ottla.embedded.broker import Embedded
    from ottla.embedded.effects import Effect
    from ottla.server.api import Api, RequestContext
    from ottla.server.broker import Broker as Server
    from ottla.server.request_log import Request
    from ottla.wire.schema import Message
else:
    effects = lazy("ottla.embedded.effects")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

GROUP_APIS: Final = (
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
    *("TxnOffsetCommit", "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"),
)
TRANSACTION_APIS: Final = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")

KINDS: Final[dict[str, tuple[str, ...]]] = {}
"""The faults by the names of their methods, with the keywords for the condition of each. `_kind` fills this table."""


def _kind(conditions: type = Conditions) -> Callable[[F], F]:
    """Make a method of `Faults` available by its name: to the command line, HTTP and scenarios."""

    def register(method: F) -> F:
        KINDS[method.__name__] = tuple(conditions.__annotations__)
        return method

    return register


class Fault(FaultHandle):
    """A fault of a broker in this process."""

    fired: int = 0

    def __init__(self, owner: Faults, number: int, kind: str, text: str) -> None:
        self._owner = owner
        self.id = number
        self.kind = kind
        self.text = text
        self.where: Where | None = None
        self.turn = Turn()
        self.effect: Effect | None = None
        self.disk_operation: str | None = None

    @property
    def active(self) -> bool:
        """Whether it can still fire."""
        return self in self._owner and self.turn.times != 0

    def remove(self) -> None:
        self._owner.remove(self)

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "text": self.text, "fired": self.fired, "active": self.active}


class Faults:
    """The faults of a broker. Every method may be called from any thread."""

    def __init__(self, broker: Embedded, beyond: Faults | None = None) -> None:
        """`beyond` are the faults of the broker's cluster. They are checked after the broker's own faults."""
        self._broker = broker
        self._beyond = beyond
        self._numbers = itertools.count(1)
        # Replaced, never changed: the loop reads it while other threads add to it.
        self._rules: tuple[Fault, ...] = ()
        self._all: dict[int, Fault] = {}

    def __iter__(self) -> Iterator[Fault]:
        """The faults that can still fire."""
        return (fault for fault in self._rules if fault.active)

    def __contains__(self, fault: object) -> bool:
        return fault in self._rules

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return shown_faults(self)

    @property
    def may_strike(self) -> bool:
        return bool(self._rules) or (self._beyond is not None and self._beyond.may_strike)

    @property
    def _in_force(self) -> tuple[Fault, ...]:
        return self._rules if self._beyond is None else self._rules + self._beyond._in_force

    @property
    def all(self) -> list[Fault]:
        """All faults, including removed and used-up ones."""
        return list(self._all.values())

    def get(self, number: int) -> Fault:
        if number not in self._all:
            raise KeyError(f"there is no fault {number}; the faults are {', '.join(map(str, self._all)) or 'none'}")
        return self._all[number]

    def remove(self, fault: Fault) -> None:
        self._rules = tuple(each for each in self._rules if each is not fault)
        self.watch_disk()

    def clear(self) -> None:
        """Remove all faults."""
        self._rules = ()
        self._all.clear()
        self.watch_disk()

    def apply(self, kind: str, **options: Any) -> Fault:
        """Add a fault by the name of its method, as the command line, HTTP and scenarios do."""
        method = getattr(self, kind, None) if kind in KINDS else None
        if method is None:
            raise ValueError(f"there is no fault {kind!r}; choose one of {', '.join(KINDS)}")
        parameters = inspect.signature(method).parameters
        named = {name: each for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD}
        known = [*named, *(KINDS[kind] if len(named) < len(parameters) else ())]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"{kind} has no option {unknown[0]!r}; it takes {', '.join(known)}")
        missing = [n for n, p in named.items() if p.default is p.empty and n not in options]
        if missing:
            raise ValueError(f"{kind} needs {missing[0]}=…; it takes {', '.join(known)}")
        fault: Fault = method(**options)
        return fault

    # -- on requests -------------------------------------------------------------------------------------------

    @_kind()
    def error(
        self, api: Apis, error: str | int | KafkaError | type[KafkaError], **conditions: Unpack[Conditions]
    ) -> Fault:
        """Answer with an error, without any effect; with `topic` (and `partition`), only for that part of a request."""
        found = error_of(error)
        return self._rule("error", f"{found.name} for {_said(api)}", api, conditions, effects.answering(found))

    @_kind()
    def delay(
        self,
        api: Apis,
        *,
        seconds: float = 0.0,
        ms: float = 0.0,
        when: str = "before",
        **conditions: Unpack[Conditions],
    ) -> Fault:
        """Serve a request late, or (`when="after"`) serve it and answer late."""
        delay_ms = seconds * 1000 + ms
        if delay_ms <= 0:
            raise ValueError("say how long: delay(api, seconds=…) or delay(api, ms=…)")
        effect = effects.delaying(delay_ms, when)
        return self._rule("delay", f"{delay_ms:g} ms for {_said(api)}", api, conditions, effect)

    @_kind()
    def drop(self, api: Apis, *, when: str = "before", **conditions: Unpack[Conditions]) -> Fault:
        """Close the connection instead of answering: before the request takes effect, or `when="after"`."""
        text = f"connection closed {when} {_said(api)}"
        return self._rule("drop", text, api, conditions, effects.dropping(when))

    @_kind()
    def black_hole(self, api: Apis, **conditions: Unpack[Conditions]) -> Fault:
        """Never answer, and keep the connection open."""
        return self._rule("black_hole", f"no answer to {_said(api)}", api, conditions, effects.swallowing())

    @_kind(Targets)
    def corrupt(self, **conditions: Unpack[Targets]) -> Fault:
        """Flip a bit in a fetched batch; the stored data stays intact."""
        return self._rule("corrupt", "a damaged batch for Fetch", "Fetch", conditions, effects.corrupting())

    # -- on the disk -------------------------------------------------------------------------------------------

    @_kind()
    def disk_full(self, *, topic: TopicName | None = None, times: Times = EVERY, after: int = 0) -> Fault:
        """All writes fail (or only those to one topic): producers get KAFKA_STORAGE_ERROR."""
        return self._disk_rule("disk_full", "append", "no space left on the disk", topic, times, after)

    @_kind()
    def fsync_fails(self, *, topic: TopicName | None = None, times: Times = EVERY, after: int = 0) -> Fault:
        """The disk fails to flush; visible if the broker flushes (`log.flush.interval.messages`, `flush.messages`)."""
        return self._disk_rule("fsync_fails", "fsync", "flushes of the disk fail", topic, times, after)

    @_kind()
    def fail_folder(self, folder: str | None = None) -> Fault:
        """A data folder (by default the last one) fails as a disk does: it is offline until the next start."""
        failed = self._at_folder(folder, lambda server: actions.fail_folder(server, folder))
        return self._happened("fail_folder", f"the data folder {failed} fails")

    # -- immediate ---------------------------------------------------------------------------------------------

    @_kind()
    def rebalance(self, group: GroupName) -> Fault:
        """Make a group rebalance: every member has to join again."""
        group = str(group)
        self._at_group(group, lambda server: actions.rebalance(server, group))
        return self._happened("rebalance", f"group {group} rebalances")

    @_kind()
    def evict(self, group: GroupName, member: str | None = None) -> Fault:
        """Remove a member (by member id, instance id or client id; by default the first one) from its group."""
        group = str(group)
        gone = self._at_group(group, lambda server: actions.evict(server, group, member))
        return self._happened("evict", f"member {gone} of group {group} is evicted")

    @_kind()
    def fence_producer(self, transactional_id: str) -> Fault:
        """Fence the current producer, as a second one with this transactional id would."""
        self._at_transactional_id(transactional_id, lambda server: actions.fence_producer(server, transactional_id))
        return self._happened("fence_producer", f"the producer of {transactional_id} is fenced")

    @_kind()
    def move_coordinator(
        self, *, group: GroupName | None = None, transactional_id: str | None = None, times: Times = 1
    ) -> Fault:
        """The coordinator of a group or of a transactional id reloads, and answers NOT_COORDINATOR `times` times."""
        if (group is None) == (transactional_id is None):
            raise ValueError("pass either group= or transactional_id=: whose coordinator should move?")
        names = GROUP_APIS if group is not None else TRANSACTION_APIS
        apis = [name for name in names if name in self._broker.api_names]
        condition = self._condition(apis, {"group": group, "transactional_id": transactional_id, "times": times})
        if group is not None:
            group = str(group)
            self._at_group(group, lambda server: actions.reload_group_coordinator(server, group))
        else:
            assert transactional_id is not None
            self._at_transactional_id(
                transactional_id, lambda server: actions.reload_transaction_coordinator(server, transactional_id)
            )
        text = f"the coordinator of {group or transactional_id} moves"
        return self._add("move_coordinator", text, condition, effects.answering(NotCoordinator()))

    @_kind()
    def bump_leader_epoch(self, topic: TopicName, partition: int = 0, *, times: Times = 1) -> Fault:
        """A new leader epoch, as after an election; the next `times` produce or fetch requests get
        NOT_LEADER_OR_FOLLOWER.
        """
        topic = str(topic)
        condition = self._condition(("Produce", "Fetch"), {"topic": topic, "partition": partition, "times": times})
        self._broker.call(lambda server: actions.bump_leader_epoch(server, topic, partition))
        text = f"a new leader epoch of {topic}-{partition}"
        return self._add("bump_leader_epoch", text, condition, effects.answering(NotLeaderOrFollower()))

    # -- how it works ------------------------------------------------------------------------------------------

    def serve(self, api: Api, ctx: RequestContext, request: Message, seen: Request) -> Any:
        """Let the first fault that hits decide, or serve the request."""
        for fault in self._in_force:
            where, effect = fault.where, fault.effect
            if effect is None or where is None or not where.matches(ctx, request) or not fault.turn.strikes():
                continue
            fault.fired += 1
            seen.fault = fault.text
            return effect(api, ctx, request, where)
        return api.handler(ctx, request)

    def _check_disk(self, operation: str, path: str) -> None:
        for fault in self._in_force:
            if fault.disk_operation != operation:
                continue
            topic = None if fault.where is None else fault.where.topic
            if (topic is None or path.rpartition("/")[0].rpartition("-")[0] == topic) and fault.turn.strikes():
                fault.fired += 1
                raise disk.full(path) if operation == "append" else disk.flush_failed(path)

    def _condition(self, api: Apis, given: Mapping[str, Any]) -> Condition:
        return Condition.of(self._broker.served_apis, api, given)

    def _rule(self, kind: str, text: str, api: Apis, given: Conditions | Targets, effect: Effect) -> Fault:
        unknown = sorted(set(given) - set(KINDS[kind]))
        if unknown:
            raise TypeError(f"{kind} has no option {unknown[0]!r}; its options are {', '.join(KINDS[kind])}")
        return self._add(kind, text + _filters(given), self._condition(api, given), effect)

    def _add(
        self, kind: str, text: str, condition: Condition, effect: Effect | None, disk_operation: str | None = None
    ) -> Fault:
        fault = Fault(self, next(self._numbers), kind, text)
        fault.where, fault.turn = condition
        fault.effect, fault.disk_operation = effect, disk_operation
        self._all[fault.id] = fault
        self._rules = (*self._rules, fault)
        self.watch_disk()
        return fault

    def _disk_rule(
        self, kind: str, operation: str, text: str, topic: TopicName | None, times: Times, after: int
    ) -> Fault:
        if self._broker.disk_faults is None:
            raise ValueError(
                "this broker was given a disk with disk=: make it with data=… (or nothing) to use disk faults"
            )
        where = Where(topic=named(topic))
        text += _filters({"topic": topic, "after": after})
        return self._add(kind, text, Condition(where, Turn(times, after)), None, operation)

    def _happened(self, kind: str, text: str) -> Fault:
        fault = Fault(self, next(self._numbers), kind, text)
        fault.fired = 1
        self._all[fault.id] = fault
        return fault

    def watch_disk(self) -> None:
        """Watch the disk while a fault needs it."""
        faults = self._broker.disk_faults
        if faults is not None:
            faults.check = self._check_disk if any(fault.disk_operation for fault in self._in_force) else None

    # The place where immediate faults happen; a cluster has several.

    def _at_folder(self, folder: str | None, work: Callable[[Server], T]) -> T:
        return self._broker.call(work)

    def _at_group(self, group: str, work: Callable[[Server], T]) -> T:
        return self._broker.call(work)

    def _at_transactional_id(self, transactional_id: str, work: Callable[[Server], T]) -> T:
        return self._broker.call(work)


def _said(api: Apis) -> str:
    return api if isinstance(api, str) else ", ".join(api)


def _filters(given: Mapping[str, Any]) -> str:
    """The conditions of a fault, except its count, for its text."""
    without_effect = {"after": 0, "chance": 1}
    shown = [
        (key, value)
        for key, value in given.items()
        if key not in ("times", "seed") and value is not None and without_effect.get(key) != value
    ]
    return "".join(f", {key}={value}" for key, value in shown)
