"""One test's part of a broker: unique names and cleanup."""

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
    from ottla.embedded.registry_handle import RegistryHandle
    from ottla.embedded.rules import GroupName, TopicName
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
    """The value of the fixture `kafka`: a broker, with names that only this test uses.

    `topic()` and `group()` return handles; `str()` of one is its name, for a client. With `--ottla-bootstrap` they
    have the same methods, as far as the other broker supports them.
    """

    def __init__(self, broker: AnyBroker, test_name: str = "test") -> None:
        self._broker = broker
        stem = re.sub(r"[^a-zA-Z0-9]+", "-", test_name).strip("-")[:_NAME_MAX] or "test"
        self.prefix = f"{stem}-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._subjects: list[str] = []
        self._subjects_before = broker.embedded.known_subjects() if isinstance(broker, ServedBroker) else set[str]()
        self._before = (
            (frozenset(broker.topics()), frozenset(broker.groups()))
            if isinstance(broker, ServedBroker)
            else (frozenset[str](), frozenset[str]())
        )

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        return self._broker.bootstrap

    @property
    def broker(self) -> ServedBroker:
        """The broker itself; available only if it runs in this process."""
        if isinstance(self._broker, ServedBroker):
            return self._broker
        raise plain_kafka.NeedsOttla(
            "this broker is shared, or is not Ottla: use the factory `ottla_broker()` to get your own"
        )

    def bootstrap_for(self, listener: str | None = None) -> str:
        """The bootstrap address of a listener, by its name."""
        return self._broker.bootstrap_for(listener)

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings for this test's broker: the address, the login and short delays."""
        return self._broker.client_config(client, role, user=user, mechanism=mechanism)

    def name(self, label: str = "") -> str:
        """A name that no other test uses."""
        return "-".join(filter(None, (label, self.prefix, str(next(self._numbers)))))

    def topic(
        self, label: str = "", *, partitions: int = -1, config: Mapping[str, object] | None = None
    ) -> BlockingTopic:
        """A new topic with a unique name that starts with `label`."""
        name = self.name(label)
        self._topics.append(name)
        handle: BlockingTopic = self._broker.topic(name)
        return handle.create(partitions, config)

    def group(self, label: str = "") -> GroupHandle:
        """A unique group id."""
        name = self.name(label)
        self._groups.append(name)
        return self._broker.group(name)

    @property
    def registry(self) -> RegistryHandle:
        """The schema registry of this test's broker; it starts when it is first used. Subjects are removed after the
        test.
        """
        if isinstance(self._broker, ServedBroker):
            self._broker.start_registry()
        return self._broker.registry

    @property
    def registry_url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        return self.registry.url

    def subject(self, label: str = "") -> str:
        """A unique name for a subject. Subjects of this test's topics do not need one: they are removed too."""
        name = self.name(label)
        self._subjects.append(name)
        return name

    @property
    def faults(self) -> FaultsHandle:
        """Faults of this test's broker; they are removed after the test."""
        return self._own.faults

    @property
    def clock(self) -> ClockHandle:
        """The time of this test's broker, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return self._own.clock

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> Sequence[SeenRequest]:
        """The requests that arrived during this test, oldest first."""
        return self._own.requests(api, client_id, topic, group)

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = 5.0,
    ) -> SeenRequest:
        """Block until `count` such requests have arrived during this test, and return the last one."""
        return self._own.wait_for_request(api, client_id, topic, group, count=count, timeout=timeout)

    @property
    def _own(self) -> BrokerHandle:
        """The broker, if no other test process uses it. An external Kafka raises `NeedsOttla` itself."""
        return self._broker if self._is_foreign else self.broker

    def __repr__(self) -> str:
        return f"<Kafka {self.prefix} at {self.bootstrap}>"

    @property
    def _is_foreign(self) -> bool:
        return isinstance(self._broker, plain_kafka.ExternalBroker)

    def report(self) -> str:
        """A report on the broker's contents, for a failed test."""
        if not isinstance(self._broker, ServedBroker):
            return "" if self._is_foreign else self._broker.report(self.prefix)  # type: ignore[union-attr]
        return report.report(self._broker.embedded, *self._before)

    def close(self) -> None:
        """Clean up: remove the topics, groups, subjects and faults that the test added."""
        broker = self._broker
        of_topics = [f"{topic}-{part}" for topic in self._topics for part in ("key", "value")]
        if isinstance(broker, ServedBroker):
            if broker.is_running:
                topics, groups = self._before
                broker.reset(
                    topics=set(broker.topics()) - topics,
                    groups=set(broker.groups()) - groups,
                    subjects=broker.embedded.known_subjects() - self._subjects_before,
                )
        elif isinstance(broker, plain_kafka.ExternalBroker):
            subjects = [*of_topics, *self._subjects] if broker.has_registry else []
            broker.delete(self._topics, self._groups, subjects)
        elif self._topics or self._groups or self._subjects:
            broker.reset(topics=self._topics, groups=self._groups, subjects=[*of_topics, *self._subjects])
