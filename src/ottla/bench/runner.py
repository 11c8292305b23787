"""Runs lines on brokers: interleaved (A, B, A, B, …), medians, and another try for what misses its bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Line, NotMeasurable, NotServed, Samples, Size, Verdict, judge, ratio
from ottla.bench.targets import Target

TRIES = 3  # for a missed bar: the machine may have been busy with something else
Progress = Callable[[str], None]


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True)
class LineResult:
    """What every broker did on one line. The first broker is the subject, the second its reference."""

    line: Line
    samples: dict[str, Samples]
    tries: int = 1

    def median(self, broker: str, key: str) -> float | None:
        samples = self.samples.get(broker)
        return samples.median(key) if samples else None

    def ratio(self, subject: str, reference: str | None, key: str) -> float | None:
        return ratio(self.median(subject, key), self.median(reference, key) if reference else None)

    def verdict(self, subject: str, reference: str | None, figure: Figure) -> Verdict:
        reference_value = self.median(reference, figure.key) if reference else None
        return judge(figure, self.median(subject, figure.key), reference_value, has_reference=reference is not None)

    def missed(self, subject: str, reference: str | None) -> list[Figure]:
        return [each for each in self.line.figures if self.verdict(subject, reference, each) == "miss"]


@dataclass(slots=True)
class Results:
    brokers: list[str]
    lines: list[LineResult] = field(default_factory=list)
    quick: bool = False

    @property
    def subject(self) -> str:
        return self.brokers[0]

    @property
    def reference(self) -> str | None:
        return self.brokers[1] if len(self.brokers) > 1 else None

    def verdicts(self) -> dict[str, list[str]]:
        """{verdict: ["line figure", …]} of all figures that have a bar."""
        found: dict[str, list[str]] = {"pass": [], "miss": [], "unknown": []}
        for result in self.lines:
            for figure in result.line.figures:
                verdict = result.verdict(self.subject, self.reference, figure)
                if verdict:
                    found[verdict].append(f"{result.line.name} {figure.key}")
        return found

    def exit_code(self) -> int:
        """0 only if every bar was judged and reached: what could not be measured has not been shown."""
        verdicts = self.verdicts()
        return 1 if verdicts["miss"] or verdicts["unknown"] else 0


def run_line(line: Line, targets: list[Target], size: Size, repeats: int, progress: Progress) -> LineResult:
    asked = targets if line.reference else targets[:1]
    samples = {target.name: Samples({}) for target in asked}
    for _ in range(repeats):
        for target in asked:
            mine = samples[target.name]
            if mine.problem is not None:
                continue
            try:
                figures = line.run(target, size)
            except NotServed as missing:
                mine.problem = f"not served: {missing}"
            except NotMeasurable as missing:
                mine.problem = f"not measurable: {missing}"
            except Exception as error:
                mine.problem, mine.failed = f"failed: {error or type(error).__name__}", True
            else:
                mine.add(figures)
            progress(f"    {target.name}: {_brief(line, mine)}")
    return LineResult(line, samples)


def _brief(line: Line, samples: Samples) -> str:
    if samples.problem:
        return samples.problem
    return ", ".join(f"{values[-1]:.4g} {line.figure(key).unit}" for key, values in samples.values.items())


def run(
    lines: Iterable[Line],
    targets: list[Target],
    size: Size,
    *,
    repeats: int | None = None,
    tries: int = 1,
    progress: Progress = to_stderr,
) -> Results:
    """Run all lines; with more than one try, a line that misses a bar is measured again and a pass counts."""
    results = Results([target.name for target in targets], quick=size.quick)
    lines = list(lines)
    started = time.monotonic()
    for number, line in enumerate(lines, 1):
        line_repeats = 1 if size.quick else repeats or line.repeats
        progress(f"[{number}/{len(lines)}, {time.monotonic() - started:.0f} s] {line.name}: {line.title}")
        result = run_line(line, targets, size, line_repeats, progress)
        for attempt in range(2, tries + 1):
            missed = result.missed(results.subject, results.reference)
            if not missed:
                break
            progress(f"    missed {', '.join(each.key for each in missed)}; try {attempt} of {tries}")
            again = run_line(line, targets, size, line_repeats, progress)
            result = better(result, again, results.subject, results.reference)
            result.tries = attempt
        results.lines.append(result)
    return results


def better(first: LineResult, second: LineResult, subject: str, reference: str | None) -> LineResult:
    """The try that misses fewer bars; the later one if they miss as many."""
    if len(first.missed(subject, reference)) < len(second.missed(subject, reference)):
        return first
    return second


def warm_up(target: Target, size: Size, progress: Progress = to_stderr) -> None:
    """Let a broker's just-in-time compiler, files and pools settle, with each kind of load for a moment."""
    progress(f"warming up {target.name}")
    shape = {"record_bytes": 1024, "batch_bytes": 65536, "codec": "none", "connections": 1}
    try:
        with topic(target, 1) as name:
            seconds = size.pick(4.0, 0.2)
            limits = {"limit_seconds": seconds, "limit_bytes": 600_000_000}
            drive(target, "produce", topic=name, **shape, **limits)
            drive(target, "fetch", topic=name, **shape, **limits)
        with topic(target, 1) as name:
            drive(target, "requests", topic=name, record_bytes=100, depth=5, limit_seconds=seconds)
    except (NotServed, RuntimeError) as error:
        progress(f"    {target.name}: {error}")
