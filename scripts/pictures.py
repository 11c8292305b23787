"""The pictures of docs/how-it-works. Most are drawn from the data of a real broker. See generate.py."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from svg import Picture

import ottla
from ottla.client import Client
from ottla.client.group_member import member_of
from ottla.client.offsets import bounds
from ottla.enums import IsolationLevel

LENGTH_FIELD = struct.Struct(">qi")
INDEX_ENTRY = struct.Struct(">ii")


# --- segments and look-ups -------------------------------------------------------------------------------------------


class Segment(NamedTuple):
    base_offset: int
    batches: list[tuple[int, int, int]]
    """Base offset, position, size."""
    entries: list[tuple[int, int]]
    """Of the offset index: offset, position."""


def real_segments() -> list[Segment]:
    """A partition of a broker: batches of five records, in segments of 1 MB, an index entry every 128 KB."""
    with tempfile.TemporaryDirectory() as folder:
        with ottla.serve(data=folder) as broker:
            config = {"segment.bytes": 1 << 20, "index.interval.bytes": 1 << 17}
            topic = broker.topic("orders").create(partitions=1, config=config)
            for _ in range(75):
                topic.append(["x" * 8_700] * 5)
        found = []
        for log in sorted(Path(folder, "orders-0").glob("*.log")):
            data = log.read_bytes()
            batches, position = [], 0
            while position < len(data):
                base, length = LENGTH_FIELD.unpack_from(data, position)
                batches.append((base, position, length + LENGTH_FIELD.size))
                position += length + LENGTH_FIELD.size
            index = log.with_suffix(".index").read_bytes()
            entries = [
                (int(log.stem) + relative, place)
                for relative, place in INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8])
                if place
            ]
            found.append(Segment(int(log.stem), batches, entries))
        return found


def segments() -> str:
    found = real_segments()
    picture = Picture(760, 60 + 58 * len(found), "The segments of a partition, drawn to scale")
    picture.words(16, 24, "orders-0/", "bold mono")
    picture.words(130, 24, "each cell is a batch of five records, each tick an entry of the .index file", "small")
    scale = 540 / max(sum(size for _, _, size in segment.batches) for segment in found)
    for row, segment in enumerate(found):
        y = 44 + row * 58
        picture.words(16, y + 18, f"{segment.base_offset:020d}.log", "mono small")
        is_active = row == len(found) - 1
        for _, position, size in segment.batches:
            picture.box(200 + position * scale, y, size * scale, 26, "box3" if is_active else "box", 1)
        for offset, position in segment.entries:
            x = 200 + position * scale
            picture.line(x, y + 26, x, y + 36, "mark")
            picture.words(x, y + 48, str(offset), "small", "middle")
        if is_active:
            last = segment.batches[-1]
            picture.words(208 + (last[1] + last[2]) * scale, y + 18, "active: appends go here", "small")
    return picture.text()


def lookup() -> str:
    wanted = 137
    found = real_segments()
    segment = max((each for each in found if each.base_offset <= wanted), key=lambda each: each.base_offset)
    entry = max((each for each in segment.entries if each[0] <= wanted), default=(segment.base_offset, 0))
    picture = Picture(760, 250, f"How the broker finds offset {wanted}")
    picture.words(16, 26, f"Where is offset {wanted}?", "bold")
    picture.words(16, 58, "1. file names", "small")
    for number, each in enumerate(found):
        kind = "hot" if each is segment else "box"
        words = "inv mono" if each is segment else "mono"
        picture.labelled(150 + number * 112, 40, 100, 28, f"…{each.base_offset:05d}.log", kind, words)
    picture.words(16, 122, "2. its .index", "small")
    for number, each in enumerate([(segment.base_offset, 0), *segment.entries]):
        hit = each == entry
        label = f"{each[0]} → {each[1] // 1024} K"
        picture.labelled(150 + number * 100, 104, 94, 28, label, "hot" if hit else "box", "inv mono" if hit else "mono")
    picture.words(16, 186, "3. scan the .log", "small")
    after = [batch for batch in segment.batches if batch[1] >= entry[1]]
    stop = next(index for index, batch in enumerate(after) if batch[0] + 4 >= wanted)
    for number, (base, _, _) in enumerate(after[: stop + 3]):
        kind = "hot" if number == stop else "box2" if number < stop else "box"
        text = f"{base}–{base + 4}"
        picture.labelled(150 + number * 84, 168, 78, 28, text, kind, "inv mono" if number == stop else "mono")
    x = 150 + stop * 84 + 39
    picture.line(x, 222, x, 200, "mark", arrow=False)
    picture.words(
        x,
        238,
        f"{stop} batch header{'s' if stop != 1 else ''} skipped, then the batch with {wanted}",
        "small",
        "middle",
    )
    return picture.text()


# --- replication -----------------------------------------------------------------------------------------------------


def replication() -> str:
    """Log end offsets and high watermarks of three replicas of a real cluster at each step."""
    steps: list[tuple[str, dict[int, int], dict[int, int], list[int], str]] = []
    with ottla.Cluster(3, seed=1) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        topic = cluster.topic("orders")

        def look(title: str, why: str) -> None:
            view = cluster.partition("orders", 0)
            steps.append((title, dict(view.end_offsets), dict(view.high_watermarks), list(view.isr), why))

        def settled(ends: dict[int, int], high_watermark: int) -> None:
            cluster.wait_until(
                lambda c: (
                    dict(c.partition("orders", 0).end_offsets) == ends
                    and c.partition("orders", 0).high_watermarks[1] == high_watermark
                )
            )

        topic.append(["a", "b"])
        cluster.wait_until(lambda c: set(c.partition("orders", 0).high_watermarks.values()) == {2})
        look("two records", "all replicas have them: the high watermark is 2")
        cluster.partition_network([3], [1, 2, "controller"])
        topic.append(["c"])
        settled({1: 3, 2: 3, 3: 2}, 2)
        look("broker 3 is cut off", "record c is on two replicas; the ISR still counts broker 3")
        cluster.wait_until(lambda c: c.isr("orders") == [1, 2])
        settled({1: 3, 2: 3, 3: 2}, 3)
        look("the ISR shrinks", "broker 3 lagged too long; without it, c is committed")
        cluster.heal()
        cluster.wait_in_sync()
        cluster.wait_until(lambda c: set(c.partition("orders", 0).high_watermarks.values()) == {3})
        look("the network is back", "broker 3 fetches what it missed and returns to the ISR")
    picture = Picture(760, 40 + 92 * len(steps), "Log end offset, high watermark and ISR of three replicas")
    for broker, x in ((1, 260), (2, 430), (3, 600)):
        picture.words(x, 24, f"broker {broker}" + (" (leader)" if broker == 1 else ""), "bold")
    for row, (title, ends, watermarks, isr, why) in enumerate(steps):
        y = 40 + row * 92
        picture.words(16, y + 22, f"{row + 1}. {title}", "bold")
        _wrapped(picture, 16, y + 42, why, 32)
        for broker, x in ((1, 260), (2, 430), (3, 600)):
            for offset in range(ends[broker]):
                committed = offset < watermarks[broker]
                picture.labelled(x + offset * 34, y + 4, 32, 26, "abc"[offset], "box" if committed else "box2")
            mark = x + watermarks[broker] * 34 - 1
            picture.line(mark, y - 2, mark, y + 38, "mark")
            inside = "" if broker in isr else ", not in the ISR"
            picture.words(x, y + 54, f"LEO {ends[broker]}, HW {watermarks[broker]}{inside}", "small")
    return picture.text()


def _wrapped(picture: Picture, x: float, y: float, text: str, width: int) -> None:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    for number, each in enumerate([*lines, line]):
        picture.words(x, y + number * 15, each, "small")


# --- groups ----------------------------------------------------------------------------------------------------------


async def real_generations(bootstrap: str) -> list[dict[str, list[int]]]:
    """The assignment of six partitions while A, B and C join and A leaves."""
    found: list[dict[str, list[int]]] = []
    async with Client(bootstrap) as one, Client(bootstrap) as two, Client(bootstrap) as three:
        members = {
            name: member_of(client, "billing", ["orders"])
            for name, client in zip("ABC", (one, two, three), strict=True)
        }
        active: list[str] = []

        async def rebalance() -> None:
            for name in active:
                if members[name].assigned:
                    await members[name].must_join.wait()
            await asyncio.gather(*(members[name].join() for name in active))
            found.append({name: sorted(index for _, index in members[name].assigned) for name in active})

        for name in "ABC":
            active.append(name)
            if len(active) == 1:
                await rebalance()
                continue
            joining = asyncio.create_task(members[name].join())
            await asyncio.gather(*(members[each].must_join.wait() for each in active[:-1]))
            await asyncio.gather(joining, *(members[each].join() for each in active[:-1]))
            found.append({each: sorted(index for _, index in members[each].assigned) for each in active})
        await members["A"].leave()
        active.remove("A")
        await rebalance()
        for name in active:
            await members[name].leave()
    return found


def rebalance() -> str:
    with ottla.serve(seed=1) as broker:
        broker.topic("orders").create(partitions=6)
        generations = asyncio.run(real_generations(broker.bootstrap))
    titles = ("A joins", "B joins", "C joins", "A leaves")
    picture = Picture(760, 240, "Four generations of a consumer group")
    for column, (title, assigned) in enumerate(zip(titles, generations, strict=True)):
        x = 90 + column * 168
        picture.words(x, 24, f"generation {column + 1}", "bold")
        picture.words(x, 42, title, "small")
        for row, name in enumerate("ABC"):
            y = 60 + row * 56
            for number, partition in enumerate(assigned.get(name, ())):
                picture.labelled(x + number * 25, y, 23, 30, str(partition), ("box", "box2", "box3")[row])
            if name not in assigned:
                picture.words(x, y + 20, "not a member", "small")
    for row, name in enumerate("ABC"):
        picture.words(16, 80 + row * 56, f"consumer {name}", "small")
    return picture.text()


# --- compaction ------------------------------------------------------------------------------------------------------


def compaction() -> str:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.ms": 1000}
    written = [("k1", "a"), ("k2", "b"), ("k1", "c"), ("k3", "d"), ("k2", None), ("k1", "e"), ("k4", "f")]
    with ottla.serve(clock="virtual", settings={"log.cleaner.backoff.ms": 1000}) as broker:
        topic = broker.topic("users").create(partitions=1, config=config)
        for key, value in written:
            topic.append([(key, value)])
        broker.clock.advance(minutes=1)
        topic.append([("k5", "g")])  # begins a new segment, because the active one is never compacted
        broker.clock.advance(minutes=1)
        kept = {record.offset for record in topic.records()}
    everything = [*written, ("k5", "g")]
    picture = Picture(760, 190, "A log before and after compaction")
    for row, title in enumerate(("before", "after")):
        y = 40 + row * 74
        picture.words(16, y + 24, title, "bold")
        for offset, (key, value) in enumerate(everything):
            x = 100 + offset * 80
            if row == 0:
                picture.words(x + 36, 28, f"offset {offset}", "small", "middle")
            text = f"{key}={'null' if value is None else value}"
            if row == 0 or offset in kept:
                kind = "box3" if offset == len(written) else "box2" if value is None else "box"
                picture.labelled(x, y, 72, 34, text, kind, "mono")
            else:
                picture.labelled(x, y, 72, 34, "", "gone")
    picture.words(
        100,
        174,
        "The newest value of each key stays, with its offset. A null (tombstone) stays for delete.retention.ms.",
        "small",
    )
    return picture.text()


# --- transactions ----------------------------------------------------------------------------------------------------


async def real_ends(bootstrap: str) -> tuple[int, int]:
    """The high watermark and the last stable offset: the end of the log for each isolation level."""
    tp = ("orders", 0)
    async with Client(bootstrap) as client:
        ends = [await bounds(client, [tp], isolation) for isolation in IsolationLevel]
    high_watermark, stable = sorted((end[tp][1] for end in ends), reverse=True)
    return high_watermark, stable


def transaction() -> str:
    """High watermark and last stable offset while one transaction commits and another aborts."""
    from confluent_kafka import Producer

    steps: list[tuple[str, int, int]] = []
    with ottla.serve(settings={"transaction.state.log.num.partitions": 1}) as broker:
        broker.topic("orders").create(partitions=1)

        def look(title: str) -> None:
            steps.append((title, *asyncio.run(real_ends(broker.bootstrap))))

        producers = {}
        for name in "AB":
            producers[name] = Producer(
                {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
            )
            producers[name].init_transactions()
            producers[name].begin_transaction()
        for name, value in (("A", "a1"), ("B", "b1"), ("A", "a2")):
            producers[name].produce("orders", value)
            producers[name].flush()
        look("A and B are open")
        producers["A"].commit_transaction()
        look("A commits")
        producers["B"].abort_transaction()
        look("B aborts")
        seen = [record.value.decode() for record in broker.topic("orders").records() if record.value]
    cells = ["a1", "b1", "a2", "commit A", "abort B"]
    picture = Picture(760, 60 + 84 * len(steps) + 24, "The last stable offset")
    for offset in range(len(cells)):
        picture.words(218 + offset * 96 + 42, 24, f"offset {offset}", "small", "middle")
    for row, (title, high_watermark, stable) in enumerate(steps):
        y = 36 + row * 84
        picture.words(16, y + 24, title, "bold")
        picture.words(16, y + 44, f"HW {high_watermark}, LSO {stable}", "small")
        for offset in range(high_watermark):
            kind = "box3" if offset > 2 else "box" if cells[offset].startswith("a") else "box2"
            picture.labelled(218 + offset * 96, y, 84, 36, cells[offset], kind, "mono")
        x = 218 + stable * 96 - 6
        picture.line(x, y - 6, x, y + 46, "mark")
        picture.words(x, y + 60, "read_committed reads up to here", "small markt", "end" if stable > 2 else "start")
    picture.words(
        16, 60 + 84 * len(steps) + 10, f"In the end a read_committed consumer sees {' and '.join(seen)}.", "small"
    )
    return picture.text()


# --- drawn by hand ---------------------------------------------------------------------------------------------------


def share_states() -> str:
    picture = Picture(760, 210, "The states of a record in a share group")
    boxes = {
        "available": (30, 80, "box"),
        "acquired": (270, 80, "box2"),
        "acknowledged": (540, 24, "box3"),
        "archived": (540, 140, "gone"),
    }
    for name, (x, y, kind) in boxes.items():
        picture.labelled(x, y, 150, 44, name.upper(), kind, "bold")
    picture.line(180, 102, 266, 102, arrow=True)
    picture.words(223, 94, "fetch", "small", "middle")
    picture.line(420, 92, 536, 50, arrow=True)
    picture.words(470, 56, "accept", "small", "middle")
    picture.line(420, 112, 536, 160, arrow=True)
    picture.words(462, 160, "reject, or too", "small", "middle")
    picture.words(462, 175, "many deliveries", "small", "middle")
    picture.curve(345, 128, 105, 128, 60)
    picture.words(225, 186, "release, or the lock ran out: delivery count + 1", "small", "middle")
    return picture.text()


def page_cache() -> str:
    picture = Picture(760, 230, "The path of a record through the page cache")
    picture.labelled(20, 90, 120, 50, "producer", "box3", "bold")
    picture.labelled(620, 90, 120, 50, "consumer", "box3", "bold")
    picture.labelled(250, 20, 260, 50, "Ottla: checks the header and CRC", "box", "small")
    picture.labelled(250, 96, 260, 40, "page cache of the kernel", "box2", "bold")
    picture.labelled(250, 176, 260, 36, "disk", "gone", "bold")
    picture.line(140, 104, 246, 50, arrow=True)
    picture.words(170, 66, "recv", "small")
    picture.line(380, 70, 380, 92, arrow=True)
    picture.words(390, 86, "write: the bytes as they came", "small")
    picture.line(510, 116, 616, 116, arrow=True)
    picture.words(563, 106, "sendfile", "small", "middle")
    picture.line(380, 136, 380, 172, arrow=True)
    picture.words(390, 160, "later, when the kernel decides (or --fsync)", "small")
    return picture.text()


def timing_wheel() -> str:
    picture = Picture(760, 200, "A hierarchy of timing wheels")
    for row, (title, kind) in enumerate(
        (("1 ms a slot", "box"), ("64 ms a slot", "box2"), ("4,096 ms a slot", "box3"))
    ):
        y = 20 + row * 58
        picture.words(16, y + 21, title, "small")
        picture.words(724, y + 21, "… 64", "small")
        for slot in range(19):
            filled = (row, slot) in {(0, 3), (0, 11), (1, 4), (2, 7)}
            picture.box(130 + slot * 30, y, 28, 30, "hot" if filled else kind)
    picture.words(
        16,
        190,
        "A timer goes into the slot of its deadline. When a coarse slot is due, its timers move to the wheel above.",
        "small",
    )
    return picture.text()


PICTURES: dict[str, Callable[[], str]] = {
    "segments": segments,
    "lookup": lookup,
    "page-cache": page_cache,
    "replication": replication,
    "rebalance": rebalance,
    "compaction": compaction,
    "transaction": transaction,
    "timing-wheel": timing_wheel,
    "share-states": share_states,
}
