"""One test's share of a broker: names that nobody else uses, and the way to clean up."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.lazy_imports import lazy
from ottla.testing.threaded import ServedBroker

if TYPE_CHECKING:
    from ottla.embedded import report
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.topic_handle import BlockingTopic
    from ottla.testing import plain_kafka
    from ottla.testing.over_http import RemoteBroker
    from ottla.testing.plain_kafka import ExternalBroker
    from ottla.testing.protocols import BrokerHandle, ClockHandle, FaultsHandle, GroupHandle, SeenRequest
else:
    plain_kafka = lazy("ottla.testing.plain_kafka")
    report = lazy("ottla.embedded.report")

AnyBroker: TypeAlias = "ServedBroker | RemoteBroker | ExternalBroker"

_NAME_MAX = 60


class Kafka:
    """What the fixture `kafka` gives: a broker, and names in it for this test alone.

    `topic()` and `group()` return handles; `str()` of one is its name, for a client. They are those of a broker in
    this process; with `--ottla-bootstrap` they have the same methods, as far as a foreign broker allows.
    """

    def __init__(self, broker: AnyBroker, test_name: str = "test") -> None:
        self._broker = broker
        stem = re.sub(r"[^a-zA-Z0-9]+", "-", test_name).strip("-")[:_NAME_MAX] or "test"
        self.prefix = f"{stem}-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._before = (
            (frozenset(broker.topics()), frozenset(broker.groups()))
            if isinstance(broker, ServedBroker)
            else (frozenset[str](), frozenset[str]())
        )

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def broker(self) -> ServedBroker:
        """The broker itself, with all that it can do; only where it runs in this process."""
        if isinstance(self._broker, ServedBroker):
            return self._broker
        raise plain_kafka.NeedsOttla(
            "this broker is shared, or not an Ottla: use the factory `ottla_broker()` for one of your own"
        )

    def client_config(self, client: ClientName, role: Role = "common") -> Settings:
        """Settings with which a client finds this test's broker and is quick in tests."""
        return self._broker.client_config(client, role)

    def name(self, label: str = "") -> str:
        """A name that no other test uses."""
        return "-".join(filter(None, (label, self.prefix, str(next(self._numbers)))))

    def topic(
        self, label: str = "", *, partitions: int = -1, config: Mapping[str, object] | None = None
    ) -> BlockingTopic:
        """A new topic with a name of its own; `label` comes first in it."""
        name = self.name(label)
        self._topics.append(name)
        handle: BlockingTopic = self._broker.topic(name)
        return handle.create(partitions, config)

    def group(self, label: str = "") -> GroupHandle:
        """A group id of its own."""
        name = self.name(label)
        self._groups.append(name)
        return self._broker.group(name)

    @property
    def faults(self) -> FaultsHandle:
        """Faults of this test's broker; they end with the test."""
        return self._own.faults

    @property
    def clock(self) -> ClockHandle:
        """The time of this test's broker, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return self._own.clock

    def requests(
        self, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None
    ) -> Sequence[SeenRequest]:
        """The requests that came in during this test, oldest first."""
        return self._own.requests(api, client_id, topic, group)

    @property
    def _own(self) -> BrokerHandle:
        """A broker that no other test process uses, or one that says that it is not an Ottla."""
        return self._broker if self._is_foreign else self.broker

    def __repr__(self) -> str:
        return f"<Kafka {self.prefix} at {self.bootstrap}>"

    @property
    def _is_foreign(self) -> bool:
        return isinstance(self._broker, plain_kafka.ExternalBroker)

    def report(self) -> str:
        """What is in the broker, for a failed test."""
        if not isinstance(self._broker, ServedBroker):
            return "" if self._is_foreign else self._broker.report(self.prefix)  # type: ignore[union-attr]
        return report.report(self._broker.embedded, *self._before)

    def close(self) -> None:
        """Give the broker back as it was: topics and groups that came since are gone, faults too."""
        broker = self._broker
        if isinstance(broker, ServedBroker):
            if broker.is_running:
                topics, groups = self._before
                broker.reset(topics=set(broker.topics()) - topics, groups=set(broker.groups()) - groups)
        elif self._is_foreign:
            broker.delete(self._topics, self._groups)  # type: ignore[union-attr]
        elif self._topics or self._groups:
            broker.reset(topics=self._topics, groups=self._groups)
