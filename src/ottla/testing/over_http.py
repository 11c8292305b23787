"""A broker in another process, steered over its control endpoint."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from ottla.embedded.clock import duration_ms
from ottla.embedded.groups import TopicPartition
from ottla.embedded.records import Given, Record, difference, parts

_TIMEOUT_S = 60.0
_POLL_S = 0.05
DEFAULT_TIMEOUT_S = 5.0


class Readable(Protocol):
    name: str

    def records(self) -> list[Record]: ...


def wait_for(topic: Readable, condition: Callable[[Record], bool], count: int, timeout: float) -> list[Record]:
    """Look again and again: for topics of brokers that cannot tell us of a new record."""
    deadline = time.monotonic() + timeout
    while True:
        records = topic.records()
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
                raise RemoteError(json.load(error)["error"]) from None
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


class RemoteTopic:
    """A topic of a broker in another process."""

    def __init__(self, control: Control, name: str) -> None:
        self._control = control
        self.name = name
        self._path = f"/topics/{quote(name)}"

    def __str__(self) -> str:
        return self.name

    def create(self, partitions: int = -1, config: dict[str, object] | None = None) -> RemoteTopic:
        self._control.ask("POST", self._path, {"partitions": partitions, "config": config or {}})
        return self

    def delete(self) -> None:
        self._control.ask("DELETE", self._path)

    def records(self, partition: int | None = None) -> list[Record]:
        query = "" if partition is None else f"?partition={partition}"
        found = self._control.ask("GET", f"{self._path}/records{query}")
        return [Record.from_dict(self.name, each) for each in found]

    def texts(self) -> list[str | None]:
        return [record.text for record in self.records()]

    def jsons(self) -> list[Any]:
        return [record.json for record in self.records()]

    def expect(self, expected: Iterable[Given]) -> None:
        diff = difference(list(expected), self.records())
        if diff is not None:
            raise AssertionError(f"topic {self.name} holds something else (- expected, + found):\n{diff}")

    def wait_for(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """Block until `count` records meet the condition and return them; AssertionError with what was there if not."""
        return wait_for(self, condition, count, timeout)

    async def wait_for_async(
        self,
        condition: Callable[[Record], bool] = lambda record: True,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> list[Record]:
        """The same for tests on an asyncio loop."""
        return await asyncio.to_thread(wait_for, self, condition, count, timeout)

    def append(self, records: Iterable[Given], *, partition: int | None = None) -> list[Record]:
        given = []
        for each in records:
            key, value, headers = parts(each)
            record = Record(self.name, 0, -1, -1, key, value, tuple(headers)).to_dict()
            given.append([record["key"], record["value"], record["headers"]])
        body = {"records": given, "partition": partition}
        return [Record.from_dict(self.name, each) for each in self._control.ask("POST", f"{self._path}/records", body)]


class RemoteGroup:
    """A group of a broker in another process."""

    def __init__(self, control: Control, group_id: str) -> None:
        self._control = control
        self.group_id = group_id

    def __str__(self) -> str:
        return self.group_id

    def _look(self) -> Any:
        return self._control.ask("GET", f"/groups/{quote(self.group_id, safe='')}")

    @property
    def state(self) -> str:
        return str(self._look()["state"])

    def members(self) -> list[dict[str, Any]]:
        return list(self._look()["members"])

    def committed(self) -> dict[TopicPartition, int]:
        return {(each["topic"], each["partition"]): each["committed"] for each in self._look()["offsets"]}

    def lag(self) -> int:
        return sum(each["lag"] or 0 for each in self._look()["offsets"])


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
        return list(self.control.ask("GET", "/topics"))

    def groups(self) -> list[str]:
        return list(self.control.ask("GET", "/groups"))

    def requests(self, **which: str) -> list[dict[str, Any]]:
        """What came in, narrowed by api, client_id, topic or group."""
        return list(self.control.ask("GET", f"/requests?{urlencode(which)}"))

    def report(self, prefix: str = "") -> str:
        """What is in it, as text for people."""
        return str(self.control.ask("GET", f"/report?{urlencode({'prefix': prefix})}")["text"])

    def reset(self, **which: list[str]) -> None:
        self.control.ask("POST", "/reset", which)

    def down(self) -> None:
        self.control.ask("POST", "/broker/down")

    def up(self) -> None:
        self.control.ask("POST", "/broker/up")
