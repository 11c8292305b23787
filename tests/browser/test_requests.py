"""The timeline of requests in a real browser."""

import json
import os
import re
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_requests_appear_and_one_is_shown_in_full(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_page("/requests")
    expect(page.get_by_text("They are recorded while this page is open.")).to_be_visible()
    broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop"})
    producer.produce("orders", b"v")
    assert producer.flush(20) == 0
    expect(page.get_by_label("Timeline of")).to_be_visible()
    page.get_by_label("Filter requests").fill("produce shop")
    rows = page.get_by_role("region", name="Latest requests").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("NOT_LEADER_OR_FOLLOWER")
    page.get_by_role("button", name="Produce v").first.click()
    detail = page.get_by_label("Request in full")
    expect(detail).to_contain_text("partition_responses")
    expect(detail).to_contain_text("bytes of records")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    exported = json.loads(download.value.path().read_text())
    assert [each["api"] for each in exported] == ["Produce", "Produce"]


def test_a_click_in_the_timeline_picks_a_request_that_waits(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_page("/requests")
    page.get_by_label("Filter requests").fill("fetch reader -offset")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "reader", "group.id": "g", "fetch.wait.max.ms": 5000}
    )
    consumer.subscribe(["orders"])
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        timeline = page.get_by_label("Timeline of")
        expect(page.get_by_text("waiting", exact=True).first).to_be_visible(timeout=30_000)
        page.wait_for_timeout(1500)  # the bar of the long poll grows with real time
        page.get_by_role("button", name="Pause").click()
        box = timeline.bounding_box()
        assert box is not None
        timeline.click(position={"x": box["width"] - 6, "y": 22 + 20 + 7})
        expect(page.get_by_label("Request in full")).to_contain_text("Fetch v")
    finally:
        stop.set()
        polling.join()
        consumer.close()


def test_ten_thousand_requests_stay_smooth(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/requests")
    expect(page.get_by_text("They are recorded")).to_be_visible()
    page.evaluate(
        """() => { window.longest = 0;
        new PerformanceObserver((list) => {
          for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
        }).observe({ type: "longtask", buffered: false }); }"""
    )
    broker.topic("orders").create(1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "shop", "linger.ms": 0, "batch.num.messages": 1}
    )
    for number in range(10_000):
        producer.produce("orders", str(number).encode())
    assert producer.flush(60) == 0
    expect(page.get_by_label("Timeline of 10,0")).to_be_visible(timeout=60_000)
    page.get_by_label("Zoom out").click()
    page.wait_for_timeout(1000)
    longest = page.evaluate("window.longest")
    print(f"10,000 requests: longest task {longest:.0f} ms")
    if os.environ.get("OTTLA_CONSOLE_SCALE") == "full":  # a measurement, not for a machine that does other things
        assert longest < 200


@pytest.mark.outside
def test_another_cluster_says_why_there_is_nothing(open_page: Any) -> None:
    page: Page = open_page("/requests")
    expect(page.get_by_text("sees the cluster from outside")).to_be_visible()


def test_connections_one_after_another_share_a_row(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_page("/requests")
    expect(page.get_by_text("Waiting for requests")).to_be_visible()
    for _ in range(6):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop"})
        producer.produce("orders", b"x")
        producer.flush(30)
        del producer
    canvas = page.locator(".timeline canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile(r"Timeline of \d\d+ requests of 1 client"))
    assert canvas.bounding_box()["height"] < 130, "twelve rows would be higher"
