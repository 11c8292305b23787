"""The records of `__share_group_state`: snapshots of a state, and updates between them."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.share_state.state import ShareKey
from ottla.wire.schema import Message
from ottla.wire.stored import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue

SNAPSHOT: Final = 0
UPDATE: Final = 1

_INT16 = Struct(">h")


class ShareRecord(NamedTuple):
    key: ShareKey
    value: ShareSnapshotValue | ShareUpdateValue | None

    def encode(self) -> tuple[bytes, bytes | None]:
        number = UPDATE if isinstance(self.value, ShareUpdateValue) else SNAPSHOT
        group_id, topic_id, partition = self.key
        stored: Message = (ShareUpdateKey if number == UPDATE else ShareSnapshotKey)(
            group_id=group_id, topic_id=topic_id, partition=partition
        )
        key = _INT16.pack(number) + stored.encode(0)
        return key, None if self.value is None else _INT16.pack(0) + self.value.encode(0)


def decode_record(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    if key is None or len(key) < _INT16.size:
        raise CorruptRecord("a record of the share state log has no key")
    (number,) = _INT16.unpack_from(key)
    if number not in (SNAPSHOT, UPDATE):
        return None
    try:
        stored, _ = (ShareUpdateKey if number == UPDATE else ShareSnapshotKey).decoder(0)(key, _INT16.size)
        name = ShareKey(stored.group_id, stored.topic_id, stored.partition)
        if value is None:
            return ShareRecord(name, None)
        kind: Any = ShareUpdateValue if number == UPDATE else ShareSnapshotValue
        (version,) = _INT16.unpack_from(value)
        if not 0 <= version <= kind.MAX_VERSION:
            raise CorruptRecord(f"{kind.__name__} has no version {version}")
        return ShareRecord(name, kind.decoder(version)(value, _INT16.size)[0])
    except (ValueError, IndexError, StructError) as error:
        raise CorruptRecord(f"type {number}: {error}") from error
