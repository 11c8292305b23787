"""Which clients a subscription selects, and how many are remembered."""

import pytest

from ottla.clock import ManualClock
from ottla.config import Config
from ottla.errors import ThrottlingQuotaExceeded
from ottla.metadata.image import MetadataImage
from ottla.server import telemetry
from ottla.server.telemetry import ClientMetrics, ClientTraits, _selects

TRAITS = ClientTraits("id", "a" * 40, "librdkafka", "2.3", "127.0.0.1", "9092")


def test_patterns_select_by_their_whole_text() -> None:
    assert _selects(("client_software_name=lib.*", "client_software_version=2\\..*"), TRAITS)
    assert not _selects(("client_software_name=lib",), TRAITS)
    assert not _selects(("client_software_name=lib.*", "client_software_version=3.*"), TRAITS)
    assert _selects((), TRAITS)


def test_no_pattern_takes_exponential_time() -> None:
    """With a backtracking engine this one takes 2^40 steps for a client id of forty letters."""
    assert not _selects(("client_id=(a+)+b",), TRAITS)


def test_a_pattern_that_re2_does_not_take_selects_nobody() -> None:
    assert not _selects(("client_id=(?=a)a+",), TRAITS)


def test_clients_that_ask_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that was silent the longest is forgotten; a known client keeps its interval."""
    monkeypatch.setattr(telemetry, "INSTANCES_MAX", 100)
    clients = ClientMetrics(MetadataImage(), ManualClock(1_700_000_000_000))
    config = Config.load()
    for number in range(10_000):
        clients.subscribe(number.to_bytes(16, "big"), TRAITS, config)
    assert len(clients._instances) == 100
    with pytest.raises(ThrottlingQuotaExceeded):
        clients.subscribe((9_999).to_bytes(16, "big"), TRAITS, config)
    clients.subscribe((1).to_bytes(16, "big"), TRAITS, config)
