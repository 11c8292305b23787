"""Tours through a log: the path of a record, how an offset is found, and compaction."""

from __future__ import annotations

from typing import Final

from ottla.client.offsets import Committed, commit
from ottla.client.producer import murmur2, partition_for
from ottla.console.tours.tour import Stage, Step, Tour, nothing

_PARTITIONS: Final = 3
_KEY: Final = "customer-7"
_ORDERS: Final = {"kind": "replicas", "topic": "orders"}


async def _make_orders(stage: Stage) -> None:
    await stage.create("orders", _PARTITIONS)
    stage.note("CreateTopics: orders, 3 partitions, 3 replicas each")


async def _send_order(stage: Stage) -> None:
    index = partition_for(_KEY.encode(), _PARTITIONS)
    hashed = murmur2(_KEY.encode()) & 0x7FFFFFFF
    stage.note(f"murmur2({_KEY!r}) = {hashed}, and {hashed} mod {_PARTITIONS} = {index}: partition {index}")
    offset = await stage.produce("orders", _KEY, '{"id": 1, "total": 42}', index)
    stage.note(f"Produce was answered: partition {index}, offset {offset}")
    await stage.sandbox.settle()
    stage.kept["look"] = {"partition": index}


async def _send_more(stage: Stage) -> None:
    index = stage.kept["look"]["partition"]
    for number in range(2, 6):
        await stage.produce("orders", _KEY, f'{{"id": {number}, "total": {number * 7}}}', index)
    await stage.sandbox.settle()
    stage.note("Four more records with the same key: offsets 1 to 4 of the same partition, in this order")


async def _read_orders(stage: Stage) -> None:
    index = stage.kept["look"]["partition"]
    stage.note(f"Fetch from offset 0 of partition {index}: 5 records, then the consumer commits offset 5")
    await commit(stage.client, "billing", {("orders", index): Committed(5)})


RECORD: Final = Tour(
    "record",
    "The path of a record",
    "From a producer to the disk of three brokers, and on to a consumer.",
    (
        Step(
            "A topic is a set of logs",
            "You see the topic `orders`. It has three partitions, and each one is a log: records are only ever added "
            "at its end.\n\nEach partition has three replicas, one on each broker. One of them is the leader: "
            "clients write to it and read from it. The others copy it.",
            _make_orders,
            (_ORDERS,),
        ),
        Step(
            "The key chooses the partition",
            "A producer sent a record with the key `customer-7`. It hashed the key and took the remainder of a "
            "division by the number of partitions.\n\nThe same key always goes to the same partition. That is why "
            "the records "
            "of one customer stay in order. A record without a key goes to any partition.",
            _send_order,
            (_ORDERS, {"kind": "messages", "topic": "orders"}),
        ),
        Step(
            "The leader writes, the followers copy",
            "The leader put the record at the end of its log and gave it an offset: its place in the partition. The "
            "followers fetched it from the leader, just as consumers do.\n\nWhen all replicas that are in sync have a "
            "record, the high watermark moves past it. Now it is committed, and the producer that asked for `acks=all` "
            "gets its answer.",
            _send_more,
            (_ORDERS, {"kind": "messages", "topic": "orders"}),
        ),
        Step(
            "On the disk",
            "A log is a row of segment files; here there is only one so far. The broker does not look into the "
            "records: it writes the batch of bytes that the producer sent, and later sends the same bytes to consumers."
            "\n\nEvery bar below is a batch. Click one to see what its header says.",
            nothing,
            ({"kind": "storage", "topic": "orders"}, {"kind": "batches", "topic": "orders"}),
        ),
        Step(
            "A consumer reads",
            "A consumer asked for the records from offset 0 on. Reading removes nothing: a topic is not a queue. The "
            "consumer remembers where it is by committing an offset for its group, which the broker keeps in the topic "
            "`__consumer_offsets`.\n\nThe committed offset is the next one to read: 5, after the records 0 to 4.",
            _read_orders,
            ({"kind": "group", "group": "billing"}, {"kind": "messages", "topic": "orders"}),
        ),
    ),
)


async def _fill_events(stage: Stage) -> None:
    await stage.create("events", 1, index_interval_bytes="2048")
    for number in range(60):
        await stage.produce("events", None, f"event {number} " + "·" * 200)
        if number % 10 == 9:
            await stage.sandbox.steer("/clock/advance", {"seconds": 30})
    await stage.sandbox.settle()
    stage.note("60 records in 60 batches, a pause of 30 seconds after every tenth")


async def _choose_time(stage: Stage) -> None:
    stage.kept["look"] = {"time": stage.sandbox.source.now_ms() - 95_000}
    stage.note("The question: which is the first record of the last 95 seconds?")


_EVENTS: Final = {"kind": "storage", "topic": "events", "partition": 0}

LOOK_UP: Final = Tour(
    "look-up",
    "How an offset is found",
    "Segments, a binary search in the index, and a short scan.",
    (
        Step(
            "A log that is too long to search",
            "The topic `events` has 60 batches. A consumer may ask for any offset at any time, and a log can have "
            "millions of batches. Reading it from the start would take too long.\n\nSo the broker writes an entry into "
            "the `.index` file after every few kilobytes: this offset is at this byte. The short strokes under the "
            "log are these entries.",
            _fill_events,
            (_EVENTS,),
        ),
        Step(
            "By offset",
            "You ask for offset 37. The broker takes the segment that begins at or below it, and looks into its "
            "`.index` by binary search: in the middle first, then in the middle of the half that is left.\n\nThe entry "
            "leads to a byte in the log. From there the broker reads a few batch headers until the offset is found. "
            "Each step is listed.",
            nothing,
            (_EVENTS, {"kind": "look-up", "topic": "events", "partition": 0, "offset": 37}),
        ),
        Step(
            "By time",
            "Consumers can also ask for a time: the first record that is not older. For this there is a second file, "
            "`.timeindex`: the largest timestamp so far, and the offset it belongs to.\n\nThe broker searches "
            "`.timeindex` first, then `.index`, then scans. That is what happens if you reset a group to a date.",
            _choose_time,
            (_EVENTS, {"kind": "look-up", "topic": "events", "partition": 0}),
        ),
    ),
)


async def _fill_users(stage: Stage) -> None:
    await stage.create("users", 1, cleanup_policy="compact", segment_ms="60000", min_cleanable_dirty_ratio="1")
    for number in range(24):
        await stage.produce("users", f"user-{number % 5}", f"version {number // 5 + 1}")
    stage.note("24 records for 5 keys")
    await stage.sandbox.settle()


async def _delete_user(stage: Stage) -> None:
    await stage.produce("users", "user-3", None)
    stage.note("A tombstone: key user-3, value null")
    await stage.sandbox.advance(minutes=2)
    await stage.produce("users", "user-0", "version 6")
    stage.note("Two minutes later one more record: it begins a new segment (segment.ms)")
    await stage.sandbox.settle()


async def _compact(stage: Stage) -> None:
    servers = stage.sandbox.source.need_inside().servers()
    leader = (await stage.client.topic("users")).partitions[0].leader
    server = servers[leader]
    before = server.replicas.leader("users", 0).log.size_bytes
    for cleaning in server.housekeeper.compact_now("users", 0):
        server.housekeeper.cleaner.finish(cleaning)
    after = server.replicas.leader("users", 0).log.size_bytes
    stage.note(f"The cleaner ran on broker {leader}: {before:,} bytes became {after:,}")


_USERS: Final = {"kind": "compaction", "topic": "users", "partition": 0}

COMPACTION: Final = Tour(
    "compaction",
    "Compaction",
    "A topic that keeps the last value of each key, like a table.",
    (
        Step(
            "Many versions of few keys",
            "The topic `users` has `cleanup.policy=compact`. Every change of a user is a record with the user's id "
            "as its key. Older versions are of no use to a reader who wants the current state.\n\nBelow you see each "
            "record as a cell with its key, and what compaction would keep.",
            _fill_users,
            (_USERS,),
        ),
        Step(
            "A tombstone deletes",
            "To delete a key, a producer sends it with no value: a tombstone. Compaction removes the older records of "
            "the key, and after `delete.retention.ms` the tombstone too.\n\nThe cleaner never touches the active "
            "segment, the one that is written to. Therefore the last record of this step begins a new one.",
            _delete_user,
            (_USERS, {"kind": "storage", "topic": "users", "partition": 0}),
        ),
        Step(
            "The cleaner runs",
            "The cleaner read the closed segment, remembered the last offset of each key, and copied what is left "
            "into a new file. Offsets do not change: there are gaps now, and consumers simply step over "
            "them.\n\nAnyone who reads the topic from the start gets the last value of each key at least.",
            _compact,
            (_USERS, {"kind": "storage", "topic": "users", "partition": 0}),
        ),
    ),
)
