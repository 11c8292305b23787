"""Optional packages may be missing: the broker works without them, and reports what to install when one is needed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import InvalidRegularExpression
from ottla.wire.messages import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest, ListTransactionsRequest
from support.waiting import ask_until_ready
from support.wire import Wire

WITHOUT = """
import sys
for name in ("re2", "uvloop", "prometheus_client", "yaml", "cryptography", "jwt", "jsonschema", "pyspark", "numpy"):
    sys.modules[name] = None  # an import of it fails, as where it is not installed
from ottla.cli.main import main
sys.exit(main(["serve", "--port", "0", "--ephemeral", "--json"]))
"""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Wire]:
    """A connection to a broker that has no package except the required ones."""
    command = [sys.executable, "-c", WITHOUT]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            host, _, port = json.loads(child.stdout.readline())["bootstrap"].rpartition(":")
            with Wire((host, int(port))) as wire:
                yield wire
        finally:
            child.terminate()
        assert child.wait(30) == 0


def test_a_broker_serves_with_the_required_packages_alone(bare: Wire) -> None:
    bare.create_topic("orders")
    assert bare.list_offsets("orders", -1).offset == 0


def test_a_regex_subscription_without_re2_names_the_package(bare: Wire) -> None:
    bare.call(FindCoordinatorRequest(coordinator_keys=["group"], key_type=0), 4)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_regex="orders.*",
        topic_partitions=[],
    )
    answer = ask_until_ready(lambda: bare.call(beat, 1))
    assert answer.error_code == InvalidRegularExpression.code
    assert "pip install 'ottla[regex]'" in answer.error_message


def test_a_pattern_of_transactional_ids_without_re2_is_refused(bare: Wire) -> None:
    bare.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
    request = ListTransactionsRequest(transactional_id_pattern="id.*")
    assert ask_until_ready(lambda: bare.call(request, 2)).error_code == InvalidRegularExpression.code
