"""`ottla dump-log`: the contents of the files of a data folder, decoded where the format is known."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import FAILED, OK, CommandError, add_json, guarded, subcommand, words_go_to
from ottla.cli.dumping import Options, dump_file, is_known
from ottla.cli.lines import to_json_bytes
from ottla.cli.printable import escaped

DECODERS: Final = ("auto", "offsets", "transactions", "share-state", "metadata", "none")


def add_parser(subparsers: Any) -> None:
    """Add `dump-log` to the command line."""
    parser = subcommand(
        subparsers,
        "dump-log",
        "print what is inside the files of a data folder",
        "Print segments, indexes, snapshots and checkpoints. The files are only read; a broker may be running.",
        examples=(
            "ottla dump-log data/orders-0",
            "ottla dump-log data/orders-0/00000000000000000000.log --records",
            "ottla dump-log data/__consumer_offsets-* --records       # commits and groups, decoded",
            "ottla dump-log data/__cluster_metadata-0 --records --json",
            "ottla dump-log data/*-checkpoint data/meta.properties",
        ),
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, partition folders, or a whole data folder")
    parser.add_argument("-r", "--records", action="store_true", help="records too, not only batches")
    parser.add_argument(
        "--decode",
        choices=DECODERS,
        default="auto",
        help="how keys and values are read; auto recognises internal topics by their folders",
    )
    parser.add_argument("--offsets", metavar="LOW:HIGH", help="only batches that touch these offsets")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="show this many bytes of a key or value (all)")
    add_json(parser)
    words_go_to(parser, "paths")


def run(arguments: argparse.Namespace) -> int:
    return guarded(lambda: _dump(arguments))


def _dump(arguments: argparse.Namespace) -> int:
    options = Options(arguments.records, arguments.decode, _range(arguments.offsets))
    bad = False
    files = [path for given in arguments.paths for path in _files(Path(given))]
    for number, path in enumerate(files):
        if not arguments.json:
            sys.stdout.write(("\n" if number else "") + terminal.paint(str(path), "bold") + "\n")
        try:
            for entry in dump_file(path, options):
                bad = bad or bool(entry.get("problem"))
                if arguments.json:
                    _write_json({"file": str(path), **entry})
                else:
                    sys.stdout.write(_line(entry, arguments.max_bytes) + "\n")
        except BrokenPipeError:
            raise
        except FileNotFoundError:
            continue  # a running broker has removed it
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
    sys.stdout.flush()
    return FAILED if bad else OK


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    low, _, high = text.partition(":")
    try:
        return int(low or 0), int(high) if high else sys.maxsize
    except ValueError:
        raise CommandError(f"--offsets takes LOW:HIGH, not '{text}'") from None


def _files(path: Path) -> Iterator[Path]:
    """A file, or all printable files of a folder."""
    if not path.exists():
        raise CommandError(f"{path} does not exist")
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if is_known(name):
                yield Path(folder) / name


def _write_json(entry: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(entry, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return to_json_bytes(bytes(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _line(entry: dict[str, Any], max_bytes: int | None) -> str:
    """`kind name=value …`; records are indented below their batch, and problems are red."""
    kind = entry["kind"]
    fields = []
    for name, value in entry.items():
        if name in ("kind", "problem"):
            continue
        fields.append(f"{terminal.paint(name, 'dim')}={_text(value, max_bytes)}")
    indent = "    " if kind == "record" else "  "
    line = f"{indent}{terminal.paint(kind, 'cyan')} {' '.join(fields)}"
    return line + (f"  {terminal.paint(entry['problem'], 'red')}" if entry.get("problem") else "")


def _text(value: Any, max_bytes: int | None) -> str:
    if isinstance(value, bytes):
        shown = value if max_bytes is None else value[:max_bytes]
        try:
            text = repr(shown.decode())
        except UnicodeDecodeError:
            text = "0x" + shown.hex()
        return text + ("" if len(shown) == len(value) else f"…({len(value)} bytes)")
    if isinstance(value, dict):
        inner = " ".join(f"{name}={_text(item, max_bytes)}" for name, item in value.items())
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item, max_bytes) for item in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "null" if value is None else escaped(str(value))
