"""What `Cluster.topic` returns, for type checkers: its waits block, or are awaited on an event loop."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ottla.embedded.topic_handle import DEFAULT_TIMEOUT_S, Condition, any_record
from ottla.embedded.topics import Topic


class ClusterTopic(Topic):
    """A topic of a cluster."""

    @abstractmethod
    def wait_for(self, condition: Condition = any_record, *, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Wait until a record meets the condition and return it."""

    @abstractmethod
    def wait_for_all(self, condition: Condition = any_record, *, count: int, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Wait until at least `count` records meet the condition and return all that do."""
