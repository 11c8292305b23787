"""Which leader epoch starts at which offset (KIP-101): `leader-epoch-checkpoint`."""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import Final

from ottla.errors import KafkaStorageError
from ottla.log.files import Disk

logger = logging.getLogger(__name__)

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = (-1, -1)


class LeaderEpochs:
    """Epochs and their start offsets, both increasing."""

    __slots__ = ("_disk", "_epochs", "_folder", "_offsets", "latest")

    def __init__(self, disk: Disk, folder: str, *, exists: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._epochs: list[int] = []
        self._offsets: list[int] = []
        self.latest = -1
        """The newest epoch, or -1 if none is known."""
        if exists:
            self._read()

    def _read(self) -> None:
        lines = self._disk.read_bytes(f"{self._folder}/{EPOCHS_FILE}").decode("ascii", "replace").splitlines()
        try:
            if lines and int(lines[0]) == 0:
                pairs = [(int(a), int(b)) for a, b in (line.split() for line in lines[2:] if line.strip())]
                if len(pairs) != int(lines[1]):
                    raise ValueError("the number of entries is wrong")
                for epoch, offset in pairs:
                    self._add(epoch, offset)
        except (ValueError, IndexError) as error:
            # The batches hold the epochs too, so the log works without the file's entries.
            logger.warning("%s/%s is malformed and ignored: %s", self._folder, EPOCHS_FILE, error)
            self._epochs, self._offsets = [], []
        self.latest = self._epochs[-1] if self._epochs else -1

    def moved_to(self, folder: str) -> None:
        self._folder = folder

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` starts at `start_offset`. Ignored if it is already known."""
        if epoch > self.latest >= 0 or (epoch >= 0 and self.latest < 0):
            before = self._epochs[:], self._offsets[:]
            self._add(epoch, start_offset)
            try:
                self.write()
            except KafkaStorageError:
                # The append with this epoch fails. Its retry must find the epoch missing here too.
                self._epochs, self._offsets = before
                raise
            self.latest = epoch

    def _add(self, epoch: int, start_offset: int) -> None:
        # A newer epoch that starts earlier replaces the entries of older epochs from there on.
        while self._offsets and (self._offsets[-1] >= start_offset or self._epochs[-1] >= epoch):
            self._epochs.pop()
            self._offsets.pop()
        self._epochs.append(epoch)
        self._offsets.append(start_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which `offset` was written, or -1 if unknown."""
        slot = bisect_right(self._offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch at or below `epoch`, as in OffsetForLeaderEpoch."""
        if epoch == UNDEFINED[0]:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self._epochs, epoch)
        if slot == len(self._epochs):
            return UNDEFINED
        if slot == 0:
            return epoch, self._offsets[0]
        return self._epochs[slot - 1], self._offsets[slot]

    def previous_epoch(self, epoch: int) -> int:
        """The newest epoch below `epoch`, or -1 if there is none."""
        slot = bisect_right(self._epochs, epoch - 1)
        return self._epochs[slot - 1] if slot else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after `end_offset`."""
        slot = bisect_right(self._offsets, end_offset - 1)
        if slot < len(self._offsets):
            del self._epochs[slot:], self._offsets[slot:]
            self.latest = self._epochs[-1] if self._epochs else -1
            self.write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or before `start_offset`. The epoch that spans it now starts there."""
        slot = bisect_right(self._offsets, start_offset) - 1
        if slot > 0 or (slot == 0 and self._offsets[0] < start_offset):
            del self._epochs[:slot], self._offsets[:slot]
            self._offsets[0] = start_offset
            self.write()

    def clear(self) -> None:
        self._epochs, self._offsets, self.latest = [], [], -1
        self.write()

    def write(self) -> None:
        lines = [f"{epoch} {offset}\n" for epoch, offset in zip(self._epochs, self._offsets, strict=True)]
        self._disk.write_atomic(f"{self._folder}/{EPOCHS_FILE}", f"0\n{len(lines)}\n{''.join(lines)}".encode())
