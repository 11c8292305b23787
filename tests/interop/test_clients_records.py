"""Every client writes and reads back records of every shape, with every codec and acknowledgement."""

import pytest

from ottla.errors import MessageTooLarge
from support.batches import batch, batches_of, now_ms
from support.interop.drivers import CODECS, Driver, Rec, clients
from support.wire import Wire

CODEC_NUMBERS = {name: number for number, name in enumerate(CODECS)}
NOW = now_ms()
SHAPES = [
    Rec(b"value", b"key", (("h", b"x"), ("h", b"y"), ("empty", b"")), NOW - 1000),
    Rec(b"no key", None, (), NOW - 999),
    Rec(None, b"tombstone", (), NOW - 998),
    Rec(b"", b"", (), NOW - 997),
    Rec(bytes(range(256)) * 40, b"\x00\xff" * 30, (("binary-\u00fc", bytes(range(256))),), NOW - 996),
    Rec(b"older than those before", b"k", (), NOW - 5000),
]


def shapes_for(driver: Driver) -> list[Rec]:
    more = []
    if driver.client.can("null_header"):
        more.append(Rec(b"v", b"k", (("nothing", None),), NOW - 995))
    if driver.client.can("no_payload"):
        more.append(Rec(None, None, (), NOW - 994))
    return SHAPES + more


@pytest.mark.parametrize(
    ("driver", "codec"),
    [
        pytest.param(*param.values, codec, id=f"{param.id}-{codec}", marks=param.marks)
        for param in clients("plain_read")
        for codec in param.values[0].codecs
    ],
    indirect=["driver"],
)
def test_records_come_back_as_they_were_sent(driver: Driver, codec: str, topic: str, wire: Wire) -> None:
    sent = shapes_for(driver)
    answers = driver.produce_ok(topic, sent, compression=codec)
    assert [answer["offset"] for answer in answers] == list(range(len(sent)))
    got = driver.read(topic)
    assert [record.as_sent() for record in got] == sent
    assert [record.offset for record in got] == list(range(len(sent)))
    stored = batches_of(wire.fetch(topic, 0))
    # The broker keeps the producer's batches: it neither unpacks nor repacks them. A client may leave a batch
    # uncompressed if compression makes it no smaller.
    codecs = {one.codec for one in stored}
    assert CODEC_NUMBERS[codec] in codecs
    assert codecs <= {0, CODEC_NUMBERS[codec]}


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acknowledgements(driver: Driver, acks: int, topic: str, wire: Wire) -> None:
    answers = driver.produce_ok(topic, [Rec(b"one"), Rec(b"two")], acks=acks)
    if acks:
        assert [answer["offset"] for answer in answers] == [0, 1]
    # acks=0 has no answer, so the records may still be in flight: a fetch that waits for both sees them arrive.
    count = 0
    while count < 2:
        answer = wire.fetch(topic, count, max_wait_ms=10000)
        assert answer.error_code == 0
        count = batches_of(answer)[-1].next_offset
    assert [record.value for record in driver.read(topic)] == [b"one", b"two"]


@pytest.mark.parametrize("driver", clients("idempotent"), indirect=True)
def test_idempotent_producer(driver: Driver, make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    sent = [Rec(b"%d" % i, partition=i % 2) for i in range(10)]
    answers = driver.produce_ok(topic, sent, idempotent=True, each=True)
    assert [answer["offset"] for answer in answers] == [i // 2 for i in range(10)]
    for partition in (0, 1):
        stored = batches_of(wire.fetch(topic, 0, partition))
        assert len({one.producer_id for one in stored}) == 1
        assert stored[0].producer_id >= 0
        sequences = [one.base_sequence for one in stored]
        assert sequences == [one.base_offset for one in stored]


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_records_up_to_the_limit_and_above(driver: Driver, topic: str) -> None:
    # max.message.bytes is 1048588: a batch of 1 MiB with its overhead of 12 bytes and no more.
    big = bytes(range(256)) * 4076
    answers = driver.produce_ok(topic, [Rec(big)], max_request_bytes=4 << 20)
    assert answers[0]["offset"] == 0
    assert driver.read(topic)[0].value == big
    (refused,) = driver.produce(topic, [Rec(b"x" * 1_100_000)], max_request_bytes=4 << 20)
    assert refused["error"]["code"] == MessageTooLarge.code, refused
    assert len(driver.read(topic)) == 1


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_a_topic_with_a_smaller_limit(driver: Driver, make_topic) -> None:
    topic = make_topic(max_message_bytes=2000)
    answers = driver.produce(topic, [Rec(b"x" * 1500)])
    assert answers[0]["offset"] == 0
    (refused,) = driver.produce(topic, [Rec(b"x" * 3000)])
    assert refused["error"]["code"] == MessageTooLarge.code, refused


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_small_fetches_get_everything(driver: Driver, topic: str, wire: Wire) -> None:
    """A fetch limit below the size of a batch still makes progress: the first batch is returned completely."""
    values = [b"%d" % i * 900 for i in range(12)]
    for value in values:
        assert wire.produce(topic, batch(value, value)).error_code == 0
    config = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000, "fetch_max_wait_ms": 50}
    got = driver.read(topic, config=config)
    assert [record.value for record in got] == [value for value in values for _ in range(2)]


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_log_append_time_is_the_brokers(driver: Driver, make_topic) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    old = NOW - 10_000_000
    driver.produce_ok(topic, [Rec(b"a", timestamp=old), Rec(b"b", timestamp=old + 1)])
    got = driver.read(topic)
    assert {record.timestamp_type for record in got} <= {1, None}
    assert all(record.timestamp >= NOW for record in got)


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_many_partitions(driver: Driver, make_topic) -> None:
    topic = make_topic(24)
    sent = [Rec(b"%d-%d" % (i, partition), partition=partition) for i in range(3) for partition in range(24)]
    driver.produce_ok(topic, sent)
    got = driver.read(topic, range(24))
    for partition in range(24):
        mine = [record for record in got if record.partition == partition]
        assert [record.offset for record in mine] == [0, 1, 2]
        assert [record.value for record in mine] == [b"%d-%d" % (i, partition) for i in range(3)]


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_keyed_records_keep_to_a_partition(driver: Driver, make_topic) -> None:
    topic = make_topic(6)
    answers = driver.produce_ok(topic, [Rec(b"v", b"key %d" % (i % 5), partition=None) for i in range(20)])
    if driver.client.name != "kafkajs":  # it answers per partition, not per record
        places = {}
        for i, answer in enumerate(answers):
            places.setdefault(i % 5, set()).add(answer["partition"])
        assert all(len(found) == 1 for found in places.values())
