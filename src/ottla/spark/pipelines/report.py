"""The windows of `stats` as pictures: one self-contained HTML page, or a PNG (drawn by matplotlib).

The page has a section for each topic. The PNG is one slide with all topics in each chart. The first and the last window
of a topic are pale: a topic begins and ends inside a window, so these hold fewer records than a full window, which
would look like a drop. A window without records in between is drawn as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Window = Mapping[str, Any]
Point = tuple[float, float]
_COLOURS: Final = ("#2563a8", "#c8571b", "#2f855a", "#7b4397", "#a87c10", "#4a5568")
_ON_DARK: Final = ("#6ea8e5", "#f0925c", "#6cc492", "#c39ae3", "#d9b04a", "#a7b3c4")
"""The colours on a dark page."""
_MOST_POINTS: Final = 1000
_MOST_TOPICS: Final = len(_COLOURS)
"""The maximum number of lines in one chart of the PNG. More are hard to tell apart."""
_LONGEST_NAME: Final = 48
"""The maximum length of a topic's name in the PNG, which shows three in a row."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 246, 80, 16, 14, 46
_BYTES: Final = ("B", "kB", "MB", "GB", "TB")
_COUNTS: Final = ("", "k", "M", "G", "T")

_STYLE: Final = """
:root { --ink: #1f2733; --soft: #5f6976; --line: #e3e7ec; --card: #f6f8fa; --page: #fff; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #98a2b0; --line: #333b46; --card: #20262e; --page: #15191f; DARK }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2.5rem auto; max-width: 1180px; padding: 0 1.25rem;
  color: var(--ink); background: var(--page) }
h1 { font-size: 1.7rem; margin: 0 } h2 { font-size: 1.25rem; margin: 2.4rem 0 .2rem; overflow-wrap: anywhere }
.about { color: var(--soft); margin: .2rem 0 1rem }
.figures { display: flex; flex-wrap: wrap; gap: .75rem; margin: .8rem 0 1.2rem }
.figures div { background: var(--card); border-radius: 8px; padding: .5rem .8rem; min-width: 5rem }
.figures b { display: block; font-size: 1.2rem; font-variant-numeric: tabular-nums }
.figures span { color: var(--soft); font-size: .82rem }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1.4rem 1.8rem }
figure { margin: 0 } figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .15rem }
svg { width: 100% }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft) } .grid { stroke: var(--line) }
@media (max-width: 520px) { svg text { font-size: 15px } }  /* as the chart is drawn smaller there */
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """The content of a chart."""

    column: str
    label: str
    units: Sequence[str] = _COUNTS
    suffix: str = ""


def check_report(path: str | None) -> None:
    """Check before hours of work that the report can be created."""
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


def write_report(
    path: str, windows: Sequence[Window], dropped: Mapping[str, int], *, window_ms: int = 60_000, late_after_ms: int = 0
) -> None:
    """Draw windows, which are ordered by topic and time."""
    topics: dict[str, list[Window]] = {}
    for window in windows:
        topics.setdefault(window["topic"], []).append(window)
    try:
        if path.lower().endswith(".png"):
            picture(topics, window_ms, late_after_ms).savefig(path, dpi=120)
        else:
            page = html(topics, dropped, window_ms=window_ms, late_after_ms=late_after_ms)
            Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"the report {path} cannot be written: {error.strerror}") from None


def charts(late_after_ms: int) -> tuple[Chart, ...]:
    """The four charts of every report."""
    late = f"Records more than {_duration(late_after_ms)} late" if late_after_ms else "Late records"
    return (
        Chart("records_per_second", "Records per second"),
        Chart("bytes_per_second", "Data per second", _BYTES, "/s"),
        Chart("distinct_keys", "Distinct keys in a window"),
        Chart("late_percent", late, _COUNTS, " %"),
    )


# --- what is drawn ---------------------------------------------------------------------------------------------------


def points(windows: Sequence[Window], column: str, window_ms: int) -> list[Point]:
    """The start of each window in epoch seconds and its value. Windows without records are zero."""
    step = window_ms / 1000
    found: list[Point] = []
    for window in windows:
        moment = _seconds(window["window_start"])
        # Of a long pause only the edges matter.
        if found and moment - found[-1][0] > 1.5 * step:
            found += [(found[-1][0] + step, 0.0), (moment - step, 0.0)]
        found.append((moment, _value(window, column)))
    return _thinned(found)


def _value(window: Window, column: str) -> float:
    if column == "late_percent":
        return 100 * window["late"] / window["records"] if window["records"] else 0.0
    return float(window[column] or 0)


def _thinned(found: list[Point]) -> list[Point]:
    """At most this many points: the lowest and the highest of neighbours in the same place, so that no peak is lost."""
    size = -(-2 * len(found) // _MOST_POINTS)
    if size <= 2:
        return found
    kept = [found[0]]
    for at in range(1, len(found) - 1, size):
        some = found[at : min(at + size, len(found) - 1)]
        kept += sorted({min(some, key=lambda p: p[1]), max(some, key=lambda p: p[1])})
    return [*kept, found[-1]]


def _seconds(moment: datetime) -> float:
    # Spark returns times without a zone, in the machine's zone.
    return moment.timestamp()


def nice_ticks(greatest: float) -> list[float]:
    """About four round values from zero to above the highest value."""
    if greatest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** floor(log10(greatest / 4))
    step = next(one * power for one in (1, 2, 2.5, 5, 10) if one * power * 4 >= greatest)
    count = -(-greatest // step)
    return [step * number for number in range(int(count) + 1)]


_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def time_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """At most six round moments with their labels in UTC. At the start of a day, a second line shows the date."""
    span = max(last - first, 1.0)
    days = 86400 * max(1, -(-int(span) // (5 * 86400)))
    step = next((one for one in _STEPS_S if span / one <= 5), days)
    at = -(-int(first) // step) * step
    found: list[tuple[float, str]] = []
    # Within a single day no date is needed: the line above the charts shows it.
    day = f"{datetime.fromtimestamp(first, UTC):%d %b}"
    while at <= last:
        moment = datetime.fromtimestamp(at, UTC)
        text = f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"
        if step >= 86400:
            text = f"{moment:%d %b}"
        elif f"{moment:%d %b}" != day:
            day = f"{moment:%d %b}"
            text = f"{text}\n{day}"
        found.append((float(at), text))
        at += step
    return found


def short(value: float, units: Sequence[str] = _COUNTS) -> str:
    """`12.5 k`, `3 MB`; zero needs no unit."""
    if not value:
        return "0"
    for unit in units[:-1]:
        if abs(value) < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} {units[-1]}"


def _duration(ms: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def _about_duration(ms: float) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms:.0f} ms"


def _about(topics: Mapping[str, Sequence[Window]], window_ms: int) -> str:
    """The time range, its zone, and the length of the windows."""
    starts = [_seconds(window["window_start"]) for windows in topics.values() for window in windows]
    if not starts:
        return "There are no records yet."
    first = datetime.fromtimestamp(min(starts), UTC)
    last = datetime.fromtimestamp(max(starts), UTC) + timedelta(milliseconds=window_ms)
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%d %b %Y %H:%M:%S}"
    return f"{first:%d %b %Y %H:%M:%S} to {end} UTC, by the records' own time, in windows of {_duration(window_ms)}"


_PALE: Final = "Pale: the first and the last window, which are not complete."
_FEW: Final = "So few windows are not complete: the data may begin and end within them."


def _edges(topics: Mapping[str, Sequence[Window]]) -> str:
    """A remark about the first and the last window."""
    if not topics:
        return ""
    return _PALE if any(len(windows) > 2 for windows in topics.values()) else _FEW


# --- HTML ------------------------------------------------------------------------------------------------------------


def html(
    topics: Mapping[str, Sequence[Window]],
    dropped: Mapping[str, int],
    *,
    window_ms: int = 60_000,
    late_after_ms: int = 0,
) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Topics over time</title><style>{_style()}</style><main><h1>Topics over time</h1>",
        f"<p class=about>{_about(topics, window_ms)}. {_edges(topics)}</p>",
    ]
    for index, (topic, windows) in enumerate(topics.items()):
        colour = f"var(--topic{index % len(_COLOURS)})"
        parts.append(f"<h2>{escape(topic)}</h2>{_figures(windows, dropped.get(topic, 0), late_after_ms)}")
        parts.append("<div class=charts>")
        parts += [_chart(windows, chart, window_ms, colour) for chart in charts(late_after_ms)]
        parts.append("</div>")
    return "\n".join([*parts, "</main>"]) + "\n"


def _style() -> str:
    light, dark = (
        "; ".join(f"--topic{index}: {colour}" for index, colour in enumerate(some)) for some in (_COLOURS, _ON_DARK)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark)


def _figures(windows: Sequence[Window], dropped: int, late_after_ms: int) -> str:
    records = sum(window["records"] for window in windows)
    size = sum(window["bytes"] for window in windows)
    late = sum(window["late"] for window in windows)
    share = f" ({100 * late / records:.1f} %)" if late else ""
    shown = [
        ("records", f"{records:,}"),
        ("data", short(size, _BYTES)),
        ("average record", f"{size / records if records else 0:,.0f} B"),
        ("windows" if len(windows) != 1 else "window", f"{len(windows):,}"),
        (f"more than {_duration(late_after_ms)} late" if late_after_ms else "late", f"{late:,}{share}"),
        ("most late by", _about_duration(max((window["max_lateness_ms"] or 0) for window in windows))),
        ("too late, not counted", f"{dropped:,}"),
    ]
    return "<div class=figures>" + "".join(f"<div><b>{v}</b><span>{k}</span></div>" for k, v in shown) + "</div>"


def _chart(windows: Sequence[Window], chart: Chart, window_ms: int, colour: str) -> str:
    found = points(windows, chart.column, window_ms)
    first, last = found[0][0], found[-1][0]
    ticks = nice_ticks(max(value for _, value in found))
    span = (last - first) or 1.0
    right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(moment: float) -> float:
        return _LEFT + (moment - first) / span * (right - _LEFT) if last > first else (_LEFT + right) / 2

    def y(value: float) -> float:
        return low - value / ticks[-1] * (low - _TOP)

    def line(some: Sequence[Point]) -> str:
        return " ".join(f"{x(moment):.1f},{y(value):.1f}" for moment, value in some)

    parts = [
        f'<figure><figcaption>{escape(chart.label)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(chart.label)}">'
    ]
    for tick in ticks:
        label = f"{short(tick, chart.units)}{chart.suffix if tick else ''}"
        parts.append(
            f'<path class=grid d="M{_LEFT} {y(tick):.1f}H{right}"/>'
            f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for moment, label in time_ticks(first, last):
        for row, text in enumerate(label.split("\n")):
            at = f'x="{x(moment):.1f}" y="{low + 22 + 18 * row}"'
            parts.append(f'<text {at} text-anchor="middle">{text}</text>')
    whole = found[1:-1]
    if len(whole) > 1:
        area = f"{x(whole[0][0]):.1f},{low} {line(whole)} {x(whole[-1][0]):.1f},{low}"
        parts.append(f'<polygon points="{area}" fill="{colour}" opacity=".14"/>')
        parts.append(_polyline(line(whole), colour))
    edges = (found[0], found[-1]) if len(found) > 2 else ()
    for edge in (found[:2], found[-2:]) if edges else (found,):
        parts.append(_polyline(line(edge), colour, 'stroke-dasharray="3 4" opacity=".45"' if edges else ""))
    shown = found if len(found) < 40 else edges
    for point in shown:
        pale = ' opacity=".4"' if point in edges else ""
        parts.append(f'<circle cx="{x(point[0]):.1f}" cy="{y(point[1]):.1f}" r="2.6" fill="{colour}"{pale}/>')
    return "".join(parts) + "</svg></figure>"


def _polyline(placed: str, colour: str, more: str = "") -> str:
    return (
        f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round" {more}/>'
    )


# --- PNG -------------------------------------------------------------------------------------------------------------


def picture(topics: Mapping[str, Sequence[Window]], window_ms: int, late_after_ms: int) -> Figure:
    """One slide of 1920 by 1080."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    by_size = sorted(topics, key=lambda topic: -sum(window["records"] for window in topics[topic]))
    drawn = sorted(by_size[:_MOST_TOPICS])
    low = 0.09 if len(drawn) > 1 else 0.02  # room for the names of the topics
    figure = Figure(
        figsize=(16, 9), layout=ConstrainedLayoutEngine(rect=(0.015, low, 0.97, 0.88 - low), w_pad=0.25, h_pad=0.2)
    )
    FigureCanvasAgg(figure)
    title = f"{_short_name(drawn[0])} over time" if len(drawn) == 1 else "Topics over time"
    figure.text(0.03, 0.94, title, fontsize=24, weight="bold", color="#1f2733")
    more = f" The {_MOST_TOPICS} largest of {len(topics)} topics." if len(topics) > len(drawn) else ""
    about = f"{_about(topics, window_ms)}. {_edges(topics)}{more}"
    figure.text(0.03, 0.905, about, fontsize=12.5, color="#66707e")
    axes = figure.subplots(2, 2).flat
    for one, chart in zip(axes, charts(late_after_ms), strict=True):
        _axes(one, chart)
        top = 0.0
        for index, topic in enumerate(drawn):
            found = points(topics[topic], chart.column, window_ms)
            top = max(top, *(value for _, value in found))
            _lines(one, found, _COLOURS[index], topic, filled=len(drawn) == 1)
        ticks = nice_ticks(top)
        one.set_ylim(0, ticks[-1] * 1.02)
        one.set_yticks(ticks, [f"{short(tick, chart.units)}{chart.suffix if tick else ''}" for tick in ticks])
        starts = [_seconds(window["window_start"]) for topic in drawn for window in topics[topic]]
        if starts:
            marks = time_ticks(min(starts), max(starts))
            one.set_xticks([moment for moment, _ in marks], [label for _, label in marks])
    if len(drawn) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        place = {"loc": "lower left", "bbox_to_anchor": (0.02, 0.005), "ncols": 3}
        figure.legend(handles, labels, frameon=False, fontsize=12.5, labelcolor="#1f2733", **place)
    return figure


def _axes(one: Any, chart: Chart) -> None:
    one.set_title(chart.label, fontsize=14, loc="left", weight="bold", color="#1f2733", pad=10)
    one.grid(axis="y", color="#e3e7ec")
    one.set_axisbelow(True)
    for side in ("top", "right", "left"):
        one.spines[side].set_visible(False)
    one.spines["bottom"].set_color("#b8c0ca")
    one.tick_params(labelsize=11.5, colors="#4a5460", length=0)
    one.tick_params(axis="x", pad=9)
    one.margins(x=0.02)


def _short_name(topic: str) -> str:
    """The name, cut in the middle, because the end is often the version."""
    return topic if len(topic) <= _LONGEST_NAME else f"{topic[: _LONGEST_NAME - 16]}…{topic[-15:]}"


def _lines(one: Any, found: Sequence[Point], colour: str, topic: str, *, filled: bool) -> None:
    """Areas of several topics would cover each other, so only a single topic gets one."""
    times, values = [moment for moment, _ in found], [value for _, value in found]
    name = _short_name(topic)
    if len(found) <= 2:
        one.plot(times, values, "o-", color=colour, linewidth=2.2, markersize=8, label=name)
        return
    one.plot(times[1:-1], values[1:-1], color=colour, linewidth=2.2, label=name)
    if filled:
        one.fill_between(times[1:-1], values[1:-1], color=colour, alpha=0.1, linewidth=0)
    for part in (slice(0, 2), slice(-2, None)):
        one.plot(times[part], values[part], color=colour, linewidth=1.6, alpha=0.45, linestyle=(0, (2, 2)))
    if len(found) < 40:
        one.plot(times[1:-1], values[1:-1], "o", color=colour, markersize=5)
    one.plot([times[0], times[-1]], [values[0], values[-1]], "o", color=colour, alpha=0.4, markersize=4)
