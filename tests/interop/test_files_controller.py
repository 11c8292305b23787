"""The folder of a quorum controller: Kafka's tool reads it, and Kafka's and Ottla's controllers continue with each
other's."""

import shutil
from pathlib import Path

import pytest

import ottla
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.wire.messages import IncrementalAlterConfigsRequest
from support.interop.clusters import image_of_controller
from support.interop.drivers import CLIENTS, Driver
from support.kafka import Kafka
from support.ports import free_ports
from support.quorum import describe_quorum
from support.wire import Wire

pytestmark = pytest.mark.jvm
NODE = 3001


def start_kafka_controller(folder: Path) -> Kafka:
    (port,) = free_ports()
    return Kafka(
        folder,
        "process.roles=controller",
        f"node.id={NODE}",
        f"listeners=CONTROLLER://127.0.0.1:{port}",
        f"advertised.listeners=CONTROLLER://127.0.0.1:{port}",
        f"controller.quorum.voters={NODE}@127.0.0.1:{port}",
        port=port,
    )


def set_retention(wire: Wire, topic: str, value: str) -> None:
    request = IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", config_operation=AlterConfigOp.SET, value=value)
    resource = request.AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[config]
    )
    (answer,) = wire.call(request(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def test_a_kafka_controller_continues_with_the_folder_of_an_ottla_controller(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "kafka"
    with ottla.Cluster(1, controllers=1, data=data) as cluster:
        cluster.create_topic("orders", partitions=3, config={"retention.ms": "1000000"})
    java = Driver(CLIENTS["java"], "nowhere:1")
    logs = ",".join(map(str, sorted((data / "controller-1").glob("__cluster_metadata-0/*.log"))))
    words = ["--files", logs, "--cluster-metadata-decoder"]
    done = java.call("tool", name="org.apache.kafka.tools.DumpLogSegments", args=words)
    java.close()
    assert done["status"] == 0 and "Exception" not in done["stdout"] + done["stderr"], done
    for part in ('"name":"orders"', "PARTITION_RECORD", "REGISTER_CONTROLLER_RECORD", "REGISTER_BROKER_RECORD"):
        assert part in done["stdout"]
    folder.mkdir()
    shutil.move(data / "controller-1", folder / "logs")
    kafka = start_kafka_controller(folder)
    try:
        with Wire(kafka.address) as wire:
            quorum = wire.call(describe_quorum(), 2).topics[0].partitions[0]
            assert [voter.replica_id for voter in quorum.current_voters] == [quorum.leader_id] == [NODE]
            image = image_of_controller(wire)
            assert len(image.topics["orders"].partitions) == 3
            assert image.topic_configs("orders") == {"retention.ms": "1000000"}
            set_retention(wire, "orders", "2000000")
    finally:
        kafka.stop()
    shutil.move(folder / "logs", data / "controller-1")
    with ottla.Cluster(1, controllers=1, data=data) as cluster:
        cluster.create_topic("refunds")
        host, _, port = cluster.bootstrap_controllers.rpartition(":")
        with Wire((host, int(port))) as wire:
            image = image_of_controller(wire)
            assert sorted(image.topics) == ["orders", "refunds"]
            assert image.topic_configs("orders") == {"retention.ms": "2000000"}
            assert wire.call(describe_quorum(), 2).topics[0].partitions[0].leader_epoch > quorum.leader_epoch
        cluster.wait_until(lambda each: each.leader("orders") == 1)
