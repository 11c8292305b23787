"""The pages about schemas in a real browser."""

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
expect.set_options(timeout=20_000)

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NOTED = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
RENAMED = {**ORDER, "fields": [{"name": "number", "type": "int"}]}


def test_a_schema_is_checked_registered_and_compared(open_page: Any, broker: Any) -> None:
    broker.start_registry()
    broker.registry.register("orders-value", ORDER)
    page: Page = open_page("/schemas")
    page.get_by_role("link", name="orders-value").click()
    page.get_by_label("Compatibility").select_option("FULL")
    expect(page.get_by_label("Compatibility")).to_have_value("FULL")
    assert broker.registry.compatibility("orders-value") == "FULL"
    page.get_by_label("Compatibility").select_option("")
    expect(page.get_by_label("Compatibility")).to_contain_text("BACKWARD, as for all")
    page.get_by_label("Schema", exact=True).fill(json.dumps(RENAMED))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("READER_FIELD_MISSING_DEFAULT_VALUE")
    expect(page.get_by_role("button", name="Register")).to_be_disabled()
    page.get_by_label("Schema", exact=True).fill(json.dumps(NOTED))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_label("Version")).to_have_value("2")
    broker.registry.expect_versions("orders-value", [ORDER, NOTED])
    page.get_by_label("Compare with").select_option("1")
    expect(page.locator("pre.diff .added").first).to_be_visible()
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"] if each["impact"] in ("serious", "critical")] == []


def test_without_a_registry_the_page_says_how_to_get_one(open_page: Any, broker: Any) -> None:
    page: Page = open_page("/schemas")
    expect(page.get_by_text("ottla serve --registry 8081")).to_be_visible()


def test_the_list_of_records_shows_decoded_values(open_page: Any, broker: Any) -> None:
    broker.start_registry()
    broker.registry.register("orders-value", ORDER)
    broker.topic("orders").create(1)
    broker.topic("orders").append([broker.registry.encode("orders-value", {"id": 7})])
    page: Page = open_page("/topics/orders")
    expect(page.get_by_role("cell", name='{"id":7}')).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_label("Name of a topic, group").fill("orders-value")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders-value")).to_be_visible()
