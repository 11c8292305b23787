"""The results of a soak: the slope of every series, a verdict, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from xml.sax.saxutils import escape

WARM_UP_S = 120.0
"""What a broker allocates after a start is not a leak. Logs of deleted topics stay for a minute
(`file.delete.delay.ms`), and so do records of the topic with short retention: their number is steady only then."""
LIVES_MIN_S = 60.0
"""A shorter time between two restarts says nothing about a slope."""


@dataclass
class Sample:
    at_s: float
    life: int
    """The number of this start of the broker."""
    values: dict[str, float]


LIMITS = {"memory_mb": 0.10, "handles": 0.10, "threads": 0.10, "disk_mb": 0.25, "p50_ms": 0.50}
"""How much a series may grow in the judged life, as a share of its mean."""
SLACK = {"memory_mb": 4.0, "handles": 8.0, "threads": 3.0, "disk_mb": 40.0, "p50_ms": 5.0}
"""Growth up to this limit does not count: a pool that starts its threads, records that retention keeps, a busy
machine."""


OUTLIVES = frozenset({"disk_mb"})
"""What a restart does not reset."""
POINTS_MAX = 400
"""The most points of a series that are used for its slope. More would be slow and change nothing."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs (Theil and Sen), in units per second: outliers do not move it."""
    points = points[:: len(points) // POINTS_MAX + 1]
    slopes = [(y - b) / (x - a) for n, (x, y) in enumerate(points) for a, b in points[:n] if x != a]
    return median(slopes) if slopes else 0.0


@dataclass
class Judgement:
    name: str
    mean: float
    growth: float
    """The growth over the judged life, or the whole run, by the slope, as a share of the mean."""
    limit: float
    over: str
    """The period of the growth."""

    @property
    def is_fine(self) -> bool:
        return self.growth <= self.limit or self.growth * self.mean <= SLACK[self.name]


def judge(samples: Sequence[Sample]) -> list[Judgement]:
    """The slope within the longest life of the broker, after its warm-up; empty if it was too short.

    In the first life, topics fill up to their retention, and so do handles and indexes. So a later life is judged if
    there is one. Data on disk outlives the process, so its slope covers the whole run.
    """
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    settled = [[each for each in life if each.at_s - life[0].at_s >= WARM_UP_S] for life in lives.values()]
    filled = [life for life in settled[1:] if _length_s(life) >= LIVES_MIN_S]
    longest = max(filled or settled, key=_length_s, default=[])
    if _length_s(longest) < LIVES_MIN_S:
        return []
    all_of_them = [sample for life in settled for sample in life]
    judged = []
    for name, limit in LIMITS.items():
        over, counted = ("the run", all_of_them) if name in OUTLIVES else (f"life {longest[0].life}", longest)
        points = [(sample.at_s, sample.values[name]) for sample in counted if name in sample.values]
        if points:
            mean = sum(value for _, value in points) / len(points)
            growth = slope(points) * _length_s(counted) / mean if mean else 0.0
            judged.append(Judgement(name, mean, growth, limit, over))
    return judged


def _length_s(life: Sequence[Sample]) -> float:
    return life[-1].at_s - life[0].at_s if life else 0.0


WIDTH, HEIGHT, LEFT, GAP = 720, 90, 90, 34


def plot(samples: Sequence[Sample]) -> str:
    """One small chart per series, one below another; a gap marks a restart."""
    names = [name for name in LIMITS if any(name in sample.values for sample in samples)]
    end_s = max((sample.at_s for sample in samples), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(names) * (HEIGHT + GAP) + 20}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#888">'
    ]
    for row, name in enumerate(names):
        top = 20 + row * (HEIGHT + GAP)
        highest = max(sample.values.get(name, 0.0) for sample in samples) or 1.0
        parts.append(f'<text x="0" y="{top + 4}">{escape(name)}</text>')
        parts.append(f'<text x="0" y="{top + 20}">0 to {highest:.4g}</text>')
        parts.append(
            f'<rect x="{LEFT}" y="{top - 8}" width="{WIDTH - LEFT}" height="{HEIGHT}" fill="none" stroke="#8884"/>'
        )
        for life in sorted({sample.life for sample in samples}):
            points = " ".join(
                f"{LEFT + sample.at_s / end_s * (WIDTH - LEFT):.1f},"
                f"{top - 8 + HEIGHT - sample.values[name] / highest * HEIGHT:.1f}"
                for sample in samples
                if sample.life == life and name in sample.values
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="#2f7ed8" stroke-width="1.5"/>')
    parts.append("</svg>")
    return "\n".join(parts)


def text(
    samples: Sequence[Sample], counts: dict[str, int], unexpected: Sequence[str], judged: Sequence[Judgement]
) -> str:
    hours = samples[-1].at_s / 3600 if samples else 0.0
    lives = len({sample.life for sample in samples})
    lines = [
        f"{hours * 60:.0f} minutes, {lives} starts of the broker.",
        "",
        "| measured | mean | growth | in | limit | |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{each.name}` | {each.mean:.4g} | {each.growth:+.1%} | {each.over} "
            f"| {each.limit:.0%} | {'ok' if each.is_fine else 'GROWS'} |"
            for each in judged
        ),
        *([] if judged else ["", "Too short to be judged: no life of the broker was long enough after its warm-up."]),
        "",
        "Done: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) + ".",
    ]
    if unexpected:
        lines += ["", "Errors that no restart explains:", "", *(f"- {error}" for error in unexpected)]
    return "\n".join(lines) + "\n"
