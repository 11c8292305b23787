"""The output of commands: colours and progress on a terminal only, tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any, Final

from ottla.cli.lines import to_json_bytes
from ottla.cli.printable import escaped, escaped_lines

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_JSON_CONTROLS: Final = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Characters that are valid in JSON but control a terminal."""
_REDRAW_S: Final = 0.1
_BAR_CELLS: Final = 24


def colours(stream: IO[str]) -> bool:
    """Whether a stream shows colours: a terminal that is not dumb, unless NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Painted(str):
    """Text with our own escape sequences; those of the text itself are removed."""

    __slots__ = ()


def paint(text: object, style: str, stream: IO[str] | None = None) -> Painted:
    """The text in a style such as "bold" or "red", or unchanged without colours."""
    shown = escaped(str(text))
    if not colours(sys.stdout if stream is None else stream):
        return Painted(shown)
    return Painted(f"\x1b[{_CODES[style]}m{shown}\x1b[0m")


def width_of(text: str) -> int:
    return len(_ESCAPES.sub("", text))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> str:
    """A table with columns as wide as needed; those in `right` are right-aligned."""
    cells = [["-" if cell is None else _cell(cell) for cell in row] for row in rows]
    numeric = {index for index, name in enumerate(head) if name in set(right)}
    widths = [max([width_of(name), *(width_of(row[i]) for row in cells)]) for i, name in enumerate(head)]
    lines: list[str] = [paint(_line(head, widths, numeric), "bold")]
    lines += [_line(row, widths, numeric) for row in cells]
    return "\n".join(lines)


def _cell(cell: object) -> str:
    return cell if isinstance(cell, Painted) else escaped(str(cell))


def _line(cells: Sequence[str], widths: Sequence[int], right: set[int]) -> str:
    padded = []
    for index, cell in enumerate(cells):
        space = " " * (widths[index] - width_of(cell))
        padded.append(space + cell if index in right else cell + space)
    return "  ".join(padded).rstrip()


def human_bytes(count: int) -> str:
    """1536 as 1.5 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def counted(count: int, what: str) -> str:
    """`1 record`, `2 records`, `3 batches`."""
    ending = "" if count == 1 else "es" if what.endswith(("s", "ch")) else "s"
    return f"{human_count(count)} {what}{ending}"


def human_time(timestamp_ms: int) -> str:
    """A record's time in UTC; `-` if it has none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def print_json(value: Any, *, stream: IO[str] | None = None) -> None:
    """Print JSON: indented on a terminal, on one line in a pipe."""
    out = sys.stdout if stream is None else stream
    indent = 2 if out.isatty() else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)
    out.write(_JSON_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return to_json_bytes(bytes(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def note(text: str) -> None:
    """Print a line for the user that does not go into a pipe."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    note(f"{paint('ottla: warning:', 'yellow', sys.stderr)} {escaped_lines(text)}")


def fail(text: str) -> None:
    note(f"{paint('ottla:', 'red', sys.stderr)} {escaped_lines(text)}")


class Progress:
    """A bar on stderr, if that is a terminal; silent otherwise. Use as a context manager."""

    def __init__(self, label: str, total: int | None, *, unit: str = "", quiet: bool = False) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self._unit = unit
        self._shown = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._started = time.monotonic()
        self._drawn = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._shown:
            return
        if kind is None:
            self._draw(time.monotonic())
        sys.stderr.write("\n" if self._drawn else "")
        sys.stderr.flush()

    def advance(self, by: int = 1) -> None:
        self.done += by
        if self._shown:
            now = time.monotonic()
            if now - self._drawn >= _REDRAW_S:
                self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        elapsed = max(now - self._started, 0.001)
        count = human_bytes(self.done) if self._unit == "bytes" else f"{human_count(self.done)} {self._unit}".rstrip()
        rate = self.done / elapsed
        speed = human_bytes(int(rate)) if self._unit == "bytes" else human_count(int(rate))
        parts = [self.label]
        if self.total:
            share = min(self.done / self.total, 1.0)
            filled = int(share * _BAR_CELLS)
            bar = "━" * filled + "─" * (_BAR_CELLS - filled)
            parts += [paint(bar, "green", sys.stderr), f"{share:4.0%}"]
            if rate > 0 and share < 1:
                parts.append(f"{_duration((self.total - self.done) / rate)} left")
        parts += [count, f"{speed}/s"]
        sys.stderr.write("\r\x1b[2K" + "  ".join(parts))
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def confirm(question: str) -> bool:
    """Ask for confirmation. Without a terminal the answer is no."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
