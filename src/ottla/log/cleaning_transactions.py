"""The state of transactions during compaction.

Records of an aborted transaction are removed immediately. A marker stays until no batch of its transaction is left, not
even an empty one. After the first pass that finds none, it stays for another `delete.retention.ms`, so that a reader
that began earlier sees both or neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.enums import ControlRecordType
from ottla.log.index import AbortedTransaction
from ottla.records.batch import Batch


class CleanedTransactions:
    """Receives every batch of the log in order."""

    __slots__ = ("_aborted", "_keep", "_ongoing_aborted", "_ongoing_committed")

    def __init__(
        self, aborted: Sequence[AbortedTransaction], from_offset: int, keep: Callable[[AbortedTransaction], object]
    ) -> None:
        """`aborted`: the aborted transactions that touch the log from `from_offset` on. `keep` is called for those
        whose marker stays."""
        relevant = (entry for entry in aborted if entry.last_offset >= from_offset)
        self._aborted = deque(sorted(relevant, key=lambda entry: entry.first_offset))
        self._keep = keep
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: set[int] = set()

    def may_discard(self, batch: Batch) -> bool:
        """Whether a batch is no longer needed: aborted data, or the marker of a transaction without batches."""
        self._reach(batch.last_offset)
        if batch.is_control:
            return self._marker(batch)
        if not batch.is_transactional:
            return False
        found = self._ongoing_aborted.get(batch.producer_id)
        if found is None:
            self._ongoing_committed.add(batch.producer_id)
            return False
        self._ongoing_aborted[batch.producer_id] = (found[0], True)
        return True

    def _reach(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._ongoing_aborted.setdefault(entry.producer_id, (entry, False))

    def _marker(self, batch: Batch) -> bool:
        if not batch.record_count:
            return True  # emptied by an earlier pass
        kind = batch.control_type()
        if kind == ControlRecordType.ABORT:
            entry, has_batches = self._ongoing_aborted.pop(batch.producer_id, (None, False))
            if entry is None or not has_batches:
                return True
            self._keep(entry)
            return False
        if kind == ControlRecordType.COMMIT:
            if batch.producer_id not in self._ongoing_committed:
                return True
            self._ongoing_committed.discard(batch.producer_id)
            return False
        return False
