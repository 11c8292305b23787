"""A cluster of brokers with scripted answers, for cases that a single broker never shows."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support.frames import response_frame

from ottla.enums import ApiKey
from ottla.errors import NotLeaderOrFollower, UnsupportedVersion
from ottla.records.batch import Batch
from ottla.wire.frames import decode_request_header
from ottla.wire.messages import REQUESTS
from ottla.wire.messages.fetch import FetchResponse, ListOffsetsResponse
from ottla.wire.messages.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.messages.transactions import InitProducerIdResponse
from support.frames import sized

VERSIONS = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 9),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}


class FakeCluster:
    """Brokers with one topic `t`; `leaders` lists the leader of each partition, and `faults` what goes wrong."""

    def __init__(self, brokers: int, leaders: list[int]) -> None:
        self.leaders = leaders
        self.ports: dict[int, int] = {}
        self.count = brokers
        self.versions = dict(VERSIONS)
        self.logs: dict[int, list[bytes]] = {index: [] for index in range(len(leaders))}
        self.asked: list[tuple[int, str, int]] = []
        self.faults: list[Callable[[int, Any, int], Any]] = []
        """Called with (broker, request, version); an answer, or "close", replaces the usual one."""
        self.api_versions_limit = 3
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self.controller = 1
        self.coordinator = 1

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    async def start(self) -> None:
        for broker in range(1, self.count + 1):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: int = broker) -> None:
                self._writers.add(writer)
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    await self._serve(broker, reader, writer)
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self.ports[broker] = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        for server in self._servers:
            await server.wait_closed()

    async def _serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            header, position = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            if key == ApiKey.API_VERSIONS and version > self.api_versions_limit:
                self.asked.append((broker, "ApiVersions", version))
                refused = ApiVersionsResponse(error_code=UnsupportedVersion.code).encode(0)
                writer.write(sized(struct.pack(">i", header.correlation_id) + refused))
                continue
            low, high = self.versions[key]
            assert low <= version <= high, f"{REQUESTS[key].__name__} v{version} is not served"
            request = REQUESTS[key].decode(frame[position:], version)
            self.asked.append((broker, REQUESTS[key].__name__.removesuffix("Request"), version))
            answer: Any = None
            for fault in self.faults:
                answer = fault(broker, request, version)
                if answer is not None:
                    break
            if answer == "close":
                return
            response = self._answer(broker, request) if answer is None else answer
            writer.write(response_frame(response, version, header.correlation_id))

    def _answer(self, broker: int, request: Any) -> Any:
        return getattr(self, f"_{type(request).__name__.removesuffix('Request').lower()}")(broker, request)

    def _apiversions(self, broker: int, request: Any) -> Any:
        entry = ApiVersionsResponse.ApiVersion
        keys = [entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, broker: int, request: Any) -> Any:
        partitions = [
            MetadataResponse.MetadataResponsePartition(
                partition_index=index, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
            )
            for index, leader in enumerate(self.leaders)
        ]
        node = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(
            brokers=[node(node_id=number, host="127.0.0.1", port=port) for number, port in self.ports.items()],
            cluster_id="fake",
            controller_id=self.controller,
            topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions)],
        )

    def _findcoordinator(self, broker: int, request: Any) -> Any:
        return FindCoordinatorResponse(
            node_id=self.coordinator, host="127.0.0.1", port=self.ports[self.coordinator], error_message=None
        )

    def _initproducerid(self, broker: int, request: Any) -> Any:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def _produce(self, broker: int, request: Any) -> Any:
        data = request.topic_data[0].partition_data[0]
        result = ProduceResponse.PartitionProduceResponse(
            index=data.index, base_offset=-1, error_code=NotLeaderOrFollower.code
        )
        if self.leaders[data.index] == broker:
            result.error_code = 0
            result.base_offset = self._append(data.index, bytes(data.records))
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[result])
        return ProduceResponse(responses=[topic])

    def _append(self, index: int, data: bytes) -> int:
        """As a broker does: a batch with a known sequence is not written again."""
        log = self.logs[index]
        offset = 0
        for stored in log:
            known = Batch(stored)
            if known.producer_id >= 0 and known.base_sequence == Batch(data).base_sequence:
                return offset
            offset += known.record_count
        log.append(data)
        return offset

    def _listoffsets(self, broker: int, request: Any) -> Any:
        part = ListOffsetsResponse.ListOffsetsPartitionResponse
        topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    part(partition_index=p.partition_index, offset=100 + p.partition_index)
                    if self.leaders[p.partition_index] == broker
                    else part(partition_index=p.partition_index, error_code=NotLeaderOrFollower.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, broker: int, request: Any) -> Any:
        part = FetchResponse.PartitionData
        topics = []
        for topic in request.topics:
            found = []
            for wanted in topic.partitions:
                if self.leaders[wanted.partition] != broker:
                    found.append(
                        part(partition_index=wanted.partition, error_code=NotLeaderOrFollower.code, high_watermark=-1)
                    )
                    continue
                data, offset = bytearray(), 0
                for stored in self.logs[wanted.partition]:
                    batch = Batch(bytearray(stored))
                    batch.stamp(offset, 0)
                    offset = batch.next_offset
                    if offset > wanted.fetch_offset:
                        data += batch.buffer
                found.append(part(partition_index=wanted.partition, high_watermark=offset, records=bytes(data)))
            topics.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=found))
        return FetchResponse(responses=topics)


@asynccontextmanager
async def _cluster(brokers: int = 1, leaders: list[int] | None = None) -> AsyncIterator[FakeCluster]:
    made = FakeCluster(brokers, leaders or [1])
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
def cluster() -> Any:
    """`async with cluster(brokers=2, leaders=[1, 2]) as fake`."""
    return _cluster


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        async def guarded() -> Any:
            before = asyncio.all_tasks()
            result = await asyncio.wait_for(main, 30)
            await asyncio.sleep(0)
            left = {task for task in asyncio.all_tasks() - before if "serve" not in repr(task)}
            assert not left, f"tasks left behind: {left}"
            return result

        return asyncio.run(guarded())

    return runner
