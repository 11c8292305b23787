"""The service on a real broker."""

import pytest
from billing import Billing
from confluent_kafka import KafkaException

from ottla.testing import Kafka


@pytest.fixture
def shop(kafka: Kafka):
    """Topics with two orders, and the service."""

    class Shop:
        orders = kafka.topic("orders")
        invoices = kafka.topic("invoices")
        group = kafka.group("billing")

        def __init__(self) -> None:
            self.orders.append([{"id": 1, "price": 5, "amount": 2}, {"id": 2, "price": 3, "amount": 3}])
            self.billing = Billing(kafka.bootstrap, str(self.orders), str(self.invoices), str(self.group))

    shop = Shop()
    yield shop
    shop.billing.close()


def test_every_order_is_billed(shop) -> None:
    shop.billing.handle(2)
    assert shop.invoices.jsons() == [{"order": 1, "total": 10}, {"order": 2, "total": 9}]
    assert shop.group.lag() == 0


def test_a_broker_that_stumbles_changes_nothing(kafka: Kafka, shop) -> None:
    moved = kafka.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    slow = kafka.faults.delay("TxnOffsetCommit", ms=50)
    shop.billing.handle(2)
    moved.expect_fired(2)
    slow.expect_fired(1)
    assert [invoice["order"] for invoice in shop.invoices.jsons()] == [1, 2]


def test_a_second_instance_takes_over(kafka: Kafka, shop) -> None:
    shop.billing.handle(1)
    kafka.faults.fence_producer(f"{shop.group}-billing")
    with pytest.raises(KafkaException):
        shop.billing.handle(1)
    shop.billing.close()
    shop.billing = Billing(kafka.bootstrap, str(shop.orders), str(shop.invoices), str(shop.group))
    shop.billing.handle(1)
    assert [invoice["order"] for invoice in shop.invoices.jsons()] == [1, 2]


@pytest.mark.ottla(clock="virtual")
def test_old_orders_are_forgotten(kafka: Kafka) -> None:
    orders = kafka.topic(config={"retention.ms": 3_600_000, "segment.ms": 60_000})
    orders.append([{"id": 1}])
    kafka.clock.advance(minutes=30)
    orders.append([{"id": 2}])
    kafka.clock.advance(minutes=40)
    assert orders.jsons() == [{"id": 2}]
