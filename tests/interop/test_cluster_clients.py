"""Real clients on a cluster whose brokers fail: they find the new leader, and nothing acknowledged is lost."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla
from support.interop.drivers import Client, ClientError, Driver, Rec, clients

PATIENCE_S = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3, settings={"min.insync.replicas": 2}) as cluster:
        yield cluster


@pytest.fixture
def whole(cluster: ottla.Cluster) -> Iterator[ottla.Cluster]:
    """The cluster with all its brokers, before a test and after it."""
    yield cluster
    cluster.heal()
    for number in cluster.brokers:
        if number not in cluster.running():
            cluster.start(number)
    cluster.wait_in_sync(timeout=PATIENCE_S)


@pytest.fixture
def driver(request: pytest.FixtureRequest, cluster: ottla.Cluster) -> Iterator[Driver]:
    client: Client = request.param
    one = Driver(client, cluster.bootstrap)
    yield one
    one.close()


def insisting(work: Callable[[], Any]) -> Any:
    """Do it until it works: clients give up at different times."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except (ClientError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def stored(cluster: ottla.Cluster, topic: str) -> list[bytes]:
    cluster.wait_in_sync(topic, timeout=PATIENCE_S)
    return list(cluster.topic(topic).values())


@pytest.mark.parametrize("driver", clients(but=("kafka-python-2.0.2",)), indirect=True)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_producing_goes_on_with_another_leader(driver: Driver, how: str, whole: ottla.Cluster) -> None:
    topic = f"produce-{driver.client.name}-{how}"
    whole.create_topic(topic, assignments=[[1, 2, 3]])
    idempotent = {"idempotent": True} if driver.client.can("idempotent") else {}
    driver.produce_ok(topic, [Rec(b"before-%d" % n) for n in range(20)], **idempotent)
    sent = [Rec(b"while-%d" % n) for n in range(50)]
    driver.start("produce", topic=topic, records=[record.to_json() for record in sent], **idempotent)
    getattr(whole, how)(1)
    acknowledged = [b"before-%d" % n for n in range(20)]
    try:
        for record, answer in zip(sent, driver.finish(), strict=True):
            if "error" not in answer:
                acknowledged.append(record.value or b"")
    except ClientError:
        pass  # it gave up: then nobody knows about these
    insisting(lambda: driver.produce_ok(topic, [Rec(b"after")], **idempotent))
    assert whole.leader(topic) in (2, 3)
    whole.start(1)
    found = stored(whole, topic)
    assert set(acknowledged) | {b"after"} <= set(found)
    if idempotent and len(acknowledged) == 70:
        assert sorted(found[:-1]) == sorted(acknowledged), "nothing twice"


@pytest.mark.parametrize("driver", clients(but=("kafka-python-2.0.2",)), indirect=True)
def test_a_group_goes_on_with_another_coordinator(driver: Driver, whole: ottla.Cluster) -> None:
    topic = group = f"group-{driver.client.name}"
    whole.create_topic(topic, assignments=[[2, 3, 1]])
    driver.produce_ok(topic, [Rec(b"%d" % n) for n in range(10)])
    driver.call("consumer_open", id="c", group=group, topics=[topic], config={"offset_reset": "earliest"})
    seen: list[bytes | None] = []

    def poll_until(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(set(seen)) < count:
            assert time.monotonic() < deadline, f"only {len(seen)} records came"
            try:
                seen.extend(record.value for record in driver.poll("c")[0])
            except ClientError:
                time.sleep(0.2)

    poll_until(10)
    whole.kill(whole.coordinator(group))
    insisting(lambda: driver.produce_ok(topic, [Rec(b"%d" % n) for n in range(10, 20)]))
    poll_until(20)
    assert set(seen) == {b"%d" % n for n in range(20)}


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_survives_its_coordinator(commit: bool, whole: ottla.Cluster) -> None:
    from confluent_kafka import Producer

    topic = transactional_id = f"transaction-{commit}"
    whole.create_topic(topic, assignments=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    producer = Producer(
        {"bootstrap.servers": whole.bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(PATIENCE_S)
    for kill, outcome in ((False, True), (True, commit)):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d-%d" % (kill, partition), partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        if kill:
            whole.kill(whole.transaction_coordinator(transactional_id))
        if outcome:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    for number in whole.brokers:
        if number not in whole.running():
            whole.start(number)
    whole.wait_in_sync(timeout=PATIENCE_S)
    expected = {b"0-0", b"0-1", b"0-2"} | ({b"1-0", b"1-1", b"1-2"} if commit else set())
    # A marker may come after the answer: Kafka's clients know that, too.
    whole.wait_until(lambda cluster: set(cluster.topic(topic).values()) == expected, timeout=PATIENCE_S)
