"""Clusters of three brokers to compare: one in this process, or Apache Kafka in four JVMs. Nodes can be killed and
paused.

Tests learn about either cluster only over the wire, from requests to a given broker.
"""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import ottla
from ottla.enums import AlterConfigOp, ConfigResourceType, OffsetTimestamp
from ottla.metadata.image import MetadataImage
from ottla.metadata.metadata_log import METADATA_TOPIC_ID
from ottla.metadata.metadata_log import records_of as metadata_records
from ottla.records.batch import batches
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from support.batches import batch, records_of
from support.ports import free_ports
from support.quorum import describe_quorum
from support.requests import new_topic
from support.waiting import NO_COORDINATOR_YET, NO_LEADER_YET, wait_for
from support.wire import Wire

PATIENCE_S = 120
RACKS = ("a", "b", "c")
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": 4,
    # How soon after a settings change a topic may elect a replica that is not in sync.
    "unclean.leader.election.interval.ms": 2000,
    "default.replication.factor": 3,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
KAFKA_START = Path(__file__).parents[3] / "scripts" / "kafka-cluster-start"


class View(NamedTuple):
    """A partition as DescribeTopicPartitions shows it."""

    leader: int
    epoch: int
    isr: list[int]
    elr: list[int]
    last_elr: list[int]
    offline: list[int]
    replicas: list[int]
    error: int


def image_of_controller(wire: Wire) -> MetadataImage:
    """The committed metadata, replayed from the log of the active controller."""
    epoch = wire.call(describe_quorum(), 2).topics[0].partitions[0].leader_epoch
    image, offset, end = MetadataImage(), 0, 1
    while offset < end:
        part = FetchRequest.FetchPartition(
            fetch_offset=offset, current_leader_epoch=epoch, last_fetched_epoch=0, partition_max_bytes=8 << 20
        )
        entry = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=8 << 20, session_epoch=-1, topics=[entry])
        answer = wire.call(request, 17).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        end = answer.high_watermark
        for found in batches(answer.records or b""):
            offset = found.next_offset
            for at, record in metadata_records(found, "the log of the controllers"):
                image.replay(record, at)
    return image


class Clustered(ABC):
    """Brokers 1 to 3, in the racks a, b and c, and one controller or a quorum of three."""

    is_ottla: bool

    def __init__(self) -> None:
        self.controllers_down: set[int] = set()
        self.addresses: dict[int, tuple[str, int]] = {}
        self.down: set[int] = set()
        self.paused: set[int] = set()

    # -- trouble -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _signal(self, broker: int, number: signal.Signals) -> None: ...

    @abstractmethod
    def _start(self, broker: int) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def kill(self, broker: int) -> None:
        self.down.add(broker)
        self._signal(broker, signal.SIGKILL)

    def stop(self, broker: int) -> None:
        """Return when it has stopped."""
        self.down.add(broker)
        self._signal(broker, signal.SIGTERM)

    def start(self, broker: int) -> None:
        """Return when it answers; it may still be fenced."""
        self._start(broker)
        self.down.discard(broker)

    def pause(self, broker: int) -> None:
        self.paused.add(broker)
        self._signal(broker, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self._signal(broker, signal.SIGCONT)
        self.paused.discard(broker)

    def kill_controller(self) -> int:
        """Kill the active one of a quorum, and return its node id."""
        node = self.active_controller()
        self.controllers_down.add(node)
        self._kill_controller(node)
        return node

    @abstractmethod
    def _kill_controller(self, node: int) -> None: ...

    @abstractmethod
    def _start_controller(self, node: int) -> None: ...

    def active_controller(self) -> int:
        """The controller that leads the quorum, as reported by a broker."""

        def leader() -> int:
            topic = self.ask_any(describe_quorum(), 2).topics[0].partitions[0]
            return int(topic.leader_id) if topic.error_code == 0 else 0

        return int(self.wait(leader, "an active controller"))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    def mend(self) -> None:
        """Bring all nodes back."""
        for node in sorted(self.controllers_down):
            self._start_controller(node)
            self.controllers_down.discard(node)
        for broker in sorted(self.paused):
            self.resume(broker)
        for broker in sorted(self.down):
            self.start(broker)
        self.wait(lambda: all(self.brokers_seen(at) == [1, 2, 3] for at in self.addresses), "all brokers to be back")

    @property
    def there(self) -> list[int]:
        return [broker for broker in self.addresses if broker not in self.down and broker not in self.paused]

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, broker: int, request: Any, version: int) -> Any:
        with Wire(self.addresses[broker]) as wire:
            return wire.call(request, version)

    def ask_any(self, request: Any, version: int) -> Any:
        return self.ask(self.there[0], request, version)

    def wire(self, broker: int) -> Wire:
        return Wire(self.addresses[broker])

    def wait(self, holds: Callable[[], Any], what: object) -> Any:
        """The result of `holds` as soon as it is true. Asks again if a broker breaks the connection."""

        def found() -> Any:
            with suppress(OSError):
                return holds()

        return wait_for(found, what, PATIENCE_S)

    def brokers_seen(self, at: int) -> list[int]:
        with self.wire(at) as wire:
            return sorted(broker.node_id for broker in wire.metadata().brokers)

    def view(self, topic: str, partition: int = 0, at: int | None = None) -> View:
        wanted = DescribeTopicPartitionsRequest.TopicRequest(name=topic)
        request = DescribeTopicPartitionsRequest(topics=[wanted], response_partition_limit=100)
        found = self.ask(at or self.there[0], request, 0).topics[0]
        one = next((one for one in found.partitions if one.partition_index == partition), None)
        if one is None:
            return View(-1, -1, [], [], [], [], [], found.error_code or 3)
        return View(
            one.leader_id,
            one.leader_epoch,
            one.isr_nodes,
            one.eligible_leader_replicas or [],
            one.last_known_elr or [],
            one.offline_replicas,
            one.replica_nodes,
            one.error_code,
        )

    def controller_wire(self) -> Wire:
        """A connection to the active controller; it needs a port."""
        answer = self.ask_any(describe_quorum(), 2)
        active = answer.topics[0].partitions[0].leader_id
        listener = next(node for node in answer.nodes if node.node_id == active).listeners[0]
        return Wire((listener.host, listener.port))

    def image(self) -> MetadataImage:
        """The metadata that a majority of the controllers have, replayed from their log."""
        with self.controller_wire() as wire:
            return image_of_controller(wire)

    def epochs(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The leader epoch and the partition epoch."""
        found = self.image().topics[topic].partitions[partition]
        return found.leader_epoch, found.partition_epoch

    def until(self, topic: str, partition: int = 0, **expected: Any) -> View:
        """Wait until every running broker shows the partition in this state."""
        seen: dict[int, View] = {}

        def holds() -> bool:
            for broker in self.there:
                seen[broker] = self.view(topic, partition, broker)
            return all(
                getattr(seen[broker], name) == value for broker in self.there for name, value in expected.items()
            )

        self.wait(holds, lambda: f"{expected} of {topic}, and there is {seen}")
        return seen[self.there[0]]

    # -- doing -------------------------------------------------------------------------------------------------

    def create(self, name: str, assignments: Sequence[Sequence[int]], **configs: Any) -> str:
        """A topic whose leaders accept writes."""
        made = self.ask_any(
            CreateTopicsRequest(topics=[new_topic(name, assignments=assignments, **configs)], timeout_ms=30000), 7
        )
        assert made.topics[0].error_code == 0, made
        for partition, replicas in enumerate(assignments):
            self.until(name, partition, error=0)
            self.wait_leads(name, replicas[0], partition)
        return name

    def wait_leads(self, topic: str, broker: int, partition: int = 0) -> None:
        """Wait until that broker leads and knows it."""
        self.wait(lambda: self.end_offset(broker, topic, partition)[0] == 0, f"{broker} to lead {topic}-{partition}")

    def end_offset(self, broker: int, topic: str, partition: int = 0, epoch: int = -1) -> tuple[int, int]:
        """The error and the offset from a ListOffsets request for the end."""
        part = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, timestamp=OffsetTimestamp.LATEST, current_leader_epoch=epoch
        )
        asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])
        found = self.ask(broker, ListOffsetsRequest(replica_id=-1, topics=[asked]), 9).topics[0].partitions[0]
        return found.error_code, found.offset

    def produce(
        self, broker: int, topic: str, *values: bytes, acks: int = -1, timeout_ms: int = 30_000, version: int = 12
    ) -> Any:
        """The whole answer."""
        data = ProduceRequest.PartitionProduceData(index=0, records=batch(*(values or (b"v",))))
        with self.wire(broker) as wire:
            topic_id = wire.topic_id(topic) if version >= 13 else bytes(16)
            entry = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
            request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[entry])
            if acks == 0:
                wire.send(request, version, answered=False)
                return None
            return wire.call(request, version)

    def produced(self, broker: int, topic: str, *values: bytes, **options: Any) -> int:
        """The error code."""
        code: int = self.produce(broker, topic, *values, **options).responses[0].partition_responses[0].error_code
        return code

    def elect(self, kind: int, topic: str, *partitions: int) -> list[tuple[int, str | None]]:
        wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(partitions or (0,)))
        answer = self.ask_any(ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=30_000), 2)
        assert answer.error_code == 0
        return [
            (one.error_code, one.error_message)
            for found in answer.replica_election_results
            for one in found.partition_result
        ]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """All records of a partition, from its leader."""
        found: list[bytes | None] = []
        with self.wire(self.view(topic, partition).leader) as wire:
            offset, end = 0, 1
            while offset < end:
                answer = wire.fetch(topic, offset, partition)
                assert answer.error_code == 0, answer
                end = answer.high_watermark
                records = records_of(answer)
                found += [record.value for record in records]
                offset = records[-1].offset + 1 if records else end
        return found

    def configure(self, topic: str, **configs: Any) -> None:
        changes = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name.replace("_", "."),
                config_operation=AlterConfigOp.SET if value is not None else AlterConfigOp.DELETE,
                value=value,
            )
            for name, value in configs.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=changes
        )
        answer = self.ask_any(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0, answer

    def reassign(self, topic: str, replicas: Sequence[int] | None, partition: int = 0) -> tuple[int, str | None]:
        part = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else list(replicas)
        )
        entry = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[part])
        answer = self.ask_any(AlterPartitionReassignmentsRequest(topics=[entry], timeout_ms=30_000), 0)
        assert answer.error_code == 0, answer
        one = answer.responses[0].partitions[0]
        return one.error_code, one.error_message

    def limit_replication(self, bytes_per_second: int | None) -> None:
        """Set the throttles of all brokers, for topics that are configured as throttled (KIP-73)."""
        changes = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=f"{role}.replication.throttled.rate",
                config_operation=AlterConfigOp.SET if bytes_per_second else AlterConfigOp.DELETE,
                value=str(bytes_per_second) if bytes_per_second else None,
            )
            for role in ("leader", "follower")
        ]
        for broker in self.addresses:
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER, resource_name=str(broker), configs=changes
            )
            answer = self.ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
            assert answer.responses[0].error_code == 0, answer

    def find(self, kind: int, key: str, at: int | None = None) -> Any:
        """The coordinator's entry, as soon as one exists. The request creates the internal topic."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        def found() -> Any:
            one = self.ask(at or self.there[0], request, 6).coordinators[0]
            return None if one.error_code in (*NO_LEADER_YET, *NO_COORDINATOR_YET) else one

        return self.wait(found, f"a coordinator of {key}")


class OttlaCluster(Clustered):
    """In a thread of this process; a broker counts as gone after a second."""

    is_ottla = True

    def __init__(self, controllers: int | None = None) -> None:
        super().__init__()
        self.cluster = ottla.Cluster(3, controllers=controllers, racks=RACKS, settings=SETTINGS)
        self.cluster.__enter__()
        for number, address in enumerate(self.cluster.bootstrap.split(","), 1):
            host, _, port = address.rpartition(":")
            self.addresses[number] = host, int(port)

    def close(self) -> None:
        self.cluster.__exit__(None, None, None)

    def _signal(self, broker: int, number: signal.Signals) -> None:
        verbs: dict[int, Callable[[int], Any]] = {
            signal.SIGKILL: self.cluster.kill,
            signal.SIGTERM: self.cluster.stop,
            signal.SIGSTOP: self.cluster.pause,
            signal.SIGCONT: self.cluster.resume,
        }
        verbs[number](broker)

    def _start(self, broker: int) -> None:
        self.cluster.start(broker)

    def _controller_name(self, node: int) -> str:
        return next(name for name in ("c1", "c2", "c3") if self.cluster.controller(name).node_id == node)

    def _kill_controller(self, node: int) -> None:
        self.cluster.kill_controller(self._controller_name(node))

    def _start_controller(self, node: int) -> None:
        self.cluster.start_controller(self._controller_name(node))


class KafkaCluster(Clustered):
    """Processes of Apache Kafka; `folder` belongs to a running cluster, or is empty for a new one."""

    is_ottla = False

    def __init__(self, folder: Path, controllers: int = 1) -> None:
        super().__init__()
        self._folder = folder
        self._is_ours = not (folder / "cluster.id").exists()
        if self._is_ours:
            self._port = free_ports(3)[0]
            settings = [f"{key}={value}" for key, value in SETTINGS.items()]
            settings += ["broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500"]
            settings += ["replica.lag.time.max.ms=10000"]
            settings += [f"{number}:broker.rack={rack}" for number, rack in enumerate(RACKS, 1)]
            self._script(str(self._port), str(folder), *settings, controllers=controllers)
        else:
            text = (folder / "node-1" / "server.properties").read_text()
            self._port = int(text.partition("listeners=PLAINTEXT://127.0.0.1:")[2].partition("\n")[0])
        self.addresses = {number: ("127.0.0.1", self._port + number - 1) for number in (1, 2, 3)}

    @staticmethod
    def _script(*arguments: str, controllers: int = 1) -> None:
        flags = {"KAFKA_HEAP": "-Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1", **os.environ}
        flags["KAFKA_CONTROLLERS"] = str(controllers)
        subprocess.run([str(KAFKA_START), *arguments], check=True, env=flags, timeout=600)

    def _pid(self, node: int) -> int:
        return int((self._folder / f"node-{node}" / "pid").read_text())

    def _signal(self, node: int, number: signal.Signals) -> None:
        pid = self._pid(node)
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.wait(lambda: not _runs(pid), f"the end of node {node}")

    def _start(self, node: int) -> None:
        self._script("--node", str(node), str(self._port), str(self._folder))

    def _kill_controller(self, node: int) -> None:
        self._signal(node, signal.SIGKILL)

    def _start_controller(self, node: int) -> None:
        self._start(node)

    def close(self) -> None:
        if self._is_ours:
            for pid in self._folder.glob("node-*/pid"):
                with suppress(ProcessLookupError):
                    os.kill(int(pid.read_text()), signal.SIGKILL)


def _runs(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
