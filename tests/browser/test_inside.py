"""What only the broker's own console shows: rebalances, storage, powers."""

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_a_group_page_shows_why_it_rebalanced(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(1)
    topic.append(["a", "b"])
    options = {"group.id": "billing", "client.id": "one", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **options})
    consumer.subscribe(["t"])
    assert len(consumer.consume(1, 30)) == 1
    page: Page = open_page("/groups/billing")
    history = page.get_by_label("Rebalances, newest first")
    expect(history).to_contain_text("Generation 1")
    expect(history).to_contain_text("joined")
    consumer.close()
    expect(history).to_contain_text("left")
    expect(page.get_by_text("behind in time")).to_be_visible()


def test_the_plots_of_a_group_show_its_first_answer(open_page: Any, broker: Any) -> None:
    broker.topic("t").create(1)
    broker.topic("t").append([f"v{number}" for number in range(10)])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    consumer.close()
    page: Page = open_page("/groups")
    answers = iter([True])
    page.route("**/api/v1/groups/billing", lambda route: route.continue_() if next(answers, False) else None)
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("img", name="lag in records over time, now 6")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"lag in seconds over time, now \d"))).to_be_visible()


def test_a_partition_is_drawn_and_an_offset_looked_up(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(1, {"index.interval.bytes": "3000"})
    for _ in range(40):
        topic.append(["x" * 1000])
    page: Page = open_page("/topics/t/partitions")
    page.get_by_role("region", name="Partitions").get_by_role("link", name="0").click()
    expect(page.get_by_role("img", name="1 segment, offsets 0 to 40")).to_be_visible()
    page.get_by_label("Offset", exact=True).fill("25")
    page.get_by_role("button", name="Look up").click()
    steps = page.get_by_label("Steps of the look-up")
    expect(steps).to_contain_text(".index")
    expect(steps).to_contain_text("in the batch with offsets 25 to 25")
    page.get_by_label("Offset", exact=True).fill("99")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("alert")).to_contain_text("the log has offsets 0 to 39")


def test_a_fault_is_made_and_removed_by_hand(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/powers")
    page.get_by_role("button", name="Set fault").click()
    expect(page.get_by_text("in force")).to_be_visible()
    assert len(broker.faults) == 1
    page.get_by_role("button", name="Remove fault").click()
    expect(page.get_by_text("over", exact=True)).to_be_visible()
    before = broker.clock.now_ms()
    page.get_by_role("button", name="+1 h").click()
    page.get_by_role("button", name="down", exact=True).click()
    page.get_by_role("button", name="up", exact=True).click()
    expect(page.get_by_role("button", name="down", exact=True)).to_be_visible()
    assert broker.clock.now_ms() >= before + 3_600_000


@pytest.mark.outside
@pytest.mark.parametrize("path", ["/powers", "/topics/t/partitions/0"])
def test_another_cluster_says_why_there_is_nothing(open_page: Any, broker: Any, path: str) -> None:
    broker.topic("t").create(1)
    page: Page = open_page(path)
    expect(page.get_by_text("sees the cluster from outside")).to_be_visible()
