"""A broker in another process, controlled over its HTTP endpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import quote, urlencode

from ottla.embedded.client_config import ClientName, Role, Settings, client_config
from ottla.embedded.clock import duration_ms
from ottla.embedded.decoding import TopicDecoder
from ottla.embedded.fault_handle import FaultHandle, shown_faults
from ottla.embedded.group_waits import GroupWaits
from ottla.embedded.groups import Member, TopicPartition
from ottla.embedded.login import Login
from ottla.embedded.records import Given, Record, parts
from ottla.embedded.request_waits import RequestWaits
from ottla.embedded.rules import EVERY, Apis, Conditions, GroupName, Targets, Times, TopicName, error_of
from ottla.embedded.topic_handle import BlockingTopic, Condition, checked, nothing_came
from ottla.embedded.unknown_names import NotFoundError
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio
    from urllib import error as urllib_error
    from urllib import request as urllib_request

    from ottla.embedded import registry_handle
    from ottla.embedded.registry_handle import RegistryHandle
    from ottla.embedded.scenario import Scenario
    from ottla.testing import remote_registry
else:
    asyncio = lazy("asyncio")
    urllib_error = lazy("urllib.error")
    urllib_request = lazy("urllib.request")
    registry_handle = lazy("ottla.embedded.registry_handle")
    remote_registry = lazy("ottla.testing.remote_registry")

_TIMEOUT_S = 60.0
_POLL_S = 0.05


def poll_for(topic: BlockingTopic, condition: Condition, count: int, timeout: float) -> list[Record]:
    """Poll a topic of a broker that cannot notify us of new records."""
    deadline = time.monotonic() + timeout
    while True:
        exists = topic.exists
        records = topic.records() if exists else []
        found = [record for record in records if condition(record)]
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(nothing_came(topic.name, exists, records, len(found), count, timeout))
        time.sleep(_POLL_S)


class RemoteError(RuntimeError):
    """The broker refused; its message says why."""


class RemoteNotFoundError(RemoteError, NotFoundError):
    """The broker does not know this name."""


class RemoteValueError(RemoteError, ValueError):
    """The broker cannot do this."""


class Control:
    """The client of `ottla.embedded.control`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib_request.Request(f"{self.url}{path}", data=data, method=method)
        # Do not use a proxy between two processes on one machine.
        opener = urllib_request.build_opener(urllib_request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib_error.HTTPError as error:
            with error:
                kinds = {400: RemoteValueError, 404: RemoteNotFoundError}
                raise kinds.get(error.code, RemoteError)(json.load(error)["error"]) from None
        except urllib_error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise RemoteError(f"no control endpoint answers at {self.url}: {reason}") from error


class RemoteFault(FaultHandle):
    """A fault of a broker in another process."""

    def __init__(self, control: Control, state: dict[str, Any], path: str = "/faults") -> None:
        self._control = control
        self._path = f"{path}/{state['id']}"
        self.id = state["id"]
        self.kind = state["kind"]
        self.text = state["text"]

    @property
    def fired(self) -> int:
        """How often it has fired."""
        return int(self._control.ask("GET", self._path)["fired"])

    @property
    def active(self) -> bool:
        """Whether it can still fire."""
        return bool(self._control.ask("GET", self._path)["active"])

    def remove(self) -> None:
        self._control.ask("DELETE", self._path)


class RemoteFaultList:
    """The faults of a broker, or of its registry, in another process."""

    def __init__(self, control: Control, path: str) -> None:
        self._control = control
        self._path = path

    def __iter__(self) -> Iterator[RemoteFault]:
        """The faults that can still fire."""
        found = self._control.ask("GET", self._path)
        return iter([RemoteFault(self._control, each, self._path) for each in found if each["active"]])

    def __repr__(self) -> str:
        return shown_faults(self)

    def apply(self, kind: str, **options: object) -> RemoteFault:
        """Add a fault by the name of its method."""
        return RemoteFault(self._control, self._control.ask("POST", self._path, {"kind": kind, **options}), self._path)

    def clear(self) -> None:
        """Remove all faults."""
        self._control.ask("DELETE", self._path)


class RemoteFaults(RemoteFaultList):
    """Faults with the same names and options as in this process."""

    def __init__(self, control: Control) -> None:
        super().__init__(control, "/faults")

    def error(
        self, api: Apis, error: str | int | KafkaError | type[KafkaError], **conditions: Unpack[Conditions]
    ) -> RemoteFault:
        """Answer with an error; the request has no effect."""
        return self.apply("error", api=api, error=error_of(error).name, **_plain(conditions))

    def delay(
        self,
        api: Apis,
        *,
        seconds: float = 0.0,
        ms: float = 0.0,
        when: str = "before",
        **conditions: Unpack[Conditions],
    ) -> RemoteFault:
        """Serve a request late, or (`when="after"`) serve it and answer late."""
        return self.apply("delay", api=api, seconds=seconds, ms=ms, when=when, **_plain(conditions))

    def drop(self, api: Apis, *, when: str = "before", **conditions: Unpack[Conditions]) -> RemoteFault:
        """Close the connection instead of answering."""
        return self.apply("drop", api=api, when=when, **_plain(conditions))

    def black_hole(self, api: Apis, **conditions: Unpack[Conditions]) -> RemoteFault:
        """Never answer, and keep the connection open."""
        return self.apply("black_hole", api=api, **_plain(conditions))

    def corrupt(self, **conditions: Unpack[Targets]) -> RemoteFault:
        """Flip a bit in a fetched batch; the stored data stays intact."""
        return self.apply("corrupt", **_plain(conditions))

    def disk_full(self, *, topic: TopicName | None = None, times: Times = EVERY, after: int = 0) -> RemoteFault:
        """All writes fail."""
        return self.apply("disk_full", **_plain({"topic": topic, "times": times, "after": after}))

    def fsync_fails(self, *, topic: TopicName | None = None, times: Times = EVERY, after: int = 0) -> RemoteFault:
        """The disk fails to flush."""
        return self.apply("fsync_fails", **_plain({"topic": topic, "times": times, "after": after}))

    def fail_folder(self, folder: str | None = None) -> RemoteFault:
        """A data folder (by default the last one) fails: it is offline until the broker starts again."""
        return self.apply("fail_folder", **_plain({"folder": folder}))

    def rebalance(self, group: GroupName) -> RemoteFault:
        """Make a group rebalance: every member has to join again."""
        return self.apply("rebalance", group=str(group))

    def evict(self, group: GroupName, member: str | None = None) -> RemoteFault:
        """Remove a member from its group."""
        return self.apply("evict", group=str(group), member=member)

    def fence_producer(self, transactional_id: str) -> RemoteFault:
        """Fence the current producer, as a second one with this transactional id would."""
        return self.apply("fence_producer", transactional_id=transactional_id)

    def move_coordinator(
        self, *, group: GroupName | None = None, transactional_id: str | None = None, times: Times = 1
    ) -> RemoteFault:
        """The coordinator loads again, and answers NOT_COORDINATOR `times` times."""
        which = {"group": group, "transactional_id": transactional_id, "times": times}
        return self.apply("move_coordinator", **_plain(which))

    def bump_leader_epoch(self, topic: TopicName, partition: int = 0, *, times: Times = 1) -> RemoteFault:
        """A new leader epoch; the next `times` produce or fetch requests get NOT_LEADER_OR_FOLLOWER."""
        return self.apply("bump_leader_epoch", topic=str(topic), partition=partition, times=times)


def _plain(options: Mapping[str, object]) -> dict[str, object]:
    """Options as JSON: handles on topics and groups become names."""
    plain = (str, int, float, type(None))
    return {key: value if isinstance(value, plain) else str(value) for key, value in options.items()}


class RemoteClock:
    """The time of a broker in another process."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Advance the clock. Everything that falls due happens before this returns."""
        duration = duration_ms(days=days, hours=hours, minutes=minutes, seconds=seconds, ms=ms)
        self._control.ask("POST", "/clock/advance", {"ms": duration})

    def __repr__(self) -> str:
        return f"<clock of the broker that {self._control.url} controls>"


class RemoteTopic(BlockingTopic):
    """A topic of a broker in another process."""

    def __init__(self, control: Control, name: str) -> None:
        super().__init__(name)
        self._control = control
        self._path = f"/topics/{quote(name)}"

    @property
    def partitions(self) -> int:
        try:
            return int(self._control.ask("GET", self._path)["partitions"])
        except NotFoundError:
            return 0

    def create(self, partitions: int = -1, config: Mapping[str, object] | None = None) -> Self:
        self._control.ask("POST", self._path, {"partitions": partitions, "config": dict(config or {})})
        return self

    def delete(self) -> None:
        self._control.ask("DELETE", self._path)

    def records(self, partition: int | None = None, *, committed_only: bool = True) -> list[Record]:
        query = {"committed_only": str(committed_only).lower()} | (
            {} if partition is None else {"partition": partition}
        )
        found = self._control.ask("GET", f"{self._path}/records?{urlencode(query)}")
        decoder = TopicDecoder(lambda name: RemoteTopic(self._control, name).records())
        return [Record.from_dict(self.name, each, decoder) for each in found]

    def end_offsets(self) -> dict[int, int]:
        found = self._control.ask("GET", self._path)["end_offsets"]
        return {int(index): offset for index, offset in found.items()}

    def compact_now(self) -> None:
        self._control.ask("POST", f"{self._path}/compact_now")

    def delete_old_now(self) -> int:
        return int(self._control.ask("POST", f"{self._path}/delete_old_now")["segments"])

    def _block_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        return poll_for(self, condition, count, timeout)

    async def _await_for(self, condition: Condition, count: int, timeout: float) -> list[Record]:
        return await asyncio.to_thread(poll_for, self, condition, count, timeout)

    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        given = []
        for each in checked(records):
            key, value, headers = parts(each)
            record = Record(self.name, 0, -1, -1, key, value, tuple(headers)).to_dict()
            given.append([record["key"], record["value"], record["headers"]])
        body = {"records": given, "partition": partition, "timestamp": timestamp_ms}
        return [Record.from_dict(self.name, each) for each in self._control.ask("POST", f"{self._path}/records", body)]


class RemoteGroup(GroupWaits):
    """A group of a broker in another process."""

    def __init__(self, control: Control, group_id: str) -> None:
        self._control = control
        self.group_id = group_id
        self._path = f"/groups/{quote(group_id, safe='')}"

    def __str__(self) -> str:
        return self.group_id

    def __repr__(self) -> str:
        return f"<group {self.group_id}>"

    def _look(self) -> Any:
        try:
            return self._control.ask("GET", self._path)
        except NotFoundError:
            return {"state": "Dead", "members": [], "offsets": []}

    @property
    def state(self) -> str:
        """Kafka's name of its state; `Dead` for a group that does not exist."""
        return str(self._look()["state"])

    def members(self) -> list[Member]:
        """Its members, with the partitions that are assigned to them."""
        return [
            Member(**{**each, "assignment": tuple((topic, index) for topic, index in each["assignment"])})
            for each in self._look()["members"]
        ]

    def committed(self) -> dict[TopicPartition, int]:
        """{(topic, partition): the next offset to read}, as committed."""
        return {(each["topic"], each["partition"]): each["committed"] for each in self._look()["offsets"]}

    def lag(self, of: object = None) -> int:
        """How many records the group has not read yet; the same as for a group in this process."""
        query = "" if of is None else f"?{urlencode({'of': str(of)})}"
        return int(self._control.ask("GET", f"{self._path}/lag{query}")["lag"])

    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition with a committed offset."""
        found = self._look()["offsets"]
        return {(each["topic"], each["partition"]): each["lag"] for each in found if each["lag"] is not None}

    def delete(self) -> None:
        """Delete the group, its offsets and its members (which join again)."""
        self._control.ask("DELETE", self._path)


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """A request that a broker in another process received."""

    api: str
    version: int
    client_id: str | None
    at_ms: int
    topics: list[str]
    groups: list[str]
    answered: bool
    errors: list[str]
    fault: str | None


class RemoteSnapshot:
    """A snapshot that a broker in another process keeps."""

    def __init__(self, control: Control, number: int) -> None:
        self._control = control
        self.number = number

    def close(self) -> None:
        """Release its memory or folder. Safe to call twice."""
        with suppress(NotFoundError):
            self._control.ask("DELETE", f"/snapshots/{self.number}")

    def __repr__(self) -> str:
        return f"<snapshot {self.number} of the broker that {self._control.url} controls>"


class RemoteRecording:
    """A recording that a broker in another process writes."""

    def __init__(self, control: Control, number: int, path: str) -> None:
        self._control = control
        self._number = number
        self.path = path

    def stop(self) -> None:
        """End the recording. Safe to call twice."""
        with suppress(NotFoundError):
            self._control.ask("DELETE", f"/recordings/{self._number}")

    def __repr__(self) -> str:
        return f"<Recording {self.path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class RemoteBroker(RequestWaits[RemoteRequest]):
    """A broker that is controlled over HTTP."""

    def __init__(
        self, bootstrap: str, control_url: str, registry_url: str | None = None, login: Login | None = None
    ) -> None:
        """`login` is what clients need to log in; the endpoint does not reveal passwords."""
        self.login = Login() if login is None else login
        self._bootstrap = bootstrap
        self._registry_url = registry_url
        self.control = Control(control_url)
        self.faults = RemoteFaults(self.control)
        self.clock = RemoteClock(self.control)

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        return self._bootstrap

    @property
    def control_url(self) -> str:
        """The URL at which tests in other languages control this broker."""
        return self.control.url

    @property
    def registry_url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        if self._registry_url is None:
            raise RuntimeError("the schema registry is off: make the broker with registry=0 (a free port) or a port")
        return self._registry_url

    @property
    def registry(self) -> RegistryHandle:
        """The schema registry; needs `registry=0` or a port."""
        return registry_handle.RegistryHandle(remote_registry.RemoteRegistry(self.control, self.registry_url))

    def topic(self, name: str) -> RemoteTopic:
        """A topic by its name, which need not exist yet."""
        return RemoteTopic(self.control, name)

    def group(self, group_id: str) -> RemoteGroup:
        """A group by its id, which need not exist yet."""
        return RemoteGroup(self.control, group_id)

    def bootstrap_for(self, listener: str | None = None) -> str:
        """The bootstrap address of a listener, by its name."""
        if listener is None:
            return self.bootstrap
        listeners: dict[str, str] = self.control.ask("GET", "/")["listeners"]
        if listener not in listeners:
            raise ValueError(f"there is no listener {listener!r}; the listeners are {', '.join(listeners)}")
        return listeners[listener]

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings: the address, the login (of the first user, or of `user`), and short delays."""
        return client_config(self.bootstrap, client, role, login=self.login, user=user, mechanism=mechanism)

    def topics(self) -> list[str]:
        """The names of all topics except the internal ones."""
        return list(self.control.ask("GET", "/topics"))

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return list(self.control.ask("GET", "/groups"))

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> list[RemoteRequest]:
        """The requests that arrived, oldest first; the last 2,000 are kept."""
        which = {"api": api, "client_id": client_id, "topic": topic, "group": group}
        query = urlencode({key: value for key, value in which.items() if value is not None})
        return [
            RemoteRequest(**each) for each in self.control.ask("GET", f"/requests?{query}") if "control" not in each
        ]

    def report(self, prefix: str = "") -> str:
        """A report on the broker's contents, as text for people."""
        return str(self.control.ask("GET", f"/report?{urlencode({'prefix': prefix})}")["text"])

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Remove all topics, groups and subjects, or only the given ones; clear the faults and the requests."""
        which = {"topics": topics, "groups": groups, "subjects": subjects}
        self.control.ask("POST", "/reset", {key: list(names) for key, names in which.items() if names is not None})

    def snapshot(self) -> RemoteSnapshot:
        """The state, for `restore`: topics, records, groups, transactions, users, settings."""
        return RemoteSnapshot(self.control, self.control.ask("POST", "/snapshots")["snapshot"])

    def restore(self, state: RemoteSnapshot) -> None:
        """Return to a snapshot. As after a restart, clients reconnect; faults and the list of requests are cleared."""
        self.control.ask("POST", f"/snapshots/{state.number}/restore")

    def branch(self, data: str | PathLike[str] | None = None) -> RemoteBranch:
        """A second broker in the same process that starts with the state of this broker; see `ServedBroker.branch`."""
        made = self.control.ask("POST", "/branches", {} if data is None else {"data": str(Path(data).absolute())})
        return RemoteBranch(made, self.control, self.login)

    def record(self, path: str | PathLike[str]) -> RemoteRecording:
        """Write every request and its answer to a file, until `stop()` or the end of the `with` block."""
        made = self.control.ask("POST", "/recordings", {"path": str(Path(path).absolute())})
        return RemoteRecording(self.control, made["recording"], made["path"])

    def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return the results of its steps; see docs/faults.md."""
        body = Path(scenario).read_bytes() if isinstance(scenario, (str, PathLike)) else scenario
        return list(self.control.ask("POST", "/scenario", body))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._bootstrap or 'no address yet'}>"

    def down(self) -> None:
        """Stop cleanly, but keep the port: clients are refused until up()."""
        self.control.ask("POST", "/broker/down")

    def up(self) -> None:
        """Start again after down() or kill()."""
        self.control.ask("POST", "/broker/up")


class RemoteBranch(RemoteBroker):
    """A branch of a broker in another process: `with broker.branch() as other: …`."""

    def __init__(self, made: Mapping[str, Any], origin: Control, login: Login) -> None:
        super().__init__(made["bootstrap"], made["control"], login=login)
        self._origin = origin
        self._number = made["branch"]

    def stop(self) -> None:
        """Stop it permanently. Safe to call twice."""
        with suppress(NotFoundError):
            self._origin.ask("DELETE", f"/branches/{self._number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
