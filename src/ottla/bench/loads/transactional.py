"""Complete transactions with one small batch each, committed or aborted like a KIP-890 producer does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ottla.bench import payloads
from ottla.bench.client import Client, raise_for, retried
from ottla.bench.load import Result, Spec
from ottla.errors import ConcurrentTransactions
from ottla.records.batch import Record, build_batch
from ottla.wire.messages import EndTxnRequest, InitProducerIdRequest, ProduceRequest

INIT_VERSION = 4
PRODUCE_VERSION = 12  # adds its partitions to the transaction implicitly
END_VERSION = 5  # bumps the epoch with each transaction
PAUSE_SECONDS = 0.0005


class Transactional:
    def __init__(self, found: Client, transactional_id: str, topic: str, values: list[bytes]) -> None:
        self.leader = Client(found.leaders(topic)[0])
        self.client = client = Client(found.coordinator(transactional_id, "transaction"))
        self.transactional_id = transactional_id
        self.topic = topic
        now_ms = int(time.time() * 1000)
        self.records = [Record(index, now_ms, None, value, ()) for index, value in enumerate(values)]
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

        def initialise() -> None:
            response = client.call(request, INIT_VERSION)
            raise_for(response.error_code)
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch

        retried(initialise)

    def run(self, commit: bool) -> None:
        batch = build_batch(
            self.records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[topic(name=self.topic, partition_data=[partition(index=0, records=batch)])],
        )
        while True:
            error = self.leader.call(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code
            if error != ConcurrentTransactions.code:
                break
            time.sleep(PAUSE_SECONDS)  # the previous transaction's markers are still being written
        raise_for(error)
        end = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        response = self.client.call(end, END_VERSION)
        raise_for(response.error_code)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch


def transactions(spec: Spec) -> Callable[[], Result]:
    """Run transactions one at a time, up to `limit` or `limit_seconds`; every `abort_every`-th is aborted."""
    client = Client((spec["host"], spec["port"]))
    client.require(InitProducerIdRequest, INIT_VERSION)
    client.require(ProduceRequest, PRODUCE_VERSION)
    client.require(EndTxnRequest, END_VERSION)
    rng = random.Random(5)
    values = [payloads.value(rng, spec["record_bytes"]) for _ in range(spec["records"])]
    producer = Transactional(client, spec["transactional_id"], spec["topic"], values)
    producer.run(commit=True)

    def timed() -> Result:
        done, deadline = 0, time.perf_counter() + spec["limit_seconds"]
        while done < spec["limit"] and time.perf_counter() < deadline:
            done += 1
            producer.run(commit=not spec["abort_every"] or done % spec["abort_every"] != 0)
        return {"transactions": done}

    return timed
