"""A start must be fast: a broker starts, creates a topic and writes its first record with few imported modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import lazy_imports
from ottla.api_table import APIS
from ottla.enums import AnsweredBy
from ottla.server.api import OpenToAll, RequestContext, Route, handles, registered_apis
from ottla.server.api.registry import controller_apis
from ottla.server.randomness import SystemRandomness
from ottla.wire.messages import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.schema import WALKS, Message

# The event loop and its modules are imported first: only Ottla's own imports are checked.
START = """
import asyncio, gc, os, sys
try: import uvloop
except ImportError: pass
before = set(sys.modules)
from ottla.cli import main
_, arguments = main._command(["serve", "--port", "0", "--preset", "kafka", "--console", "0"])
from ottla.cli.serve_console import console_of
from ottla.console.inside import inside_of
from ottla.config import Config
from ottla.log.files import PosixDisk
from ottla.records.batch import Record, build_batch
from ottla.server.broker import Broker
from ottla.wire.frames import encode_request
from ottla.wire.messages import ApiVersionsRequest, CreateTopicsRequest, MetadataRequest, ProduceRequest

CreateTopicsRequest, ProduceRequest, Topic = CreateTopicsRequest, ProduceRequest, CreateTopicsRequest.CreatableTopic
REQUESTS = [
    (ApiVersionsRequest(), 0),
    (CreateTopicsRequest(topics=[Topic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=60_000), 5),
    (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9),
    (ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[
        ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(0, 1, None, b"v", ())]))])]), 9),
]

async def run():
    config = Config.load(preset="kafka", overrides={"listeners": "PLAINTEXT://127.0.0.1:0"})
    async with Broker(config, disk=PosixDisk(sys.argv[1])) as broker, console_of(inside_of(broker), arguments):
        reader, writer = await asyncio.open_connection(*broker.addresses[0])
        for request, version in REQUESTS:
            writer.write(encode_request(request, version, 0, "c"))
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        print(broker.replicas.leader("t", 0).high_watermark, *sys.modules.keys() - before)
        writer.close()
        await writer.wait_closed()

asyncio.run(run())
"""

NOT_AT_START = (
    "ottla.bench",
    "ottla.client",
    "ottla.console.api",
    "ottla.console.app",
    "ottla.console.own_broker",
    "ottla.http.guard",
    "ottla.http.protocol",
    "ottla.server.request_log",
    "starlette",
    "uvicorn",
    "ottla.metadata.acls",
    "ottla.metadata.partition_change",
    "ottla.metadata.broker_changes",
    "ottla.replication.leadership",
    "ottla.metadata.quotas",
    "ottla.metadata.scram",
    "ottla.metadata.reassignment",
    "ottla.config.properties",
    "ottla.coordinator.",
    "ottla.log.clean",
    "ottla.multibroker",
    "ottla.server.fetch_sessions",
    "ottla.server.http",
    "ottla.server.metrics",
    "ottla.server.security.authorizer",
    "ottla.server.security.guards",
    "ottla.server.security.tls",
    "ottla.server.telemetry",
    "ottla.testing",
    "ottla.wire.decoding",
    "ottla.wire.encoding",
    "ottla.wire.messages.fetch",
    "ottla.wire.messages.groups",
    "ottla.wire.messages.partitions",
    "ottla.wire.messages.security",
    "ottla.workers",
    "crc32c",
    "email",
    "hashlib",
    "hmac",
    "importlib.metadata",
    "json",
    "random",
    "secrets",
    "shutil",
    "tempfile",
    "urllib",
    "uuid",
)


def test_a_start_imports_few_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path / "d")], capture_output=True, text=True, check=True
    )
    high_watermark, *imported = done.stdout.split()
    assert high_watermark == "1"
    assert "ottla.server.apis.produce" in imported
    assert sorted(name for name in imported if name.startswith(NOT_AT_START)) == []


def test_every_api_is_handled_as_it_is_announced() -> None:
    apis = {**registered_apis().apis, **controller_apis().apis}
    assert sorted(api.name for api in apis.values()) == sorted(row.name for row in APIS.values() if row.handler)
    assert not any(api.answered_by is AnsweredBy.QUORUM for api in registered_apis().apis.values())
    for api in apis.values():
        assert api.handler.__module__ == f"ottla.server.apis.{api.module}"
        assert api.request.API_KEY == api.response.API_KEY == api.key


def test_an_api_that_is_not_announced_has_no_handler() -> None:
    class OddRequest(Message, key=9999, versions="0"):
        """An unknown request."""

    def handler(ctx: RequestContext, request: OddRequest) -> None:
        raise AssertionError

    with pytest.raises(AssertionError, match="does not list OddRequest"):
        handles(OddRequest, answered_by=AnsweredBy.ANY_BROKER, permission=OpenToAll("a test"))(handler)


def test_a_changed_copy_of_an_api_leaves_the_original_unchanged() -> None:
    produce = registered_apis().apis[0]

    def handler(ctx: RequestContext, request: Message) -> None:
        raise AssertionError

    changed = produce.replace(handler=handler).replace(max_version=3)
    assert (changed.handler, changed.max_version, changed.request) == (handler, 3, produce.request)
    assert (produce.handler, produce.max_version) != (handler, 3)
    with pytest.raises(AttributeError, match="an API has no 'colour'"):
        _ = produce.colour


@pytest.mark.parametrize("limit", [1, 2, 3, 256, 257])
def test_random_numbers_are_below_their_limit(limit: int) -> None:
    drawn = {SystemRandomness().randbelow(limit) for _ in range(500)}
    assert min(drawn) >= 0
    assert max(drawn) < limit
    assert len(drawn) > limit / 4


def test_a_spare_file_handle_is_kept_while_a_broker_runs() -> None:
    others = lazy_imports._running  # of other tests
    lazy_imports.started()
    lazy_imports.started()
    kept = lazy_imports._spare
    assert kept is not None
    lazy_imports.stopped()
    os.fstat(kept)
    lazy_imports.import_late("ottla.server.apis.fetch")
    assert lazy_imports._spare is not None
    lazy_imports.stopped()
    assert (lazy_imports._spare is not None) is (others > 0)


def walked_over(name: str) -> list[bool]:
    """Whether a repeated request and its answer are interpreted instead of compiled."""
    route = Route(registered_apis().apis[DescribeGroupsRequest.API_KEY], 2)
    walks = []
    for _ in range(WALKS + 2):
        request, _ = route.decode(DescribeGroupsRequest(groups=[name]).encode(2), 0)
        assert request.groups == [name]
        parts: list[bytes] = []
        described = DescribeGroupsResponse.DescribedGroup(group_id=name)
        route.encode(DescribeGroupsResponse(groups=[described]), parts)
        assert DescribeGroupsResponse.decode(b"".join(parts), 2).groups == [described]
        early = (route.decode == route._decode_early, route.encode == route._encode_early)
        assert early[0] is early[1]
        walks.append(early[0])
    return walks


def test_early_requests_do_not_wait_for_a_compiler() -> None:
    """A few small requests are interpreted; of large ones only the first."""
    assert walked_over("g") == [True] * WALKS + [False] * 2
    assert walked_over("g" * 1000) == [True] + [False] * (WALKS + 1)
