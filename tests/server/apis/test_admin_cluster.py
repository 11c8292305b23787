"""Data folders, quotas, users, ACLs, features, quorum and telemetry, with the answers of Apache Kafka 4.3.1."""

from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.enums import (
    AclOperation,
    AclPermissionType,
    AlterConfigOp,
    ConfigResourceType,
    PatternType,
    QuotaMatchType,
    ResourceType,
    ScramMechanism,
)
from ottla.errors import (
    BrokerIdNotRegistered,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaStorageError,
    LogDirNotFound,
    MismatchedEndpointType,
    ResourceNotFound,
    SecurityDisabled,
    ThrottlingQuotaExceeded,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
    UnsupportedVersion,
)
from ottla.log.files import MemoryDisk, PosixDisk
from ottla.records.batch import Record, build_batch
from ottla.replication.replicas import MADE_AT_ONCE
from ottla.wire.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.wire.messages.metadata import ApiVersionsRequest, DescribeClusterRequest
from ottla.wire.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from ottla.wire.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)
from ottla.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from ottla.wire.messages.topics import DeleteTopicsRequest
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message
from ottla.wire.stored import encode_metadata_record
from ottla.wire.stored import metadata as stored

START_MS = 1_700_000_000_000
NODE = {"node.id": 1}


def folders(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[topic(topic=name, partitions=indexes) for name, indexes in topics])


def first_segment_bytes(folder: Path) -> int:
    return (folder / f"{0:020}.log").stat().st_size


@pytest.mark.parametrize("version", range(6))
def test_the_data_folder_is_described(run: Any, run_broker: Any, tmp_path: Path, version: int) -> None:
    async def main() -> None:
        data = tmp_path / "data"
        async with run_broker(disk=PosixDisk(data)) as running:
            client = await running.connect()
            await client.create_topic("t", partitions=2)
            await client.produce("t", b"hello")
            sizes = {}
            for request in (DescribeLogDirsRequest(topics=None), folders(("t", [0, 1]), ("none", [0]))):
                response = await client.call(request, version)
                [folder] = response.results
                assert (response.error_code, folder.error_code, folder.log_dir) == (0, 0, str(data))
                [topic] = folder.topics
                sizes = {p.partition_index: p.partition_size for p in topic.partitions}
                assert sizes == {0: first_segment_bytes(data / "t-0"), 1: 0}
                if version >= 4:
                    assert folder.total_bytes > folder.usable_bytes > 0
            assert (await client.call(folders(), version)).results[0].topics == []
        async with run_broker(disk=PosixDisk(data)) as running:
            client = await running.connect()
            [folder] = (await client.call(DescribeLogDirsRequest(topics=None), version)).results
            assert {p.partition_index: p.partition_size for p in folder.topics[0].partitions} == sizes
            assert list(running.broker.logs.logs()) == [running.broker.metadata_log.log], "no file was opened for it"

    run(main())


def test_folders_of_many_partitions_are_made_when_they_are_used(run: Any, run_broker: Any, tmp_path: Path) -> None:
    data, many = tmp_path / "data", MADE_AT_ONCE + 10

    def made() -> int:
        return len(list(data.glob("t-*")))

    async def described(client: Any) -> dict[int, int]:
        [folder] = (await client.call(DescribeLogDirsRequest(topics=None), 4)).results
        return {p.partition_index: p.partition_size for p in folder.topics[0].partitions}

    async def main() -> None:
        async with run_broker(disk=PosixDisk(data)) as running:
            client = await running.connect()
            await client.create_topic("t", partitions=many)
            assert made() == MADE_AT_ONCE
            assert await described(client) == dict.fromkeys(range(many), 0)
            assert (await client.produce("t", b"hello", partition=many - 1)).error_code == 0
            assert made() == MADE_AT_ONCE + 1
            sizes = await described(client)
            assert sizes[many - 1] == first_segment_bytes(data / f"t-{many - 1}")
        async with run_broker(disk=PosixDisk(data)) as running:
            client = await running.connect()
            assert await described(client) == sizes
            assert (await client.produce("t", b"hello", partition=many - 2)).base_offset == 0
            assert (await client.produce("t", b"hello", partition=many - 1)).base_offset == 1
            await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            assert not [path.name for path in data.glob("t-*") if not path.name.endswith("-delete")]

    run(main())


@pytest.mark.parametrize("version", range(3))
def test_replicas_stay_in_the_one_folder(run: Any, run_broker: Any, tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with run_broker(disk=PosixDisk(tmp_path / "data")) as running:
            client = await running.connect()
            await client.create_topic("t")
            folder, topic = (
                AlterReplicaLogDirsRequest.AlterReplicaLogDir,
                AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic,
            )
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    folder(path=str(tmp_path / "data"), topics=[topic(name="t", partitions=[0, 7])]),
                    folder(path="/no/such", topics=[topic(name="u", partitions=[0])]),
                ]
            )
            results = (await client.call(request, version)).results
            assert {
                (result.topic_name, partition.partition_index): partition.error_code
                for result in results
                for partition in result.partitions
            } == {("t", 0): 0, ("t", 7): UnknownTopicOrPartition.code, ("u", 0): LogDirNotFound.code}

    run(main())


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_kept(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        request, part, operation = (
            AlterClientQuotasRequest,
            AlterClientQuotasRequest.EntityData,
            AlterClientQuotasRequest.OpData,
        )
        everything = DescribeClientQuotasRequest(components=[], strict=False)

        def rate(*entity: tuple[str, str | None], value: float, **fields: Any) -> AlterClientQuotasRequest:
            return request(
                entries=[
                    request.EntryData(
                        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
                        ops=[operation(key="producer_byte_rate", value=value)],
                    )
                ],
                **fields,
            )

        async with run_broker(disk=disk) as running:
            client = await running.connect()
            [entry] = (await client.call(rate(("user", "u"), ("client-id", "c"), value=5.0), version)).entries
            assert (entry.error_code, entry.error_message) == (0, None)
            assert [(p.entity_type, p.entity_name) for p in entry.entity] == [("client-id", "c"), ("user", "u")]
            [entry] = (await client.call(rate(("user", None), value=0.5), version)).entries
            assert (entry.error_code, entry.error_message) == (
                InvalidRequest.code,
                "producer_byte_rate cannot be a fractional value.",
            )
            await client.call(rate(("user", "v"), value=5.0, validate_only=True), version)
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            response = await client.call(everything, version)
            assert (response.error_code, response.error_message) == (0, "")
            [entry] = response.entries
            assert [(v.key, v.value) for v in entry.values] == [("producer_byte_rate", 5.0)]
            component = DescribeClientQuotasRequest.ComponentData(
                entity_type="group", match_type=QuotaMatchType.SPECIFIED, match=None
            )
            refused = await client.call(DescribeClientQuotasRequest(components=[component], strict=False), version)
            assert (refused.error_code, refused.entries) == (UnsupportedVersion.code, None)

    run(main())


def test_scram_users_are_kept(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        request = AlterUserScramCredentialsRequest
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            response = await client.call(
                request(
                    deletions=[request.ScramCredentialDeletion(name="gone", mechanism=ScramMechanism.SCRAM_SHA_256)],
                    upsertions=[
                        request.ScramCredentialUpsertion(
                            name="u",
                            mechanism=ScramMechanism.SCRAM_SHA_512,
                            iterations=4096,
                            salt=b"salt",
                            salted_password=b"p" * 64,
                        )
                    ],
                ),
                0,
            )
            assert {r.user: (r.error_code, r.error_message) for r in response.results} == {
                "u": (0, None),
                "gone": (ResourceNotFound.code, "Attempt to delete a user credential that does not exist"),
            }
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            response = await client.call(DescribeUserScramCredentialsRequest(users=None), 0)
            assert (response.error_code, response.error_message) == (0, "")
            [user] = response.results
            assert (user.user, user.error_code, user.error_message) == ("u", 0, "")
            assert [(info.mechanism, info.iterations) for info in user.credential_infos] == [(2, 4096)]
            name = DescribeUserScramCredentialsRequest.UserName(name="no")
            [unknown] = (await client.call(DescribeUserScramCredentialsRequest(users=[name]), 0)).results
            assert unknown.error_code == ResourceNotFound.code

    run(main())


def formatted(*records: Message) -> MemoryDisk:
    """The files that `kafka-storage format` writes."""
    disk = MemoryDisk()
    disk.write_atomic(
        "meta.properties", b"version=1\ncluster.id=Acluster\nnode.id=1\ndirectory.id=xbQ6BvKdQ1WzKVxN2hbK5g\n"
    )
    values = [encode_metadata_record(record, record.STABLE_VERSION) for record in records]
    batch = build_batch([Record(number, START_MS, None, value) for number, value in enumerate(values)], leader_epoch=0)
    disk.write_atomic("bootstrap.checkpoint", bytes(batch))
    return disk


def test_a_new_folder_has_the_records_of_its_formatting(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = formatted(
            stored.FeatureLevelRecord(name="metadata.version", feature_level=30),
            stored.FeatureLevelRecord(name="group.version", feature_level=1),
            stored.UserScramCredentialRecord(
                name="u",
                mechanism=ScramMechanism.SCRAM_SHA_256,
                salt=b"salt",
                stored_key=b"s" * 32,
                server_key=b"k" * 32,
                iterations=8192,
            ),
        )
        for _ in range(2):  # the second start has it from the metadata log
            async with run_broker(disk=disk, settings=NODE) as running:
                client = await running.connect()
                [user] = (await client.call(DescribeUserScramCredentialsRequest(users=None), 0)).results
                assert [(i.mechanism, i.iterations) for i in user.credential_infos] == [(1, 8192)]
                versions = await client.call(
                    ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3
                )
                levels = {feature.name: feature.max_version_level for feature in versions.finalized_features}
                assert levels == {"metadata.version": 30, "group.version": 1}

    run(main())


def test_a_folder_whose_formatting_is_damaged_is_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = formatted(stored.FeatureLevelRecord(name="metadata.version", feature_level=30))
        flipped = bytearray(disk.read_bytes("bootstrap.checkpoint"))
        flipped[-1] ^= 1
        for damage in (flipped, b"garbage"):
            disk.write_atomic("bootstrap.checkpoint", bytes(damage))
            with pytest.raises(KafkaStorageError, match=r"bootstrap\.checkpoint is damaged"):
                async with run_broker(disk=disk, settings=NODE):
                    pass

    run(main())


def test_a_new_cluster_takes_min_insync_replicas_from_its_first_start(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        for configured in (2, 3):
            async with run_broker(disk=disk, settings={"min.insync.replicas": configured}) as running:
                client = await running.connect()
                resource = DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=ConfigResourceType.BROKER,
                    resource_name="1",
                    configuration_keys=["min.insync.replicas"],
                )
                [result] = (await client.call(DescribeConfigsRequest(resources=[resource]), 4)).results
                [config] = result.configs
                assert (config.value, config.config_source) == ("2", 3)

    run(main())


def described_acls(resource_type: int = 1) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


def new_acl(**fields: Any) -> CreateAclsRequest.AclCreation:
    values = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:u", "host": "*"}
    return CreateAclsRequest.AclCreation(**{**values, "operation": 3, "permission_type": 3, **fields})


def deleted_acls(operation: int = 1) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter=None,
                pattern_type_filter=PatternType.ANY,
                principal_filter=None,
                host_filter=None,
                operation=operation,
                permission_type=AclPermissionType.ANY,
            )
        ]
    )


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_need_an_authorizer(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            listed = await client.call(described_acls(), version)
            assert (listed.error_code, listed.error_message) == (
                SecurityDisabled.code,
                "No Authorizer is configured on the broker",
            )
            made = await client.call(CreateAclsRequest(creations=[new_acl(), new_acl()]), version)
            assert [(r.error_code, r.error_message) for r in made.results] == [
                (SecurityDisabled.code, "No Authorizer is configured.")
            ] * 2
            gone = await client.call(deleted_acls(), version)
            assert [r.error_code for r in gone.filter_results] == [SecurityDisabled.code]
            assert running.broker.metadata.acls == {}

    run(main())


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_kept(run: Any, run_broker: Any, version: int) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }

    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings=settings) as running:
            client = await running.connect()
            creations = [new_acl(), new_acl(resource_name=""), new_acl(resource_type=ResourceType.ANY)]
            made = await client.call(CreateAclsRequest(creations=creations), version)
            assert [(r.error_code, r.error_message) for r in made.results] == [
                (0, ""),
                (InvalidRequest.code, "Invalid empty resource name"),
                (UnknownServerError.code, None),
            ]
        async with run_broker(disk=disk, settings=settings) as running:
            client = await running.connect()
            [resource] = (await client.call(described_acls(), version)).resources
            assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
            assert [(acl.principal, acl.operation) for acl in resource.acls] == [("User:u", 3)]
            [unknown] = (await client.call(deleted_acls(operation=99), version)).filter_results
            assert (unknown.error_code, unknown.error_message) == (InvalidRequest.code, "Unknown entryFilter.")
            [removed] = (await client.call(deleted_acls(), version)).filter_results
            assert [(acl.resource_name, acl.error_code, acl.error_message) for acl in removed.matching_acls] == [
                ("t", 0, None)
            ]
            assert (await client.call(described_acls(), version)).resources == []
            client.send(described_acls(resource_type=ResourceType.UNKNOWN), version)
            assert await client.is_closed(), "UNKNOWN is refused in a request"

    run(main())


def updates(*wanted: tuple[str, int, int], **fields: Any) -> UpdateFeaturesRequest:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(
        feature_updates=[
            key(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != 1)
            for name, level, kind in wanted
        ],
        **fields,
    )


async def finalized(client: Any) -> dict[str, int]:
    response = await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {feature.name: feature.max_version_level for feature in response.finalized_features}


def test_update_features_version_0_cannot_downgrade(run: Any, run_broker: Any) -> None:
    """Kafka 4.3 does not read the flag that allows it either."""

    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            response = await client.call(updates(("share.version", 0, 2)), 0)
            assert response.error_code == InvalidUpdateVersion.code
            assert "without setting the upgrade type to either safe or unsafe downgrade" in response.error_message
            assert (await finalized(client))["share.version"] == 1
            assert (await client.call(updates(("share.version", 1, 1)), 0)).error_code == 0

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_features_are_updated(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            response = await client.call(updates(("share.version", 0, 2)), version)
            assert (response.error_code, response.error_message) == (0, None)
            expected = [("share.version", 0, "NONE")] if version <= 1 else []
            assert [(r.feature, r.error_code, r.error_message) for r in response.results] == expected
            refused = await client.call(updates(("streams.version", 0, 2), ("nope", 1, 1)), version)
            assert (refused.error_code, refused.results) == (InvalidUpdateVersion.code, [])
            assert refused.error_message == (
                "The update failed for all features since the following feature had an error: Invalid update version 1 "
                "for feature nope. Local controller 1 does not support this feature."
            )
        async with run_broker(disk=disk, settings=NODE) as running:
            features = await finalized(await running.connect())
            assert "share.version" not in features
            assert features["streams.version"] == 1

    run(main())


def test_validated_features_stay(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            response = await client.call(updates(("share.version", 0, 2), validate_only=True), 2)
            assert response.error_code == 0
            assert (await finalized(client))["share.version"] == 1

    run(main())


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_consists_of_this_broker(run: Any, run_broker: Any, version: int) -> None:
    topic, partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData

    def question(*wanted: tuple[str, int]) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[topic(topic_name=name, partitions=[partition(partition_index=index)]) for name, index in wanted]
        )

    async def main() -> None:
        async with run_broker(settings=NODE, clock=ManualClock(START_MS)) as running:
            client = await running.connect()
            response = await client.call(question(("__cluster_metadata", 0)), version)
            [found] = response.topics[0].partitions
            assert (response.error_code, found.error_code, found.leader_id, found.leader_epoch) == (0, 0, 1, 1)
            assert found.high_watermark == running.broker.metadata_offset + 1
            [voter] = found.current_voters
            assert (voter.replica_id, voter.replica_directory_id) == (1, ZERO_UUID)
            assert voter.log_end_offset == found.high_watermark
            assert found.observers == []
            if version >= 1:
                assert voter.last_caught_up_timestamp == START_MS
            if version >= 2:
                [node] = response.nodes
                assert (node.node_id, node.listeners[0].name) == (1, "CONTROLLER")
            for wrong in ([("foo", 0)], [("__cluster_metadata", 1)], [("__cluster_metadata", 0), ("foo", 0)]):
                refused = await client.call(question(*wrong), version)
                assert {p.error_code for t in refused.topics for p in t.partitions} == {UnknownTopicOrPartition.code}
                assert refused.nodes == []

    run(main())


def test_requests_to_change_voters_are_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=1)

            async def add(version: int = 1, **fields: Any) -> tuple[int, str]:
                directory = {"voter_directory_id": bytes(15) + b"x"}
                values = {"cluster_id": None, "timeout_ms": 1000, "voter_id": 5, "listeners": [listener]}
                values |= directory | fields
                response = await client.call(AddRaftVoterRequest(**values), version)
                return response.error_code, response.error_message

            fixed = (35, "Cluster doesn't support adding voter because the kraft.version feature is 0")
            assert await add(0) == await add(1) == fixed
            assert await add(cluster_id="x") == (
                104,
                f'The given id "x" doesn\'t match the cluster id "{running.broker.cluster_id}"',
            )
            assert await add(voter_id=-1) == (42, "Add voter request didn't include a valid voter")
            assert await add(voter_directory_id=ZERO_UUID) == (42, "Add voter request didn't include a valid voter")
            assert await add(listeners=[]) == (
                42,
                "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the default listener "
                "ListenerName(CONTROLLER)",
            )
            for directory, refused in (
                (
                    bytes(15) + b"x",
                    (35, "Cluster doesn't support removing voter because the kraft.version feature is 0"),
                ),
                (ZERO_UUID, (42, "Remove voter request didn't include a valid voter")),
            ):
                request = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=directory)
                gone = await client.call(request, 0)
                assert (gone.error_code, gone.error_message) == refused

    run(main())


def test_a_broker_that_serves_can_be_unregistered(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            response = await client.call(UnregisterBrokerRequest(broker_id=9), 0)
            assert (response.error_code, response.error_message) == (
                BrokerIdNotRegistered.code,
                "Broker ID 9 is not currently registered",
            )
            assert (await client.call(UnregisterBrokerRequest(broker_id=1), 0)).error_code == 0
            cluster = await client.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
            assert [broker.broker_id for broker in cluster.brokers] == []

    run(main())


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (0, UnsupportedEndpointType.code, "Unsupported endpoint type 0"),
        (
            2,
            MismatchedEndpointType.code,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
    ],
)
def test_a_broker_describes_brokers(run: Any, run_broker: Any, endpoint_type: int, code: int, message: str) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            response = await client.call(DescribeClusterRequest(endpoint_type=endpoint_type), 2)
            assert (response.error_code, response.error_message, response.brokers) == (code, message, [])

    run(main())


INSTANCE = b"\x05" * 16


def push(subscription_id: int, instance_id: bytes = INSTANCE, **fields: Any) -> PushTelemetryRequest:
    return PushTelemetryRequest(client_instance_id=instance_id, subscription_id=subscription_id, **fields)


def test_telemetry_is_served_but_not_advertised(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            versions = await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
            assert not {71, 72} & {api.api_key for api in versions.api_keys}

            async def subscribe(instance_id: bytes) -> Any:
                return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)

            async def pushed(*args: Any, **fields: Any) -> int:
                code: int = (await client.call(push(*args, **fields), 0)).error_code
                return code

            first = await subscribe(ZERO_UUID)
            assert first.error_code == 0
            assert first.client_instance_id != ZERO_UUID
            assert (first.push_interval_ms, first.telemetry_max_bytes) == (300_000, 1_048_576)
            assert (first.accepted_compression_types, first.delta_temporality) == ([4, 3, 1, 2], True)
            mine = await subscribe(INSTANCE)
            assert mine.client_instance_id == INSTANCE
            assert (await subscribe(INSTANCE)).error_code == ThrottlingQuotaExceeded.code, "the interval has not ended"
            assert await pushed(mine.subscription_id, ZERO_UUID) == 42
            assert await pushed(mine.subscription_id) == 0
            assert await pushed(mine.subscription_id) == 89
            clock.advance(300_000)
            assert await pushed(mine.subscription_id + 1) == 117
            clock.advance(300_000)
            assert await pushed(mine.subscription_id, compression_type=9) == 76
            clock.advance(300_000)
            assert await pushed(mine.subscription_id, metrics=bytes(1_048_577)) == 118
            assert await pushed(mine.subscription_id, terminating=True) == 0
            assert await pushed(mine.subscription_id, terminating=True) == 42

    run(main())


def test_subscriptions_select_clients(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(START_MS)) as running:
            client = await running.connect()
            request = IncrementalAlterConfigsRequest

            async def configure(name: str, **values: str) -> None:
                configs = [
                    request.AlterableConfig(name=key.replace("_", "."), config_operation=AlterConfigOp.SET, value=value)
                    for key, value in values.items()
                ]
                resource = request.AlterConfigsResource(
                    resource_type=ConfigResourceType.CLIENT_METRICS, resource_name=name, configs=configs
                )
                [result] = (await client.call(request(resources=[resource]), 1)).responses
                assert result.error_code == 0, result

            async def told(number: int) -> tuple[int, list[str]]:
                question = GetTelemetrySubscriptionsRequest(client_instance_id=bytes([number] * 16))
                response = await client.call(question, 0)
                return response.push_interval_ms, response.requested_metrics

            await configure("mine", interval_ms="1000", metrics="org.apache,foo", match="client_id=te.*")
            await configure("others", interval_ms="500", metrics="bar", match="client_id=other")
            assert await told(1) == (1000, ["foo", "org.apache"])
            await configure("all", interval_ms="2000", metrics="*")
            assert await told(2) == (1000, ["*"])
            assert await told(1) == (1000, ["*"]), "a change is visible at once"

    run(main())
