"""Makes the pictures in docs/images: the console shows sample data, and the system's Chromium takes the pictures."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer
from playwright.sync_api import sync_playwright

import ottla
from ottla.testing import ServedBroker

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = {"width": 1120, "height": 640}
PAGES = {"console-topic": "/topics/orders", "console-topics": "/topics"}


def fill(broker: ServedBroker) -> None:
    """A shop's topics, and a group that has read a part of the orders."""
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
    """A consumer that stays a member of its group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consumer.consume(num_messages=45, timeout=20)
    consumer.commit(asynchronous=False)
    return consumer


def take(url: str, chromium: str) -> None:
    """Open each page and keep what it shows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        for name, path in PAGES.items():
            page.goto(url + path)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(500)
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
    with ottla.serve() as broker:
        fill(broker)
        consumer = read_some(broker.bootstrap)
        command = [sys.executable, "-m", "ottla.cli.main", "console", "-b", broker.bootstrap, "--port", "0"]
        console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert console.stdout is not None
            take(console.stdout.readline().split()[-1].rstrip("/"), chromium)
        finally:
            console.terminate()
            console.wait()
            consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
