"""Everything in a partition, as a consumer sees it."""

from support.batches import batches_of, visible_batches
from support.wire import Wire


def read_all(wire: Wire, place: tuple[str, int], isolation: int = 0) -> list[tuple[int, bytes]]:
    """Every record. With isolation 1, records of aborted transactions are left out, as in consumers."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        answer = wire.fetch(place[0], offset, place[1], isolation_level=isolation, partition_max_bytes=8 << 20)
        assert answer.error_code == 0, answer
        fetched = batches_of(answer)
        if not fetched:
            return found
        for one in visible_batches(answer, isolation):
            found += [(r.offset, bytes(r.value or b"")) for r in one.records() if r.offset >= offset]
        offset = max(offset, fetched[-1].next_offset)
