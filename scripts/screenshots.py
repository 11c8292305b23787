"""Takes the screenshots in docs/images: the console shows sample data in the system's Chromium."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from playwright.sync_api import sync_playwright

import ottla
from ottla.testing import ServedBroker

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = {"width": 1120, "height": 680}
PAGES = {
    "console-topic": "/topics/orders",
    "console-topics": "/topics",
    "console-requests": "/requests",
    "console-tour": "/learn/replicas",
}


def fill(broker: ServedBroker) -> None:
    """Create the topics of a shop, and a group that has read part of the orders."""
    names = ("Ada", "Grace", "Linus", "Margaret", "Tim")
    orders = [
        (f"customer-{i % 5}", {"id": i, "customer": names[i % 5], "total": 5 + i * 7 % 90, "paid": i % 3 > 0})
        for i in range(60)
    ]
    broker.topic("orders").create(partitions=3)
    broker.topic("orders").append(orders)
    broker.topic("payments").create(partitions=3)
    broker.topic("payments").append([{"order": i, "state": "captured"} for i in range(40)])
    broker.topic("shipments").create(partitions=1, config={"cleanup.policy": "compact"})
    broker.topic("shipments").append([(f"order-{i}", "packed") for i in range(12)])


def read_some(bootstrap: str) -> Consumer:
    """Start a consumer that stays a member of its group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "client.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    consumer.consume(num_messages=45, timeout=20)
    consumer.commit(asynchronous=False)
    return consumer


def buy(bootstrap: str) -> Callable[[threading.Event], None]:
    """Simulate a shop that sells something now and then."""

    def work(stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
        while not stop.wait(0.3):
            producer.produce("payments", b'{"state": "captured"}')
            producer.flush(5)

    return work


def poll(consumer: Consumer) -> Callable[[threading.Event], None]:
    """Keep the consumer in its group, so that its long polls are visible."""

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    return work


def take(url: str, chromium: str) -> None:
    """Open each page and save a screenshot."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        for name, path in PAGES.items():
            page.goto(url + path)
            if name == "console-tour":
                page.get_by_role("button", name="Next step").click()
                page.get_by_text("Step 2 of").wait_for()
            page.wait_for_timeout(5000 if name == "console-requests" else 1500)
            picture = IMAGES / f"{name}.png"
            page.screenshot(path=picture)
            print(f"{picture.relative_to(IMAGES.parent.parent)}: {picture.stat().st_size // 1024} KB")
        browser.close()


def main() -> int:
    """Run the broker and the console, and take the pictures."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("screenshots: install Chromium first (on Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    stop = threading.Event()
    with ottla.serve(console=0) as broker:
        fill(broker)
        consumer = read_some(broker.bootstrap)
        threads = [threading.Thread(target=work, args=(stop,)) for work in (buy(broker.bootstrap), poll(consumer))]
        for thread in threads:
            thread.start()
        try:
            take(broker.console_url, chromium)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
