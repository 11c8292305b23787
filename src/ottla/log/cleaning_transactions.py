"""What compaction has to know of transactions while it walks through a log.

Records of an aborted transaction go at once. A marker stays for as long as a batch of its transaction does, even an
empty one, and from the first pass that finds none on for `delete.retention.ms` more, so that a reader that began
before sees both or neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.log.index import AbortedTransaction
from ottla.records.batch import CONTROL_ABORT, CONTROL_COMMIT, Batch


class CleanedTransactions:
    """Fed every batch of the log in order."""

    __slots__ = ("_aborted", "_keep", "_ongoing_aborted", "_ongoing_committed")

    def __init__(
        self, aborted: Sequence[AbortedTransaction], from_offset: int, keep: Callable[[AbortedTransaction], object]
    ) -> None:
        """`aborted` are those that touch the log from `from_offset` on; `keep` gets those whose marker stays."""
        relevant = (entry for entry in aborted if entry.last_offset >= from_offset)
        self._aborted = deque(sorted(relevant, key=lambda entry: entry.first_offset))
        self._keep = keep
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: set[int] = set()

    def may_discard(self, batch: Batch) -> bool:
        """Whether a batch is of no use any more: aborted data, or the marker of a transaction without batches."""
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
        if kind == CONTROL_ABORT:
            entry, has_batches = self._ongoing_aborted.pop(batch.producer_id, (None, False))
            if entry is None or not has_batches:
                return True
            self._keep(entry)
            return False
        if kind == CONTROL_COMMIT:
            if batch.producer_id not in self._ongoing_committed:
                return True
            self._ongoing_committed.discard(batch.producer_id)
            return False
        return False
