"""Topics and the cluster as every client's admin side sees them, and auto-creation."""

import pytest

from ottla.errors import (
    InvalidPartitions,
    InvalidTopicException,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from support.interop.drivers import CLIENTS, ClientError, Driver, Rec, clients
from support.wire import Wire

REFUSED_NAMES = ["", ".", "..", "no spaces", "slash/", "x" * 250, "umlaut-\u00fc"]


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_create_describe_list_delete(driver: Driver, unique, wire: Wire) -> None:
    topic = unique("t")
    driver.call("create_topic", topic=topic, partitions=3, configs={"retention.ms": "3600000"})
    wire.wait_until_ready(topic, 3)
    found = driver.call("describe_topic", topic=topic)
    assert [p["id"] for p in found["partitions"]] == [0, 1, 2]
    leaders = {p["leader"] for p in found["partitions"]}
    assert len(leaders) == 1
    assert all(p["replicas"] == p["isr"] == [p["leader"]] for p in found["partitions"])
    assert topic in driver.call("list_topics")
    with pytest.raises(ClientError) as caught:
        driver.call("create_topic", topic=topic)
    assert caught.value.code == TopicAlreadyExists.code
    driver.call("delete_topic", topic=topic)
    wait_until_gone(driver, topic)
    driver.call("create_topic", topic=topic, partitions=1)
    wire.wait_until_ready(topic)
    assert len(driver.call("describe_topic", topic=topic)["partitions"]) == 1


def wait_until_gone(driver: Driver, topic: str) -> None:
    # On Apache Kafka the deletion is visible a moment after the answer.
    for _ in range(200):
        if topic not in driver.call("list_topics"):
            return
    raise AssertionError(f"{topic} is still listed")


@pytest.mark.parametrize("driver", clients("topic_ids"), indirect=True)
def test_topics_are_deleted_by_id_by_clients(driver: Driver, unique) -> None:
    topic = unique("t")
    made = driver.call("create_topic", topic=topic)
    driver.call("delete_topic_id", topic_id=made["topic_id"])
    wait_until_gone(driver, topic)
    with pytest.raises(ClientError) as caught:
        driver.call("delete_topic_id", topic_id=made["topic_id"])
    assert caught.value.code == UnknownTopicId.code


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_refused_topics(driver: Driver, unique) -> None:
    for name in REFUSED_NAMES:
        with pytest.raises(ClientError) as caught:
            driver.call("create_topic", topic=name)
        # Clients may refuse a name themselves.
        assert caught.value.code in (InvalidTopicException.code, None), (name, caught.value)
    for arguments, code in (
        ({"partitions": 0}, 37),
        ({"replication": 3}, 38),
        ({"configs": {"retention.ms": "soon"}}, 40),
        ({"configs": {"no.such.config": "1"}}, 40),
    ):
        if driver.client.name == "java" and code == InvalidPartitions.code:
            continue  # its constructor refuses zero partitions
        with pytest.raises(ClientError) as caught:
            driver.call("create_topic", topic=unique("t"), **arguments)
        assert caught.value.code in (code, None), (arguments, caught.value)


# kafkajs retries this one for more than a minute, and aiokafka 0.14 hides the error of a deletion.
@pytest.mark.parametrize("driver", clients(but=("kafkajs", "aiokafka")), indirect=True)
def test_unknown_topics(driver: Driver, unique) -> None:
    nowhere = unique("t")
    for op in ("describe_topic", "delete_topic"):
        with pytest.raises(ClientError) as caught:
            driver.call(op, topic=nowhere)
        assert caught.value.code == UnknownTopicOrPartition.code, (op, caught.value)
    assert nowhere not in driver.call("list_topics")


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_describe_cluster(driver: Driver, broker, wire: Wire) -> None:
    found = driver.call("describe_cluster")
    expected = wire.metadata()
    assert found["cluster_id"] in (expected.cluster_id, None)
    assert found["controller"] == expected.controller_id
    assert found["nodes"] == [{"id": expected.brokers[0].node_id, "host": broker.host, "port": broker.port}]


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_producing_creates_the_topic(driver: Driver, unique, wire: Wire) -> None:
    topic = unique("t")
    answers = driver.produce_ok(topic, [Rec(b"first of its topic", partition=None)])
    assert answers[0]["offset"] in (0, -1)
    found = wire.metadata(topic).topics[0]
    assert found.error_code == 0
    assert len(found.partitions) == 1


@pytest.mark.parametrize("driver", clients(but=("kafkajs",)), indirect=True)
def test_producing_to_a_bad_name_creates_nothing(driver: Driver, unique) -> None:
    try:
        answers = driver.produce("not a name!", [Rec(b"x", partition=None)], max_block_ms=2000)
    except ClientError as error:
        assert error.code in (InvalidTopicException.code, UnknownTopicOrPartition.code, None), error
    else:
        assert answers[0]["error"]["code"] in (InvalidTopicException.code, UnknownTopicOrPartition.code, None), answers
    assert "not a name!" not in driver.call("list_topics")


def test_creation_can_be_switched_off(start_broker, unique) -> None:
    broker = start_broker(auto_create_topics_enable=False)
    topic = unique("t")
    with Wire(broker.address) as wire:
        assert wire.metadata(topic, create=True).topics[0].error_code == UnknownTopicOrPartition.code
        assert wire.metadata(topic).topics[0].error_code == UnknownTopicOrPartition.code
    client = Driver(CLIENTS["confluent-kafka"], broker.bootstrap)
    try:
        (refused,) = client.produce(topic, [Rec(b"x", partition=None)], max_block_ms=3000)
        assert refused["error"]["name"] in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_MSG_TIMED_OUT"), refused
    finally:
        client.close()


def test_a_topic_that_cannot_be_created_is_unknown(start_broker, unique) -> None:
    """Two replicas do not fit on one broker. A request for the topic is answered as if it does not exist."""
    broker = start_broker(default_replication_factor=2)
    topic = unique("t")
    with Wire(broker.address) as wire:
        for _ in range(2):
            found = wire.metadata(topic, create=True).topics[0]
            assert (found.error_code, found.partitions) == (UnknownTopicOrPartition.code, [])
        assert wire.metadata(topic).topics[0].error_code == UnknownTopicOrPartition.code
