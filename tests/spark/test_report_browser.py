"""Reports of `stats` in a browser: everything is legible, in its place, and comes from the file alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations
from math import sin
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from ottla.spark.pipelines.report import write_report
from support.browser import chromium

LONG = "a-rather-long-name-of-a-topic-in-the-warehouse.number-3.version.7.eu-central"
SCREENS = {"desk": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def windows(topic: str, count: int, rate: float, step_s: int = 60) -> list[dict[str, Any]]:
    made = []
    for number in range(count):
        records = int(rate * step_s * (1 + sin(number / 8) / 2))
        made.append(
            {
                "topic": topic,
                "window_start": datetime.fromtimestamp(1_790_000_000 + step_s * number, UTC),
                "records": records,
                "bytes": records * 213,
                "records_per_second": records / step_s,
                "bytes_per_second": records * 213 / step_s,
                "distinct_keys": records // 7,
                "max_lateness_ms": 1500 * (number % 5),
                "late": records // 90,
            }
        )
    return made


# The largest labels, names that are markup, days without and with the time of day, and a window that is alone.
TOPICS = {
    "orders.v1": (60, 1800, 60),
    "<img src=x onerror=alert(1)>": (12, 0.02, 1),
    LONG: (30, 999_000, 3600),
    "days": (200, 5, 3600),
    "one": (1, 10, 60),
}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "stats.html"
    some = [window for topic, shape in TOPICS.items() for window in windows(topic, *shape)]
    write_report(str(path), some, {"one": 1_234_567}, window_ms=60_000, late_after_ms=1000)
    return path


@pytest.fixture
def problems() -> Iterator[list[str]]:
    found: list[str] = []
    yield found
    assert not found


def open_file(browser: Browser, path: Path, problems: list[str], screen: str, scheme: Any = "light") -> Page:
    width, height = SCREENS[screen]
    page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("request", lambda one: problems.append(one.url) if one.url != path.as_uri() else None)
    page.goto(path.as_uri())
    return page


# Relative to the chart, beyond which labels are cut off, or meet those of its neighbour.
BOXES = """svg => [...svg.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect(), frame = svg.getBoundingClientRect();
    const left = box.left - frame.left;
    return [text.textContent, left, box.top, frame.right - box.right, box.bottom, left + box.width];
})"""


@pytest.mark.parametrize("screen", list(SCREENS))
def test_every_label_can_be_read(browser: Browser, page_file: Path, problems: list[str], screen: str) -> None:
    page = open_file(browser, page_file, problems, screen)
    width = SCREENS[screen][0]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [heading.inner_text() for heading in page.locator("h2").all()] == list(TOPICS)
    drawn = page.locator("svg").all()
    assert len(drawn) == 4 * len(TOPICS)
    for chart in drawn:
        boxes = chart.evaluate(BOXES)
        assert len(boxes) >= 3  # two heights and a time
        for text, left, top, left_over, bottom, _ in boxes:
            assert left >= 0, text
            assert left_over >= 0, text
            assert bottom - top >= 10, text
        for one, other in combinations(boxes, 2):
            apart = one[5] <= other[1] or other[5] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
            assert apart, (one, other)
    page.context.close()


INSIDE = """svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('polyline, polygon, circle')].every(shape => {
        const box = shape.getBoundingClientRect();
        return box.top >= frame.top - 3 && box.bottom <= frame.bottom
            && box.left >= frame.left && box.right <= frame.right + 3;
    });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out_and_stay_inside(browser: Browser, page_file: Path, problems: list[str], scheme: str) -> None:
    page = open_file(browser, page_file, problems, "desk", scheme)
    for chart in page.locator("svg").all():
        assert chart.evaluate(INSIDE)
    back = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    found = page.locator("svg").evaluate_all(
        "all => all.map(svg => getComputedStyle(svg.querySelector('polyline')).stroke)"
    )
    assert len(set(found)) == len(TOPICS)
    for colour in set(found):
        assert contrast(colour, back) >= 3, colour  # what WCAG asks of the parts of a chart
    assert Axe().run(page).response["violations"] == []
    page.context.close()


def contrast(one: str, other: str) -> float:
    def luminance(text: str) -> float:
        parts = [int(part) / 255 for part in text.removeprefix("rgb(").removesuffix(")").split(",")]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_report_without_records(browser: Browser, tmp_path: Path, problems: list[str]) -> None:
    path = tmp_path / "none.html"
    write_report(str(path), [], {})
    page = open_file(browser, path, problems, "desk")
    assert "There are no records yet." in page.locator("body").inner_text()
    assert page.locator("svg").count() == 0
    page.context.close()


def test_a_picture_fills_a_slide(browser: Browser, tmp_path: Path, problems: list[str]) -> None:
    path = tmp_path / "stats.png"
    write_report(str(path), [*windows("a", 60, 100), *windows(LONG, 40, 80)], {}, window_ms=60_000, late_after_ms=1000)
    page = open_file(browser, path, problems, "desk")
    picture = page.locator("img")
    assert picture.evaluate("img => [img.naturalWidth, img.naturalHeight]") == [1920, 1080]
    # Both colours of the lines are there, and the page around them is white.
    seen = picture.evaluate(
        """img => {
            const canvas = document.createElement('canvas');
            canvas.width = img.naturalWidth; canvas.height = img.naturalHeight;
            const pen = canvas.getContext('2d');
            pen.drawImage(img, 0, 0);
            const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
            const counts = {};
            for (let at = 0; at < data.length; at += 4) {
                const name = data.slice(at, at + 3).join();
                counts[name] = (counts[name] || 0) + 1;
            }
            return counts;
        }"""
    )
    assert seen["255,255,255"] > 1_600_000
    for colour in ("37,99,168", "200,87,27"):  # the first two of the report's colours
        assert seen[colour] > 1000, colour
    page.context.close()
