"""kafkajs has no consumer outside a group, so its reads are tested here."""

import pytest

from support.batches import batch, now_ms
from support.interop.drivers import CODECS, Driver, Rec, clients
from support.wire import Wire

pytestmark = [pytest.mark.node]
NOW = now_ms()
KAFKAJS = [param for param in clients() if param.id == "kafkajs"]


@pytest.mark.parametrize("driver", KAFKAJS, indirect=True)
def test_reads_back_its_own(driver: Driver, topic: str) -> None:
    sent = [
        Rec(b"value", b"key", (("h", b"x"), ("empty", b"")), NOW),
        Rec(None, b"tombstone", (), NOW + 1),
        Rec(b"", b"", (), NOW + 2),
    ]
    for codec in driver.client.codecs:
        driver.produce_ok(topic, sent, compression=codec)
    assert [record.as_sent() for record in driver.read(topic)] == sent * len(driver.client.codecs)


@pytest.mark.parametrize("driver", KAFKAJS, indirect=True)
def test_reads_what_others_wrote(driver: Driver, drive, make_topic) -> None:
    # lz4js cannot read the lz4 frames that aiokafka writes.
    others = {"kafka-python": CODECS, "confluent-kafka": CODECS, "aiokafka": ("none", "gzip", "snappy", "zstd")}
    topic = make_topic(len(others))
    sent = [Rec(b"v%d" % i, b"k%d" % i, (("h", b"%d" % i),), NOW + i) for i in range(20)]
    for partition, name in enumerate(others):
        for codec in others[name]:
            drive(name).produce_ok(
                topic, [Rec(r.value, r.key, r.headers, r.timestamp, partition) for r in sent], compression=codec
            )
    got = driver.read(topic, range(len(others)))
    for partition, name in enumerate(others):
        mine = [(r.value, r.key, r.headers, r.timestamp) for r in got if r.partition == partition]
        assert mine == [(r.value, r.key, r.headers, r.timestamp) for r in sent] * len(others[name]), name


@pytest.mark.parametrize("driver", KAFKAJS, indirect=True)
def test_reads_from_an_offset(driver: Driver, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(*(b"%d" % i for i in range(10))))
    assert [record.value for record in driver.read(topic, offset=7)] == [b"7", b"8", b"9"]
