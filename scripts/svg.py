"""A few shapes for the pictures of the documentation. They follow the reader's light or dark theme."""

from __future__ import annotations

from html import escape

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2933; }
.small { font-size: 11px; fill: #52606d; } .bold { font-weight: 600; } .mono { font-family: ui-monospace, monospace; }
.box { fill: #e6f4f1; stroke: #0f766e; } .box2 { fill: #fef3c7; stroke: #b45309; }
.box3 { fill: #e0e7ff; stroke: #4338ca; }
.gone { fill: #f1f5f9; stroke: #94a3b8; stroke-dasharray: 4 3; } .hot { fill: #0f766e; stroke: #0f766e; }
.line { stroke: #52606d; fill: none; } .mark { stroke: #be123c; stroke-width: 2; fill: none; } .markt { fill: #be123c; }
.inv { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; } .small { fill: #9aa5b1; } .line { stroke: #9aa5b1; }
  .box { fill: #134e4a; stroke: #5eead4; } .box2 { fill: #713f12; stroke: #fcd34d; }
  .box3 { fill: #312e81; stroke: #a5b4fc; }
  .gone { fill: #1f2933; stroke: #616e7c; } .hot { fill: #5eead4; stroke: #5eead4; } .inv { fill: #102a27; }
  .mark { stroke: #fb7185; } .markt { fill: #fb7185; }
}
"""


class Picture:
    """Collects shapes; `text()` is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box", rounded: float = 3) -> None:
        self._shapes.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{rounded:g}"/>'
        )

    def words(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self._shapes.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def labelled(
        self, x: float, y: float, width: float, height: float, text: str, kind: str = "box", words: str = ""
    ) -> None:
        """A box with text in the middle."""
        self.box(x, y, width, height, kind)
        self.words(x + width / 2, y + height / 2 + 4.5, text, words, "middle")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line", *, arrow: bool = False) -> None:
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self._shapes.append(f'<path class="{kind}" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"{end}/>')

    def curve(self, x1: float, y1: float, x2: float, y2: float, bend: float) -> None:
        """A curved arrow."""
        middle = (x1 + x2) / 2
        self._shapes.append(
            f'<path class="line" d="M{x1:g} {y1:g} Q{middle:g} {(y1 + y2) / 2 + bend:g} {x2:g} {y2:g}"'
            ' marker-end="url(#arrow)"/>'
        )

    def text(self) -> str:
        width, height = self._size
        arrow = (
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="line" d="M1 1 L7 4 L1 7"/></marker></defs>'
        )
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{STYLE}</style>",
                arrow,
                *self._shapes,
                "</svg>",
                "",
            )
        )
