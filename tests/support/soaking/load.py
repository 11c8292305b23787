"""The load of a busy test environment: all kinds at once, each in its own thread."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin

from support.interop.secured import Secured

admin_module: Any = confluent_admin  # its type hints do not export these names
AdminClient, NewTopic = admin_module.AdminClient, admin_module.NewTopic
AclBindingFilter, ConfigResource = admin_module.AclBindingFilter, admin_module.ConfigResource

CALM = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
STEADY_GROUP = "soak-steady"
PAUSE_S = 0.02
"""The pause between two steps of a load: the soak looks for growth, not for the highest rate."""


class Work:
    """Shared by all loads: where the broker is, when to stop, and what was done."""

    def __init__(self, broker: Secured, seed: int) -> None:
        self.broker = broker
        self.seed = seed
        self.stop = threading.Event()
        self.counts: dict[str, int] = {}
        self.unexpected: list[str] = []
        self.restarting = False
        self.latencies_ms: list[float] = []
        """Latencies since the last sample."""

    def config(self, protocol: str, **more: Any) -> dict[str, Any]:
        config = {**CALM, "bootstrap.servers": self.broker.bootstrap(protocol), "security.protocol": protocol, **more}
        if protocol.endswith("SSL"):
            config["ssl.ca.location"] = str(self.broker.trust)
        if protocol.startswith("SASL"):
            config.update({"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"})
        return config

    def did(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def errors(self, what: str, error: BaseException) -> None:
        """An error while the broker restarts is expected; others are for the report."""
        self.did(f"{what}: errors")
        if not self.restarting and len(self.unexpected) < 50:
            self.unexpected.append(f"{what}: {error}")


def records(work: Work) -> None:
    """Acknowledged records over SASL_SSL, with their latency."""
    producer = Producer(work.config("SASL_SSL", **{"linger.ms": 0, "message.timeout.ms": 30_000}), logger=None)
    chance = random.Random(work.seed)
    while not work.stop.is_set():
        began = time.monotonic()
        topic = chance.choice(("soak", "soak-compacted", "soak-short"))
        producer.produce(topic, chance.randbytes(200), key=b"%d" % chance.randrange(1000))
        if producer.flush(30) == 0:
            work.latencies_ms.append((time.monotonic() - began) * 1000)
            work.did("records")
        work.stop.wait(PAUSE_S)


def transactions(work: Work) -> None:
    chance = random.Random(work.seed + 1)
    while not work.stop.is_set():
        producer = Producer(work.config("PLAINTEXT", **{"transactional.id": "soak"}), logger=None)
        try:
            producer.init_transactions(30)
            while not work.stop.is_set():
                producer.begin_transaction()
                for _ in range(chance.randint(1, 5)):
                    producer.produce("soak", chance.randbytes(100))
                if chance.random() < 0.2:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
                work.did("transactions")
                work.stop.wait(PAUSE_S)
        except KafkaException as error:
            work.errors("transactions", error)
            work.stop.wait(0.5)


def group_churn(work: Work) -> None:
    """Members that join, read, commit and leave, in a permanent group and in short-lived ones.

    A short-lived group is deleted: its offsets would be kept for a week, as in Kafka, and hide other growth.
    """
    chance = random.Random(work.seed + 2)
    admin = AdminClient(work.config("PLAINTEXT"))
    while not work.stop.is_set():
        group = chance.choice((STEADY_GROUP, f"soak-{uuid.uuid4().hex[:6]}"))
        protocol = chance.choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
        consumer = Consumer(
            work.config(protocol, **{"group.id": group, "auto.offset.reset": "latest", "enable.auto.commit": False}),
            logger=None,
        )
        try:
            consumer.subscribe(["soak"])
            until = time.monotonic() + chance.uniform(1, 5)
            while time.monotonic() < until and not work.stop.is_set():
                if [message for message in consumer.consume(50, 0.2) if message.error() is None]:
                    consumer.commit(asynchronous=False)
            work.did("group members")
        except KafkaException as error:
            work.errors("groups", error)
        finally:
            consumer.close()
        if group != STEADY_GROUP:
            try:
                admin.delete_consumer_groups([group])[group].result(30)
                work.did("groups deleted")
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:  # a member that did not have time to join
                    work.errors("deletion of groups", error)
            except (TimeoutError, FutureTimeout) as error:
                work.errors("deletion of groups", error)


def topic_churn(work: Work) -> None:
    admin = AdminClient(work.config("SASL_PLAINTEXT"))
    while not work.stop.is_set():
        name = f"soak-brief-{uuid.uuid4().hex[:6]}"
        try:
            admin.create_topics([NewTopic(name, 3)])[name].result(30)
            producer = Producer(work.config("PLAINTEXT"), logger=None)
            producer.produce(name, b"x")
            producer.flush(10)
            admin.delete_topics([name])[name].result(30)
            work.did("topics")
        except (KafkaException, TimeoutError, FutureTimeout) as error:
            work.errors("topics", error)
        work.stop.wait(0.5)


def administration(work: Work) -> None:
    """Admin requests of every kind, as dashboards send them."""
    admin = AdminClient(work.config("SSL"))  # the calls use the newest
    calls: list[Callable[[], Any]] = [
        lambda: admin.list_topics(timeout=10),
        lambda: admin.list_consumer_groups(request_timeout=10).result(),
        lambda: admin.describe_consumer_groups([STEADY_GROUP])[STEADY_GROUP].result(10),
        lambda: next(iter(admin.describe_configs([ConfigResource("topic", "soak")]).values())).result(10),
        lambda: admin.describe_acls(_any_acl()).result(10),
        lambda: next(iter(admin.list_offsets({TopicPartition("soak", 0): _latest()}).values())).result(10),
        lambda: admin.describe_cluster().result(10),
    ]
    chance = random.Random(work.seed + 3)
    while not work.stop.is_set():
        try:
            chance.choice(calls)()
            work.did("admin calls")
        except (KafkaException, TimeoutError, FutureTimeout) as error:
            work.errors("admin", error)
            # After a restart of its broker, librdkafka can no longer describe groups with this client, on Kafka too.
            admin = AdminClient(work.config("SSL"))
        work.stop.wait(PAUSE_S * 5)


def _any_acl() -> Any:
    return AclBindingFilter(
        admin_module.ResourceType.ANY,
        None,
        admin_module.ResourcePatternType.ANY,
        None,
        None,
        admin_module.AclOperation.ANY,
        admin_module.AclPermissionType.ANY,
    )


def _latest() -> Any:
    return admin_module.OffsetSpec.latest()


LOADS: dict[str, Callable[[Work], None]] = {
    "records": records,
    "transactions": transactions,
    "groups": group_churn,
    "topics": topic_churn,
    "administration": administration,
}


def make_topics(work: Work) -> None:
    admin = AdminClient(work.config("PLAINTEXT"))
    small = {"segment.bytes": "1048576", "file.delete.delay.ms": "1000"}
    topics = [
        NewTopic("soak", 4, config={**small, "retention.bytes": "4194304"}),
        NewTopic(
            "soak-compacted", 2, config={**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
        ),
        NewTopic("soak-short", 2, config={**small, "retention.ms": "60000", "segment.ms": "20000"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(60)
