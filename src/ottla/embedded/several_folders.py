"""Several data folders whose disks fail on demand."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.embedded.disk import DiskFaults, FaultyFolders
from ottla.log.multi_dir_disk import MultiDirDisk


class FaultyMultiDirDisk(FaultyFolders, MultiDirDisk):
    """Partitions in several folders, the metadata in the first."""

    def __init__(self, roots: Sequence[str]) -> None:
        MultiDirDisk.__init__(self, roots)
        self.faults = DiskFaults()
