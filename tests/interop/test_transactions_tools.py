"""Kafka's own tools for transactions: kafka-transactions.sh, and kafka-dump-log.sh on the transaction log."""

import re
from pathlib import Path

import pytest

from support.batches import batch
from support.interop.drivers import clients
from support.interop.transacting import Transacting, read_committed
from support.wire import Wire

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]


@pytest.fixture
def tool(driver, broker):
    def run(name: str, *words: str, bootstrap: bool = True) -> str:
        where = ("--bootstrap-server", broker.bootstrap) if bootstrap else ()
        done = driver.call("tool", name=f"org.apache.kafka.tools.{name}", args=[*where, *words], stdin="")
        assert done["status"] == 0, done
        return str(done["stdout"])

    return run


def row(table: str, key: str) -> list[str]:
    return next(line.split() for line in table.splitlines() if key in line)


def test_list_and_describe(tool, topic: str, wire: Wire, unique) -> None:
    one = Transacting(wire, unique("tx")).start()
    one.produce(topic, b"x")
    assert row(tool("TransactionsCommand", "list"), one.name)[-1] == "Ongoing"
    described = row(tool("TransactionsCommand", "describe", "--transactional-id", one.name), one.name)
    assert described[2:5] == [str(one.producer_id), str(one.epoch), "Ongoing"], described
    found = tool("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert row(found, str(one.producer_id))[:2] == [str(one.producer_id), str(one.epoch)]
    one.finish(True)
    assert row(tool("TransactionsCommand", "list"), one.name)[-1] == "CompleteCommit"


def test_abort_a_hanging_transaction(tool, topic: str, wire: Wire, unique) -> None:
    one = Transacting(wire, unique("tx")).start()
    one.produce(topic, b"hangs")
    wire.produce(topic, batch(b"waits"))
    assert read_committed(wire, topic) == []
    tool("TransactionsCommand", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert read_committed(wire, topic) == [b"waits"]


def test_dump_log_reads_the_transaction_log(tool, topic: str, wire: Wire, unique, broker) -> None:
    if broker.data is None:
        pytest.skip("needs the data folder of the broker")
    one = Transacting(wire, unique("tx")).start()
    one.produce(topic, b"x")
    one.finish(True)
    logs = [
        path for path in Path(broker.data).glob("__transaction_state-*/*.log") if one.name.encode() in path.read_bytes()
    ]
    assert len(logs) == 1
    out = tool("DumpLogSegments", "--transaction-log-decoder", "--files", str(logs[0]), bootstrap=False)
    mine = [line for line in out.splitlines() if one.name in line]
    assert re.findall(r'"transactionStatus":(\d)', "".join(mine)) == ["0", "1", "2", "4"]
    assert '"clientTransactionVersion":2' in mine[-1]
    assert f'"topic":"{topic}"' in mine[1]
    data = next(Path(broker.data).glob(f"{topic}-0/*.log"))
    dumped = tool("DumpLogSegments", "--print-data-log", "--files", str(data), bootstrap=False)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in dumped
