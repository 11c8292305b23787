"""What handlers declare about their APIs, and how a broker uses it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api_table import APIS
from ottla.enums import AnsweredBy, ApiKey
from ottla.errors import UnknownServerError
from ottla.server.api import Api, Handler, OpenToAll, RequestContext, handles, registered_apis
from ottla.server.api.declaration import DECLARED
from ottla.server.metrics import error_finder
from ottla.wire.messages import HeartbeatRequest, OffsetFetchRequest, ProduceRequest

ALL = registered_apis().apis.values()


def context(api: Api, version: int) -> RequestContext:
    sender: Any = SimpleNamespace(principal="User:u", services=None)
    return RequestContext(sender, api.key, version, 0, "c", 0)


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in ALL])
def test_every_api_can_answer_an_error(api: Api) -> None:
    """For an empty request, only the type of the answer can be checked: some answers have errors only per item."""
    request = ProduceRequest(acks=-1) if api.key == ApiKey.PRODUCE else api.request()  # with acks=0 it is None
    answer = api.on_error(context(api, api.max_version), request, UnknownServerError())
    assert type(answer) is api.response
    assert set(error_finder(api.response)(answer)) <= {UnknownServerError.code}


@pytest.mark.parametrize("version", [1, 2, 8])
def test_the_error_of_a_fetch_of_offsets_has_its_place_in_each_version(version: int) -> None:
    api = registered_apis().apis[ApiKey.OFFSET_FETCH]
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g")]
    request = OffsetFetchRequest(group_id="g", topics=topics, groups=groups)
    answer = api.on_error(context(api, version), request, UnknownServerError())
    assert answer is not None
    sent = api.response.decode(answer.encode(version), version)
    assert error_finder(api.response)(sent) == [UnknownServerError.code]


def test_a_declaration_that_the_table_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = registered_apis().apis[ApiKey.HEARTBEAT]
    assert declared.handler.__name__ == "heartbeat"
    monkeypatch.delitem(DECLARED, ApiKey.HEARTBEAT)
    declare = handles(HeartbeatRequest, answered_by=AnsweredBy.CONTROLLER, permission=OpenToAll("a test"))
    with pytest.raises(AssertionError, match="out of date about HeartbeatRequest: run scripts/generate"):
        declare(declared.handler)


def test_wrapped_handlers_are_made_when_they_are_needed() -> None:
    made = []

    def wrap(api: Api) -> Handler:
        made.append(api.name)
        return lambda ctx, request: api.handler(ctx, request)

    registry = registered_apis().wrapped(wrap)
    assert made == []
    narrowed = registry.apis[ApiKey.HEARTBEAT].replace(max_version=2)
    route = registry.route(ApiKey.HEARTBEAT, 4)
    assert route is not None
    assert route.handler is not registered_apis().apis[ApiKey.HEARTBEAT].handler
    assert made == ["Heartbeat"]
    assert (narrowed.handler, narrowed.max_version) == (route.handler, 2)
    assert made == ["Heartbeat"]


def test_the_table_shows_which_requests_the_controller_answers() -> None:
    """A broker forwards the controller's requests without loading the handlers."""
    script = (
        "import sys\nfrom ottla.enums import AnsweredBy\nfrom ottla.server.api import registered_apis\n"
        "apis = registered_apis().apis.values()\n"
        "print(*[api.name for api in apis if api.answered_by is AnsweredBy.CONTROLLER])\n"
        "print(*[name for name in sys.modules if name.startswith('ottla.server.apis.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names, imported = done.stdout.split("\n")[:2]
    assert {"CreateTopics", "DescribeQuorum", "AlterConfigs"} <= set(names.split())
    assert imported == ""
    asked = {row.name for row in APIS.values() if row.answered_by is AnsweredBy.CONTROLLER and not row.changes_metadata}
    assert asked == {"DescribeQuorum", "ListPartitionReassignments"}
