"""The plot for the README, as an SVG of a few kilobytes that reads well on light and on dark pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ottla.bench.report import number
from ottla.bench.runner import Results

WIDTH = 760
LABEL_WIDTH = 220
VALUE_WIDTH = 210  # for the values, and the ratio at the end of the longest bar
ROW_HEIGHT = 26
BAR_HEIGHT = 14
TOP = 58
TICKS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100)

# The figures that matter most to readers of the README: (line, figure, label).
CHOSEN = (
    ("produce-1k-64k-none-4", "mb_s", "Produce, 64 KB batches"),
    ("produce-1k-512k-none-1", "mb_s", "Produce, 512 KB batches"),
    ("produce-1k-64k-lz4-4", "mb_s", "Produce, lz4"),
    ("fetch-1", "mb_s", "Fetch, one consumer"),
    ("fetch-4", "mb_s", "Fetch, four consumers"),
    ("requests-1", "rate", "Small requests, one by one"),
    ("requests-5", "rate", "Small requests, five under way"),
    ("latency", "p50_ms", "Produce to consume, median"),
    ("latency", "p99_ms", "Produce to consume, p99"),
    ("join-10", "ms", "Ten consumers join"),
    ("commits-5", "rate", "Offset commits"),
    ("transactions", "rate", "Transactions"),
    ("start", "ack_s", "Start to first write"),
    ("memory", "loaded_mb", "Memory after 2 GB"),
    ("topics", "create_s", "Create 1,000 topics"),
)

DISPLAY_NAMES = {"ottla": "Ottla", "kafka": "Apache Kafka"}

STYLE = """
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#3d444d}
.title{font-weight:600;font-size:15px}.dim{fill:#6e7781;font-size:12px}.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:#d0d7de;stroke-width:1}.one{stroke:#6e7781;stroke-width:1.5}.win{fill:#2f81f7}.lose{fill:#db6d28}
@media (prefers-color-scheme:dark){text{fill:#d1d7e0}.dim{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#9198a1}}
""".strip().replace("\n", "")


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    advantage: float  # how many times better the subject is
    detail: str


def chosen_bars(results: Results) -> list[Bar]:
    """The figures that were measured on both brokers, inverted if lower is better."""
    by_name = {result.line.name: result for result in results.lines}
    bars = []
    for name, key, label in CHOSEN:
        result = by_name.get(name)
        quotient = result.ratio(results.peers[0], key) if result and results.peers else None
        if result is None or not quotient:
            continue
        figure = result.line.figure(key)
        mine, theirs = (number(result.median(broker, key)) for broker in results.brokers[:2])
        advantage = quotient if figure.higher_is_better else 1 / quotient
        bars.append(Bar(label, advantage, f"{mine} : {theirs} {figure.unit}"))
    return bars


def svg(results: Results) -> str:
    names = [DISPLAY_NAMES.get(name, name) for name in (results.subject, *(results.peers[:1] or [""]))]
    return draw(chosen_bars(results), *names)


def draw(bars: list[Bar], subject: str, reference: str) -> str:
    """Horizontal bars on a logarithmic axis; the subject is better to the right of 1×."""
    low = min([0.5, *(bar.advantage / 1.1 for bar in bars)])
    high = max([4.0, *(bar.advantage * 1.1 for bar in bars)])
    plot_width = WIDTH - LABEL_WIDTH - VALUE_WIDTH

    def x(value: float) -> float:
        return LABEL_WIDTH + plot_width * math.log(value / low) / math.log(high / low)

    bottom = TOP + ROW_HEIGHT * len(bars)
    height = bottom + 30
    title = escape(f"{subject} beside {reference}: how many times better")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{title}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="0" y="18">{title}</text>',
        '<text class="dim" x="0" y="37">Same load, same machine, logarithmic scale; at the right '
        f"{escape(subject)} : {escape(reference)}</text>",
    ]
    for tick in TICKS:
        if low <= tick <= high:
            kind = "one" if tick == 1 else "grid"
            parts.append(f'<path class="{kind}" d="M{x(tick):.1f} {TOP - 6}V{bottom}"/>')
            parts.append(f'<text class="dim mid" x="{x(tick):.1f}" y="{bottom + 18}">{tick:g}×</text>')
    for index, bar in enumerate(bars):
        middle = TOP + ROW_HEIGHT * index + ROW_HEIGHT / 2
        start, end = sorted((x(1), x(bar.advantage)))
        kind = "win" if bar.advantage >= 1 else "lose"
        parts += [
            f'<text class="end" x="{LABEL_WIDTH - 12}" y="{middle + 4.5:.1f}">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{start:.1f}" y="{middle - BAR_HEIGHT / 2:.1f}" '
            f'width="{max(1.0, end - start):.1f}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{end + 6:.1f}" y="{middle + 4.5:.1f}">{number(bar.advantage)}×</text>',
            f'<text class="dim end" x="{WIDTH}" y="{middle + 4.5:.1f}">{escape(bar.detail)}</text>',
        ]
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
