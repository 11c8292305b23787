"""Every client reads what every other client writes, byte for byte."""

import dataclasses

import pytest

from support.batches import now_ms
from support.interop.drivers import CLIENTS, ClientError, Driver, Rec, clients
from support.wire import Wire

NOW = now_ms()
DATASET = [
    Rec(b"value %d" % i * (1 + i % 7), None if i % 5 == 4 else b"key-%d" % i, headers, NOW - 100 + i)
    for i, headers in enumerate([(), (("a", b"1"),), (("a", b"1"), ("b", b"")), (("bin", bytes(range(256))),)] * 10)
] + [Rec(None, b"gone", (), NOW), Rec(b"", b"empty", (), NOW), Rec(bytes(range(256)) * 100, b"large", (), NOW)]


@pytest.fixture(scope="module")
def written(broker, _drivers) -> dict[str, str]:
    """client -> the topic that it filled, with one codec per partition."""
    topics: dict[str, str] = {}
    with Wire(broker.address) as wire:
        for client in CLIENTS.values():
            try:
                driver = _drivers(client)
            except pytest.skip.Exception:
                continue
            name = wire.create_topic(f"mixed-{client.name}-{NOW}-{driver.pid}", len(client.codecs))
            for partition, codec in enumerate(client.codecs):
                sent = [dataclasses.replace(record, partition=partition) for record in DATASET]
                answers = driver.produce_ok(name, sent, compression=codec, idempotent=client.can("idempotent"))
                assert [one["offset"] for one in answers] == list(range(len(DATASET)))
            topics[client.name] = name
    return topics


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_each_client_reads_what_the_others_wrote(driver: Driver, written: dict[str, str]) -> None:
    check(driver, written)


def check(driver: Driver, written: dict[str, str]) -> None:
    wrong = []
    for source, topic in written.items():
        codecs = CLIENTS[source].codecs
        try:
            got = driver.read(topic, range(len(codecs)))
        except ClientError as error:
            wrong.append((source, error))
            continue
        for partition, codec in enumerate(codecs):
            mine = [dataclasses.replace(one.as_sent(), partition=0) for one in got if one.partition == partition]
            if mine != DATASET:
                wrong.append((source, codec, mine[:2]))
    assert not wrong
    assert len(written) >= 4
