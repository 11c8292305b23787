"""Runs lines on brokers: interleaved (A, B, A, B, …), with medians, and retries of lines that miss a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Line, NotMeasurable, NotServed, Samples, Size, Verdict, judge, ratio
from ottla.bench.targets import Target

TRIES = 3  # if a bar is missed: the machine may have been busy with something else
Progress = Callable[[str], None]


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True)
class LineResult:
    """The results of all brokers for one line. The first of `brokers` is the subject, the others are its peers."""

    line: Line
    samples: dict[str, Samples]
    brokers: list[str]
    tries: int = 1

    def median(self, broker: str, key: str) -> float | None:
        samples = self.samples.get(broker)
        return samples.median(key) if samples else None

    def ratio(self, peer: str, key: str) -> float | None:
        """The subject's figure divided by a peer's."""
        return ratio(self.median(self.brokers[0], key), self.median(peer, key))

    def verdict(self, figure: Figure) -> Verdict:
        return judge(figure, {broker: self.median(broker, figure.key) for broker in self.brokers})

    def missed(self) -> list[Figure]:
        return [each for each in self.line.figures if self.verdict(each) == "miss"]


@dataclass(slots=True)
class Results:
    brokers: list[str]
    lines: list[LineResult] = field(default_factory=list)
    quick: bool = False

    @property
    def subject(self) -> str:
        return self.brokers[0]

    @property
    def peers(self) -> list[str]:
        """The other brokers, which the subject is compared with."""
        return self.brokers[1:]

    def verdicts(self) -> dict[str, list[str]]:
        """{verdict: ["line figure", …]} for all figures that have a bar."""
        found: dict[str, list[str]] = {"pass": [], "miss": [], "unknown": []}
        for result in self.lines:
            for figure in result.line.figures:
                verdict = result.verdict(figure)
                if verdict:
                    found[verdict].append(f"{result.line.name} {figure.key}")
        return found

    def exit_code(self) -> int:
        """0 only if every bar was judged and reached: a figure that could not be measured proves nothing."""
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
    return LineResult(line, samples, [target.name for target in targets])


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
    """Run all lines; with several tries, a line that misses a bar is measured again, and a pass counts."""
    results = Results([target.name for target in targets], quick=size.quick)
    lines = list(lines)
    started = time.monotonic()
    for number, line in enumerate(lines, 1):
        line_repeats = 1 if size.quick else repeats or line.repeats
        progress(f"[{number}/{len(lines)}, {time.monotonic() - started:.0f} s] {line.name}: {line.title}")
        result = run_line(line, targets, size, line_repeats, progress)
        for attempt in range(2, tries + 1):
            missed = result.missed()
            if not missed:
                break
            progress(f"    missed {', '.join(each.key for each in missed)}; try {attempt} of {tries}")
            again = run_line(line, targets, size, line_repeats, progress)
            result = better(result, again)
            result.tries = attempt
        results.lines.append(result)
    return results


def better(first: LineResult, second: LineResult) -> LineResult:
    """The try that misses fewer bars; the later one if they are equal."""
    return first if len(first.missed()) < len(second.missed()) else second


def warm_up(target: Target, size: Size, progress: Progress = to_stderr) -> None:
    """Warm up a broker's just-in-time compiler, files and pools with a short run of each kind of load."""
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
