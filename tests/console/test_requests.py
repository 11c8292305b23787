"""The requests of clients, as the broker's own console shows them."""

import asyncio
import json
import threading
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

import ottla
from ottla.console.inside import inside_of
from ottla.console.server import ConsoleServer, own_console
from ottla.server.broker import Broker
from support.console import Console, served


def events(url: str, until: Any) -> list[tuple[str, Any]]:
    """The events of a stream of server-sent events, up to the one for which `until` is true."""
    found: list[tuple[str, Any]] = []
    kind = ""
    with urlopen(url, timeout=30) as stream:
        for raw in stream:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((kind, json.loads(line.removeprefix("data: "))))
                if until(*found[-1]):
                    return found
    raise AssertionError(f"the stream ended: {found}")


def produce(bootstrap: str, topic: str, client_id: str = "shop") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 0})
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


def test_a_request_is_listed_and_shown_in_full(own_console: Console) -> None:
    own_console.broker.topic("orders").create(1)
    produce(own_console.broker.bootstrap, "orders")
    (row,) = [each for each in own_console.get("/requests") if each["api"] == "Produce"]
    assert (row["client"], row["about"], row["errors"], row["fault"]) == ("shop", ["orders"], [], None)
    assert row["took_us"] >= 0
    full = own_console.get(f"/requests/{row['number']}")
    (topic,) = full["request"]["topic_data"]
    assert topic["name"] == "orders"
    assert topic["partition_data"][0]["records"].endswith("bytes of records")
    assert full["response"]["responses"][0]["partition_responses"][0]["base_offset"] == 0


def test_a_fault_and_its_error_are_shown(own_console: Console) -> None:
    own_console.broker.topic("orders").create(1)
    own_console.broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    produce(own_console.broker.bootstrap, "orders")
    first, *_ = [each for each in own_console.get("/requests") if each["api"] == "Produce"]
    assert first["errors"] == ["NOT_LEADER_OR_FOLLOWER"]
    assert "NOT_LEADER_OR_FOLLOWER" in first["fault"]


def test_live_requests_come_with_their_answers(own_console: Console) -> None:
    own_console.broker.topic("orders").create(1)
    threading.Timer(0.3, produce, (own_console.broker.bootstrap, "orders")).start()

    def is_produced(kind: str, data: Any) -> bool:
        return kind == "requests" and any(each["api"] == "Produce" and each["took_us"] is not None for each in data)

    found = events(f"{own_console.url}/api/v1/requests/live", is_produced)
    assert any(kind == "status" and data["missed"] == 0 for kind, data in found)


def test_a_request_that_is_no_longer_kept_is_not_found(own_console: Console) -> None:
    answer = own_console.ask("GET", "/requests/999999999")
    assert (answer.status, answer.data["error"]) == (404, "request 999999999 is no longer kept")


def test_requests_of_another_cluster_are_not_shown() -> None:
    with (
        ottla.serve() as broker,
        served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0)) as url,
    ):
        console = Console(url)
        assert "from outside" in console.get("/console")["missing"]
        assert console.ask("GET", "/requests").status == 404
        assert console.ask("GET", "/requests/live").status == 404


@pytest.mark.asyncio
async def test_a_broker_records_requests_only_while_a_page_watches() -> None:
    async with Broker() as broker:
        console = own_console(inside_of(broker), 0)
        await console.start()
        url = f"{console.url}/api/v1/requests"
        host, port = broker.addresses[0]
        await asyncio.to_thread(produce, f"{host}:{port}", "early")

        def listed() -> list[Any]:
            with urlopen(url, timeout=30) as answer:
                return list(json.load(answer))

        assert await asyncio.to_thread(listed) == []
        watched = asyncio.create_task(
            asyncio.to_thread(events, f"{url}/live", lambda kind, data: kind == "requests" and "late" in str(data))
        )
        while not watched.done():  # the stream may begin between two requests of one client
            await asyncio.to_thread(produce, f"{host}:{port}", "late")
        await watched
        kept = await asyncio.to_thread(listed)
        assert {each["about"][0] for each in kept if each["api"] == "Produce"} == {"late"}
        count = -1
        while count != (count := len(await asyncio.to_thread(listed))):  # until the stream's end has been noticed
            await asyncio.to_thread(produce, f"{host}:{port}", "late")
        await asyncio.to_thread(produce, f"{host}:{port}", "after")
        assert "after" not in str(await asyncio.to_thread(listed))
        await console.stop()
