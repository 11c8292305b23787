"""A topic of a cluster: consumers can read appended records when the followers have them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.embedded.records import Given, Record
from ottla.embedded.topic_handle import DEFAULT_TIMEOUT_S, BlockingTopic, Condition, any_record
from ottla.embedded.topics import AsyncTopic, SyncTopic, Topic, Watcher
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.multibroker.cluster_view import ClusterServer


class ClusterTopic(Topic):
    """The result of `Cluster.topic`. Its waits block, or are awaited on an event loop."""

    @abstractmethod
    def wait_for(self, condition: Condition = any_record, *, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Wait until a record meets the condition and return it."""

    @abstractmethod
    def wait_for_all(self, condition: Condition = any_record, *, count: int, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Wait until at least `count` records meet the condition and return all that do."""

    async def until_readable(self, appended: list[Record]) -> None:
        server: Any = self._broker.server
        ends = {record.partition: record.offset + 1 for record in appended}
        watcher = Watcher()
        with suppress(TimeoutError, KafkaError):
            try:
                async with asyncio.timeout(DEFAULT_TIMEOUT_S):
                    watcher.watch(server.leader(self.name, index) for index in ends)
                    while any(self._is_on_its_way(server, index, end) for index, end in ends.items()):
                        watcher.news.clear()
                        await watcher.news.wait()
            finally:
                watcher.stop()

    def _is_on_its_way(self, server: ClusterServer, index: int, end: int) -> bool:
        """Whether followers will get the records soon. They will not if a test has cut off one of them."""
        state, network = server.state(self.name, index), server.nodes.network
        undisturbed = all(each == state.leader or network.is_direct(state.leader, each) for each in state.isr)
        return undisturbed and server.leader(self.name, index).high_watermark < end


class AsyncClusterTopic(AsyncTopic, ClusterTopic):
    """A topic of a cluster on the running loop. `append` does not wait for followers there: wait for the records."""


class SyncClusterTopic(SyncTopic, ClusterTopic):
    """A topic of a cluster that runs in its own thread."""

    wait_for = BlockingTopic.wait_for
    wait_for_all = BlockingTopic.wait_for_all

    def append(
        self, records: Iterable[Given], *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> list[Record]:
        done = super().append(records, partition=partition, timestamp_ms=timestamp_ms)
        self._broker.submit(self.until_readable(done)).result()
        return done
