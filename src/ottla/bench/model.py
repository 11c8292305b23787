"""The model of the benchmark: lines, the figures of each line, and the bars that the figures must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from ottla.bench.targets import Target

T = TypeVar("T")
KAFKA = "kafka"  # bars compare with this broker unless they name another one


class NotServed(Exception):
    """The broker does not offer an API (or a version of it) that the line needs."""


class NotMeasurable(Exception):
    """The figure is not available for this target, such as the CPU time of a broker on another machine."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit on a figure: on its ratio to another broker, or on the subject's own value.

    A run without that other broker does not judge the bar.
    """

    limit: float
    at_least: bool
    of: Literal["ratio", "value"] = "ratio"
    than: str = KAFKA

    def holds(self, measured: float) -> bool:
        return measured >= self.limit if self.at_least else measured <= self.limit

    def __str__(self) -> str:
        times = "" if self.of == "value" else "×" if self.than == KAFKA else f"× {self.than}"
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{times}"


def at_least(limit: float, than: str = KAFKA) -> Bar:
    return Bar(limit, at_least=True, than=than)


def at_most(limit: float, than: str = KAFKA) -> Bar:
    return Bar(limit, at_least=False, than=than)


def value_at_most(limit: float) -> Bar:
    return Bar(limit, at_least=False, of="value")


def value_at_least(limit: float) -> Bar:
    return Bar(limit, at_least=True, of="value")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a line measures. `bars` are judged for the subject; a figure without bars is only shown."""

    key: str
    unit: str
    higher_is_better: bool
    bars: tuple[Bar, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run: full, or quick, which only shows that everything works."""

    quick: bool = False

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


Run = Callable[["Target", Size], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One load. `run` measures one broker once and returns {figure key: value}; a key may be left out."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    run: Run
    repeats: int = 3
    reference: bool = True  # False: only runs on Ottla

    def figure(self, key: str) -> Figure:
        for figure in self.figures:
            if figure.key == key:
                return figure
        raise KeyError(f"the bench line {self.name} has no figure {key}")


LINES: dict[str, Line] = {}


def register(line: Line) -> Line:
    if line.name in LINES:
        raise ValueError(f"two bench lines are named {line.name}")
    LINES[line.name] = line
    return line


def line(name: str, title: str, *figures: Figure, repeats: int = 3, reference: bool = True) -> Callable[[Run], Run]:
    """Register the decorated function as a line of the benchmark."""

    def decorate(run: Run) -> Run:
        register(Line(name, title, figures, run, repeats, reference))
        return run

    return decorate


def select(lines: Iterable[Line], patterns: Iterable[str]) -> list[Line]:
    """The lines that match any of the shell patterns; a pattern without a match is an error, not an empty run."""
    lines, chosen = list(lines), set[str]()
    wanted = list(patterns)
    for pattern in wanted:
        matched = {each.name for each in lines if fnmatchcase(each.name, pattern)}
        if not matched:
            raise ValueError(f"no bench line matches {pattern!r}; see --list")
        chosen |= matched
    return [each for each in lines if not wanted or each.name in chosen]


@dataclass(slots=True)
class Samples:
    """The results of one broker for one line: the values of each figure, or why there are none."""

    values: dict[str, list[float]]
    problem: str | None = None
    failed: bool = False  # an error, as opposed to "not served"

    def add(self, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            self.values.setdefault(key, []).append(value)

    def median(self, key: str) -> float | None:
        values = self.values.get(key)
        return median(values) if values else None


def ratio(subject: float | None, reference: float | None) -> float | None:
    if subject is None or reference is None or reference == 0:
        return None
    return subject / reference


def percentile(values: list[float], percent: float) -> float:
    """The nearest-rank percentile; `values` may be unsorted."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


Verdict = Literal["pass", "miss", "unknown", ""]


def judge(figure: Figure, medians: Mapping[str, float | None]) -> Verdict:
    """Whether the figure reaches every bar; "unknown" if a bar cannot be judged, "" if there is none to judge.

    `medians` contains every broker of the run, the subject first.
    """
    verdicts = list[Verdict]()
    subject = next(iter(medians.values()))
    for bar in figure.bars:
        if bar.of == "ratio" and bar.than not in medians:
            continue
        measured = ratio(subject, medians[bar.than]) if bar.of == "ratio" else subject
        verdicts.append("unknown" if measured is None else "pass" if bar.holds(measured) else "miss")
    for verdict in ("miss", "unknown", "pass"):
        if verdict in verdicts:
            return verdict
    return ""
