"""kcat, as used in a shell."""

import json
import subprocess

import pytest

from support.batches import batch, records_of
from support.interop import toolchains
from support.wire import Wire


@pytest.fixture
def kcat(broker):
    program = toolchains.kcat()

    def run(*words: str, stdin: bytes = b"", ok: bool = True) -> bytes:
        done = subprocess.run(
            [program, "-b", broker.bootstrap, *words], input=stdin, capture_output=True, timeout=60, check=False
        )
        if ok:
            assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run


def test_lists_the_cluster_and_its_topics(kcat, topic: str, wire: Wire, broker) -> None:
    found = json.loads(kcat("-L", "-J"))
    assert found["brokers"] == [{"id": wire.metadata().brokers[0].node_id, "name": broker.bootstrap}]
    assert found["controllerid"] == wire.metadata().controller_id
    mine = next(one for one in found["topics"] if one["topic"] == topic)
    node = found["brokers"][0]["id"]
    assert mine["partitions"] == [{"partition": 0, "leader": node, "replicas": [{"id": node}], "isrs": [{"id": node}]}]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produces_and_consumes(kcat, codec: str, topic: str, wire: Wire) -> None:
    kcat("-P", "-t", topic, "-K", ":", "-z", codec, "-H", "h=v", stdin=b"k1:one\nk2:two\n")
    assert [(r.key, r.value) for r in records_of(wire.fetch(topic, 0))] == [(b"k1", b"one"), (b"k2", b"two")]
    out = kcat("-C", "-t", topic, "-e", "-q", "-f", "%o %k %s %h\\n")
    assert out.splitlines() == [b"0 k1 one h=v", b"1 k2 two h=v"]


def test_kcat_starts_at_any_offset(kcat, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(*(b"%d" % i for i in range(10))))
    for where, expected in (("3", b"3"), ("-2", b"8"), ("beginning", b"0")):
        assert kcat("-C", "-t", topic, "-p", "0", "-o", where, "-c", "1", "-e", "-q").strip() == expected


def test_finds_offsets_by_time(kcat, topic: str, wire: Wire) -> None:
    for i in range(3):
        wire.produce(topic, batch(b"x", timestamp=1_700_000_000_000 + i * 1000))
    for asked, expected in ((-2, 0), (-1, 3), (1_700_000_000_500, 1)):
        assert kcat("-Q", "-t", f"{topic}:0:{asked}").decode().split() == [topic, "[0]", "offset", str(expected)]
