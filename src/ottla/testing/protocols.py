"""The interface of every kind of broker for tests: in this process, in a child process, over HTTP, or Apache Kafka.

If a broker cannot do something, it raises an error that says why: Apache Kafka has no faults, and its clock
cannot be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Protocol, Unpack

if TYPE_CHECKING:
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.fault_handle import FaultHandle
    from ottla.embedded.groups import Member, TopicPartition
    from ottla.embedded.registry_handle import AsyncRegistry, RegistryHandle
    from ottla.embedded.rules import Apis, Conditions, GroupName, Targets, Times, TopicName
    from ottla.embedded.topic_handle import TopicHandle
    from ottla.errors import KafkaError


class GroupHandle(Protocol):
    """A group by its id; the group itself does not need to exist."""

    group_id: str

    @property
    def state(self) -> str:
        """Kafka's name of its state; `Dead` for a group that does not exist."""
        ...

    def members(self) -> list[Member]:
        """Its members, with the partitions that are assigned to them."""
        ...

    def committed(self) -> dict[TopicPartition, int]:
        """{(topic, partition): the next offset to read}, as committed."""
        ...

    def lag(self, of: object = None) -> int:
        """How many records the group has not read, in partitions with a committed offset; NotFoundError without any.

        With `of`, a topic, every unread record of the topic counts.
        """
        ...

    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition with a committed offset."""
        ...

    def delete(self) -> None:
        """Delete the group and its offsets."""
        ...

    def wait_until_stable(self, members: int | None = None, *, timeout: float = ...) -> None:
        """Block until the group has this many members (or any) and all have their partitions."""
        ...

    async def wait_until_stable_async(self, members: int | None = None, *, timeout: float = ...) -> None:
        """The same on an asyncio loop."""
        ...

    def wait_until_caught_up(self, of: object = None, *, timeout: float = ...) -> None:
        """Block until the group has committed and `lag(of)` is 0."""
        ...

    async def wait_until_caught_up_async(self, of: object = None, *, timeout: float = ...) -> None:
        """The same on an asyncio loop."""
        ...


class FaultsHandle(Protocol):
    """Faults on demand; docs/faults.md lists them."""

    def apply(self, kind: str, **options: object) -> FaultHandle:
        """Add a fault by the name of its method."""
        ...

    def error(
        self, api: Apis, error: str | int | KafkaError | type[KafkaError], **conditions: Unpack[Conditions]
    ) -> FaultHandle:
        """Answer with an error; the request has no effect."""
        ...

    def delay(
        self,
        api: Apis,
        *,
        seconds: float = 0.0,
        ms: float = 0.0,
        when: str = "before",
        **conditions: Unpack[Conditions],
    ) -> FaultHandle:
        """Serve a request late, or (`when="after"`) serve it and answer late."""
        ...

    def drop(self, api: Apis, *, when: str = "before", **conditions: Unpack[Conditions]) -> FaultHandle:
        """Close the connection instead of answering."""
        ...

    def black_hole(self, api: Apis, **conditions: Unpack[Conditions]) -> FaultHandle:
        """Never answer, and keep the connection open."""
        ...

    def corrupt(self, **conditions: Unpack[Targets]) -> FaultHandle:
        """Flip a bit in a fetched batch; the stored data stays intact."""
        ...

    def disk_full(self, *, topic: TopicName | None = None, times: Times = ..., after: int = 0) -> FaultHandle:
        """All writes fail."""
        ...

    def fail_folder(self, folder: str | None = None) -> FaultHandle:
        """A data folder (by default the last one) fails."""
        ...

    def fsync_fails(self, *, topic: TopicName | None = None, times: Times = ..., after: int = 0) -> FaultHandle:
        """The disk fails to flush."""
        ...

    def rebalance(self, group: GroupName) -> FaultHandle:
        """Make a group rebalance: every member has to join again."""
        ...

    def evict(self, group: GroupName, member: str | None = None) -> FaultHandle:
        """Remove a member from its group."""
        ...

    def fence_producer(self, transactional_id: str) -> FaultHandle:
        """Fence the current producer, as a second one with this transactional id would."""
        ...

    def move_coordinator(
        self, *, group: GroupName | None = None, transactional_id: str | None = None, times: Times = 1
    ) -> FaultHandle:
        """The coordinator loads again, and answers NOT_COORDINATOR `times` times."""
        ...

    def bump_leader_epoch(self, topic: TopicName, partition: int = 0, *, times: Times = 1) -> FaultHandle:
        """A new leader epoch; the next `times` produce or fetch requests get NOT_LEADER_OR_FOLLOWER."""
        ...

    def clear(self) -> None:
        """Remove all faults."""
        ...

    def __iter__(self) -> Iterator[FaultHandle]:
        """The faults that can still fire."""
        ...


class ClockHandle(Protocol):
    """The broker's time."""

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Advance the clock. Everything that falls due happens before this returns."""
        ...


class SeenRequest(Protocol):
    """A request that a broker received."""

    @property
    def api(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def at_ms(self) -> int: ...
    @property
    def topics(self) -> list[str]: ...
    @property
    def groups(self) -> list[str]: ...
    @property
    def answered(self) -> bool: ...
    @property
    def errors(self) -> list[str]: ...
    @property
    def fault(self) -> str | None: ...


class StateHandle(Protocol):
    """A snapshot of a broker."""

    def close(self) -> None:
        """Release its memory or folder."""
        ...


class RecordingHandle(Protocol):
    """A file to which requests are written."""

    path: str

    def stop(self) -> None:
        """End the recording."""
        ...


class BrokerHandle(Protocol):
    """A broker, in this process or elsewhere."""

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        ...

    @property
    def faults(self) -> FaultsHandle:
        """Faults on demand."""
        ...

    @property
    def clock(self) -> ClockHandle:
        """The broker's time, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        ...

    def topic(self, name: str) -> TopicHandle:
        """A topic by its name, which need not exist yet."""
        ...

    def group(self, group_id: str) -> GroupHandle:
        """A group by its id, which need not exist yet."""
        ...

    def bootstrap_for(self, listener: str | None = None) -> str:
        """The bootstrap address of a listener, by its name."""
        ...

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings: the address, the login (of the first user, or of `user`), and short delays."""
        ...

    def topics(self) -> list[str]:
        """The names of all topics except the internal ones."""
        ...

    def groups(self) -> list[str]:
        """The ids of all groups."""
        ...

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> Sequence[SeenRequest]:
        """The requests that arrived, oldest first."""
        ...

    @property
    def registry_url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        ...

    @property
    def registry(self) -> RegistryHandle | AsyncRegistry:
        """The schema registry; on a `Broker` its calls are awaited."""
        ...

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = ...,
    ) -> SeenRequest:
        """Block until `count` such requests have arrived since the start or the last reset, and return the last one."""
        ...

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = ...,
    ) -> SeenRequest:
        """The same on an asyncio loop."""
        ...

    def snapshot(self) -> StateHandle:
        """The state, for `restore`: topics, records, groups, transactions, users, settings."""
        ...

    def record(self, path: str | PathLike[str]) -> RecordingHandle:
        """Write every request and its answer to a file from now on."""
        ...

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Remove all topics, groups and subjects, or only the given ones; clear the faults and the requests."""
        ...
