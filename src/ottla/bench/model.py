"""What the benchmark measures: lines, the figures each one yields, and the bars those figures must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from ottla.bench.targets import Target

T = TypeVar("T")


class NotServed(Exception):
    """The broker does not offer an API (or a version of it) that the line needs."""


class NotMeasurable(Exception):
    """The figure cannot be had for this target, such as CPU time of a broker on another machine."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit on a figure: on its ratio to the reference broker, or on the subject's own value."""

    limit: float
    at_least: bool
    of: Literal["ratio", "value"] = "ratio"

    def holds(self, measured: float) -> bool:
        return measured >= self.limit if self.at_least else measured <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{'×' if self.of == 'ratio' else ''}"


def at_least(limit: float) -> Bar:
    return Bar(limit, at_least=True)


def at_most(limit: float) -> Bar:
    return Bar(limit, at_least=False)


def value_at_most(limit: float) -> Bar:
    return Bar(limit, at_least=False, of="value")


def value_at_least(limit: float) -> Bar:
    return Bar(limit, at_least=True, of="value")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a line yields. `bars` are judged for the subject; a figure without bars is only shown."""

    key: str
    unit: str
    higher_is_better: bool
    bars: tuple[Bar, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """How big a run is: the full one, or a quick one that only shows that everything works."""

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
    reference: bool = True  # False: concerns Ottla alone, other brokers are not asked

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
    """The lines that match any of the shell patterns; a pattern that matches none is an error, not an empty run."""
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
    """What one broker did on one line: the values of each figure, or why there are none."""

    values: dict[str, list[float]]
    problem: str | None = None
    failed: bool = False  # an error, in contrast to "not served"

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
    """The nearest-rank percentile; `values` need not be sorted."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


Verdict = Literal["pass", "miss", "unknown", ""]


def judge(figure: Figure, subject: float | None, reference: float | None, *, has_reference: bool = True) -> Verdict:
    """Whether every bar of the figure holds; "unknown" when a bar cannot be judged, "" when there is none to judge."""
    verdicts = list[Verdict]()
    for bar in figure.bars:
        if bar.of == "ratio" and not has_reference:
            continue
        measured = ratio(subject, reference) if bar.of == "ratio" else subject
        verdicts.append("unknown" if measured is None else "pass" if bar.holds(measured) else "miss")
    for verdict in ("miss", "unknown", "pass"):
        if verdict in verdicts:
            return verdict
    return ""
