"""aiokafka: BOOTSTRAP TOPIC."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main(bootstrap, topic):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(3):
        await producer.send_and_wait(topic, b"hello %d" % number)
    await producer.stop()

    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    values = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(3)]
    await consumer.commit()
    await consumer.stop()
    assert values == [b"hello 0", b"hello 1", b"hello 2"], values
    print("ok")


asyncio.run(main(*sys.argv[1:]))
