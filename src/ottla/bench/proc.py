"""CPU time and memory of a broker's process tree, from /proc. The broker's own seconds are the least noisy figures."""

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
    """User and system time of the process tree, with that of its children that have ended."""
    ticks = 0
    for each in tree(pid):
        # The command name may hold spaces and parentheses, so count fields from behind it.
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


def machine() -> str:
    """One line that says where figures come from."""
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
