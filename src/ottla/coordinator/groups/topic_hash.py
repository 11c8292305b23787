"""The metadata hash of a consumer group (KIP-1101): one number that changes when a subscribed topic does.

Kafka stores it in ConsumerGroupMetadataValue, so it must be Kafka's own: XXH3 (64 bits, seed 0) over a fixed layout of
little-endian fields. A topic's hash covers a format byte, id, name, partition count, and for each partition its index
and the sorted racks of its replicas; the group's hash covers the hashes of the existing topics in name order. Strings
are UTF-16 code units followed by their count. Hashes are computed when a topic changes, not on heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.coordinator.runtime.interfaces import TopicView

FORMAT = 0

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_INT32 = Struct("<i")
_INT64 = Struct("<q")
_UINT32 = Struct("<I")
_UINT64 = Struct("<Q")
_STRIPE = Struct("<8Q")

_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2, _PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME64_4, _PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PRIME_MX1, _PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

# XXH3's default secret, a constant of the algorithm.
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // 8


def group_hash(topics: Iterable[TopicView], cache: dict[str, int]) -> int:
    """The hash of the subscribed topics that exist; 0 without any. `cache` holds topic hashes by name."""
    parts = []
    for topic in sorted(topics, key=lambda topic: topic.name.encode("utf-16-be")):
        value = cache.get(topic.name)
        if value is None:
            value = cache[topic.name] = topic_hash(topic)
        parts.append(_INT64.pack(value))
    return xxh3_64(b"".join(parts)) if parts else 0


def topic_hash(topic: TopicView) -> int:
    most, least = int.from_bytes(topic.topic_id[:8], "big"), int.from_bytes(topic.topic_id[8:], "big")
    parts = [bytes((FORMAT,)), _UINT64.pack(most), _UINT64.pack(least), _string(topic.name)]
    parts.append(_INT32.pack(topic.partition_count))
    for partition in range(topic.partition_count):
        parts.append(_INT32.pack(partition))
        for rack in sorted(topic.racks(partition), key=lambda rack: rack.encode("utf-16-be")):
            parts.append(_INT32.pack(len(rack.encode("utf-16-le")) // 2))
            parts.append(_string(rack))
    return xxh3_64(b"".join(parts))


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + _INT32.pack(len(units) // 2)


def xxh3_64(data: bytes) -> int:
    """XXH3 with 64 bits and seed 0, as a signed number (Java's long)."""
    size = len(data)
    if size <= 16:
        value = _hash_short(data, size)
    elif size <= 128:
        value = _hash_to_128(data, size)
    elif size <= 240:
        value = _hash_to_240(data, size)
    else:
        value = _hash_long(data, size)
    return value - (1 << 64) if value >> 63 else value


def _u32(data: bytes, position: int) -> int:
    return int(_UINT32.unpack_from(data, position)[0])


def _u64(data: bytes, position: int) -> int:
    return int(_UINT64.unpack_from(data, position)[0])


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK64) ^ (product >> 64)


def _swap64(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK64
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK64
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK64
    return value ^ value >> 32


def _hash_short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        return _avalanche(size + _swap64(low) + high + _fold(low, high) & _MASK64)
    if size >= 4:
        mixed = _u32(data, size - 4) + (_u32(data, 0) << 32) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        mixed ^= (mixed << 49 | mixed >> 15) & _MASK64 ^ (mixed << 24 | mixed >> 40) & _MASK64
        mixed = mixed * _PRIME_MX2 & _MASK64
        mixed ^= (mixed >> 35) + size
        mixed = mixed * _PRIME_MX2 & _MASK64
        return mixed ^ mixed >> 28
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix16(data: bytes, position: int, secret: int) -> int:
    return _fold(_u64(data, position) ^ _u64(_SECRET, secret), _u64(data, position + 8) ^ _u64(_SECRET, secret + 8))


def _hash_to_128(data: bytes, size: int) -> int:
    total = size * _PRIME64_1
    for index in range((size - 1) // 32, -1, -1):
        total += _mix16(data, 16 * index, 32 * index)
        total += _mix16(data, size - 16 * (index + 1), 32 * index + 16)
    return _avalanche(total & _MASK64)


def _hash_to_240(data: bytes, size: int) -> int:
    total = size * _PRIME64_1
    for index in range(8):
        total += _mix16(data, 16 * index, 16 * index)
    total = _avalanche(total & _MASK64)
    for index in range(8, size // 16):
        total += _mix16(data, 16 * index, 16 * (index - 8) + 3)
    total += _mix16(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK64)


def _hash_long(data: bytes, size: int) -> int:
    lanes = [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1]
    block_bytes = _STRIPE_BYTES * _STRIPES_PER_BLOCK
    blocks = (size - 1) // block_bytes
    for block in range(blocks):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(lanes, data, block * block_bytes + stripe * _STRIPE_BYTES, stripe * 8)
        keys = _STRIPE.unpack_from(_SECRET, len(_SECRET) - _STRIPE_BYTES)
        for lane, key in enumerate(keys):
            value = lanes[lane]
            lanes[lane] = (value ^ value >> 47 ^ key) * _PRIME32_1 & _MASK64
    start = blocks * block_bytes
    for stripe in range((size - 1 - start) // _STRIPE_BYTES):
        _accumulate(lanes, data, start + stripe * _STRIPE_BYTES, stripe * 8)
    _accumulate(lanes, data, size - _STRIPE_BYTES, len(_SECRET) - _STRIPE_BYTES - 7)
    total = size * _PRIME64_1 & _MASK64
    for pair in range(4):
        secret = 11 + 16 * pair
        total += _fold(lanes[2 * pair] ^ _u64(_SECRET, secret), lanes[2 * pair + 1] ^ _u64(_SECRET, secret + 8))
    return _avalanche(total & _MASK64)


def _accumulate(lanes: list[int], data: bytes, position: int, secret: int) -> None:
    values = _STRIPE.unpack_from(data, position)
    for lane, key in enumerate(_STRIPE.unpack_from(_SECRET, secret)):
        value = values[lane]
        keyed = value ^ key
        lanes[lane ^ 1] = lanes[lane ^ 1] + value & _MASK64
        lanes[lane] = lanes[lane] + (keyed & _MASK32) * (keyed >> 32) & _MASK64
