"""Partitions, records, groups, replicas, users: what every client's admin API can do besides topics and configs."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import (
    ElectionNotNeeded,
    GroupIdNotFound,
    InvalidPartitions,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    ResourceNotFound,
    SecurityDisabled,
    UnacceptableCredential,
    UnknownTopicOrPartition,
)
from support.interop.drivers import ClientError, Driver, Rec, clients
from support.waiting import wait_for
from support.wire import Wire


def refused(driver: Driver, code: int, op: str, **arguments: Any) -> None:
    """The client raises an error, with Kafka's code if it has one."""
    with pytest.raises(ClientError) as caught:
        driver.call(op, **arguments)
    assert caught.value.code in (code, None), (op, arguments, caught.value)
    if caught.value.code is None:
        # Some have only the text of the error. It must not be an error of the driver itself.
        assert caught.value.name not in ("TypeError", "KeyError", "AttributeError", "NullPointerException"), (
            caught.value
        )


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_add_partitions(driver: Driver, topic: str, unique: Callable[[str], str]) -> None:
    driver.call("partitions_create", topic=topic, count=3)
    wait_for(lambda: len(driver.call("describe_topic", topic=topic)["partitions"]) == 3, "the growth")
    for count in (3, 2, 0):
        refused(driver, InvalidPartitions.code, "partitions_create", topic=topic, count=count)
    assert len(driver.call("describe_topic", topic=topic)["partitions"]) == 3
    if driver.client.name != "kafkajs":  # it retries for a minute
        refused(driver, UnknownTopicOrPartition.code, "partitions_create", topic=unique("t"), count=3)


@pytest.mark.parametrize("driver", clients("delete_records"), indirect=True)
def test_delete_records(driver: Driver, topic: str) -> None:
    driver.produce_ok(topic, [Rec(b"%d" % number) for number in range(10)])
    low = driver.call("records_delete", topic=topic, partition=0, offset=4)
    assert low in (4, None)  # sarama and kafkajs do not return it
    assert [got.offset for got in driver.read(topic)] == [4, 5, 6, 7, 8, 9]
    refused(driver, OffsetOutOfRange.code, "records_delete", topic=topic, partition=0, offset=11)
    # Deleting deleted records again is not an error, and -1 means the end.
    if driver.client.name != "kafkajs":  # refuses both itself, or waits
        assert driver.call("records_delete", topic=topic, partition=0, offset=2) in (4, None)
    driver.call("records_delete", topic=topic, partition=0, offset=-1)
    driver.produce_ok(topic, [Rec(b"new")])
    assert [(got.offset, got.value) for got in driver.read(topic)] == [(10, b"new")]


@pytest.mark.parametrize("driver", clients("acls"), indirect=True)
def test_acls_need_an_authorizer(driver: Driver, topic: str) -> None:
    refused(driver, SecurityDisabled.code, "acls_create", user="alice", topic=topic)
    if driver.client.name != "confluent-kafka":  # 2.x returns an empty list for any error
        refused(driver, SecurityDisabled.code, "acls_describe")
    refused(driver, SecurityDisabled.code, "acls_delete")


@pytest.mark.parametrize("driver", clients("log_dirs"), indirect=True)
def test_log_dirs(driver: Driver, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    driver.produce_ok(topic, [Rec(b"x" * 5000, partition=1)])
    (folder,) = driver.call("log_dirs", topic=topic)
    assert folder["path"].startswith("/")
    assert folder["partitions"].keys() == {"0", "1"}
    assert folder["partitions"]["0"] == 0
    assert 5000 < folder["partitions"]["1"] < 6000


@pytest.mark.parametrize("driver", clients("quotas"), indirect=True)
def test_quotas(driver: Driver, unique: Callable[[str], str]) -> None:
    user = unique("u")
    assert driver.call("quotas_describe", user=user) == {}
    driver.call("quotas_alter", user=user, set={"producer_byte_rate": 1000000.0, "request_percentage": 150.0})
    expected = {"producer_byte_rate": 1000000.0, "request_percentage": 150.0}
    wait_for(lambda: driver.call("quotas_describe", user=user) == expected, "the quota")
    driver.call("quotas_alter", user=user, delete=["request_percentage"])
    wait_for(lambda: driver.call("quotas_describe", user=user) == {"producer_byte_rate": 1000000.0}, "the removal")
    refused(driver, 42, "quotas_alter", user=user, set={"no_such_rate": 1.0})
    driver.call("quotas_alter", user=user, delete=["producer_byte_rate"])
    wait_for(lambda: driver.call("quotas_describe", user=user) == {}, "the end")


@pytest.mark.parametrize("driver", clients("scram"), indirect=True)
def test_scram(driver: Driver, unique: Callable[[str], str]) -> None:
    user = unique("u")[-60:]
    refused(driver, ResourceNotFound.code, "scram_describe", user=user)
    for mechanism, iterations in (("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)):
        driver.call("scram_alter", user=user, mechanism=mechanism, iterations=iterations, password="secret")

    def found() -> Any:
        try:
            return sorted(driver.call("scram_describe", user=user))
        except ClientError as error:
            return error.code

    wait_for(lambda: found() == [["SCRAM-SHA-256", 4096], ["SCRAM-SHA-512", 8192]], "the credentials")
    refused(
        driver,
        UnacceptableCredential.code,
        "scram_alter",
        user=user,
        mechanism="SCRAM-SHA-256",
        iterations=1,
        password="secret",
    )
    driver.call("scram_alter", user=user, mechanism="SCRAM-SHA-256")
    wait_for(lambda: found() == [["SCRAM-SHA-512", 8192]], "the removal")
    refused(driver, ResourceNotFound.code, "scram_alter", user=user, mechanism="SCRAM-SHA-256")
    driver.call("scram_alter", user=user, mechanism="SCRAM-SHA-512")


@pytest.mark.parametrize("driver", clients("elect"), indirect=True)
def test_elections(driver: Driver, topic: str, unique: Callable[[str], str]) -> None:
    refused(driver, ElectionNotNeeded.code, "elect_leaders", topic=topic, partition=0)
    refused(driver, UnknownTopicOrPartition.code, "elect_leaders", topic=topic, partition=7)
    refused(driver, UnknownTopicOrPartition.code, "elect_leaders", topic=unique("t"), partition=0)


@pytest.mark.parametrize("driver", clients("reassign"), indirect=True)
def test_reassignments(driver: Driver, topic: str, wire: Wire) -> None:
    here = wire.metadata().brokers[0].node_id
    assert driver.call("reassignments", topic=topic, partition=0) == []
    driver.call("reassign", topic=topic, partition=0, replicas=[here])
    assert driver.call("reassignments", topic=topic, partition=0) == []
    refused(driver, InvalidReplicaAssignment.code, "reassign", topic=topic, partition=0, replicas=[here + 98])
    refused(driver, InvalidReplicaAssignment.code, "reassign", topic=topic, partition=0, replicas=[here, here])
    if driver.client.can("cancel_reassignment"):
        refused(driver, NoReassignmentInProgress.code, "reassign", topic=topic, partition=0, replicas=None)
    (found,) = driver.call("describe_topic", topic=topic)["partitions"]
    assert found["replicas"] == [here]


@pytest.mark.parametrize("driver", clients("alter_group_offsets", "group_delete"), indirect=True)
def test_groups(driver: Driver, topic: str, unique: Callable[[str], str]) -> None:
    driver.produce_ok(topic, [Rec(b"x")] * 5)
    group = unique("g")
    driver.call("group_offsets_alter", group=group, topic=topic, partition=0, offset=3)
    assert driver.call("group_offsets", group=group) == [[topic, 0, 3]]
    assert group in driver.call("groups_list")
    found = driver.call("group_describe", group=group)
    assert found["state"].lower() == "empty"
    assert found["members"] == []
    if driver.client.can("delete_group_offsets"):
        driver.call("group_offsets_delete", group=group, topic=topic, partition=0)
        # An empty group without offsets is removed; Apache Kafka does so immediately or a little later.
        assert no_offsets(driver, group)
        driver.call("group_offsets_alter", group=group, topic=topic, partition=0, offset=1)
    driver.call("group_delete", group=group)
    assert group not in driver.call("groups_list")
    refused(driver, GroupIdNotFound.code, "group_delete", group=group)


def no_offsets(driver: Driver, group: str) -> bool:
    try:
        return driver.call("group_offsets", group=group) == []
    except ClientError as error:
        return error.code == GroupIdNotFound.code


@pytest.mark.jvm
def test_the_java_client_describes_the_cluster(drive: Callable[[str], Driver], topic: str, wire: Wire) -> None:
    java = drive("java")
    here = wire.metadata().brokers[0].node_id
    assert java.call("quorum") == {"leader": here, "voters": [here]}
    assert {"metadata.version", "group.version", "transaction.version"} <= set(java.call("features")["finalized"])
    java.call("configs_alter", kind="topic", name=topic, set={"retention.ms": "1000000"})
    wait_for(lambda: f"TOPIC {topic}" in java.call("config_resources"), "the resource")
