"""The windows of `stats` as pictures: one HTML page without anything beside it, or a PNG (drawn by matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from ottla.spark.pipelines.errors import PipelineError

Window = Mapping[str, Any]
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 520, 150, 64, 22
_CHARTS: Final[tuple[tuple[str, str], ...]] = (
    ("records_per_second", "records/s"),
    ("bytes_per_second", "bytes/s"),
    ("distinct_keys", "distinct keys"),
    ("max_lateness_ms", "greatest lateness, ms"),
)
_COLOURS: Final = ("#2f6fab", "#c25b2a", "#3a8f5c", "#8a4fa3", "#b8962e", "#557")
_MOST_POINTS: Final = 2000

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1130px; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem }
table { border-collapse: collapse; margin: .6rem 0 } th, td { padding: .2rem .8rem .2rem 0; text-align: right }
th:first-child, td:first-child { text-align: left } th { border-bottom: 1px solid #999; font-weight: 600 }
.charts { display: flex; flex-wrap: wrap; gap: 1rem } figure { margin: 0 } figcaption { color: #555; font-size: .85rem }
svg text { font: 11px system-ui, sans-serif; fill: #666 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } svg text { fill: #aaa } }
"""


def check_report(path: str | None) -> None:
    """Before hours of work, whether the report can be made."""
    if path is None:
        return
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".png"):
        raise PipelineError(f"a report is a .html or .png file, not '{path}'")
    if not Path(path).absolute().parent.is_dir():
        raise PipelineError(f"the report cannot be written: there is no folder {Path(path).absolute().parent}")
    if suffix == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise PipelineError("a PNG is drawn by matplotlib: pip install matplotlib, or ask for .html") from None


def write_report(path: str, windows: Sequence[Window], dropped: Mapping[str, int]) -> None:
    """Draw windows, which come in the order of topic and time."""
    topics: dict[str, list[Window]] = {}
    for window in windows:
        topics.setdefault(window["topic"], []).append(window)
    try:
        if path.lower().endswith(".png"):
            _png(path, topics)
        else:
            Path(path).write_text(html(topics, dropped), encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"the report {path} cannot be written: {error.strerror}") from None


def html(topics: Mapping[str, Sequence[Window]], dropped: Mapping[str, int]) -> str:
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>Topics</title><style>{_STYLE}</style>"]
    parts.append("<h1>Topics by event time</h1>")
    parts.append(_overview(topics, dropped))
    for index, (topic, windows) in enumerate(topics.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        parts.append(f"<h2>{escape(topic)}</h2><div class=charts>")
        parts += [_chart(windows, column, label, colour) for column, label in _CHARTS]
        parts.append("</div>")
    return "\n".join(parts) + "\n"


def _overview(topics: Mapping[str, Sequence[Window]], dropped: Mapping[str, int]) -> str:
    head = ("topic", "windows", "records", "bytes", "average size", "late", "greatest lateness", "dropped")
    rows = []
    for topic, windows in topics.items():
        records = sum(window["records"] for window in windows)
        size = sum(window["bytes"] for window in windows)
        cells = (
            escape(topic),
            f"{len(windows):,}",
            f"{records:,}",
            f"{size:,}",
            f"{size / records if records else 0:,.1f}",
            f"{sum(window['late'] for window in windows):,}",
            f"{max((window['max_lateness_ms'] or 0) for window in windows):,} ms",
            f"{dropped.get(topic, 0):,}",
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(rows)}</table>"


def _thinned(windows: Sequence[Window], column: str) -> list[tuple[float, float]]:
    """At most so many points; of neighbours that share one, the greatest is shown."""
    points = [(_seconds(window["window_start"]), float(window[column] or 0)) for window in windows]
    step = -(-len(points) // _MOST_POINTS)
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]


def _seconds(moment: datetime) -> float:
    # Spark hands out times without a zone, in that of the machine.
    return moment.timestamp()


def _chart(windows: Sequence[Window], column: str, label: str, colour: str) -> str:
    points = _thinned(windows, column)
    first, last = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1.0
    span = (last - first) or 1.0
    right, low = _WIDTH - 8, _HEIGHT - _BOTTOM

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (point[0] - first) / span * (right - _LEFT)
        return f"{x:.1f},{low - point[1] / top * (low - 12):.1f}"

    line = " ".join(map(place, points))
    dots = "".join(
        f'<circle cx="{place(p).split(",")[0]}" cy="{place(p).split(",")[1]}" r="2.5" fill="{colour}"/>'
        for p in (points if len(points) < 40 else ())
    )
    return (
        f'<figure><figcaption>{escape(label)}</figcaption><svg width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><path d="M{_LEFT} 12V{low}H{right}" fill="none" stroke="#999"/>'
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>{dots}'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{_short(top)}</text>'
        f'<text x="{_LEFT - 6}" y="{low}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{_moment(first)}</text>'
        f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">{_moment(last)}</text></svg></figure>'
    )


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _short(value: float) -> str:
    for unit in ("", "k", "M", "G"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"


def _png(path: str, topics: Mapping[str, Sequence[Window]]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    rows = max(len(topics), 1)
    figure = Figure(figsize=(14, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Callable[[int, int], Any] = lambda row, column: figure.add_subplot(rows, 4, row * 4 + column + 1)  # noqa: E731
    for row, (topic, windows) in enumerate(topics.items()):
        for column, (name, label) in enumerate(_CHARTS):
            points = _thinned(windows, name)
            one = axes(row, column)
            moments = [datetime.fromtimestamp(seconds, UTC) for seconds, _ in points]
            one.plot(moments, [value for _, value in points], color=_COLOURS[row % len(_COLOURS)])
            one.set_ylim(bottom=0)
            ticks = AutoDateLocator(minticks=2, maxticks=5)
            one.xaxis.set_major_locator(ticks)
            one.xaxis.set_major_formatter(ConciseDateFormatter(ticks))
            one.set_title(f"{topic}: {label}", fontsize=9)
            one.tick_params(labelsize=7)
    figure.savefig(path, dpi=110)
