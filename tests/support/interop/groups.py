"""A consumer group under test: members in driver processes, polled side by side until something holds."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.errors import IllegalGeneration, RebalanceInProgress, UnknownMemberId
from support.interop.drivers import ClientError, Driver, Got

SETTLE_TIMEOUT_S = 75
_ids = itertools.count()


class Group:
    """Members that share a group id. Each has its own driver, because some clients block while they join."""

    def __init__(self, name: str, topics: list[str], partitions: int, **config: Any) -> None:
        self.name = name
        self.topics = topics
        self.everything = {(topic, partition) for topic in topics for partition in range(partitions)}
        self.config = {"offset_reset": "earliest", "auto_commit": False, "fetch_max_wait_ms": 100, **config}
        self.members: dict[str, Driver] = {}
        self.pending: set[str] = set()
        self.assignments: dict[str, set[tuple[str, int]]] = {}
        self.records: list[Got] = []
        self.last_error: ClientError | None = None
        # Names of errors that a client's poll may raise and recover from, in tests that expect faults.
        self.passing: set[str] = set()

    def join(self, driver: Driver, pattern: str | None = None, **config: Any) -> str:
        member = f"{self.name}-{next(_ids)}"
        subscription = {"pattern": pattern} if pattern else {"topics": self.topics}
        driver.call("consumer_open", id=member, group=self.name, config={**self.config, **config}, **subscription)
        self.members[member] = driver
        self.assignments[member] = set()
        return member

    def leave(self, member: str) -> None:
        self.until(lambda: self._finish(member), "free to leave", but=member)
        driver = self.members.pop(member)
        del self.assignments[member]
        # Some clients wait for the rebalance they are in before they leave, so the others have to be polled.
        driver.start("consumer_close", id=member)
        self.until(lambda: driver.ready(0.05), "closed")
        driver.finish()

    def crash(self, member: str) -> None:
        self.members.pop(member).kill()
        self.pending.discard(member)
        del self.assignments[member]

    def poll(self, timeout_ms: int = 250, but: str | None = None) -> None:
        """One poll each. A poll that blocks in a join is left to end later, when the others have joined too."""
        for member, driver in self.members.items():
            if member not in self.pending and member != but:
                driver.start("consumer_poll", id=member, timeout_ms=timeout_ms)
                self.pending.add(member)
        for member in list(self.members):
            self._finish(member, timeout_ms / 1000 + 0.25)

    def _finish(self, member: str, wait_s: float = 0.25) -> bool:
        """Reads the answer of a pending poll; false if there is none yet."""
        if member not in self.pending:
            return True
        driver = self.members[member]
        if not driver.ready(wait_s):
            return False
        self.pending.discard(member)
        try:
            found = driver.finish()
        except ClientError as error:
            # A rebalance may show as an error of this poll; the next one continues.
            self.last_error = error
            if (
                error.code not in (IllegalGeneration.code, UnknownMemberId.code, RebalanceInProgress.code)
                and error.name not in self.passing
            ):
                raise
            return True
        self.records += [Got.from_json(one) for one in found["records"]]
        self.assignments[member] = {(topic, partition) for topic, partition in found["assignment"]}
        return True

    def until(self, condition: Callable[[], bool], what: str, but: str | None = None) -> None:
        """Polls all members, except possibly one, until the condition holds."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"not {what}: {self.assignments}, {len(self.records)} records, "
                f"polls pending: {self.pending}, last error: {self.last_error}"
            )
            self.poll(but=but)

    def settle(self, idle: int = 0) -> None:
        """Polls until every partition has one owner and at most `idle` members have none."""

        def settled() -> bool:
            owners = Counter(place for owned in self.assignments.values() for place in owned)
            busy = sum(1 for owned in self.assignments.values() if owned)
            return set(owners) == self.everything and max(owners.values()) == 1 and busy == len(self.members) - idle

        self.until(settled, "settled")

    def read(self, count: int) -> None:
        self.until(lambda: len({(r.topic, r.partition, r.offset) for r in self.records}) >= count, f"{count} read")

    def close(self) -> None:
        for member in list(self.members):
            self.leave(member)
