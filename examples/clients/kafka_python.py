"""kafka-python: BOOTSTRAP TOPIC."""

import sys

from kafka import KafkaConsumer, KafkaProducer

bootstrap, topic = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=bootstrap)
for number in range(3):
    producer.send(topic, key=b"key", value=b"hello %d" % number).get(timeout=20)
producer.close()

consumer = KafkaConsumer(
    topic, bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest", consumer_timeout_ms=20_000
)
values = [next(consumer).value for _ in range(3)]
consumer.commit()
consumer.close()
assert values == [b"hello 0", b"hello 1", b"hello 2"], values
print("ok")
