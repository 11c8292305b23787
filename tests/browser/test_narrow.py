"""The console on a narrow page: the important parts are visible without horizontal scrolling."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
expect.set_options(timeout=20_000)

WIDTH = 400


def is_in_sight(found: Locator) -> bool:
    box = found.bounding_box()
    assert box is not None
    return box["x"] >= 0 and box["x"] + box["width"] <= WIDTH


@pytest.fixture
def open_narrow(open_page: Any) -> Any:
    return lambda path: open_page(path, viewport={"width": WIDTH, "height": 800})


def test_records_show_their_keys_and_values(open_narrow: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    broker.topic("orders").append([("customer-1", '{"id": 1, "text": "' + "x" * 200 + '"}')])
    page: Page = open_narrow("/topics/orders")
    for name in ("key", "value"):
        cell = page.locator(f"tr.link td.{name}")
        expect(cell).to_be_visible()
        assert is_in_sight(cell)


def test_settings_show_their_values(open_narrow: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_narrow("/topics/orders/settings")
    change = page.get_by_role("button", name="Change retention.ms")
    expect(change).to_be_visible()
    assert is_in_sight(change)


def test_a_long_name_leaves_room_for_numbers(open_narrow: Any, broker: Any) -> None:
    broker.topic("a-long-name." * 12).create(3)
    page: Page = open_narrow("/topics")
    cell = page.get_by_role("cell", name="3", exact=True)
    expect(cell).to_be_visible()
    assert is_in_sight(cell)


def test_the_hint_of_the_timeline_is_whole(open_narrow: Any, broker: Any) -> None:
    broker.topic("orders").create(1)
    page: Page = open_narrow("/requests")
    hint = page.locator(".hint")
    expect(hint).to_be_visible()
    assert hint.evaluate("each => each.scrollWidth <= each.clientWidth")
