"""The JSON API matches its OpenAPI description for any request."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

import ottla
from ottla import __version__
from ottla.console.app import STREAMS
from ottla.console.operations import openapi

schema = schemathesis.openapi.from_dict(openapi(__version__, STREAMS))
KEPT = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
]
ENDLESS = r"/(tail|live|export|raw)$"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with a topic, records and a group."""
    with ottla.serve(console=0, clock="virtual") as broker:
        broker.topic("orders").create(2)
        broker.topic("orders").append([("k", '{"id": 1}'), ("k", None)])
        yield broker.console_url


@schema.exclude(path_regex=ENDLESS).parametrize()
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_an_answer_is_as_described(case: schemathesis.Case, address: str) -> None:
    if case.path_parameters and "topic" in case.path_parameters:
        case.path_parameters["topic"] = "orders"  # an invented name does not exist
    case.call_and_validate(base_url=address, checks=KEPT)
