"""A cluster as a client sees it: brokers, leaders, the controller, coordinators, and retries for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ottla.client.connection import (
    BrokerConnection,
    Connection,
    ConnectionLost,
    ConnectionRefused,
    UnknownTopic,
    open_connection,
)
from ottla.client.security import Security
from ottla.enums import CoordinatorType
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NotController,
    NotCoordinator,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from ottla.wire.primitives import ZERO_UUID, uuid_to_base64
from ottla.wire.schema import Message

RETRY_TIMEOUT_S: Final = 30.0
FIRST_BACKOFF_S: Final = 0.05
LAST_BACKOFF_S: Final = 1.0
BOOTSTRAP_NODE: Final = -1
_TOLD_AFTER_S: Final = 1.0
_COORDINATOR_MOVES: Final = (CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code)

T = TypeVar("T")
TopicPartition: TypeAlias = tuple[str, int]
OpenBroker: TypeAlias = Callable[[int], BrokerConnection]
"""Called with the id of a broker, or with BOOTSTRAP_NODE for any broker."""
PartitionResults: TypeAlias = Mapping[TopicPartition, T | KafkaError]


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    number: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]
    error_code: int


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, Partition]
    error_code: int


@dataclass(slots=True)
class Metadata:
    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse `host:port,[::1]:9093`; the default port is 9092. Raises ValueError for anything else."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, "9092"
        if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"'{part}' is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no broker is named")
    return found


class Client:
    """`async with Client("127.0.0.1:9092") as client`. Connections are opened when used."""

    def __init__(
        self,
        bootstrap: str,
        *,
        security: Security | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        request_timeout_s: float = 60.0,
        open_broker: OpenBroker | None = None,
        when_refused: Callable[[], None] | None = None,
    ) -> None:
        """`open_broker` opens connections without the network; then `bootstrap` is not used.

        With `when_refused`, the client retries a refused first connection for as long as other temporary failures,
        because the cluster may be starting. `when_refused` is called once if that takes a while.
        """
        self._when_refused = when_refused
        self.bootstrap = parse_bootstrap(bootstrap) if open_broker is None else []
        self._open_broker = open_broker
        self.security = security or Security()
        self.retry_timeout_s = retry_timeout_s
        self.request_timeout_s = request_timeout_s
        self.known = Metadata()
        self._connections: dict[int, BrokerConnection] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    # --- connections -------------------------------------------------------------------------------------------------

    async def connection(self, node_id: int = BOOTSTRAP_NODE) -> BrokerConnection:
        """An open connection to a broker; to any broker for BOOTSTRAP_NODE."""
        async with self._opening.setdefault(node_id, asyncio.Lock()):
            found = self._connections.get(node_id)
            if found is not None and not found.is_closed:
                return found
            if found is not None:
                del self._connections[node_id]
                await found.close()
            opened: BrokerConnection
            if self._open_broker is not None:
                opened = self._open_broker(node_id)
            elif node_id == BOOTSTRAP_NODE:
                opened = await (self._open_any() if self._when_refused is None else self._open_patiently())
            else:
                node = self.known.nodes.get(node_id)
                if node is None:
                    raise LeaderNotAvailable(f"broker {node_id} is not in the cluster's metadata")
                opened = await open_connection(node.host, node.port, self.security)
            self._connections[node_id] = opened
            return opened

    async def _open_patiently(self) -> Connection:
        loop = asyncio.get_running_loop()
        began = loop.time()
        told = bool(self.known.nodes)
        while True:
            try:
                return await self._open_any()
            except ConnectionRefused:
                waited = loop.time() - began
                if self.known.nodes or waited + FIRST_BACKOFF_S > self.retry_timeout_s:
                    raise
                if not told and waited > _TOLD_AFTER_S and self._when_refused is not None:
                    told = True
                    self._when_refused()
            await asyncio.sleep(FIRST_BACKOFF_S)

    async def _open_any(self) -> Connection:
        # Also try the brokers from the metadata, in case the bootstrap addresses are gone.
        addresses = [*self.bootstrap, *((node.host, node.port) for node in self.known.nodes.values())]
        failures: list[Exception] = []
        for host, port in dict.fromkeys(addresses):
            try:
                return await open_connection(host, port, self.security)
            except ConnectionLost as error:
                failures.append(error)
        raise failures[0]

    async def ask(self, request: Message, node_id: int = BOOTSTRAP_NODE, *, highest: int | None = None) -> Any:
        """Send one request to one broker, without retries."""
        connection = await self.connection(node_id)
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that coincides with the answer.
            async with asyncio.timeout(self.request_timeout_s):
                return await connection.call(request, highest)
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            await connection.close()
            raise ConnectionLost(
                f"{connection.address} did not answer {name} in {self.request_timeout_s:g} s"
            ) from None

    # --- patience ----------------------------------------------------------------------------------------------------

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, connect: bool = False) -> T:
        """Repeat while the failure is temporary. Does not wait for a broker that was never reached."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.retry_timeout_s
        backoff = FIRST_BACKOFF_S
        while True:
            try:
                return await attempt()
            except (KafkaError, ConnectionLost) as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                if isinstance(error, ConnectionLost) and not connect and not self.known.nodes:
                    raise
                if loop.time() + backoff > deadline:
                    raise
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LAST_BACKOFF_S)

    # --- metadata ----------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> Metadata:
        """Fetch and keep the metadata of the cluster and of these topics (all if None).

        With `create`, a broker with auto.create.topics.enable creates those that do not exist.
        """
        wanted = None if topics is None else sorted(set(topics))
        connection = await self.connection()
        version = connection.version_for(MetadataRequest)
        entry = MetadataRequest.MetadataRequestTopic
        if wanted is None:
            request = MetadataRequest(topics=None if version else [])
        else:
            request = MetadataRequest(topics=[entry(name=name) for name in wanted], allow_auto_topic_creation=create)
        response: MetadataResponse = await self.ask(request)
        if response.error_code:
            raise error_for(response.error_code)
        self.known.cluster_id = response.cluster_id
        self.known.controller_id = response.controller_id
        self.known.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        if wanted is None:
            self.known.topics = {}
        topic: Any
        for topic in response.topics:
            name = topic.name or ""
            self.known.topics[name] = Topic(
                name,
                topic.topic_id,
                topic.is_internal,
                {
                    p.partition_index: Partition(
                        p.partition_index,
                        p.leader_id,
                        p.leader_epoch,
                        p.replica_nodes,
                        p.isr_nodes,
                        p.offline_replicas,
                        p.error_code,
                    )
                    for p in sorted(topic.partitions, key=lambda p: p.partition_index)
                },
                topic.error_code,
            )
        return self.known

    async def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Like `refresh`, with retries."""
        wanted = None if topics is None else list(topics)
        return await self.retrying(lambda: self.refresh(wanted))

    async def topic(self, name: str) -> Topic:
        """A topic that must exist."""
        found = (await self.metadata([name])).topics.get(name)
        if found is None or found.error_code:
            code = UnknownTopicOrPartition.code if found is None else found.error_code
            if code == UnknownTopicOrPartition.code:
                raise UnknownTopic(f"topic '{name}' does not exist")
            raise error_for(code, f"topic '{name}': {error_for(code).message}")
        return found

    async def topic_or_new(self, name: str) -> Topic:
        """A topic that is created if it does not exist, or that another client creates in time."""

        async def attempt() -> Topic:
            found = (await self.refresh([name], create=True)).topics[name]
            for code in (found.error_code, *(part.error_code for part in found.partitions.values())):
                if code:
                    raise error_for(code, f"topic '{name}': {error_for(code).message}")
            return found

        return await self.retrying(attempt)

    # --- controller, coordinators and leaders ------------------------------------------------------------------------

    async def ask_controller(self, request: Message) -> Any:
        """Ask the controller, or a broker that forwards to it. Retries if the answer has NOT_CONTROLLER."""

        async def attempt() -> Any:
            await self.refresh([])
            node_id = self.known.controller_id
            response = await self.ask(request, node_id if node_id in self.known.nodes else BOOTSTRAP_NODE)
            if any(code == NotController.code for code in _error_codes(response)):
                raise NotController
            return response

        return await self.retrying(attempt)

    async def coordinator(self, key: str, kind: int = CoordinatorType.GROUP) -> int:
        """The broker that coordinates a group or a transactional id."""
        found = self._coordinators.get((kind, key))
        if found is not None:
            return found
        await self.refresh([])
        connection = await self.connection()
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = await self.ask(request)
        answer = response.coordinators[0] if connection.version_for(FindCoordinatorRequest) >= 4 else response
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message or None)
        if answer.node_id not in self.known.nodes:
            self.known.nodes[answer.node_id] = Node(answer.node_id, answer.host, answer.port, None)
        self._coordinators[kind, key] = answer.node_id
        return int(answer.node_id)

    async def ask_coordinator(
        self, key: str, request: Message, *, highest: int | None = None, kind: int = CoordinatorType.GROUP
    ) -> Any:
        """Ask the coordinator of a group or transactional id. Retries if it moved or is still loading."""

        async def attempt() -> Any:
            try:
                response = await self.ask(request, await self.coordinator(key, kind), highest=highest)
            except ConnectionLost:
                self._coordinators.pop((kind, key), None)
                raise
            for code in _error_codes(response):
                if code in _COORDINATOR_MOVES:
                    self._coordinators.pop((kind, key), None)
                    raise error_for(code)
            return response

        return await self.retrying(attempt)

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        call: Callable[[int, list[TopicPartition]], Awaitable[PartitionResults[T]]],
    ) -> dict[TopicPartition, T]:
        """Ask each leader for its partitions, and retry those whose leader moved. Raises an error that persists."""
        left = list(partitions)
        done: dict[TopicPartition, T] = {}

        async def attempt() -> None:
            nonlocal left
            await self.refresh({topic for topic, _ in left})
            shares: dict[int, list[TopicPartition]] = {}
            for tp in left:
                shares.setdefault(self.leader_of(tp), []).append(tp)
            answers = await asyncio.gather(*(call(node, share) for node, share in shares.items()))
            failure: KafkaError | None = None
            for answer in answers:
                for tp, result in answer.items():
                    if isinstance(result, KafkaError):
                        named = type(result)(f"{tp[0]}-{tp[1]}: {result.message}")
                        if not result.retriable:
                            raise named
                        failure = named
                    else:
                        done[tp] = result
            left = [tp for tp in left if tp not in done]
            if left:
                raise failure or CoordinatorNotAvailable("the broker left out partitions that were asked for")

        if left:
            await self.retrying(attempt)
        return done

    def leader_of(self, tp: TopicPartition) -> int:
        """The leader according to the cached metadata. Raises KafkaError if there is none."""
        topic = self.known.topics.get(tp[0])
        if topic is None or tp[1] not in topic.partitions:
            code = topic.error_code if topic is not None and topic.error_code else UnknownTopicOrPartition.code
            raise error_for(code, f"{tp[0]}-{tp[1]}: {error_for(code).message}")
        partition = topic.partitions[tp[1]]
        if partition.leader < 0:
            raise LeaderNotAvailable(f"{tp[0]}-{tp[1]} has no leader")
        return partition.leader

    def forget_topic(self, name: str) -> None:
        self.known.topics.pop(name, None)


def _error_codes(message: Any) -> Iterable[int]:
    """Every error code of a response, at any level."""
    if getattr(message, "error_code", 0):
        yield message.error_code
    for spec in message.FIELDS:
        if spec.kind == "array" and spec.struct is not None:
            for entry in getattr(message, spec.name) or ():
                yield from _error_codes(entry)


def named(topic_id: bytes) -> str | None:
    """The id of a topic as text; None if the cluster has no topic ids."""
    return None if topic_id == ZERO_UUID else uuid_to_base64(topic_id)
