"""/associations, limited to what serializers and their tests use."""

from __future__ import annotations

from typing import Any

from .. import names
from ..operations import Outcome
from ..operations.associations import ANY_NAMESPACE, remove, select, update
from .http import Call


def _selected(call: Call, wanted: dict[str, str]) -> Outcome[Any]:
    if resource_type := call.text("resourceType"):
        wanted["resourceType"] = resource_type
    if lifecycle := call.text("lifecycle"):
        wanted["lifecycle"] = lifecycle.upper()
    return Outcome(call.page(select(call.state, wanted, call.texts("associationType"))))


def get_by_resource_name(call: Call) -> Outcome[Any]:
    wanted = {"resourceName": call.params["name"]}
    if call.params["namespace"] != ANY_NAMESPACE:
        wanted["resourceNamespace"] = call.params["namespace"]
    return _selected(call, wanted)


def get_by_resource_id(call: Call) -> Outcome[Any]:
    return _selected(call, {"resourceId": call.params["resource"]})


def get_by_subject(call: Call) -> Outcome[Any]:
    return _selected(call, {"subject": names.normalize(call.params["subject"])})


def create(call: Call) -> Outcome[Any]:
    return update(call.state, call.object(), create=True)


def create_or_update(call: Call) -> Outcome[Any]:
    return update(call.state, call.object(), create=False)


def delete(call: Call) -> Outcome[Any]:
    return remove(call.state, call.params["resource"], call.texts("associationType"))
