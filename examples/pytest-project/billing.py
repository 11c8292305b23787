"""Reads orders, writes an invoice for each, in transactions: exactly once."""

import json
import time

from confluent_kafka import Consumer, KafkaException, Producer


class Billing:
    """One instance of the service."""

    def __init__(self, bootstrap: str, orders: str, invoices: str, group: str) -> None:
        self.invoices = invoices
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{group}-billing", "retry.backoff.ms": 10}
        )
        self.producer.init_transactions(10)
        self.consumer.subscribe([orders])

    def handle(self, count: int, timeout: float = 10.0) -> None:
        """Bill this many orders."""
        deadline = time.monotonic() + timeout
        while count and time.monotonic() < deadline:
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            order = json.loads(message.value())
            invoice = {"order": order["id"], "total": order["price"] * order["amount"]}
            self.producer.begin_transaction()
            self.producer.produce(self.invoices, json.dumps(invoice), message.key())
            position = self.consumer.position(self.consumer.assignment())
            self.producer.send_offsets_to_transaction(position, self.consumer.consumer_group_metadata(), 10)
            self.producer.commit_transaction(10)
            count -= 1
        if count:
            raise TimeoutError(f"{count} orders did not come in time")

    def close(self) -> None:
        self.consumer.close()
