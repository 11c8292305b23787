"""Kafka Streams with `exactly_once_v2`: a word count that is killed and started again counts every word once."""

import subprocess
import time

import pytest

from support.batches import batch
from support.interop import toolchains
from support.interop.transacting import read_committed
from support.wire import Wire

WAIT_S = 80
LINES, WORDS = 60, ("the", "quick", "fox")


@pytest.mark.jvm
def test_word_count_with_a_restart(broker, wire: Wire, make_topic, unique, tmp_path) -> None:
    source, target, name = make_topic(), make_topic(), unique("count")
    classpath = f"{toolchains.streams_jar()}:{toolchains.kafka_jars()}/*"
    program = toolchains.HERE / "java" / "WordCount.java"
    command = [*toolchains.JAVA, "-cp", classpath, str(program), broker.bootstrap, name, source, target]

    def feed() -> None:
        for _ in range(LINES // 2):
            assert wire.produce(source, batch(" ".join(WORDS).encode())).error_code == 0

    def await_count(count: int, process: "subprocess.Popen[bytes]") -> list[bytes]:
        deadline = time.monotonic() + WAIT_S
        while len(found := read_committed(wire, target)) < count:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, f"{len(found)} of {count}: {(tmp_path / 'log').read_text()[-3000:]}"
            time.sleep(0.05)
        return found

    with (tmp_path / "log").open("wb") as log:
        feed()
        first = subprocess.Popen([*command, str(tmp_path / "a")], stdout=log, stderr=log)
        try:
            await_count(1, first)
            feed()
        finally:
            first.kill()
            first.wait(10)
        second = subprocess.Popen([*command, str(tmp_path / "b")], stdout=log, stderr=log)
        try:
            found = await_count(LINES * len(WORDS), second)
        finally:
            second.kill()
            second.wait(10)
    for word in WORDS:
        counts = [value for value in found if value.startswith(word.encode() + b"=")]
        assert counts == [b"%s=%d" % (word.encode(), number) for number in range(1, LINES + 1)]
