"""Medians, ratios, bars and the selection of lines."""

import pytest

from ottla.bench.model import (
    Bar,
    Figure,
    Line,
    Samples,
    at_least,
    at_most,
    judge,
    percentile,
    ratio,
    select,
    value_at_least,
    value_at_most,
)


def make_line(name, *figures):
    return Line(name, name, figures, lambda target, size: {})


def test_a_bar_holds_at_its_limit_and_not_beyond():
    assert at_least(2).holds(2.0) and not at_least(2).holds(1.99)
    assert at_most(0.4).holds(0.4) and not at_most(0.4).holds(0.41)


def test_a_bar_reads_as_in_the_table():
    assert str(at_least(1.5)) == "≥ 1.5×"
    assert str(at_least(1, "kfake")) == "≥ 1× kfake"
    assert str(at_most(0.4)) == "≤ 0.4×"
    assert str(value_at_most(20)) == "≤ 20"
    assert str(value_at_least(0.5)) == "≥ 0.5"


def test_the_median_ignores_one_noisy_sample():
    samples = Samples({})
    for value in (100.0, 7.0, 101.0):
        samples.add({"mb_s": value})
    assert samples.median("mb_s") == 100.0
    assert samples.median("cpu") is None


@pytest.mark.parametrize(
    ("subject", "reference", "expected"), [(4.0, 2.0, 2.0), (None, 2.0, None), (4.0, None, None), (4.0, 0.0, None)]
)
def test_ratio_is_unknown_without_both_sides(subject, reference, expected):
    assert ratio(subject, reference) == expected


@pytest.mark.parametrize(
    ("bars", "subject", "reference", "verdict"),
    [
        ((at_least(2),), 400.0, 200.0, "pass"),
        ((at_least(2),), 399.0, 200.0, "miss"),
        ((at_most(0.5),), 1.0, 2.0, "pass"),
        ((at_most(0.5),), 1.1, 2.0, "miss"),
        ((at_least(2),), None, 200.0, "unknown"),
        ((at_least(2),), 400.0, None, "unknown"),
        ((), 400.0, 200.0, ""),
        ((value_at_most(60),), 59.0, None, "pass"),
        ((at_most(0.12), value_at_most(60)), 61.0, 600.0, "miss"),
        ((at_most(0.12), value_at_most(60)), 50.0, 400.0, "miss"),
        ((at_most(0.12), value_at_most(60)), 40.0, 400.0, "pass"),
        ((at_most(0.12), value_at_most(60)), 40.0, None, "unknown"),
    ],
)
def test_a_result_is_judged_by_its_bar(bars, subject, reference, verdict):
    assert judge(Figure("f", "MB/s", True, bars), {"ottla": subject, "kafka": reference}) == verdict


def test_without_the_other_broker_only_values_are_judged():
    figure = Figure("f", "MB", False, (at_most(0.12), value_at_most(60)))
    assert judge(figure, {"ottla": 40.0}) == "pass"
    assert judge(Figure("f", "MB", False, (at_most(0.12),)), {"ottla": 40.0, "kfake": 1.0}) == ""


def test_a_bar_may_name_the_broker_that_it_compares_with():
    figure = Figure("f", "ms", False, (at_most(0.7), at_most(1, "kfake")))
    assert judge(figure, {"ottla": 0.3, "kafka": 0.5, "kfake": 0.4}) == "pass"
    assert judge(figure, {"ottla": 0.3, "kafka": 0.5, "kfake": 0.2}) == "miss"
    assert judge(figure, {"ottla": 0.3, "kafka": 0.5}) == "pass"
    assert judge(figure, {"ottla": 0.3, "kfake": None}) == "unknown"


def test_percentiles_are_of_the_nearest_rank():
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99) == 99.0
    assert percentile([3.0], 99) == 3.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_select_takes_patterns_and_keeps_the_order_of_the_table():
    lines = [make_line("produce-1"), make_line("fetch-1"), make_line("produce-4")]
    assert [line.name for line in select(lines, [])] == ["produce-1", "fetch-1", "produce-4"]
    assert [line.name for line in select(lines, ["produce-*"])] == ["produce-1", "produce-4"]
    with pytest.raises(ValueError, match="'sing'"):
        select(lines, ["sing", "fetch-1"])


def test_every_registered_line_is_complete():
    import ottla.bench.lines  # noqa: F401
    from ottla.bench.model import LINES

    bars = {f"{line.name} {figure.key}": figure.bars for line in LINES.values() for figure in line.figures}
    assert all(line.title and line.figures and line.repeats >= 1 for line in LINES.values())
    # The bars of the performance goals, each on the figure that it is about.
    assert bars["produce-1k-64k-none-4 mb_s"] == (at_least(2),)
    assert bars["produce-1k-512k-none-1 mb_s"] == (at_least(2),)
    assert bars["produce-1k-64k-lz4-4 mb_s"] == (at_least(3),)
    assert bars["produce-100-64k-none-4 mb_s"] == (at_least(1.3),)
    assert bars["produce-1k-64k-none-4 cpu_gb"] == (at_most(0.4),)
    assert bars["fetch-1 mb_s"] == (at_least(1.5),)
    assert bars["fetch-4 mb_s"] == (at_least(0.9),)
    assert bars["fetch-1 cpu_gb"] == (at_most(0.6),)
    assert bars["requests-1 rate"] == (at_least(1.5),)
    assert bars["requests-5 rate"] == (at_least(3),)
    assert bars["requests-5 cpu_us"] == (at_most(0.35),)
    assert bars["latency p50_ms"] == (at_most(0.7), at_most(1, "kfake"))
    assert bars["latency p99_ms"] == (at_most(1),)
    assert bars["join-1 ms"] == bars["join-10 ms"] == (at_most(0.5),)
    assert bars["commits-5 rate"] == (at_least(3),)
    assert bars["start ack_s"] == (Bar(1 / 25, at_least=False),)
    assert bars["memory idle_mb"] == (at_most(0.12), value_at_most(60))
    assert bars["memory loaded_mb"] == (at_most(0.15),)
    assert bars["topics create_s"] == (at_most(0.2),)
    assert bars["topics metadata_ms"] == (at_most(1),)
    flat = ("lookup", "lookup-time", "members-heartbeat", "members-commit", "idle-groups", "idle-connections", "topics")
    assert all(bars[f"{name} growth"] == (value_at_most(1.2),) for name in flat)
    for thing in ("log", "topics", "partitions", "groups", "connections"):
        for operation in ("produce", "fetch", "offsets"):
            assert bars[f"flat-{thing} {operation}"] == (value_at_most(1.2),)
    compared = [key for key in bars if key.startswith("workers-2 ") and not key.endswith("_cpu")]
    assert len(compared) == 12
    assert all(bars[key] in ((value_at_least(0.9),), (value_at_most(1 / 0.9),)) for key in compared)
    assert bars["workers-split split_2"] == (value_at_least(0.8),)
    assert bars["crowd producers"] == bars["crowd consumers"] == (value_at_least(0.5),)
    assert bars["lookup-time cpu_growth"] == (value_at_most(1.2),)
    assert bars["crowd growth"] == (value_at_most(1.1),)
    assert bars["small-beside-large p50_ms"] == (at_most(1),)
    assert bars["small-beside-large p99_ms"] == (at_most(1), value_at_most(20))
    assert bars["small-beside-large mb_s"] == (at_least(1.5),)
    assert bars["stopped-readers p99_ms"] == (value_at_most(20),)
    assert bars["compaction slower"] == (value_at_most(1.5),)
    assert bars["compaction seconds"] == bars["recovery s"] == bars["partitions-10k create_s"] == (at_most(1),)
    assert bars["produce-growing-64k-4 mb_s"] == bars["produce-growing-512k-1 mb_s"] == (at_least(2),)
    for name in ("produce-64k-4", "produce-512k-1", "produce-lz4-4", "fetch-1", "fetch-4"):
        assert bars[f"memory-{name} mb_s"] == (at_least(1, "kfake"),)
    assert bars["spawn ms"] == (value_at_most(120),)
