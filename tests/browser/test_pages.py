"""The pages for access, brokers, transactions, replicas, powers and tours in a real browser."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Locator, Page, expect

from support.interop import toolchains

pytestmark = pytest.mark.browser
expect.set_options(timeout=20_000)


def test_a_record_is_copied_as_code_that_runs(open_page: Any, broker: Any) -> None:
    topic = broker.topic("orders")
    topic.create(1)
    topic.append([("k\u00fc'1", 'say "hi"\n', [("trace", b"\x00\xff")])])
    page: Page = open_page("/topics/orders")
    page.get_by_role("button", name="Details").click()
    for way, wanted in (
        ("kcat", "kcat -P -b"),
        ("pytest", "def test_orders_offset_0(kafka):"),
        ("Python", "Producer("),
    ):
        page.get_by_role("button", name=way, exact=True).click()
        expect(page.get_by_label(f"The record as {way}")).to_contain_text(wanted)
    code = page.get_by_label("The record as Python").inner_text()
    exec(code, {})
    first, second = topic.records()
    assert (second.key, second.value, second.headers) == (first.key, first.value, first.headers)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("k\u00fc'1", 'say "hi"\nand %s \\x41'),
        (None, "no key"),
        ("k", None),
        (None, None),
        ("k", ""),
        ("k", "ends in a new line\n"),
        ("k", "\x1e"),
        ("k", b"\x00\xff"),
    ],
)
def test_a_record_is_copied_as_a_command_of_kcat(
    open_page: Any, broker: Any, tmp_path: Path, key: str | None, value: str | bytes | None
) -> None:
    toolchains.kcat()
    topic = broker.topic("orders")
    topic.create(1)
    topic.append([(key, value, [("trace", b"a=b 'c'"), ("empty", b""), ("none", None)])])
    page: Page = open_page("/topics/orders")
    page.get_by_role("button", name="Details").click()
    page.get_by_role("button", name="kcat", exact=True).click()
    command = page.get_by_label("The record as kcat").text_content()
    subprocess.run(["sh", "-c", command], check=True, timeout=60, cwd=tmp_path)
    first, second = topic.records()
    assert (second.key, second.value, second.headers) == (first.key, first.value, first.headers)


def test_a_dead_letter_is_sent_back(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    letters = broker.topic("orders.dead-letters")
    letters.create(1)
    letters.append([("k", "v", [("ottla.origin.topic", b"orders"), ("ottla.error", b"bad")])])
    page: Page = open_page("/topics/orders.dead-letters")
    page.get_by_role("button", name="Details").click()
    page.get_by_role("button", name="Send back to its topic").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("Preview")).to_contain_text("1 to orders")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("1 record sent.")).to_be_visible()
    assert [each.value for each in broker.topic("orders").records()] == [b"v"]


def test_all_records_that_match_are_exported(open_page: Any, broker: Any) -> None:
    topic = broker.topic("t")
    topic.create(1)
    topic.append([json.dumps({"n": number}) for number in range(120)])
    page: Page = open_page("/topics/t")
    page.get_by_label("JSON").fill("n >= 20")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all that match").click()
    assert len(download.value.path().read_text().splitlines()) == 100


def test_an_open_transaction_is_seen_and_aborted(open_page: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "checkout"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"v")
    producer.flush(20)
    page: Page = open_page("/transactions")
    expect(page.get_by_role("group", name="Timeline of 1 transaction")).to_be_visible()
    page.get_by_role("region", name="Transactional ids").get_by_role("link", name="checkout").click()
    expect(page.get_by_role("img", name="Last stable offset 0, high watermark 1")).to_be_visible()
    page.get_by_role("button", name="Abort", exact=True).click()
    page.get_by_role("button", name="Abort transaction").click()
    expect(page.get_by_text("No transaction is open")).to_be_visible()
    assert broker.topic("orders").records() == []


def test_brokers_fail_and_leaders_move_before_your_eyes(open_cluster_page: Any) -> None:
    cluster, open_page = open_cluster_page
    cluster.create_topic("orders", 1, 3)
    cluster.topic("orders").append(["a", "b"])
    page: Page = open_page("/replicas")
    leader = cluster.leader("orders")

    def replica(broker: int) -> Locator:
        return page.locator(".replica", has_text=f"Broker {broker}")

    expect(replica(leader)).to_contain_text("LEO 2")
    follower = next(each for each in (1, 2, 3) if each != leader)
    page.get_by_role("button", name=f"Move the leader to broker {follower}").click()
    expect(replica(follower)).to_contain_text("leader")
    assert cluster.leader("orders") == follower

    page.get_by_role("link", name="Powers").click()
    page.get_by_role("button", name=f"kill broker {follower}").click()
    expect(page.get_by_role("button", name=f"start broker {follower}")).to_be_visible()
    page.get_by_role("button", name="Slow link").click()
    expect(page.get_by_text("delay_ms")).to_be_visible()
    page.get_by_role("button", name="Heal the network").click()
    expect(page.get_by_text("delay_ms")).to_be_hidden()
    page.get_by_role("link", name="See the replicas live").click()
    expect(replica(follower)).to_contain_text("out of sync")


def test_a_controller_fails_before_your_eyes(open_quorum_page: Any) -> None:
    cluster, open_page = open_quorum_page
    page: Page = open_page("/quorum")
    former = cluster.active_controller
    gone = page.get_by_role("group", name=f"Controller {former}")
    expect(gone).to_contain_text("leads the quorum")
    expect(page.get_by_role("region", name="Observers")).to_contain_text("Broker 3")
    page.get_by_role("button", name=f"kill {former}").click()
    expect(gone).to_contain_text("down")
    expect(page.get_by_text("leads the quorum")).to_be_visible()
    second = cluster.active_controller
    assert second not in (None, former)
    page.get_by_role("button", name=f"stop {second}").click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_text("No controller leads now")).to_be_visible()
    page.get_by_role("button", name=f"start {former}").click()
    expect(page.get_by_text("leads the quorum")).to_be_visible()
    assert cluster.controller(former).is_running


def test_a_broker_is_added_drained_and_removed(open_cluster_page: Any) -> None:
    cluster, open_page = open_cluster_page
    cluster.create_topic("orders", assignments=[[2, 1], [2, 3]])
    page: Page = open_page("/powers")
    row = page.get_by_role("row", name="remove broker 2")
    expect(row.get_by_role("cell").nth(2)).to_have_text("2")
    page.get_by_label("Rack").fill("b")
    page.get_by_role("button", name="Add broker").click()
    expect(page.get_by_role("button", name="kill broker 4")).to_be_visible()
    assert cluster.broker(4).server.config["broker.rack"] == "b"
    page.get_by_role("button", name="drain broker 2").click()
    expect(row.get_by_role("cell").nth(2)).to_have_text("0")
    page.get_by_role("button", name="remove broker 2").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("button", name="kill broker 2")).to_be_hidden()
    assert sorted(cluster.brokers) == [1, 3, 4]
    page.get_by_label("Clock of").select_option("3")
    page.get_by_label("Seconds ahead").fill("-90")
    page.get_by_role("button", name="Set clock").click()
    expect(page.get_by_text("The clock of 3 is 90 s behind")).to_be_visible()
    assert cluster.describe()["clock_skew_ms"] == {"3": -90_000}
    page.get_by_role("button", name="Set the clock of 3 right").click()
    expect(page.get_by_text("The clock of 3")).to_be_hidden()


def test_a_scenario_runs_by_hand(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/powers")
    page.get_by_label("Steps, in YAML").fill("- create: {topic: demo, partitions: 2}")
    page.get_by_role("button", name="Run scenario").click()
    expect(page.get_by_label("What the steps did")).to_contain_text("create")
    assert broker.topics() == ["demo"]
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="Delete everything").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert broker.topics() == []


def test_users_quotas_and_settings_are_changed(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/access")
    expect(page.get_by_text("ACLs are off")).to_be_visible()
    page.get_by_role("link", name="Users").click()
    page.get_by_role("button", name="Add user").click()
    page.get_by_label("User", exact=True).fill("ann")
    page.get_by_role("textbox", name="Password").fill("secret")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name="ann", exact=True)).to_be_visible()
    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="Set quota").click()
    page.get_by_label("Limit").fill("1024")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("user (default)")).to_be_visible()

    page.get_by_role("link", name="Overview").click()
    page.get_by_role("region", name="Brokers").get_by_role("link").first.click()
    page.get_by_label("Filter settings").fill("log.cleaner.threads")
    page.get_by_role("button", name="Change log.cleaner.threads").click()
    page.get_by_label("log.cleaner.threads", exact=True).fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Use the default of log.cleaner.threads")).to_be_visible()


@pytest.mark.parametrize("tour", ["replicas", "transaction"])
def test_a_tour_is_walked_to_its_end(open_page: Any, tour: str) -> None:
    page: Page = open_page("/learn")
    page.get_by_role("link", name=re.compile("High watermark" if tour == "replicas" else "A transaction")).click()
    step = 1
    while True:
        expect(page.get_by_text(f"Step {step} of")).to_be_visible()
        following = page.get_by_role("button", name="Next step")
        if not following.count():
            break
        expect(following).to_be_enabled()
        following.click()
        step += 1
    expect(page.get_by_label("Live pictures").locator("svg").first).to_be_visible()
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"] if each["impact"] in ("serious", "critical")] == []


def test_compaction_is_shown_and_done(open_page: Any, broker: Any) -> None:
    topic = broker.topic("users")
    topic.create(1, {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "1"})
    topic.append([(f"k{number % 2}", "x") for number in range(6)])
    broker.clock.advance(seconds=2)
    topic.append([("k0", "y")])
    page: Page = open_page("/topics/users/partitions/0")
    expect(page.get_by_text("Before: 7 records")).to_be_visible()
    expect(page.get_by_text("After: 3 records")).to_be_visible()
    page.get_by_role("button", name="Compact now").click()
    expect(page.get_by_text("Before: 3 records")).to_be_visible()
    expect(page.get_by_text("Compaction has nothing to remove now.")).to_be_visible()
