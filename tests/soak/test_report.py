"""How a soak is judged: by slopes, not by single values. `scripts/soak` runs one."""

import pytest

from support.soaking.report import LIVES_MIN_S, WARM_UP_S, Sample, judge, plot, slope, text


def samples(memory: list[float], life: int = 1, start_s: float = 0.0) -> list[Sample]:
    return [Sample(start_s + 10 * n, life, {"memory_mb": value, "threads": 5}) for n, value in enumerate(memory)]


def test_a_slope_is_that_of_the_line_that_fits_best() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(0, 1), (1, 5), (2, 1)]) == pytest.approx(0)
    assert slope([(3, 4)]) == 0


def test_growth_is_found_and_noise_is_not() -> None:
    leaking = {each.name: each for each in judge(samples([100 + n for n in range(60)]))}
    assert not leaking["memory_mb"].is_fine
    assert leaking["threads"].is_fine
    noisy = {each.name: each for each in judge(samples([100 + (n % 2) * 40 for n in range(60)]))}
    assert noisy["memory_mb"].is_fine


def test_a_few_odd_samples_do_not_make_a_slope() -> None:
    late_spikes = [100.0] * 55 + [900.0] * 5
    assert all(each.is_fine for each in judge(samples(late_spikes)))


def test_disk_use_is_judged_across_restarts() -> None:
    def disk(used_mb: float, life: int) -> list[Sample]:
        return [Sample(300.0 * (life - 1) + 10 * n, life, {"disk_mb": used_mb}) for n in range(30)]

    (steady,) = judge([*disk(500, 1), *disk(500, 2), *disk(500, 3)])
    (growing,) = judge([*disk(500, 1), *disk(700, 2), *disk(900, 3)])
    assert steady.is_fine
    assert not growing.is_fine


def test_the_warm_up_and_restarts_do_not_count() -> None:
    warm = [float(n) for n in range(int(WARM_UP_S / 10))] + [50.0] * 40
    assert all(each.is_fine for each in judge(samples(warm)))
    lives = samples([100.0] * 30) + samples([300.0] * 30, life=2, start_s=300)
    assert all(each.is_fine for each in judge(lives))


def test_the_first_life_counts_only_if_there_is_no_other() -> None:
    """Topics fill up to their retention in it."""
    filling = samples([100.0 + n for n in range(60)])
    assert not all(each.is_fine for each in judge(filling))
    assert not all(each.is_fine for each in judge(filling + samples([160.0] * 5, life=2, start_s=600)))
    assert all(each.is_fine for each in judge(filling + samples([160.0] * 30, life=2, start_s=600)))
    leaking = samples([160.0 + n for n in range(60)], life=2, start_s=600)
    assert not all(each.is_fine for each in judge(samples([100.0] * 60) + leaking))


def test_a_life_that_is_too_short_is_not_judged() -> None:
    short = samples([1.0] * int(LIVES_MIN_S / 10))
    assert judge(short) == []
    assert "Too short to be judged" in text(short, {}, [], [])


def test_the_report_has_a_row_per_series_and_the_plot_a_line_per_life() -> None:
    lives = samples([100.0] * 30) + samples([300.0] * 30, life=2, start_s=300)
    written = text(lives, {"records": 7}, ["records: gone"], judge(lives))
    assert "| `memory_mb` | " in written
    assert "2 starts" in written
    assert "- records: gone" in written
    assert plot(lives).count("<polyline") == 4
