"""Which clients a subscription selects."""

from ottla.server.telemetry import ClientTraits, _selects

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
