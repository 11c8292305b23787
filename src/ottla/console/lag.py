"""The lag of groups, sampled while a page is open, for lists, plots and warnings about growth."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.client import admin
from ottla.client.offsets import committed_of_groups, list_offsets
from ottla.client.routing import Client, TopicPartition
from ottla.console.reachable import if_reachable
from ottla.enums import OffsetTimestamp
from ottla.errors import KafkaError

GROUPS_MAX: Final = 1000
"""The maximum number of groups to sample; groups with members come first."""
SAMPLES_MAX: Final = 300
_INTERVAL_S: Final = 5.0
_BATCH: Final = 100
_GROWING_SAMPLES: Final = 4
"""A lag grows if this many samples in a row are each larger than the one before."""


class Sample(NamedTuple):
    at_ms: int
    lag: int


class LagWatch:
    """The last samples of each group's lag."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._sampled_at = float("-inf")
        self._lock = asyncio.Lock()

    async def look(self, client: Client, listed: Mapping[int, list[admin.GroupListing]]) -> None:
        """Take a sample of all groups, unless the last sample is recent enough."""
        async with self._lock:
            if time.monotonic() - self._sampled_at < _INTERVAL_S:
                return
            lags = await if_reachable(lambda: _lags(client, listed))
            self._sampled_at = time.monotonic()
            for group in [each for each in self._samples if each not in lags]:
                del self._samples[group]
            for group, lag in lags.items():
                self.note(group, lag)

    def note(self, group: str, lag: int) -> None:
        samples = self._samples.setdefault(group, deque(maxlen=SAMPLES_MAX))
        samples.append(Sample(int(time.time() * 1000), lag))

    def now(self, group: str) -> int | None:
        """The last known lag; None for a group that has committed nothing, or is not sampled."""
        samples = self._samples.get(group)
        return samples[-1].lag if samples else None

    def history(self, group: str) -> list[Sample]:
        return list(self._samples.get(group, ()))

    def growing(self) -> Iterable[tuple[str, int]]:
        """Groups that fall behind, with their lag."""
        for group, samples in self._samples.items():
            last = [each.lag for each in samples][-_GROWING_SAMPLES:]
            if len(last) == _GROWING_SAMPLES and all(a < b for a, b in pairwise(last)):
                yield group, last[-1]


async def _lags(client: Client, listed: Mapping[int, list[admin.GroupListing]]) -> dict[str, int]:
    committed: dict[str, dict[TopicPartition, int]] = {}
    shared: dict[str, int] = {}
    budget = GROUPS_MAX
    for node_id, groups in listed.items():
        chosen = sorted(groups, key=lambda each: each.state == "Empty")
        chosen, budget = chosen[:budget], max(0, budget - len(chosen))
        names = [each.group for each in chosen if each.kind.lower() != "share"]
        for at in range(0, len(names), _BATCH):
            committed |= await committed_of_groups(client, node_id, names[at : at + _BATCH])
            await asyncio.sleep(0)
        shared |= await _share_lags(client, [each.group for each in chosen if each.kind.lower() == "share"])
    wanted = {tp for offsets in committed.values() for tp in offsets}
    known = (await client.metadata({topic for topic, _ in wanted})).topics if wanted else {}
    there = [
        (topic, index)
        for topic, index in wanted
        if topic in known and index in known[topic].partitions and known[topic].partitions[index].leader >= 0
    ]
    ends = await list_offsets(client, dict.fromkeys(there, int(OffsetTimestamp.LATEST)))
    lags = {
        group: sum(max(0, ends[tp].offset - offset) for tp, offset in offsets.items() if tp in ends)
        for group, offsets in committed.items()
        if offsets
    }
    return lags | shared


async def _share_lags(client: Client, groups: list[str]) -> dict[str, int]:
    """The lag of share groups, which their coordinators count."""
    lags: dict[str, int] = {}
    for group in groups:
        with contextlib.suppress(KafkaError):  # it was deleted meanwhile, or may not be described
            known = [lag for _, lag in (await admin.share_offsets(client, group)).values() if lag >= 0]
            if known:
                lags[group] = sum(known)
    return lags
