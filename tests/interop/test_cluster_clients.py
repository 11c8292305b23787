"""Real clients on a cluster whose nodes fail: they continue, and no acknowledged record is lost.

The same tests run on Apache Kafka with `--cluster kafka`; those of data folders are for Ottla only.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.enums import CoordinatorType
from support.interop.clusters import Clustered
from support.interop.drivers import Client, ClientError, Driver, Rec, clients

PATIENCE_S = 120
CLIENTS = clients(but=("kafka-python-2.0.2",))
Unique = Callable[[str], str]


@pytest.fixture
def driver(request: pytest.FixtureRequest, quorum: Clustered) -> Iterator[Driver]:
    client: Client = request.param
    one = Driver(client, quorum.bootstrap)
    yield one
    one.close()


def insisting(work: Callable[[], Any]) -> Any:
    """Retry until it works: clients give up at different times."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except (ClientError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def idempotence(driver: Driver) -> dict[str, Any]:
    return {"idempotent": True} if driver.client.can("idempotent") else {}


def finished(driver: Driver, sent: list[Rec]) -> list[bytes]:
    """The values that were acknowledged to the driver's `produce`."""
    try:
        answers = driver.finish(PATIENCE_S)
    except ClientError:
        return []  # it gave up: these records are in doubt
    return [record.value or b"" for record, answer in zip(sent, answers, strict=True) if "error" not in answer]


def assert_kept(quorum: Clustered, driver: Driver, topic: str, acknowledged: list[bytes], all_sent: int) -> None:
    """All acknowledged records exist, without duplicates if the client can avoid them; `after` was written last."""
    found = quorum.values(topic)
    assert {*acknowledged, b"after"} <= set(found)
    if idempotence(driver) and len(acknowledged) == all_sent:
        assert sorted(value or b"" for value in found if value != b"after") == sorted(acknowledged), "no duplicates"


@pytest.mark.parametrize("driver", CLIENTS, indirect=True)
@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_producing_continues_with_another_leader(driver: Driver, how: str, quorum: Clustered, unique: Unique) -> None:
    topic = quorum.create(unique("produce"), [[1, 2, 3]], min_insync_replicas=2)
    before = [Rec(b"before-%d" % n) for n in range(20)]
    driver.produce_ok(topic, before, **idempotence(driver))
    sent = [Rec(b"while-%d" % n) for n in range(50)]
    driver.start("produce", topic=topic, records=[record.to_json() for record in sent], **idempotence(driver))
    getattr(quorum, how)(1)
    quorum.wait(lambda: quorum.view(topic).leader in (2, 3), "another leader")
    if how == "pause":
        quorum.resume(1)  # it answers the request as a broker that no longer leads
    acknowledged = [record.value or b"" for record in before] + finished(driver, sent)
    insisting(lambda: driver.produce_ok(topic, [Rec(b"after")], **idempotence(driver)))
    quorum.mend()
    assert_kept(quorum, driver, topic, acknowledged, len(before) + len(sent))


@pytest.mark.parametrize("driver", CLIENTS, indirect=True)
def test_producing_continues_without_the_active_controller(driver: Driver, quorum: Clustered, unique: Unique) -> None:
    """The leader is stopped too, so the next controller has to elect another."""
    topic = quorum.create(unique("controller"), [[1, 2, 3]], min_insync_replicas=2)
    before = [Rec(b"before-%d" % n) for n in range(20)]
    driver.produce_ok(topic, before, **idempotence(driver))
    sent = [Rec(b"while-%d" % n) for n in range(50)]
    driver.start("produce", topic=topic, records=[record.to_json() for record in sent], **idempotence(driver))
    former = quorum.kill_controller()
    acknowledged = [record.value or b"" for record in before] + finished(driver, sent)
    assert len(acknowledged) == len(before) + len(sent), "brokers serve without a controller"
    quorum.wait(lambda: quorum.active_controller() != former, "another controller")
    quorum.kill(1)
    quorum.wait(lambda: quorum.view(topic).leader in (2, 3), "another leader")
    insisting(lambda: driver.produce_ok(topic, [Rec(b"after")], **idempotence(driver)))
    quorum.mend()
    assert_kept(quorum, driver, topic, acknowledged, len(acknowledged))


@pytest.mark.parametrize("driver", CLIENTS, indirect=True)
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_group_continues_with_another_coordinator(
    driver: Driver, how: str, quorum: Clustered, unique: Unique
) -> None:
    topic = group = quorum.create(unique("group"), [[2, 3, 1]])
    driver.produce_ok(topic, [Rec(b"%d" % n) for n in range(10)])
    coordinator = quorum.find(CoordinatorType.GROUP, group).node_id
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
    getattr(quorum, how)(coordinator)
    quorum.wait(
        lambda: quorum.find(CoordinatorType.GROUP, group).node_id not in (-1, coordinator), "another coordinator"
    )
    if how == "pause":
        quorum.resume(coordinator)
    insisting(lambda: driver.produce_ok(topic, [Rec(b"%d" % n) for n in range(10, 20)]))
    poll_until(20)
    assert set(seen) == {b"%d" % n for n in range(20)}


def committed_values(bootstrap: str, topic: str, partitions: int) -> set[bytes | None]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: set[bytes | None] = set()
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            record = consumer.poll(PATIENCE_S)
            assert record is not None, f"no more than {found} of {topic}"
            error = record.error()
            if error is None:
                found.add(record.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(record.partition())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_survives_its_coordinator(commit: bool, quorum: Clustered, unique: Unique) -> None:
    from confluent_kafka import Producer

    topic = transactional_id = quorum.create(unique("transaction"), [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    producer = Producer(
        {
            "bootstrap.servers": quorum.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    for kill, outcome in ((False, True), (True, commit)):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d-%d" % (kill, partition), partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        if kill:
            quorum.kill(quorum.find(CoordinatorType.TRANSACTION, transactional_id).node_id)
        if outcome:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    quorum.mend()
    expected = {b"0-0", b"0-1", b"0-2"} | ({b"1-0", b"1-1", b"1-2"} if commit else set())
    # A marker may be written after the answer. Clients see this with Kafka too.
    quorum.wait(lambda: committed_values(quorum.bootstrap, topic, 3) == expected, "the markers")


@pytest.fixture
def on_disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ottla.Cluster, Path]]:
    """Three brokers with two empty data folders each. `test_folder_failures.py` compares one broker."""
    if request.config.getoption("--cluster"):
        pytest.skip("it fails folders of a cluster in this process")
    folders = [tmp_path / "one", tmp_path / "two"]
    with ottla.Cluster(3, data=folders, settings={"min.insync.replicas": 2}) as cluster:
        yield cluster, tmp_path


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_continue_when_a_data_folder_fails(client: Client, on_disks: tuple[ottla.Cluster, Path]) -> None:
    """Another broker becomes leader for partitions in the folder; the rest stays where it is."""
    cluster, root = on_disks
    topic = f"folder-{client.name}"
    partitions = range(4)
    cluster.create_topic(topic, assignments=[[1, 2, 3]] * len(partitions))
    cluster.wait_in_sync(topic, timeout=PATIENCE_S)
    in_folder = [(root / "two" / "broker-1" / f"{topic}-{partition}").exists() for partition in partitions]
    assert True in in_folder and False in in_folder
    driver = Driver(client, cluster.bootstrap)
    try:
        before = [Rec(b"before-%d" % n, partition=n % 4) for n in range(20)]
        driver.produce_ok(topic, before)
        assert [cluster.leader(topic, partition) for partition in partitions] == [1] * 4
        cluster.faults.fail_folder(str(root / "two" / "broker-1"))
        after = [Rec(b"after-%d" % n, partition=n % 4) for n in range(20)]
        for record in after:
            insisting(lambda record=record: driver.produce_ok(topic, [record]))
        assert [cluster.leader(topic, partition) != 1 for partition in partitions] == in_folder
        assert 1 in cluster.running()
        found = driver.read(topic, partitions)
        assert {record.value for record in before + after} <= {record.value for record in found}
    finally:
        driver.close()
    cluster.restart(1)
    cluster.wait_in_sync(timeout=PATIENCE_S)
