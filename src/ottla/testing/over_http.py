"""A broker in another process, steered over its control endpoint."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from ottla.embedded.clock import duration_ms
from ottla.embedded.groups import Member, TopicPartition
from ottla.embedded.records import Given, Record, parts
from ottla.embedded.topic_handle import BlockingTopic, Condition, checked
from ottla.embedded.unknown_names import NotFoundError

if TYPE_CHECKING:
    from ottla.embedded.scenario import Scenario

_TIMEOUT_S = 60.0
_POLL_S = 0.05


def poll_for(topic: BlockingTopic, condition: Condition, count: int, timeout: float) -> list[Record]:
    """Look again and again: for topics of brokers that cannot tell us of a new record."""
    deadline = time.monotonic() + timeout
    while True:
        records = topic.records() if topic.exists else []
        found = [record for record in records if condition(record)]
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            there = "\n".join(f"  {record}" for record in records) or "  nothing"
            raise AssertionError(
                f"{len(found)} of {count} records in topic {topic.name} met the condition within {timeout:g} s; "
                f"it holds:\n{there}"
            )
        time.sleep(_POLL_S)


class RemoteError(RuntimeError):
    """The broker refused; its message says why."""


class RemoteNotFoundError(RemoteError, NotFoundError):
    """The broker knows no such name."""


class Control:
    """The client of `ottla.embedded.control`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method)
        # No proxy has business between two processes of one machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                kind = RemoteNotFoundError if error.code == 404 else RemoteError
                raise kind(json.load(error)["error"]) from None
        except urllib.error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise RemoteError(f"no control endpoint answers at {self.url}: {reason}") from error


class RemoteFault:
    """A fault of a broker in another process."""

    def __init__(self, control: Control, state: dict[str, Any]) -> None:
        self._control = control
        self.id: int = state["id"]
        self.kind: str = state["kind"]
        self.text: str = state["text"]

    @property
    def fired(self) -> int:
        return int(self._control.ask("GET", f"/faults/{self.id}")["fired"])

    def remove(self) -> None:
        self._control.ask("DELETE", f"/faults/{self.id}")


class RemoteFaults:
    """Faults by the names and options that they have in Python."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def apply(self, kind: str, **options: Any) -> RemoteFault:
        return RemoteFault(self._control, self._control.ask("POST", "/faults", {"kind": kind, **options}))

    def __getattr__(self, kind: str) -> Any:
        if kind.startswith("_"):
            raise AttributeError(kind)

        def make(*args: Any, **options: Any) -> RemoteFault:
            positional = {
                "error": ("api", "error"),
                "bump_leader_epoch": ("topic", "partition"),
                "evict": ("group", "member"),
            }
            names = positional.get(kind, ("group",) if kind == "rebalance" else ("api",))
            if kind == "fence_producer":
                names = ("transactional_id",)
            return self.apply(kind, **dict(zip(names, args, strict=False)), **options)

        return make

    def clear(self) -> None:
        self._control.ask("DELETE", "/faults")


class RemoteClock:
    def __init__(self, control: Control) -> None:
        self._control = control

    def advance(self, **duration: float) -> None:
        """Move the broker's time on, by days, hours, minutes, seconds or ms."""
        self._control.ask("POST", "/clock/advance", {"ms": duration_ms(**duration)})


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
        return [Record.from_dict(self.name, each) for each in found]

    def end_offsets(self) -> dict[int, int]:
        found = self._control.ask("GET", self._path)["end_offsets"]
        return {int(index): offset for index, offset in found.items()}

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


class RemoteGroup:
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
        """Its members, with the partitions that they have."""
        return [
            Member(**{**each, "assignment": tuple((topic, index) for topic, index in each["assignment"])})
            for each in self._look()["members"]
        ]

    def committed(self) -> dict[TopicPartition, int]:
        """{(topic, partition): the next offset to read}, as committed."""
        return {(each["topic"], each["partition"]): each["committed"] for each in self._look()["offsets"]}

    def lag(self, of: object = None) -> int:
        """How many records are still to be read; as for a group in this process."""
        query = "" if of is None else f"?{urlencode({'of': str(of)})}"
        return int(self._control.ask("GET", f"{self._path}/lag{query}")["lag"])

    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition with a committed offset."""
        found = self._look()["offsets"]
        return {(each["topic"], each["partition"]): each["lag"] for each in found if each["lag"] is not None}

    def delete(self) -> None:
        """Forget it, its offsets and, if it has any, its members (which join again)."""
        self._control.ask("DELETE", self._path)


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """A request that a broker in another process got."""

    api: str
    version: int
    client_id: str | None
    at_ms: int
    topics: list[str]
    groups: list[str]
    answered: bool
    errors: list[str]
    fault: str | None


class RemoteBroker:
    """A broker that is steered over HTTP."""

    def __init__(self, bootstrap: str, control_url: str) -> None:
        self._bootstrap = bootstrap
        self.control = Control(control_url)
        self.faults = RemoteFaults(self.control)
        self.clock = RemoteClock(self.control)

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`."""
        return self._bootstrap

    @property
    def control_url(self) -> str:
        return self.control.url

    def topic(self, name: str) -> RemoteTopic:
        return RemoteTopic(self.control, name)

    def group(self, group_id: str) -> RemoteGroup:
        return RemoteGroup(self.control, group_id)

    def topics(self) -> list[str]:
        """The names of all topics but the internal ones."""
        return list(self.control.ask("GET", "/topics"))

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return list(self.control.ask("GET", "/groups"))

    def requests(
        self, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None
    ) -> list[RemoteRequest]:
        """The requests that came in, oldest first; the last 2,000 are kept."""
        which = {"api": api, "client_id": client_id, "topic": topic, "group": group}
        query = urlencode({key: value for key, value in which.items() if value is not None})
        return [
            RemoteRequest(**each) for each in self.control.ask("GET", f"/requests?{query}") if "control" not in each
        ]

    def report(self, prefix: str = "") -> str:
        """What is in it, as text for people."""
        return str(self.control.ask("GET", f"/report?{urlencode({'prefix': prefix})}")["text"])

    def reset(self, *, topics: Iterable[str] | None = None, groups: Iterable[str] | None = None) -> None:
        """No topics, no groups, no faults, no requests seen. `topics` and `groups` narrow it."""
        which = {"topics": topics, "groups": groups}
        self.control.ask("POST", "/reset", {key: list(names) for key, names in which.items() if names is not None})

    def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return what its steps did; see docs/faults.md."""
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
