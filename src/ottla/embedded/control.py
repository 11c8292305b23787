"""Control of a broker over HTTP, for tests in other languages and for `ottla faults`. Off by default.

Every answer is JSON. Only programs on this machine that run as the broker's user are served. Web pages are not: a
request with another host name, or from a page of another origin, is refused.

    GET    /                         bootstrap address, topics, groups, faults
    GET    /faults    POST /faults   {"kind": "error", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    GET    /faults/1  DELETE /faults/1   DELETE /faults
    GET    /topics/NAME/records      POST /topics/NAME/records  [values] or {"records": […], "partition": 0}
    GET    /topics/NAME              POST /topics/NAME  {"partitions": 3, "config": {}}     DELETE /topics/NAME
    GET    /groups/ID                DELETE /groups/ID    GET /groups/ID/lag?of=TOPIC
    POST   /groups/ID/wait_until_stable      {"members": 3, "timeout": 5}
    POST   /groups/ID/wait_until_caught_up   {"of": "TOPIC", "timeout": 5}
    POST   /topics/NAME/compact_now  POST /topics/NAME/delete_old_now
    POST   /topics/NAME/wait         {"count": 3, "timeout": 5}
    GET    /requests?api=Fetch&client_id=…      POST /requests/wait  {"api": "Fetch", "count": 1, "timeout": 5}
    POST   /snapshots                POST /snapshots/1/restore    DELETE /snapshots/1
    POST   /branches                 DELETE /branches/1
    POST   /recordings               {"path": "run.jsonl"}        DELETE /recordings/1
    POST   /clock/advance            {"minutes": 10}
    POST   /broker/down | up | kill | restart        POST /reset
    …      /registry/faults          of the schema registry: {"kind": "error", "call": "POST *", "status": 503}
    POST   /registry/down | up       GET /registry/requests
    GET    /report?prefix=…          topics, groups and requests as text, for people
    POST   /scenario                 a scenario in YAML or JSON
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ottla import system
from ottla.embedded.control_state import KeptState
from ottla.embedded.records import from_json
from ottla.embedded.stopped import BrokerStopped
from ottla.embedded.topic_handle import DEFAULT_TIMEOUT_S
from ottla.embedded.unknown_names import NotFoundError, unknown_group
from ottla.http.endpoint import HttpEndpoint
from ottla.http.requests import HttpAnswer, HttpError, HttpRequest, app_of
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.embedded import registry_control, report, scenario
    from ottla.embedded.broker import Broker
    from ottla.embedded.topics import AsyncTopic
else:
    registry_control = lazy("ottla.embedded.registry_control")
    report = lazy("ottla.embedded.report")
    scenario = lazy("ottla.embedded.scenario")

HOST: Final = "127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_BODY_BYTES_MAX: Final = 64 * 1024 * 1024


class ControlServer:
    """One endpoint per broker; it stays up while the broker is down."""

    def __init__(self, broker: Broker, port: int) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"control={port} is not a port; 0 chooses a free one")
        self._broker = broker
        self._kept = KeptState(broker)
        self._endpoint = HttpEndpoint(HOST, port, app_of(self._answer, body_bytes_max=_BODY_BYTES_MAX, refuse=_refused))

    @property
    def url(self) -> str:
        return self._endpoint.url

    async def start(self) -> None:
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await self._kept.close()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        host = re.sub(r":\d*$", "", request.headers.get("host", HOST))
        if host not in _LOCAL_NAMES or "origin" in request.headers:
            raise HttpError(403, "only programs on this machine are served")
        if request.ends is not None and system.is_of_another_user(*request.ends):
            raise HttpError(403, "only programs of the user who runs the broker are served")
        try:
            return _json(200, await self._route(request))
        except BrokerStopped as error:
            raise HttpError(409, str(error)) from error
        except NotFoundError as error:
            raise HttpError(404, str(error)) from error
        except (ValueError, TypeError, KeyError, AssertionError, RuntimeError) as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise HttpError(400, str(message)) from error

    async def route(self, request: HttpRequest) -> Any:
        """Answer a request that did not arrive over HTTP."""
        return await self._route(request)

    async def _route(self, request: HttpRequest) -> Any:
        name = request.parts[0] if request.parts else ""
        handlers: dict[str, Callable[[HttpRequest], Awaitable[Any]]] = {
            "": self._overview,
            "faults": self._faults,
            "topics": self._topics,
            "groups": self._groups,
            "requests": self._requests,
            "clock": self._clock,
            "broker": self._life,
            "reset": self._reset,
            "scenario": self._scenario,
            "report": self._report,
            "snapshots": lambda request: self._kept.snapshots(request.method, request.parts[1:]),
            "branches": lambda request: self._kept.branches(request.method, request.parts[1:], options_of(request)),
            "recordings": lambda request: self._kept.recordings(request.method, request.parts[1:], options_of(request)),
            "registry": self._registry,
        }
        if name not in handlers:
            raise HttpError(404, f"there is no /{name}; use {', '.join('/' + each for each in handlers)}")
        return await handlers[name](request)

    async def _overview(self, request: HttpRequest) -> Any:
        broker = self._broker
        if not broker.is_running:
            return {"running": False, "bootstrap": None, "faults": [fault.to_dict() for fault in broker.faults]}
        return {
            "running": True,
            "bootstrap": broker.bootstrap,
            "listeners": broker.listener_addresses,
            "topics": broker.topics(),
            "groups": broker.groups(),
            "faults": [fault.to_dict() for fault in broker.faults],
        }

    async def _faults(self, request: HttpRequest) -> Any:
        faults = self._broker.faults
        if len(request.parts) > 1:
            if not request.parts[1].isdigit():
                raise HttpError(404, f"{request.parts[1]!r} is not the number of a fault")
            try:
                fault = faults.get(int(request.parts[1]))
            except KeyError as error:
                raise HttpError(404, error.args[0]) from None
            if method_of(request, "GET", "DELETE") == "DELETE":
                fault.remove()
            return fault.to_dict()
        method = method_of(request, "GET", "POST", "DELETE")
        if method == "GET":
            return [fault.to_dict() for fault in faults.all]
        if method == "DELETE":
            faults.clear()
            return {}
        options = options_of(request)
        if "kind" not in options:
            raise HttpError(400, 'name the fault: {"kind": "error", …}; see docs/faults.md')
        return faults.apply(options.pop("kind"), **options).to_dict()

    async def _topics(self, request: HttpRequest) -> Any:
        if len(request.parts) == 1:
            return self._broker.topics()
        topic = self._broker.topic(request.parts[1])
        if len(request.parts) == 2:
            method = method_of(request, "GET", "POST", "DELETE")
            if method == "DELETE":
                topic.delete()
                return {"topic": topic.name, "partitions": 0}
            if method == "POST":
                options = options_of(request)
                topic.create(options.get("partitions", -1), options.get("config"))
            return {"topic": topic.name, "partitions": topic.partitions, "end_offsets": topic.end_offsets()}
        if request.parts[2] != "records":
            return await self._topic_verb(topic, request)
        if method_of(request, "GET", "POST") == "POST":
            given = _body(request)
            options = given if isinstance(given, dict) else {"records": given}
            records = [_given(each) for each in options.get("records", [])]
            done = topic.append(records, partition=options.get("partition"), timestamp_ms=options.get("timestamp"))
            await topic.until_readable(done)
            return [record.to_dict() for record in done]
        partition = request.query.get("partition")
        committed_only = request.query.get("committed_only", "true") != "false"
        found = topic.records(None if partition is None else int(partition), committed_only=committed_only)
        return [record.to_dict() for record in found]

    async def _topic_verb(self, topic: AsyncTopic, request: HttpRequest) -> Any:
        verb = request.parts[2]
        if verb not in ("wait", "compact_now", "delete_old_now"):
            raise HttpError(404, "a topic has /records, /wait, /compact_now and /delete_old_now")
        method_of(request, "POST")
        if verb == "wait":
            options = options_of(request)
            found = await topic.wait_for_all(
                count=int(options.get("count", 1)), timeout=float(options.get("timeout", DEFAULT_TIMEOUT_S))
            )
            return [record.to_dict() for record in found]
        if verb == "compact_now":
            topic.compact_now()
            return {}
        return {"segments": topic.delete_old_now()}

    async def _groups(self, request: HttpRequest) -> Any:
        if len(request.parts) == 1:
            return self._broker.groups()
        group = self._broker.group(request.parts[1])
        if request.parts[2:] == ["lag"]:
            return {"lag": group.lag(request.query.get("of"))}
        if request.parts[2:] in (["wait_until_stable"], ["wait_until_caught_up"]):
            method_of(request, "POST")
            await getattr(group, f"{request.parts[2]}_async")(**options_of(request))
            return {"state": group.state}
        if method_of(request, "GET", "DELETE") == "DELETE":
            group.delete()
            return {}
        if group.state == "Dead" and not group.committed():
            raise unknown_group(group.group_id, self._broker.groups())
        lags = group.lags()
        return {
            "group": group.group_id,
            "state": group.state,
            "members": [asdict(member) for member in group.members()],
            "offsets": [
                {"topic": topic, "partition": index, "committed": offset, "lag": lags.get((topic, index))}
                for (topic, index), offset in group.committed().items()
            ],
        }

    async def _requests(self, request: HttpRequest) -> Any:
        if request.parts[1:] == ["wait"]:
            method_of(request, "POST")
            return (await self._broker.wait_for_request_async(**options_of(request))).to_dict()
        known = {key: request.query.get(key) for key in ("api", "client_id", "topic", "group")}
        return [seen.to_dict() for seen in self._broker.requests(**known)]

    async def _clock(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        if request.parts[1:] != ["advance"]:
            raise HttpError(404, "the clock has /clock/advance")
        self._broker.clock.advance(**options_of(request))
        return {"now_ms": self._broker.clock.now_ms()}

    async def _life(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        verbs = {name: getattr(self._broker, name) for name in ("down", "up", "kill", "restart")}
        verb = verbs.get(request.parts[1] if len(request.parts) > 1 else "")
        if verb is None:
            raise HttpError(404, f"a broker can go {', '.join(verbs)}")
        await verb()
        return {"running": self._broker.is_running}

    async def _reset(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        self._broker.reset(**options_of(request))
        return {}

    async def _registry(self, request: HttpRequest) -> Any:
        registry = self._broker.own_registry()
        return await registry_control.steer(registry, request.method, request.parts[1:], options_of(request))

    async def _report(self, request: HttpRequest) -> Any:
        return {"text": report.report(self._broker, prefix=request.query.get("prefix", ""))}

    async def _scenario(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        return await scenario.run_scenario(self._broker, scenario.parse(request.body.decode()))


def _json(status: int, answer: Any) -> HttpAnswer:
    return HttpAnswer(status, "application/json", json.dumps(answer, ensure_ascii=False).encode() + b"\n")


def _refused(status: int, message: str) -> HttpAnswer:
    return _json(status, {"error": message})


def _body(request: HttpRequest) -> Any:
    try:
        return json.loads(request.body) if request.body.strip() else {}
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None


def options_of(request: HttpRequest) -> dict[str, Any]:
    found = _body(request)
    if not isinstance(found, dict):
        raise HttpError(400, "the body must be a JSON object")
    return found


def _given(item: Any) -> Any:
    """A value, or [key, value] or [key, value, headers]."""
    if not isinstance(item, list):
        return from_json(item)
    key, value, *headers = item
    return from_json(key), from_json(value), [(name, from_json(data)) for name, data in (headers or [[]])[0]]


def method_of(request: HttpRequest, *allowed: str) -> str:
    if request.method not in allowed:
        raise HttpError(405, f"{request.method} is not possible here; use {' or '.join(allowed)}")
    return request.method
