"""Shows which lines of each module the stored corpus reaches, and so where a fuzzer should look next."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from support.fuzzing.decoders import TARGETS

SOURCE = Path(__file__).resolve().parents[3] / "src" / "ottla"
PARTS = (
    "wire/",
    "records/",
    "log/",
    "coordinator/",
    "registry/",
    "config/properties",
    "http/",
    "server/net/framing",
    "server/security/",
)


def corpus(folder: Path) -> Iterable[tuple[str, bytes]]:
    for target in TARGETS:
        for path in sorted((folder / target).iterdir()):
            yield target, path.read_bytes()


def lines_of(target: str, data: bytes) -> set[tuple[str, int]]:
    """The lines of Ottla's code that an input reaches."""
    found: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(SOURCE)):
            return None
        found.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        TARGETS[target](data)
    finally:
        sys.settrace(None)
    return found


def keep(target: str, finds: Path, folder: Path, largest: int = 4096, most: int = 400) -> int:
    """Copy the inputs that reach new lines, the smallest first. Returns how many were copied."""
    known: set[tuple[str, int]] = set()
    for path in (folder / target).iterdir():
        known |= lines_of(target, path.read_bytes())
    kept = 0
    for path in sorted(finds.iterdir(), key=lambda path: path.stat().st_size)[:most]:
        data = path.read_bytes()
        if len(data) <= largest and not (lines := lines_of(target, data)) <= known:
            known |= lines
            (folder / target / path.name[:16]).write_bytes(data)
            kept += 1
    return kept


def reached(folder: Path) -> dict[str, tuple[int, int]]:
    """The reached lines and all lines of each module that reads bytes from outside."""
    lines: dict[str, set[int]] = {}
    for target, data in corpus(folder):
        for name, line in lines_of(target, data):
            lines.setdefault(name, set()).add(line)
    table = {}
    for name, found in lines.items():
        path = Path(name)
        if not path.exists():  # a codec that is compiled on first use
            continue
        module = str(path.relative_to(SOURCE))
        if module.startswith(PARTS):
            there = _executable(compile(path.read_text(), name, "exec"))
            table[module] = (len(found & there), len(there))
    return dict(sorted(table.items()))


def _executable(code: CodeType) -> set[int]:
    """The lines inside functions. Lines that an import runs do not count as coverage."""
    found: set[int] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= {line for _, _, line in constant.co_lines() if line is not None}
            found |= _executable(constant)
    return found


def report(folder: Path) -> str:
    rows = [
        f"{module:<48} {hit:>5} of {all_lines:>5}  {hit / max(all_lines, 1):>4.0%}"
        for module, (hit, all_lines) in reached(folder).items()
    ]
    return "\n".join(["lines that the corpus reaches, by module", *rows])
