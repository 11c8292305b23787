"""`ottla verify`: check a data folder offline, and draw its segments."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import terminal
from ottla.cli.common import FAILED, OK, CommandError, add_json, guarded, subcommand
from ottla.cli.verification import ERROR, NOTE, WARNING, Finding, PartitionCheck, read_checkpoint
from ottla.errors import KafkaError
from ottla.log.checkpoints import MetaProperties, read_partition_metadata
from ottla.log.files import PosixDisk
from ottla.records.batch import batches
from ottla.system import lock_file

if TYPE_CHECKING:
    from ottla.cli.verification import Finding, PartitionReport, SegmentReport

_PARTITION: Final = re.compile(r"(.+)-(\d+)\Z")
_MARKED: Final = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|stray|future)\Z")
_MARKS: Final = {
    "delete": "waits to be deleted; the next start removes the folder",
    "stray": "belongs to no topic of the cluster; look at it, then remove it",
    "future": "a move between folders is not finished; the next start continues it",
}
_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "dim"}
_PICTURE_CELLS: Final = 40
_EMPTY_SHOWN: Final = 10
_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def add_parser(subparsers: Any) -> None:
    """Add `verify` to the command line."""
    parser = subcommand(
        subparsers,
        "verify",
        "check a data folder, with a picture of its segments",
        "Check a data folder that no broker uses: checksums, offsets, indexes, producer snapshots, leader epochs, "
        "checkpoints, and unfinished work. Nothing is changed. Exit code 1 if anything is wrong.",
        examples=(
            "ottla verify data",
            "ottla verify data/orders-0 --deep                        # decompress and decode every record",
            "ottla verify data --quiet --json",
        ),
    )
    parser.add_argument("folder", metavar="FOLDER", help="a data folder, or the folder of one partition")
    parser.add_argument("--deep", action="store_true", help="also decode every record")
    parser.add_argument("-q", "--quiet", action="store_true", help="findings only, no picture")
    parser.add_argument("--live", action="store_true", help="check the folder even if a broker uses it")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    return guarded(lambda: _verify(arguments))


def _verify(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    alone = any(folder.glob("*.log"))
    if not alone and not (folder / "meta.properties").exists() and not any(_partition_folders(folder)):
        raise CommandError(f"{folder} is neither a data folder nor the folder of a partition")
    if not arguments.live and _is_locked(folder.parent if alone else folder):
        raise CommandError(
            f"a broker uses {folder}; stop it first, or use --live and expect findings at the ends of the logs"
        )
    partitions = [folder] if alone else _partition_folders(folder)
    total = sum(size for one in partitions for path in one.glob("*.log") if (size := _size(path)))
    reports: list[PartitionReport] = []
    findings: list[Finding] = []
    with terminal.Progress("verify", total, unit="bytes", quiet=arguments.json) as progress:
        for one in partitions:
            marked = _MARKED.match(one.name)
            try:
                report = PartitionCheck(one, deep=arguments.deep, advance=progress.advance).run()
            except FileNotFoundError:
                if not arguments.live:
                    raise
                terminal.warn(f"{one.name} is skipped: a broker changed it while it was read")
                continue
            if marked:
                severity = NOTE if marked[4] == "delete" else WARNING
                report.findings.insert(0, Finding(severity, one.name, _MARKS[marked[4]]))
            reports.append(report)
            findings += report.findings
    if not alone:
        findings += _check_folder(folder, reports)
    _print(arguments, folder, reports, findings)
    return FAILED if any(finding.severity != NOTE for finding in findings) else OK


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _partition_folders(folder: Path) -> list[Path]:
    def order(path: Path) -> tuple[str, int]:
        match = _MARKED.match(path.name) or _PARTITION.match(path.name)
        return (match[1], int(match[2])) if match else (path.name, 0)

    found = [p for p in folder.iterdir() if p.is_dir() and (_PARTITION.match(p.name) or _MARKED.match(p.name))]
    return sorted(found, key=order)


def _is_locked(folder: Path) -> bool:
    """Whether a broker, Ottla or Kafka, holds the folder's lock."""
    try:
        file = (folder / ".lock").open("rb")  # a user with read access only can verify the folder too
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CommandError(f"cannot read {folder / '.lock'}: {error.strerror}") from None
    with file:
        try:
            lock_file(file.fileno(), shared=True)
        except OSError:
            return True
    return False


# --- partitions according to the folder ------------------------------------------------------------------------------


def _check_folder(folder: Path, reports: list[PartitionReport]) -> list[Finding]:
    found: list[Finding] = []
    try:
        if MetaProperties.read(PosixDisk(folder)) is None:
            found.append(Finding(ERROR, "meta.properties", "is missing: without it no broker accepts this folder"))
    except KafkaError as error:
        found.append(Finding(ERROR, "meta.properties", error.message))
    found += _check_quorum(folder)
    found += _check_topic_ids(folder, reports)
    by_name = {report.name: report for report in reports}
    for name in _CHECKPOINTS:
        if (folder / name).exists():
            found += _check_checkpoint(folder / name, by_name)
    found += [
        Finding(WARNING, path.name, "a write was interrupted; it can be removed") for path in folder.glob("*.tmp")
    ]
    return found


def _check_quorum(folder: Path) -> list[Finding]:
    """The files next to the metadata log; a broker works without them."""
    found: list[Finding] = []
    state = folder / "__cluster_metadata-0" / "quorum-state"
    try:
        if state.exists():
            int(json.loads(state.read_bytes())["leaderEpoch"])
    except (ValueError, KeyError, TypeError):
        found.append(Finding(WARNING, f"{state.parent.name}/{state.name}", "cannot be read; the next start writes it"))
    bootstrap = folder / "bootstrap.checkpoint"
    if bootstrap.exists():
        data = bootstrap.read_bytes()
        sound = [batch for batch in batches(data) if batch.crc_ok()]
        if sum(batch.size for batch in sound) != len(data) or not sound:
            found.append(Finding(WARNING, bootstrap.name, "is damaged; Apache Kafka would not start with this folder"))
    return found


def _check_topic_ids(folder: Path, reports: list[PartitionReport]) -> list[Finding]:
    disk = PosixDisk(folder)
    ids: dict[str, dict[bytes, list[str]]] = {}
    found: list[Finding] = []
    for report in reports:
        match = _PARTITION.match(report.name)
        if match is None or _MARKED.match(report.name):
            continue
        path = f"{report.name}/partition.metadata"
        topic_id = read_partition_metadata(disk, report.name)
        if topic_id is not None:
            ids.setdefault(match[1], {}).setdefault(topic_id, []).append(report.name)
        elif disk.exists(path):
            found.append(Finding(WARNING, path, "cannot be read; the next start writes it again"))
    for topic, owners in ids.items():
        if len(owners) > 1:
            names = " and ".join(folders[0] for folders in owners.values())
            found.append(Finding(ERROR, topic, f"its partitions belong to different topics: see {names}"))
    return found


def _check_checkpoint(path: Path, by_name: dict[str, PartitionReport]) -> list[Finding]:
    found: list[Finding] = []
    for entry in read_checkpoint(path):
        if isinstance(entry, str):
            found.append(Finding(WARNING, path.name, f"{entry}; recovery will start lower"))
            continue
        (topic, partition), offset = entry
        report = by_name.get(f"{topic}-{partition}")
        if report is None:
            continue  # of a topic that was deleted since, or of another folder
        end = report.end_offset
        if offset > end and report.segments:
            # A log that starts beyond its own end would be deleted, with all its records.
            severity = ERROR if path.name.startswith("log-start") else WARNING
            found.append(Finding(severity, path.name, f"{topic}-{partition} is at {offset}, but the log ends at {end}"))
    return found


# --- printing --------------------------------------------------------------------------------------------------------


def _print(
    arguments: argparse.Namespace, folder: Path, reports: list[PartitionReport], findings: list[Finding]
) -> None:
    if arguments.json:
        terminal.print_json(
            {
                "folder": str(folder),
                "findings": [{"severity": f.severity, "path": f.path, "problem": f.problem} for f in findings],
                "partitions": [_as_json(report) for report in reports],
            }
        )
        return
    if not arguments.quiet:
        _draw_all(reports)
    for finding in findings:
        label = terminal.paint(finding.severity, _COLOURS[finding.severity])
        print(f"{label}: {finding.path}: {finding.problem}")
    sys.stdout.flush()
    clean = "" if (folder / ".kafka_cleanshutdown").exists() or any(folder.glob("*.log")) else "; not closed cleanly"
    size = terminal.human_bytes(sum(report.size for report in reports))
    counts = Counter(finding.severity for finding in findings)
    is_clean = not counts.keys() - {"note"}
    verdict = ", ".join(terminal.counted(n, kind) for kind, n in counts.items() if kind != "note") or "nothing wrong"
    partitions = terminal.counted(len(reports), "partition")
    terminal.note(f"{partitions}, {size}: {terminal.paint(verdict, 'green' if is_clean else 'red', sys.stderr)}{clean}")


def _draw_all(reports: list[PartitionReport]) -> None:
    empty = [report for report in reports if not report.size and not report.findings]
    largest = max((segment.size for report in reports for segment in report.segments), default=0)
    for report in reports:
        if report not in empty:
            print(draw(report, largest))
    if empty:
        topics = Counter(report.name.rpartition("-")[0] for report in empty)
        names = ", ".join(f"{topic} ({count})" for topic, count in list(topics.items())[:_EMPTY_SHOWN])
        more = f" and {len(topics) - _EMPTY_SHOWN} more topics" if len(topics) > _EMPTY_SHOWN else ""
        print(terminal.paint(f"empty: {names}{more}", "dim"))
    if reports:
        print()


def draw(report: PartitionReport, largest: int) -> str:
    """One line per segment: a bar by size that shows damage, and what the segment holds."""
    records = sum(segment.records for segment in report.segments)
    title = f"{terminal.paint(report.name, 'bold')}  offsets {report.start_offset}–{report.end_offset - 1}"
    if not records:
        title = f"{terminal.paint(report.name, 'bold')}  next offset {report.end_offset}"
    producers = f", {terminal.counted(report.producers, 'producer')}" if report.producers else ""
    lines = [f"{title}, {terminal.counted(records, 'record')}, {terminal.human_bytes(report.size)}{producers}"]
    for segment in report.segments:
        aborted = f", {segment.aborted} aborted" if segment.aborted else ""
        facts = (
            f"{terminal.human_bytes(segment.size):>10}  {terminal.counted(segment.batches, 'batch')}, "
            f"index {segment.index_entries}, times {segment.time_entries}{aborted}"
        )
        when = terminal.human_time(segment.max_timestamp)
        lines.append(f"  {segment.base_offset:020d} {_bar(segment, largest)} {facts}, up to {when}")
    return "\n".join(lines)


def _bar(segment: SegmentReport, largest: int) -> str:
    cells = max(1, round(segment.size / largest * _PICTURE_CELLS)) if largest and segment.size else 0
    marks = ["█"] * cells
    for position, size in segment.bad:
        first = min(position * cells // max(segment.size, 1), cells - 1)
        last = min((position + max(size, 1) - 1) * cells // max(segment.size, 1), cells - 1)
        for cell in range(first, last + 1):
            marks[cell] = "░" if position + size == segment.size and segment.torn_bytes else "✗"
    text = "".join(terminal.paint(mark, "green" if mark == "█" else "red") for mark in marks)
    return f"▕{text}{' ' * (_PICTURE_CELLS - cells)}▏"


def _as_json(report: PartitionReport) -> dict[str, Any]:
    return {
        "partition": report.name,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "bytes": report.size,
        "producers": report.producers,
        "segments": [
            {
                "base_offset": s.base_offset,
                "next_offset": s.next_offset,
                "bytes": s.size,
                "batches": s.batches,
                "records": s.records,
                "index_entries": s.index_entries,
                "time_index_entries": s.time_entries,
                "aborted_transactions": s.aborted,
                "max_timestamp": s.max_timestamp,
                "bad_ranges": [{"position": at, "bytes": size} for at, size in s.bad],
            }
            for s in report.segments
        ],
    }
