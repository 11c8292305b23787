"""What one client writes, every other one reads, byte for byte."""

import pytest
from interop.drivers import CLIENTS, ClientError, Driver, Rec, clients
from interop.wire import Wire, now_ms

NOW = now_ms()
DATASET = [
    Rec(b"value %d" % i * (1 + i % 7), None if i % 5 == 4 else b"key-%d" % i, headers, NOW - 100 + i)
    for i, headers in enumerate([(), (("a", b"1"),), (("a", b"1"), ("b", b"")), (("bin", bytes(range(256))),)] * 10)
] + [Rec(None, b"gone", (), NOW), Rec(b"", b"empty", (), NOW), Rec(bytes(range(256)) * 100, b"large", (), NOW)]


@pytest.fixture(scope="module")
def written(broker, _drivers) -> dict[tuple[str, str], str]:
    """(client, codec) -> the topic that it filled."""
    topics: dict[tuple[str, str], str] = {}
    with Wire(broker.address) as wire:
        for client in CLIENTS.values():
            try:
                driver = _drivers(client)
            except pytest.skip.Exception:
                continue
            for codec in client.codecs:
                name = wire.make(f"mixed-{client.name}-{codec}-{NOW}-{driver.pid}")
                answers = driver.produce_ok(name, DATASET, compression=codec, idempotent=client.can("idempotent"))
                assert [one["offset"] for one in answers] == list(range(len(DATASET)))
                topics[client.name, codec] = name
    return topics


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_reads_what_all_others_wrote(driver: Driver, written: dict[tuple[str, str], str]) -> None:
    wrong = []
    for source, topic in written.items():
        try:
            got = [record.as_sent() for record in driver.read(topic)]
        except ClientError as error:
            got = [error]
        if got != DATASET:
            wrong.append((source, got[:2]))
    assert not wrong
    assert len(written) >= 15
