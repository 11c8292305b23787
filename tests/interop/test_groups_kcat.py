"""kcat as a group member."""

import subprocess

from support.batches import batch
from support.interop import toolchains
from support.wire import Wire


def test_reads_with_a_group(broker, make_topic, wire: Wire, unique) -> None:
    program, topic, group = toolchains.kcat(), make_topic(2), unique("g")

    def run() -> list[bytes]:
        done = subprocess.run(
            [program, "-b", broker.bootstrap, "-G", group, "-X", "auto.offset.reset=earliest", "-e", "-q", topic],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return sorted(done.stdout.splitlines())

    for partition in (0, 1):
        wire.produce(topic, batch(b"%d" % partition), partition)
    assert run() == [b"0", b"1"]
    # It commits when it ends, so the next one gets only new records.
    wire.produce(topic, batch(b"new"), 1)
    assert run() == [b"new"]
