"""A worker process, as Celery and its like are: started by the test, told where the broker is, waited for."""

import os
import subprocess
import sys

WORKER = """
import os
from confluent_kafka import Consumer
settings = {"bootstrap.servers": os.environ["KAFKA"], "group.id": os.environ["GROUP"]}
consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
consumer.subscribe([os.environ["TOPIC"]])
while True:
    message = consumer.poll(1)
    if message is not None and not message.error():
        consumer.commit(message, asynchronous=False)
"""


def test_the_worker_reads_everything(kafka):
    jobs, group = kafka.topic("jobs"), kafka.group("workers")
    jobs.append(["a", "b", "c"])
    environment = {**os.environ, "KAFKA": kafka.bootstrap, "GROUP": str(group), "TOPIC": str(jobs)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER], env=environment)
    try:
        group.wait_until_stable(members=1, timeout=30)
        group.wait_until_caught_up(of=jobs, timeout=30)
    finally:
        worker.kill()
        worker.wait()
