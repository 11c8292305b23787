"""Large clusters in a real browser: the page stays responsive, its memory bounded, and nothing is lost silently.

Continuous integration uses smaller numbers for some tests. `scripts/console-scale` uses the full numbers, and prints
the measurements.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, expect

import ottla
from ottla.client.offsets import Committed, commit
from ottla.client.producer import Producer as BatchProducer
from ottla.client.routing import Client
from ottla.records.batch import build_batch
from ottla.records.record import Record

pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)

FULL = os.environ.get("OTTLA_CONSOLE_SCALE") == "full"
TOPICS = 1000
GROUPS = 10_000 if FULL else 500
BATCH_RECORDS = 10_000
RECORDS = 10_000_000 if FULL else 500_000
VALUE_BYTES = 10 << 20
TAIL_RATE = 5000
TAIL_SECONDS = 20 if FULL else 2

LONGEST_TASK_MS = 200
HEAP_MB = 80


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with ottla.serve(console=0, settings={"message.max.bytes": str(12 << 20)}) as found:
        yield found


@pytest.fixture
def console_url(broker: Any) -> str:
    return str(broker.console_url)


def watch(page: Page) -> None:
    page.evaluate(
        """() => { window.longest = 0;
        new PerformanceObserver((list) => {
          for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
        }).observe({ type: "longtask", buffered: false }); }"""
    )


def check(page: Page, what: str) -> None:
    """No task blocked the page, and its memory is bounded."""
    longest = page.evaluate("window.longest")
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap_mb = session.send("Runtime.getHeapUsage")["usedSize"] / (1 << 20)
    print(f"{what}: longest task {longest:.0f} ms, heap {heap_mb:.1f} MB")
    if FULL:  # a busy machine makes every task longer
        assert longest < LONGEST_TASK_MS, what
    assert heap_mb < HEAP_MB, what


def run(broker: Any, work: Any) -> None:
    """Run `work(client)` on a separate loop, because Playwright has one in this thread."""

    async def main() -> None:
        client = Client(broker.bootstrap)
        try:
            await work(client)
        finally:
            await client.close()

    failure: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert not failure, failure


def test_a_thousand_topics(open_page: Any, broker: Any) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(f"topic-{number:04}", 1, 1) for number in range(TOPICS)])
    for future in made.values():
        future.result(60)
    page: Page = open_page("/topics")
    watch(page)
    expect(page.get_by_text(f"200 of {TOPICS} are shown.")).to_be_visible()
    page.get_by_role("button", name="Size").click()
    page.get_by_label("Filter by name").fill("topic-07")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.keyboard.press("Control+k")
    page.get_by_label("Name of a topic, group").fill("topic-0999")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_text("1,000 partitions")).to_be_visible()
    check(page, "1,000 topics")


def test_many_groups(open_page: Any, broker: Any) -> None:
    async def fill(client: Client) -> None:
        for number in range(GROUPS):
            await commit(client, f"group-{number:05}", {("topic-0000", 0): Committed(0)})

    run(broker, fill)
    page: Page = open_page("/groups")
    watch(page)
    expect(page.get_by_text(f"200 of {GROUPS} are shown.")).to_be_visible()
    page.get_by_role("button", name="Lag").click()
    page.get_by_label("Filter by name").fill(f"{GROUPS - 1}")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(page.url.replace("/groups", "/topics/topic-0000/groups"))
    watch(page)
    expect(page.get_by_text(f"200 of {GROUPS} are shown.")).to_be_visible()
    check(page, f"{GROUPS:,} groups")


def test_a_long_topic(open_page: Any, broker: Any) -> None:
    broker.topic("long").create(1)

    async def fill(client: Client) -> None:
        now_ms = int(time.time() * 1000)
        records = [Record(n, now_ms, None, b'{"n": %d}' % n, ()) for n in range(BATCH_RECORDS)]
        batch = build_batch(records)
        producer = BatchProducer(client, idempotent=False)
        for _ in range(RECORDS // BATCH_RECORDS):
            await producer.append(("long", 0), bytearray(batch))

    run(broker, fill)
    page: Page = open_page("/topics/long")
    watch(page)
    expect(page.locator("tbody tr.link")).to_have_count(50)
    page.get_by_label("From").select_option("offset")
    page.get_by_label("Offset", exact=True).fill(str(RECORDS // 2))
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("cell", name=f"{RECORDS // 2:,}", exact=True)).to_be_visible()
    page.get_by_label("JSON").fill("n = -1")  # no record matches: the search stops, and shows how far it got
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("records matches")).to_be_visible()
    page.goto(page.url.partition("?")[0] + "/partitions/0")
    watch(page)
    expect(page.get_by_role("heading", name="Newest batches")).to_be_visible()
    check(page, f"{RECORDS:,} records")


def test_values_of_ten_megabytes(open_page: Any, broker: Any) -> None:
    topic = broker.topic("large")
    topic.create(1, {"max.message.bytes": str(12 << 20)})
    item = {"id": 1, "text": "x" * 100}
    topic.append([json.dumps([item] * (VALUE_BYTES // len(json.dumps(item))))])
    topic.append([os.urandom(VALUE_BYTES)])
    page: Page = open_page("/topics/large")
    watch(page)
    for row in (0, 1):
        page.get_by_role("button", name="Details").nth(row).click()
    for _ in (0, 1):
        page.get_by_role("button", name="Load more").first.click()
        page.wait_for_timeout(500)
    expect(page.get_by_text("Only the beginning is shown.")).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save all of it").last.click()
    assert len(download.value.path().read_bytes()) >= VALUE_BYTES - 200
    check(page, "values of 10 MB")


def test_a_fast_tail(open_page: Any, broker: Any) -> None:
    broker.topic("fast").create(1)
    page: Page = open_page("/topics/fast")
    page.get_by_label("From").select_option("tail")
    expect(page.get_by_text("Live.")).to_be_visible()
    watch(page)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for second in range(TAIL_SECONDS):
        begun = time.monotonic()
        for number in range(TAIL_RATE):
            producer.produce("fast", json.dumps({"n": second * TAIL_RATE + number}).encode())
        producer.flush()
        page.wait_for_timeout(max(0, 1000 * (1 - (time.monotonic() - begun))))
    expect(page.get_by_text(f"{TAIL_RATE * TAIL_SECONDS:,} records seen")).to_be_visible()
    expect(page.get_by_text("they come faster than a page can show")).to_be_visible()
    assert page.locator("tbody tr.link").count() <= 100
    check(page, f"a tail of {TAIL_RATE:,} messages a second")
