"""Every page of the console in a real browser, with real clients at work."""

import json
import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Page, expect

from support.waiting import wait_for

pytestmark = pytest.mark.browser
expect.set_options(timeout=20_000)


def test_overview_leads_to_topics_and_groups(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(3)
    page: Page = open_page("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text(broker.bootstrap)).to_be_visible()
    page.get_by_role("link", name="1 topic").click()
    expect(page).to_have_url(re.compile("/topics$"))
    expect(page.get_by_role("link", name="orders")).to_be_visible()


def test_a_topic_is_created_filled_and_deleted(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Settings").fill("retention.ms=60000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    assert broker.topic("orders").partitions == 2

    page.get_by_role("button", name="Produce").click()
    page.get_by_label("No key").uncheck()
    page.get_by_label("Key", exact=True).fill("k1")
    page.get_by_label("Value", exact=True).fill('{"id": 7}')
    page.get_by_label("Headers").fill("trace=abc")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Written to partition")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    (record,) = broker.topic("orders").records()
    assert (record.key, record.value, record.headers) == (b"k1", b'{"id": 7}', (("trace", b"abc"),))

    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="Details").click()
    expect(page.get_by_text("trace:")).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    confirm = page.get_by_role("button", name="Delete topic")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type orders to confirm").fill("orders")
    confirm.click()
    expect(page.get_by_text("There are no topics yet.")).to_be_visible()
    assert broker.topics() == []


def test_a_refused_topic_says_why(open_page: Any) -> None:
    page: Page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("bad/name")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("INVALID_TOPIC_EXCEPTION")


def test_messages_are_filtered_by_json(open_page: Any, broker: Any) -> None:
    topic = broker.topic("users")
    topic.create(1)
    topic.append([json.dumps({"age": age}) for age in (10, 20, 30)])
    page: Page = open_page("/topics/users")
    rows = page.locator("tbody tr.link")
    expect(rows).to_have_count(3)
    page.get_by_label("JSON").fill("age > 15")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(2)
    page.get_by_label("JSON").fill("age > old")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("compares with a number")


def test_html_in_a_record_is_shown_and_never_run(open_page: Any, broker: Any) -> None:
    attack = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
    topic = broker.topic("t")
    topic.create(1)
    topic.append([(attack, attack, [(attack, attack)]), (None, json.dumps({attack: attack}))])
    page: Page = open_page("/topics/t")
    for button in page.get_by_role("button", name="Details").all():
        button.click()
    expect(page.get_by_text("onerror").first).to_be_visible()
    assert page.locator("img[src=x]").count() == 0


def test_a_live_tail_shows_new_records_as_they_come(open_page: Any, broker: Any) -> None:
    broker.topic("t").create(1)
    page: Page = open_page("/topics/t")
    page.get_by_label("From").select_option("tail")
    expect(page.get_by_text("Live.")).to_be_visible()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce("t", f"message {number}".encode())
    producer.flush()
    expect(page.locator("tbody tr.link")).to_have_count(20)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Live.")).to_be_hidden()
    producer.produce("t", b"in the pause")
    producer.flush()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Live. 21 records seen, 21 match")).to_be_visible()
    expect(page.get_by_role("cell", name="in the pause")).to_be_visible()
    expect(page.locator("tbody tr.link")).to_have_count(21)


def test_a_search_for_messages_has_an_address(open_page: Any, broker: Any) -> None:
    """It survives a reload and the back button, and can be shared."""
    broker.topic("t").create(2)
    broker.topic("t").append([("k", f"v{number}") for number in range(9)], partition=1)
    page: Page = open_page("/topics/t")
    page.get_by_label("From").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("3")
    page.get_by_role("combobox", name="Partition").select_option("1")
    page.get_by_label("Value contains").fill("v5")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page).to_have_url(re.compile(r"/topics/t\?partition=1&value=v5&from=offset%3A3$"))
    page.reload()
    for _ in range(2):
        expect(page.locator("tbody tr.link")).to_have_count(1)
        expect(page.get_by_role("cell", name="v5")).to_be_visible()
        expect(page.get_by_label("Offset", exact=True)).to_have_value("3")
        page.get_by_role("link", name="Partitions").click()
        expect(page.get_by_role("region", name="Partitions")).to_be_visible()
        page.go_back()
    shown: Page = open_page("/topics/t?from=time:1700000000123&value=v7")
    expect(shown.get_by_role("cell", name="v7")).to_be_visible()
    shown.get_by_label("Value contains").fill("v")
    shown.get_by_role("button", name="Search", exact=True).click()
    expect(shown.locator("tbody tr.link")).to_have_count(9)


def test_a_record_is_sent_again_with_every_byte_that_was_not_edited(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(1)
    headers = [("trace", b"one\ntwo"), ("none", None), ("raw", b"\xff\x00"), ("plain", b"a")]
    topic.append([(b"\xfe\xff", b"\x00\xff" * 40_000, headers)])
    page: Page = open_page("/topics/t")
    page.get_by_role("button", name="Details").click()
    page.get_by_role("button", name="Send again, edited").click()
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("at offset 1")
    written = page.get_by_label("Headers")
    written.fill(written.input_value().replace("plain=a", "plain=b"))
    page.get_by_role("textbox", name="Value", exact=True).fill("new")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("at offset 2")
    first, same, edited = topic.records()
    assert (same.key, same.value, same.headers) == (first.key, first.value, first.headers)
    assert (edited.key, edited.value) == (first.key, b"new")
    assert list(edited.headers) == [*headers[:3], ("plain", b"b")]


def test_a_group_shows_members_and_lag_and_can_be_reset(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(1)
    topic.append([f"v{number}" for number in range(10)])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "billing",
            "client.id": "billing-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    records = consumer.consume(4, 30)
    consumer.commit(records[-1], asynchronous=False)
    page: Page = open_page("/groups")
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_text("Stable")).to_be_visible()
    expect(page.get_by_role("cell", name="billing-1", exact=True)).to_be_visible()
    expect(page.locator(".card", has_text="records behind")).to_contain_text("6")
    consumer.close()
    expect(page.get_by_text("Empty")).to_be_visible()

    page.get_by_role("button", name="Reset offsets").click()
    reset = page.get_by_role("button", name="Reset", exact=True)
    expect(reset).to_be_disabled()
    page.get_by_role("button", name="Preview").click()
    reset.click()
    expect(page.locator(".card", has_text="records behind")).to_contain_text("10")


def test_search_finds_a_topic_by_the_keyboard_alone(open_page: Any, broker: Any) -> None:
    for name in ("orders", "payments"):
        broker.topic(name).create(1)
    page: Page = open_page("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_label("Name of a topic, group").fill("pay")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="payments")).to_be_visible()


def test_the_keys_of_a_search_keep_the_selected_entry_visible(open_page: Any, broker: Any) -> None:
    for number in range(40):
        broker.topic(f"topic-{number:02}").create(1)
    page: Page = open_page("/")
    page.keyboard.press("Control+k")
    page.get_by_label("Name of a topic, group").fill("topic-")
    expect(page.get_by_role("option")).to_have_count(40)
    for _ in range(39):
        page.keyboard.press("ArrowDown")
    picked = page.get_by_role("option", selected=True)
    expect(picked).to_contain_text("topic-39")
    expect(picked).to_be_in_viewport()
    expect(page.get_by_role("combobox")).to_have_attribute("aria-activedescendant", "found-39")


def test_offsets_of_some_partitions_are_reset(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(3)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "eu/billing"})
    for partition in range(3):
        topic.append(["a", "b"], partition=partition)
        consumer.commit(offsets=[TopicPartition("t", partition, 0)], asynchronous=False)
    consumer.close()
    page: Page = open_page("/groups")
    page.get_by_role("link", name="eu/billing").click()
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog select").select_option("latest")
    page.get_by_label("Partitions").fill("one")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text('"one" is not a list of partitions')
    page.get_by_label("Partitions").fill("0, 2")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Preview").locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator(".card", has_text="records behind")).to_contain_text("2")

    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog select").select_option("given")
    lines = page.get_by_label("One line each")
    lines.fill('"t",1,')
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("is not topic,partition,offset")
    lines.fill('"t",1,2')
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator(".card", has_text="records behind")).to_contain_text("0")


def test_the_page_reports_a_lost_broker_and_recovers(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_page("/topics")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    broker.down()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    broker.up()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_role("link", name="orders")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_pages_are_accessible(open_page: Any, broker: Any, scheme: str, width: int) -> None:
    topic = broker.topic("orders")
    topic.create(2)
    topic.append(['{"id": 1}', "text", None])
    page: Page = open_page("/", color_scheme=scheme, viewport={"width": width, "height": 800})
    for path, ready in (
        ("/", "Brokers"),
        ("/topics", "orders"),
        ("/topics/orders", "tombstone"),
        ("/topics/orders/partitions", "End offset"),
        ("/topics/orders/settings", "retention.ms"),
        ("/groups", "No group"),
        ("/requests", "Latest"),
        ("/topics/orders/partitions/0", "Newest record"),
        ("/powers", "No fault is set."),
        ("/transactions", "No transaction has begun"),
        ("/topics/orders/groups", "No group has committed"),
        ("/topics/orders/transactions", "nothing is held back"),
        ("/access", "ACLs are off"),
        ("/brokers/1", "log.retention.hours"),
        ("/brokers/1/folders", "Volume"),
        ("/clients", "No client is connected"),
        ("/replicas", "leader epoch"),
        ("/quorum", "leads the quorum"),
        ("/learn", "How an offset is found"),
    ):
        page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/", 3)[2] + path)
        expect(page.get_by_text(ready).first).to_be_visible()
        found = Axe().run(page)
        serious = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
        assert serious == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than the screen"


def test_busy_pages_are_accessible(open_page: Any, broker: Any) -> None:
    """A long history and open transactions have elements that a quiet broker does not show."""
    broker.topic("orders").create(1)
    billing = {"bootstrap.servers": broker.bootstrap, "group.id": "billing"}
    for round_ in range(8):
        consumer = Consumer(billing)
        consumer.subscribe(["orders"])
        wait_for(lambda consumer=consumer: consumer.poll(0.05) or consumer.assignment())
        if round_ < 7:
            consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "ledger"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"x")
    producer.flush(30)
    for path, ready in (
        ("/groups/billing", "Generation"),
        ("/transactions", "Ongoing"),
        ("/transactions/ledger", "Abort"),
    ):
        page: Page = open_page(path)
        expect(page.get_by_text(ready).first).to_be_visible()
        found = Axe().run(page)
        serious = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
        assert serious == [], path
    producer.abort_transaction(30)
    consumer.close()


def test_a_page_has_its_own_title(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    expect(open_page("/")).to_have_title("Overview · Ottla console")
    page: Page = open_page("/topics/orders/settings")
    expect(page).to_have_title("settings · orders · Topics · Ottla console")


def test_large_numbers_are_shown_exactly(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    broker.topic("orders").append(['{"id": 12345678901234567891, "sum": 0.5}'])
    page: Page = open_page("/topics/orders")
    page.get_by_role("button", name="Details").click()
    expect(page.locator(".tree")).to_contain_text("id: 12345678901234567891")
    expect(page.locator(".tree")).to_contain_text("sum: 0.5")


def test_a_live_tail_continues_after_the_broker_was_away(open_page: Any, broker: Any) -> None:
    topic = broker.topic("orders")
    topic.create(1)
    page: Page = open_page("/topics/orders")
    page.get_by_label("From").select_option("tail")
    expect(page.get_by_text("Live. 0 records seen")).to_be_visible()
    topic.append(["before"])
    expect(page.get_by_role("cell", name="before")).to_be_visible()
    broker.down()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    broker.up()
    broker.topic("orders").append(["after"])
    expect(page.get_by_role("cell", name="after")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_role("cell", name="before")).to_have_count(1)
    expect(page.get_by_text("Live. 2 records seen")).to_be_visible()


def test_a_live_tail_reports_a_bad_filter_and_continues_with_a_good_one(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_page("/topics/orders")
    page.get_by_label("From").select_option("tail")
    expect(page.get_by_text("Live. 0 records seen")).to_be_visible()
    page.get_by_label("JSON").fill("= 4")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("is not a path with a comparison")
    page.get_by_label("JSON").fill("a = 4")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Live. 0 records seen")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    broker.topic("orders").append(['{"a": 3}', '{"a": 4}'])
    expect(page.get_by_text("2 records seen, 1 match")).to_be_visible()
