"""CPU time and memory of a broker's process tree, from /proc. The broker's CPU time is the least noisy figure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, task.read_text().split())
        except OSError:
            continue  # a thread that ended between the listing and the read


def tree(pid: int) -> list[int]:
    """The process and its descendants: a broker with workers is several processes."""
    found = [pid]
    for each in found:
        found.extend(children(each))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the process tree, including children that have ended."""
    ticks = 0
    for each in tree(pid):
        # The command name may contain spaces and parentheses, so count the fields after it.
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    """Resident memory of the process tree, in units of a million bytes."""
    total_kb = 0
    for each in tree(pid):
        for row in Path(f"/proc/{each}/status").read_text().splitlines():
            if row.startswith("VmRSS:"):
                total_kb += int(row.split()[1])
    return total_kb * 1024 / 1e6


def memory_files_mb(pid: int) -> float:
    """The size of the process tree's anonymous files (memfd), which resident memory does not include."""
    found: dict[int, int] = {}
    for each in tree(pid):
        for handle in Path(f"/proc/{each}/fd").iterdir():
            try:
                if os.readlink(handle).startswith("/memfd:"):
                    status = handle.stat()
                    found[status.st_ino] = status.st_blocks * 512
            except OSError:
                continue  # closed between the listing and the read
    return sum(found.values()) / 1e6


def machine() -> str:
    """One line that describes the machine."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            row.partition(":")[2].strip() for row in cpuinfo.read_text().splitlines() if row.startswith("model name")
        ]
        model = names[0] if names else ""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    uname = os.uname()
    system = f"{uname.sysname} {uname.release.split('-')[0]}"
    return f"{os.cpu_count()} × {model or uname.machine}, {memory_gb:.0f} GiB, {system}"
