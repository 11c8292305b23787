"""Everything in a partition, as a consumer sees it."""

from ottla.records.batch import CONTROL_ABORT
from support.wire import Wire, batches_of


def read_all(wire: Wire, place: tuple[str, int], isolation: int = 0) -> list[tuple[int, bytes]]:
    """Every record; with isolation 1 those of aborted transactions left out, as consumers do."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        answer = wire.fetch(place[0], offset, place[1], isolation_level=isolation, partition_max_bytes=8 << 20)
        assert answer.error_code == 0, answer
        batches = batches_of(answer)
        if not batches:
            return found
        aborted = sorted((a.first_offset, a.producer_id) for a in answer.aborted_transactions or [])
        skipping: set[int] = set()
        for one in batches:
            while aborted and aborted[0][0] <= one.last_offset:
                skipping.add(aborted.pop(0)[1])
            if one.is_control:
                if one.control_type() == CONTROL_ABORT:
                    skipping.discard(one.producer_id)
            elif not (isolation and one.is_transactional and one.producer_id in skipping):
                found += [(r.offset, bytes(r.value)) for r in one.records() if r.offset >= offset]
            offset = max(offset, one.next_offset)
