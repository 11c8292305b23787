"""The example of a secured broker, configs/secure.properties: it starts, and its administrator has a name."""

from typing import Any

import pytest

from ottla.config.properties import parse_properties
from ottla.errors import TopicAuthorizationFailed
from support.paths import ROOT
from support.requests import create_topic_request

PASSWORD = "change-me"


@pytest.fixture
def settings(certificates: Any) -> dict[str, object]:
    """The file, with free ports and a key store."""
    text = (ROOT / "configs" / "secure.properties").read_text()
    values: dict[str, object] = {key: value for key, (value, _) in parse_properties(text).items()}
    for port in (9092, 9093, 9094):
        values["listeners"] = str(values["listeners"]).replace(f"localhost:{port}", "127.0.0.1:0")
    return {**values, "ssl.keystore.location": str(certificates.server), "log.dirs": "unused"}


def test_the_administrator_has_a_name(run: Any, run_broker: Any, settings: dict[str, object]) -> None:
    async def main() -> None:
        async with run_broker(settings=settings) as running:
            nobody = await running.connect()
            nobody.send(create_topic_request("t"), 5)
            assert await nobody.is_closed(), "there is no listener for anonymous clients"
            for user, code in (("alice", TopicAuthorizationFailed.code), ("admin", 0)):
                client = await running.connect()
                assert (await client.log_in(user, PASSWORD)).error_code == 0
                answer = await client.call(create_topic_request("t"), 5)
                assert answer.topics[0].error_code == code

    run(main())


def test_nobody_is_a_super_user(settings: dict[str, object]) -> None:
    assert "ANONYMOUS" not in str(settings["super.users"])
