"""A broker on this test's own event loop with security settings, certificates made on the spot, and a frame client."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla.clock import ManualClock
from ottla.config import Config
from ottla.log.files import Disk, MemoryDisk
from ottla.records.batch import Record, build_batch
from ottla.server.broker import Broker
from ottla.wire.frames import request_header_version, response_header_version
from ottla.wire.messages import RESPONSES
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.topics import CreateTopicsRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" '
    'user_alice="alice-secret" user_bob="bob-secret";'
)


class Client:
    """One connection; requests go out as they are asked for, answers come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0
        self.waiting: list[tuple[int, int, int]] = []

    def frame(self, request: Any, version: int, client_id: str = "test") -> bytes:
        self.correlation_id += 1
        self.waiting.append((request.API_KEY, version, self.correlation_id))
        head = struct.pack(">hhi", request.API_KEY, version, self.correlation_id)
        head += struct.pack(">h", len(client_id)) + client_id.encode()
        if request_header_version(request.API_KEY, version) >= 2:
            head += b"\0"
        body = head + request.encode(version)
        return struct.pack(">i", len(body)) + body

    def send(self, request: Any, version: int, client_id: str = "test") -> None:
        self.writer.write(self.frame(request, version, client_id))

    async def answer(self) -> Any:
        api_key, version, correlation_id = self.waiting.pop(0)
        body = await self.read_frame()
        assert struct.unpack_from(">i", body)[0] == correlation_id
        start = 4 + (response_header_version(api_key, version) >= 1)
        return RESPONSES[api_key].decode(body[start:], version)

    async def read_frame(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def call(self, request: Any, version: int, client_id: str = "test") -> Any:
        self.send(request, version, client_id)
        return await self.answer()

    async def raw(self, token: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(token)) + token)
        return await self.read_frame()

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.call(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.call(SaslAuthenticateRequest(auth_bytes=token), version)

    async def plain(self, user: str, password: str | None = None) -> Any:
        assert (await self.handshake("PLAIN")).error_code == 0
        return await self.token(f"\0{user}\0{password or user + '-secret'}".encode())

    async def create_topic(self, name: str, partitions: int = 1) -> Any:
        response = await self.call(
            CreateTopicsRequest(
                topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
            ),
            7,
        )
        return response.topics[0]

    async def produce(self, topic: str, *values: bytes, acks: int = -1) -> Any:
        response = await self.call(produce_request(topic, *values, acks=acks), 9)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> Any:
        return await self.call(fetch_request(topic, offset, max_bytes), 11)

    async def closed(self) -> bool:
        """Wait for the broker to close the connection."""
        try:
            return await self.reader.read(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


def produce_request(topic: str, *values: bytes, acks: int = -1) -> ProduceRequest:
    records = build_batch([Record(n, 1_700_000_000_000, None, value) for n, value in enumerate(values)])
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


class Running:
    """A started broker with ways to reach it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clients: list[Client] = []

    def port(self, listener: int = 0) -> int:
        return self.broker.addresses[listener][1]

    async def connect(
        self, listener: int = 0, *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> Client:
        server_name = "localhost" if context is not None else None
        streams = await asyncio.open_connection(host, self.port(listener), ssl=context, server_hostname=server_name)
        client = Client(*streams)
        self.clients.append(client)
        return client

    async def as_user(self, user: str, listener: int = 0) -> Client:
        """A connection that has passed SASL PLAIN."""
        client = await self.connect(listener)
        response = await client.plain(user)
        assert response.error_code == 0, response
        return client

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def _running(
    *, disk: Disk | None = None, clock: ManualClock | None = None, settings: dict[str, object] | None = None
) -> AsyncIterator[Running]:
    overrides: dict[str, object] = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
    broker = Broker(
        Config.load(overrides=overrides, preset="dev"), disk=disk if disk is not None else MemoryDisk(), clock=clock
    )
    running = Running(broker)
    await broker.start()
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        await broker.stop()


@pytest.fixture
def run_broker() -> Callable[..., AbstractAsyncContextManager[Running]]:
    return _running


@pytest.fixture
def sasl_settings() -> Callable[..., dict[str, object]]:
    """A SASL_PLAINTEXT listener with the users admin, alice and bob, and more settings."""

    def settings(mechanisms: str = "PLAIN", **more: object) -> dict[str, object]:
        return {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": mechanisms,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
            "connection.failed.authentication.delay.ms": 0,
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    return settings


@pytest.fixture
def acl_settings(sasl_settings: Callable[..., dict[str, object]]) -> dict[str, object]:
    return {**sasl_settings(), "authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}


class Certificates:
    """An authority, its server's key store, and clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.trust = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.trust))
        self.server = folder / "server.pem"
        self.issue_server()

    def issue_server(self, common_name: str = "localhost", *names: str) -> None:
        leaf = self.authority.issue_cert(
            *(names or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_name="Ottla",
            organization_unit_name="test",
        )
        self.server.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())

    def client(self, name: str, authority: trustme.CA | None = None) -> trustme.LeafCert:
        return (authority or self.authority).issue_cert(
            f"{name}@example.org", common_name=name, organization_name="Ottla", organization_unit_name="test"
        )

    def context(self, identity: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trust))
        if identity is not None:
            identity.configure_cert(context)
        return context

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "connection.failed.authentication.delay.ms": 0,
            **{key.replace("__", "."): value for key, value in more.items()},
        }


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end, and fail if it takes absurdly long or leaves tasks behind."""

    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        async def guarded() -> Any:
            before = asyncio.all_tasks()
            result = await asyncio.wait_for(main, 30)
            left = asyncio.all_tasks() - before
            assert not left, f"tasks left behind: {left}"
            return result

        return asyncio.run(guarded())

    return runner
