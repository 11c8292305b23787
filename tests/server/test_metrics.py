"""The Prometheus page, health and readiness."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from ottla.config import Config
from ottla.errors import UnknownTopicOrPartition
from ottla.http.metrics import metrics_endpoint
from ottla.server.broker import Broker
from ottla.server.metrics import error_finder
from ottla.wire.messages import (
    RESPONSES,
    AlterShareGroupOffsetsRequest,
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

ROOT = Path(__file__).resolve().parents[2]


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body.decode()


def sample(page: str, name: str) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(line.rsplit(" ", 1)[1])


def test_the_metrics_page_shows_requests_and_topics(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            endpoint = metrics_endpoint(running.broker, "127.0.0.1", 0)
            await endpoint.start()
            client = await running.connect()
            await client.create_topic("t")
            for _ in range(3):
                await client.produce("t", b"x" * 100)
            await client.call(ApiVersionsRequest(), 0)
            running.broker.controller.create_internal_topic("__consumer_offsets")
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
            await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
            status, page = await get(endpoint.port, "/metrics")
            assert status == 200
            assert sample(page, 'ottla_requests_total{api="Produce",version="9"}') == 3
            assert sample(page, 'ottla_request_seconds_count{api="ApiVersions",version="0"}') == 1
            assert sample(page, 'ottla_request_bytes_total{api="Produce"}') > 300
            assert sample(page, 'ottla_response_bytes_total{api="Produce"}') > 60
            assert sample(page, 'ottla_log_end_offset{partition="0",topic="t"}') == 3
            assert sample(page, 'ottla_group_lag{group="g",partition="0",topic="t"}') == 2
            assert sample(page, 'ottla_high_watermark{partition="0",topic="t"}') == 3
            assert sample(page, 'ottla_isr_size{partition="0",topic="t"}') == 1
            assert sample(page, "ottla_leaders") == 51  # t, and the 50 of __consumer_offsets
            assert sample(page, "ottla_under_replicated_partitions") == 0
            assert sample(page, "ottla_partitions_without_leader") == 0
            assert sample(page, 'ottla_groups_by_state{state="Empty",type="classic"}') == 1
            assert sample(page, 'ottla_coordinator_partitions{coordinator="group"}') == 50
            assert sample(page, 'ottla_coordinator_loading{coordinator="group"}') == 0
            assert sample(page, "ottla_connections") == 1
            assert await get(endpoint.port, "/ready") == (200, "ready\n")
            assert await get(endpoint.port, "/health") == (200, "ok\n")
            assert (await get(endpoint.port, "/nothing"))[0] == 404
            assert (await get(endpoint.port, "/metrics", "POST"))[0] == 405
            await endpoint.stop()

    run(main())


def test_names_chosen_by_clients_create_no_series(run: Any, run_broker: Any) -> None:
    """Unknown topics, unknown groups and client ids: a million of them would make a million lines."""

    async def page_after(running: Any, endpoint: Any, names: range) -> set[str]:
        client = await running.connect()
        for number in names:
            client_id = f"client-{number}"
            topic = MetadataRequest.MetadataRequestTopic(name=f"topic-{number}")
            await client.call(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 9, client_id)
            await client.call(DescribeGroupsRequest(groups=[f"group-{number}"]), 5, client_id)
        _, page = await get(endpoint.port, "/metrics")
        return {line.rsplit(" ", 1)[0] for line in page.splitlines()}

    async def main() -> None:
        async with run_broker(settings={"auto.create.topics.enable": False}) as running:
            endpoint = metrics_endpoint(running.broker, "127.0.0.1", 0)
            await endpoint.start()
            running.broker.controller.create_internal_topic("__consumer_offsets")
            first = await page_after(running, endpoint, range(3))
            assert await page_after(running, endpoint, range(3, 200)) == first
            await endpoint.stop()

    run(main())


def test_share_groups(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            endpoint = metrics_endpoint(running.broker, "127.0.0.1", 0)
            await endpoint.start()
            _, page = await get(endpoint.port, "/metrics")
            assert sample(page, "ottla_share_sessions") == 0
            client = await running.connect()
            await client.create_topic("t")
            for _ in range(3):
                await client.produce("t", b"x")
            await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            alter = AlterShareGroupOffsetsRequest
            start = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
            topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[start])
            altered = await client.call(alter(group_id="g", topics=[topic]), 0)
            partition = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])
            wanted = ShareFetchRequest.FetchTopic(topic_id=altered.responses[0].topic_id, partitions=[partition])
            await client.call(
                ShareFetchRequest(
                    group_id="g",
                    member_id="m",
                    share_session_epoch=0,
                    max_wait_ms=60_000,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    max_records=1,
                    batch_size=1,
                    topics=[wanted],
                    forgotten_topics_data=[],
                ),
                2,
            )
            _, page = await get(endpoint.port, "/metrics")
            assert sample(page, "ottla_share_sessions") == 1
            assert sample(page, 'ottla_share_acquired{group="g",partition="0",topic="t"}') == 1
            assert sample(page, 'ottla_share_lag{group="g",partition="0",topic="t"}') == 2
            await endpoint.stop()

    run(main())


def test_errors_are_counted_at_every_level_of_a_response(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            endpoint = metrics_endpoint(running.broker, "127.0.0.1", 0)
            await endpoint.start()
            client = await running.connect()
            await client.create_topic("t")
            topics = [
                CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in ("t", "no!", "u")
            ]
            await client.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5)
            await client.call(MetadataRequest(topics=None), 12)
            named = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "nowhere", "nor here")]
            await client.call(MetadataRequest(topics=named, allow_auto_topic_creation=False), 12)
            await client.call(HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 3)
            _, page = await get(endpoint.port, "/metrics")
            assert sample(page, 'ottla_request_errors_total{api="CreateTopics",error="TOPIC_ALREADY_EXISTS"}') == 1
            assert sample(page, 'ottla_request_errors_total{api="CreateTopics",error="INVALID_TOPIC_EXCEPTION"}') == 1
            assert sample(page, 'ottla_request_errors_total{api="Metadata",error="UNKNOWN_TOPIC_OR_PARTITION"}') == 1
            assert sample(page, 'ottla_request_errors_total{api="Metadata",error="INVALID_TOPIC_EXCEPTION"}') == 1
            assert sample(page, 'ottla_request_errors_total{api="Heartbeat",error="INVALID_GROUP_ID"}') == 1
            assert sum(line.startswith("ottla_request_errors_total{") for line in page.splitlines()) == 5
            await endpoint.stop()

    run(main())


def test_the_errors_of_every_response_are_found() -> None:
    """Errors of whole requests are at the top level; the others are found through the fields of each response class."""
    found = {key for key, message in RESPONSES.items() if error_finder(message)(message()) == []}
    assert found == set(RESPONSES)
    partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=UnknownTopicOrPartition.code)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition, partition])
    assert error_finder(ProduceResponse)(ProduceResponse(responses=[topic])) == [3, 3]


def test_a_broker_is_not_ready_before_the_start(run: Any) -> None:
    async def main() -> None:
        broker = Broker(Config.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:0"}))
        endpoint = metrics_endpoint(broker, "127.0.0.1", 0)
        await endpoint.start()
        assert await get(endpoint.port, "/ready") == (503, "not ready\n")
        await endpoint.stop()

    run(main())


def test_the_metrics_page_shows_members_and_rebalances_of_all_kinds_of_groups(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            endpoint = metrics_endpoint(running.broker, "127.0.0.1", 0)
            await endpoint.start()
            client = await running.connect()
            await client.create_topic("t")
            running.broker.controller.create_internal_topic("__consumer_offsets")
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            assert (await client.call(beat, 1)).error_code == 0
            share = ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=["t"])
            assert (await client.call(share, 1)).error_code == 0
            _, page = await get(endpoint.port, "/metrics")
            assert sample(page, 'ottla_group_members{group="g",type="consumer"}') == 1
            assert sample(page, 'ottla_group_generation{group="g",type="consumer"}') == 2
            assert sample(page, 'ottla_group_members{group="s",type="share"}') == 1
            assert sample(page, 'ottla_groups_by_state{state="Stable",type="consumer"}') == 1
            assert sample(page, "ottla_rebalances_total") == 2
            await endpoint.stop()

    run(main())


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "ottla.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    shown = {name for query in queries for name in re.findall(r"\bottla_\w+", query)}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    known = set(re.findall(r"`(ottla_\w+)`", page))
    assert len(queries) >= 12
    assert {name for name in shown if not {name, re.sub("_(total|bucket|count|sum)$", "", name)} & known} == set()
