"""Configs of topics and of the broker, as every client's admin API reads and changes them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.errors import InvalidConfig, InvalidRequest, MessageTooLarge, UnknownTopicOrPartition
from ottla.records.batch import Record, build_batch
from support.interop.drivers import ClientError, Driver, Rec, clients
from support.waiting import wait_for
from support.wire import Wire

TOPIC, BROKER_DYNAMIC, DEFAULT = 1, 2, 5


def value_of(driver: Driver, topic: str, key: str) -> tuple[str, int]:
    entry = driver.call("configs_describe", kind="topic", name=topic)[key]
    return entry["value"], entry["source"]


@pytest.fixture
def broker_id(wire: Wire) -> str:
    return str(wire.metadata().brokers[0].node_id)


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_describe_a_topic(driver: Driver, make_topic: Callable[..., str]) -> None:
    topic = make_topic(**{"retention.ms": "3600000"})
    found = driver.call("configs_describe", kind="topic", name=topic)
    assert found["retention.ms"] == {"value": "3600000", "source": TOPIC, "sensitive": False}
    assert found["max.message.bytes"] == {"value": "1048588", "source": DEFAULT, "sensitive": False}
    assert found["cleanup.policy"]["value"] == "delete"
    assert len(found) >= 30


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_describe_the_broker(driver: Driver, broker_id: str) -> None:
    found = driver.call("configs_describe", kind="broker", name=broker_id)
    assert found["message.max.bytes"]["value"] == "1048588"
    assert found["ssl.keystore.password"]["sensitive"]
    assert not found["ssl.keystore.password"]["value"]
    assert len(found) >= 150


@pytest.mark.parametrize("driver", clients("configs_alter"), indirect=True)
def test_single_configs_are_changed(driver: Driver, make_topic: Callable[..., str]) -> None:
    topic = make_topic(**{"retention.ms": "3600000"})

    def alter(**changes: Any) -> None:
        driver.call("configs_alter", kind="topic", name=topic, **changes)

    alter(set={"segment.bytes": "2000000", "retention.bytes": "5000000"})
    wait_for(lambda: value_of(driver, topic, "segment.bytes") == ("2000000", TOPIC), "the change")
    assert value_of(driver, topic, "retention.bytes") == ("5000000", TOPIC)
    assert value_of(driver, topic, "retention.ms") == ("3600000", TOPIC)
    alter(append={"cleanup.policy": "compact"}, delete=["retention.ms"])
    wait_for(lambda: value_of(driver, topic, "cleanup.policy") == ("delete,compact", TOPIC), "the addition")
    assert value_of(driver, topic, "retention.ms") == ("604800000", DEFAULT)
    alter(subtract={"cleanup.policy": "delete"})
    wait_for(lambda: value_of(driver, topic, "cleanup.policy") == ("compact", TOPIC), "the removal")


@pytest.mark.parametrize("driver", clients("configs_replace"), indirect=True)
def test_all_configs_are_replaced(driver: Driver, make_topic: Callable[..., str]) -> None:
    topic = make_topic(**{"retention.ms": "3600000", "segment.bytes": "2000000"})
    driver.call("configs_replace", kind="topic", name=topic, configs={"retention.bytes": "5000000"})
    wait_for(lambda: value_of(driver, topic, "retention.bytes") == ("5000000", TOPIC), "the change")
    # kafka-python 3 sends the existing configs together with the new ones, so nothing is lost.
    if driver.client.name != "kafka-python":
        assert value_of(driver, topic, "retention.ms") == ("604800000", DEFAULT)
        assert value_of(driver, topic, "segment.bytes") == ("1073741824", DEFAULT)


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_refused_changes(driver: Driver, make_topic: Callable[..., str], unique: Callable[[str], str]) -> None:
    topic = make_topic(**{"retention.ms": "3600000"})
    for name, configs, code in (
        (topic, {"retention.ms": "soon"}, InvalidConfig.code),
        (topic, {"no.such.config": "1"}, InvalidConfig.code),
        (topic, {"segment.bytes": "1"}, InvalidConfig.code),
        (unique("t"), {"retention.ms": "1"}, UnknownTopicOrPartition.code),
    ):
        with pytest.raises(ClientError) as caught:
            if driver.client.can("configs_alter"):
                driver.call("configs_alter", kind="topic", name=name, set=configs)
            else:
                driver.call("configs_replace", kind="topic", name=name, configs=configs)
        assert caught.value.code in (code, None), (configs, caught.value)
    assert value_of(driver, topic, "retention.ms") == ("3600000", TOPIC)


@pytest.fixture
def change_broker(driver: Driver, broker_id: str) -> Iterator[Callable[..., None]]:
    """Changes configs of the broker, and restores them at the end: other tests of this worker use it too."""

    def change(**configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        if driver.client.can("configs_alter"):
            driver.call("configs_alter", kind="broker", name=broker_id, set=named)
        else:
            driver.call("configs_replace", kind="broker", name=broker_id, configs=named)

    yield change
    if driver.client.can("configs_alter"):
        driver.call("configs_alter", kind="broker", name=broker_id, delete=["message.max.bytes"])
    else:
        driver.call("configs_replace", kind="broker", name=broker_id, configs={})
    wait_for(
        lambda: (
            driver.call("configs_describe", kind="broker", name=broker_id)["message.max.bytes"]["value"] == "1048588"
        ),
        "the old limit",
    )


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_the_broker_applies_changes_immediately(
    driver: Driver, change_broker: Callable[..., None], broker_id: str, topic: str, wire: Wire
) -> None:
    big = [Rec(b"x" * 10_000)]

    def outcome() -> int:
        return int(wire.produce(topic, build_batch([Record(0, 0, None, b"x" * 10_000)])).error_code)

    driver.produce_ok(topic, big)
    change_broker(message_max_bytes="5000")
    wait_for(lambda: outcome() == MessageTooLarge.code, "the smaller limit")
    assert value_of(driver, topic, "max.message.bytes") == ("5000", BROKER_DYNAMIC)
    found = driver.call("configs_describe", kind="broker", name=broker_id)["message.max.bytes"]
    assert found == {"value": "5000", "source": BROKER_DYNAMIC, "sensitive": False}
    change_broker(message_max_bytes="20000")
    wait_for(lambda: outcome() == 0, "the larger limit")
    driver.produce_ok(topic, big)
    with pytest.raises(ClientError) as caught:
        change_broker(broker_id="77")
    assert caught.value.code in (InvalidConfig.code, InvalidRequest.code, None), caught.value
