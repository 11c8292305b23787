"""confluent-kafka: BOOTSTRAP TOPIC. One transaction, then a consumer group."""

import sys

from confluent_kafka import Consumer, Producer

bootstrap, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-tx"})
producer.init_transactions(30)
producer.begin_transaction()
for number in range(3):
    producer.produce(topic, key="key", value=f"hello {number}")
producer.commit_transaction(30)

consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([topic])
messages = consumer.consume(3, timeout=30)
consumer.commit(asynchronous=False)
consumer.close()
values = [message.value() for message in messages]
assert values == [b"hello 0", b"hello 1", b"hello 2"], values
print("ok")
