"""The runner: the order of measurements, the effect of a failure, and when it retries."""

from ottla.bench.model import NotMeasurable, NotServed, Size
from ottla.bench.runner import run


def quiet(text):
    pass


def measure(line, targets, **options):
    return run([line], targets, Size(), progress=quiet, **options)


def test_brokers_take_turns_and_the_median_counts(targets, scripted_line):
    line, calls = scripted_line(ottla=[400.0, 10.0, 420.0], kafka=[100.0, 110.0, 90.0])
    results = measure(line, targets)
    assert calls == ["ottla", "kafka"] * 3
    (result,) = results.lines
    assert result.ratio("kafka", "mb_s") == 4.0
    assert results.verdicts() == {"pass": ["speed mb_s"], "miss": [], "unknown": []}
    assert results.exit_code() == 0


def test_a_missed_bar_gets_three_tries_in_all(targets, scripted_line):
    line, calls = scripted_line(ottla=[100.0] * 3, kafka=[100.0] * 3)
    results = measure(line, targets, repeats=1, tries=3)
    assert len(calls) == 6
    assert results.lines[0].tries == 3
    assert results.exit_code() == 1


def test_a_later_try_that_passes_counts(targets, scripted_line):
    line, calls = scripted_line(ottla=[100.0, 300.0], kafka=[100.0, 100.0])
    results = measure(line, targets, repeats=1, tries=3)
    assert len(calls) == 4
    assert results.lines[0].tries == 2
    assert results.exit_code() == 0


def test_without_check_a_line_is_measured_once(targets, scripted_line):
    line, calls = scripted_line(ottla=[100.0], kafka=[100.0])
    assert measure(line, targets, repeats=1).exit_code() == 1
    assert len(calls) == 2


def test_a_line_that_a_broker_does_not_support_is_reported_once(targets, scripted_line):
    line, calls = scripted_line(ottla=[NotServed("EndTxn v5")], kafka=[1.0, 2.0, 3.0])
    results = measure(line, targets)
    assert calls == ["ottla", "kafka", "kafka", "kafka"]
    samples = results.lines[0].samples["ottla"]
    assert samples.problem == "not served: EndTxn v5" and not samples.failed
    assert results.verdicts()["unknown"] == ["speed mb_s"]
    assert results.exit_code() == 1


def test_an_error_on_one_line_does_not_end_the_run(targets, scripted_line):
    broken, _ = scripted_line("broken", ottla=[RuntimeError("boom")], kafka=[NotMeasurable("no pid")])
    sound, _ = scripted_line("sound", ottla=[4.0], kafka=[1.0])
    results = run([broken, sound], targets, Size(), repeats=1, progress=quiet)
    assert results.lines[0].samples["ottla"].problem == "failed: boom"
    assert results.lines[0].samples["ottla"].failed
    assert results.lines[0].samples["kafka"].problem == "not measurable: no pid"
    assert results.verdicts() == {"pass": ["sound mb_s"], "miss": [], "unknown": ["broken mb_s"]}


def test_a_line_about_ottla_does_not_measure_the_others(targets, scripted_line):
    line, calls = scripted_line(reference=False, bars=(), ottla=[1.0])
    measure(line, targets, repeats=1)
    assert calls == ["ottla"]


def test_a_quick_run_measures_once(targets, scripted_line):
    line, calls = scripted_line(ottla=[4.0], kafka=[1.0])
    run([line], targets, Size(quick=True), repeats=5, progress=quiet)
    assert calls == ["ottla", "kafka"]
