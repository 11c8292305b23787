"""The table, the JSON, the page and the plot."""

import json
from xml.etree import ElementTree

import pytest

from ottla.bench import plot, report
from ottla.bench.model import Figure, Line, NotServed, Size, at_least, at_most
from ottla.bench.runner import run


@pytest.fixture
def results(targets):
    speeds = {"ottla": 810.0, "kafka": 230.0}
    times = {"ottla": 0.2, "kafka": 11.0}

    def refuse(target, size):
        if target.name == "ottla":
            raise NotServed("EndTxn v5")
        return {"rate": 300.0}

    lines = [
        Line(
            "produce-1k-64k-none-4",
            "produce",
            (Figure("mb_s", "MB/s", True, (at_least(4),)),),
            lambda target, size: {"mb_s": speeds[target.name]},
        ),
        Line(
            "start",
            "start of the process",
            (Figure("ack_s", "s", False, (at_most(0.04),), title="to the first acknowledged produce"),),
            lambda target, size: {"ack_s": times[target.name]},
        ),
        Line("transactions", "transactions", (Figure("rate", "transactions/s", True),), refuse),
    ]
    return run(lines, targets, Size(), repeats=1, progress=lambda text: None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.00"),
        (0.0123, "0.012"),
        (0.5, "0.50"),
        (3.14159, "3.14"),
        (36.52, "36.5"),
        (36500.4, "36,500"),
    ],
)
def test_numbers_keep_three_digits(value, text):
    assert report.number(value) == text


def test_the_table_shows_figures_ratio_bar_and_mark(results):
    lines = report.text_table(results).splitlines()
    assert lines[0].split() == ["line", "unit", "ottla", "kafka", "ottla", "÷", "kafka", "bar"]
    assert lines[2].split() == ["produce-1k-64k-none-4", "mb_s", "MB/s", "810", "230", "3.52×", "≥", "4×", "✗"]
    assert lines[3].split() == ["start", "ack_s", "s", "0.20", "11.0", "0.018×", "≤", "0.04×", "✓"]
    assert "not served" in lines[4] and "300" in lines[4]


def test_the_summary_names_what_was_missed(results):
    assert report.summary(results) == "1 bars reached; 1 missed: produce-1k-64k-none-4 mb_s"


def test_json_holds_samples_medians_and_problems(results):
    document = json.loads(report.as_json(results, {"Apache Kafka": "4.3.1"}))
    assert document["versions"]["Apache Kafka"] == "4.3.1"
    assert document["brokers"] == ["ottla", "kafka"]
    first, _, last = document["lines"]
    assert first["samples"] == {"ottla": [810.0], "kafka": [230.0]}
    assert first["ratios"]["kafka"] == pytest.approx(3.52, abs=0.01)
    assert first["verdict"] == "miss"
    assert last["problems"] == {"ottla": "not served: EndTxn v5"}
    assert last["ratios"]["kafka"] is None


def test_the_page_has_one_row_per_figure_and_lists_missing_ones(results):
    page = report.markdown(results, {"Apache Kafka": "4.3.1"}, "performance.svg")
    assert page.startswith("# Performance\n")
    assert "| produce | MB/s | 810 | 230 | 3.52× | ≥ 4× | ✗ |" in page
    assert "to the first acknowledged produce | s | 0.20 | 11.0 | 0.018× | ≤ 0.04× | ✓ |" in page
    assert "- transactions, ottla: not served: EndTxn v5" in page
    assert "(performance.svg)" in page
    assert "Apache Kafka 4.3.1" in page


def test_the_plot_turns_ratios_so_that_more_is_better(results):
    bars = plot.chosen_bars(results)
    assert [bar.label for bar in bars] == ["Produce, 64 KB batches", "Start to first write"]
    assert bars[0].advantage == pytest.approx(810 / 230)
    assert bars[1].advantage == pytest.approx(55)
    assert bars[1].detail == "0.20 : 11.0 s"


def test_the_plot_is_wellformed_and_small(results):
    drawn = plot.svg(results)
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 2
    assert len(drawn) < 8000
    assert "prefers-color-scheme:dark" in drawn


def test_bars_start_at_one_and_those_behind_are_marked():
    drawn = plot.draw([plot.Bar("ahead & fast", 2.0, ""), plot.Bar("behind", 0.5, "")], "a", "b")
    root = ElementTree.fromstring(drawn)
    ahead, behind = root.findall("{http://www.w3.org/2000/svg}rect")
    assert (ahead.get("class"), behind.get("class")) == ("win", "lose")
    right_end_of_behind = float(behind.get("x")) + float(behind.get("width"))
    assert right_end_of_behind == pytest.approx(float(ahead.get("x")), abs=0.2)


def test_the_plot_of_nothing_is_still_an_image():
    ElementTree.fromstring(plot.draw([], "a", "b"))


def test_each_bar_says_how_many_times(results):
    texts = [element.text for element in ElementTree.fromstring(plot.svg(results)).iter() if element.text]
    assert "3.52×" in texts and "55.0×" in texts
    assert "Ottla beside Apache Kafka: how many times better" in texts


def test_the_page_says_when_lines_are_missing(results):
    whole = report.markdown(results, {}, None, len(results.lines))
    part = report.markdown(results, {}, None, len(results.lines) + 3)
    assert "This run measured" not in whole
    assert f"measured {len(results.lines)} of the {len(results.lines) + 3} lines" in part
