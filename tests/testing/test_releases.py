"""Brokers that look like older releases."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

import ottla
from ottla.client import Client
from ottla.embedded.releases import RELEASES, advertised, canonical, registry_of
from ottla.server.api import registered_apis
from ottla.testing import serve
from ottla.wire.messages import ApiVersionsRequest


async def asked(bootstrap: str, version: int) -> Any:
    async with Client(bootstrap) as client:
        connection = await client.connection()
        return await connection.send(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), version
        )


@pytest.mark.parametrize("release", RELEASES)
def test_an_old_release_advertises_its_apis(run: Any, release: str) -> None:
    async def main() -> None:
        async with ottla.Broker(as_version=release) as broker:
            response = await asked(broker.bootstrap, 0)
            found = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            expected = advertised(release)
            served = registered_apis().apis
            assert set(found) == set(expected) & {key for key, api in served.items() if api.advertised}
            for key, (low, high) in found.items():
                assert low == max(expected[key][0], served[key].min_version)
                assert high == min(expected[key][1], served[key].max_version)

    run(main())


def test_the_newest_row_hides_nothing_new() -> None:
    newest = registry_of(RELEASES[-1]).apis
    assert all(
        newest[key].max_version == api.max_version for key, api in registered_apis().apis.items() if key in newest
    )


def test_known_versions_of_releases_are_served() -> None:
    assert advertised("0.10.0")[18] == (0, 0) and 19 not in advertised("0.10.0")
    assert advertised("2.8")[1] == (0, 12) and advertised("2.8")[3] == (0, 11)
    assert advertised("3.9")[0] == (0, 11) and advertised("4.0")[1] == (4, 17)
    assert advertised("4.0")[11] == (2, 9) and advertised("4.1")[11] == (0, 9)


def test_names_of_releases() -> None:
    assert [canonical(each) for each in ("2.8.1", "0.10.2.1", "0.11.0.3", "4.3.1")] == ["2.8", "0.10.2", "0.11", "4.3"]
    with pytest.raises(ValueError, match="choose one of"):
        canonical("5.0")


def test_only_newer_releases_have_features(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker(as_version="3.9") as old, ottla.Broker(as_version="4.0") as new:
            assert (await asked(old.bootstrap, 3)).finalized_features == []
            assert (await asked(new.bootstrap, 3)).finalized_features != []

    run(main())


@pytest.mark.parametrize("release", ["0.11", "1.1", "2.8", "3.9", "4.3"])
def test_a_client_works_with_an_old_release(release: str, produce: Any) -> None:
    with serve(as_version=release) as broker:
        assert produce(broker.bootstrap, "t") is None
        settings = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0, "enable.auto.commit": False}
        reader = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        try:
            reader.subscribe(["t"])
            message = reader.poll(10)
            assert message is not None and message.value() == b"x"
            reader.commit(message, asynchronous=False)
        finally:
            reader.close()
        assert broker.group("g").committed() == {("t", 0): 1}
        highest = {request.version for request in broker.requests(api="Fetch")}
        assert max(highest) <= advertised(release)[1][1]


def test_faults_apply_only_to_served_apis(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker(as_version="0.10.2") as broker:
            with pytest.raises(ValueError, match="serves no API 'InitProducerId'"):
                broker.faults.error("InitProducerId", "INVALID_REQUEST")
            with pytest.raises(ValueError, match="Fetch 0 to 3"):
                broker.faults.error("Fetch", "INVALID_REQUEST", version="4+")

    run(main())


def test_the_documentation_lists_the_releases() -> None:
    page = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()
    assert RELEASES[0] in page and RELEASES[-1] in page
