"""The answers to admin requests that fail: the error code, and the message that tools show to users."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import (
    AclOperation,
    AclPermissionType,
    AlterConfigOp,
    ConfigResourceType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from ottla.errors import (
    NONE,
    InvalidConfig,
    InvalidRequest,
    InvalidTopicException,
    InvalidUpdateVersion,
    ResourceNotFound,
    UnacceptableCredential,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedSaslMechanism,
)
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.wire import Wire


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("retention.ms", "x", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("foo", "1", "Unknown topic config name: foo"),
        (
            "cleanup.policy",
            "nope",
            "Invalid value nope for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (
            "preallocate",
            "maybe",
            "Invalid value maybe for configuration preallocate: Expected value to be either true ",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ("leader.replication.throttled.replicas", "x", "Invalid value [x] for configuration leader.replication."),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker."),
        (
            "compression.gzip.level",
            "99",
            "Invalid value 99 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
    ],
)
def test_configs_of_a_new_topic(
    wire: Wire, unique: Callable[[str], str], key: str, value: str | None, message: str
) -> None:
    config = m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
    topic = m.CreateTopicsRequest.CreatableTopic(name=unique("t"), num_partitions=1, replication_factor=1)
    topic.configs = [config]
    (found,) = wire.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True), 7).topics
    assert found.error_code == InvalidConfig.code
    assert found.error_message.startswith(message)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (ConfigResourceType.TOPIC, "{topic}", [("cleanup.policy", 9, "compact")], UnknownServerError.code, None),
        (
            ConfigResourceType.TOPIC,
            "{topic}",
            [("segment.bytes", AlterConfigOp.APPEND, "5")],
            InvalidConfig.code,
            "Can't APPEND to key segment.bytes because its type",
        ),
        (
            ConfigResourceType.TOPIC,
            "{topic}",
            [("retention.ms", AlterConfigOp.SET, None)],
            InvalidRequest.code,
            "Null value not supported for : retention.ms",
        ),
        (
            ConfigResourceType.TOPIC,
            "{topic}",
            [("retention.ms", AlterConfigOp.SET, "1"), ("retention.ms", AlterConfigOp.SET, "2")],
            InvalidRequest.code,
            "Error due to duplicate",
        ),
        (
            ConfigResourceType.TOPIC,
            "",
            [("retention.ms", AlterConfigOp.SET, "1")],
            InvalidRequest.code,
            "Default topic resources are not allowed.",
        ),
        (
            ConfigResourceType.BROKER,
            "99",
            [("log.retention.ms", AlterConfigOp.SET, "1")],
            InvalidRequest.code,
            "Unexpected broker id, expected {broker}, but received 99",
        ),
        (
            ConfigResourceType.BROKER,
            "x",
            [("log.retention.ms", AlterConfigOp.SET, "1")],
            InvalidRequest.code,
            "Node id must be an integer, but it is: x",
        ),
        (
            ConfigResourceType.BROKER,
            "{broker}",
            [("node.id", AlterConfigOp.SET, "2")],
            InvalidRequest.code,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (
            ConfigResourceType.BROKER,
            "",
            [("message.max.bytes", AlterConfigOp.SET, "x")],
            InvalidRequest.code,
            "Invalid value x for configuration message.max.bytes:",
        ),
        (
            ConfigResourceType.BROKER_LOGGER,
            "{broker}",
            [("nope", AlterConfigOp.SET, "LOUD")],
            InvalidConfig.code,
            "Logger nope does not exist!",
        ),
        (
            ConfigResourceType.CLIENT_METRICS,
            "sub",
            [("interval.ms", AlterConfigOp.SET, "1")],
            InvalidRequest.code,
            "Invalid value 1 for interval.ms, interval must be between",
        ),
        (
            ConfigResourceType.CLIENT_METRICS,
            "",
            [("interval.ms", AlterConfigOp.SET, "100")],
            InvalidRequest.code,
            "Subscription name can't be empty",
        ),
        *(
            (
                ConfigResourceType.CLIENT_METRICS,
                "sub",
                [("match", AlterConfigOp.SET, pattern)],
                InvalidConfig.code,
                f"Illegal client matching pattern: {pattern}",
            )
            for pattern in ("client_id", "client_id=", "client_id==x", "client_id=(", "=x", "nope=x")
        ),
        *(
            (ConfigResourceType.CLIENT_METRICS, "sub", [("match", AlterConfigOp.SET, pattern)], NONE, None)
            for pattern in ("client_id=x=", "client_id=.*x{2}", r" client_id = [\w-]+ ")
        ),
        *(
            (ConfigResourceType.BROKER, "", [(f"listener.name.plaintext.{key}", AlterConfigOp.SET, "5")], NONE, None)
            for key in ("max.connections", "max.connection.creation.rate", "num.network.threads")
        ),
        (
            ConfigResourceType.BROKER,
            "",
            [("listener.name.plaintext.max.connections.per.ip", AlterConfigOp.SET, "5")],
            InvalidRequest.code,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.max.connections.per.ip]",
        ),
        (
            ConfigResourceType.CLIENT_METRICS,
            "sub",
            [("nope", AlterConfigOp.SET, "1")],
            InvalidRequest.code,
            "Unknown client metrics configuration: nope",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            [("consumer.session.timeout.ms", AlterConfigOp.SET, "1")],
            InvalidConfig.code,
            "consumer.session.timeout.ms must be greater",
        ),
        (
            ConfigResourceType.GROUP,
            "g",
            [("nope", AlterConfigOp.SET, "1")],
            InvalidConfig.code,
            "Unknown group config name: nope",
        ),
        (
            ConfigResourceType.GROUP,
            "",
            [("consumer.session.timeout.ms", AlterConfigOp.SET, "50000")],
            InvalidRequest.code,
            "Default group resources are not allowed.",
        ),
        (5, "x", [("a", AlterConfigOp.SET, "1")], InvalidRequest.code, "Unknown resource type 5"),
    ],
)
def test_changes_of_configs(
    wire: Wire, topic: str, kind: int, name: str, changes: list[Any], code: int, message: str | None
) -> None:
    known = {"topic": topic, "broker": wire.metadata().brokers[0].node_id}
    request = m.IncrementalAlterConfigsRequest
    entries = [request.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    asked = request.AlterConfigsResource(resource_type=kind, resource_name=name.format(**known), configs=entries)
    (found,) = wire.call(request(resources=[asked], validate_only=True), 1).responses
    assert found.error_code == code
    if message is None:
        assert not found.error_message
    else:
        assert found.error_message.startswith(message.format(**known))


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        ({"user": "a"}, "nope", 1.0, "Invalid configuration key nope"),
        ({"user": "a"}, "producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ({"user": "a"}, "request_percentage", 0.5, None),
        ({"user": "a"}, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ({"user": ""}, "producer_byte_rate", 1.0, "Empty user not supported"),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        ({"foo": "x"}, "producer_byte_rate", 1.0, "Unhandled client quota entity type: foo"),
        ({}, "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
    ],
)
def test_quotas(wire: Wire, entity: dict[str, str], key: str, value: float, message: str | None) -> None:
    request = m.AlterClientQuotasRequest
    parts = [request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    entry = request.EntryData(entity=parts, ops=[request.OpData(key=key, value=value, remove=False)])
    (found,) = wire.call(request(entries=[entry], validate_only=True), 1).entries
    assert (found.error_code, found.error_message) == (0 if message is None else InvalidRequest.code, message)


@pytest.mark.parametrize(
    ("user", "mechanism", "iterations", "code", "message"),
    [
        ("nope", 1, None, ResourceNotFound.code, "Attempt to delete a user credential that does not exist"),
        ("", 1, None, UnacceptableCredential.code, "Username must not be empty"),
        ("a", 0, None, UnsupportedSaslMechanism.code, "Unknown SCRAM mechanism"),
        ("a", 1, 1, UnacceptableCredential.code, "Too few iterations"),
        ("a", 1, 100_000, UnacceptableCredential.code, "Too many iterations"),
        ("", 1, 4096, UnacceptableCredential.code, "Username must not be empty"),
        ("a", 9, 4096, UnsupportedSaslMechanism.code, "Unknown SCRAM mechanism"),
    ],
)
def test_scram(wire: Wire, user: str, mechanism: int, iterations: int | None, code: int, message: str) -> None:
    request = m.AlterUserScramCredentialsRequest
    asked = request(deletions=[], upsertions=[])
    if iterations is None:
        asked.deletions = [request.ScramCredentialDeletion(name=user, mechanism=mechanism)]
    else:
        made = request.ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations)
        made.salt, made.salted_password = b"s", b"p"
        asked.upsertions = [made]
    (found,) = wire.call(asked, 0).results
    assert (found.error_code, found.error_message) == (code, message)


def test_names_that_describe_topic_partitions_refuses(wire: Wire) -> None:
    def codes(*names: str) -> list[tuple[str, int]]:
        topics = [m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
        return [
            (topic.name, topic.error_code)
            for topic in wire.call(m.DescribeTopicPartitionsRequest(topics=topics, cursor=None), 0).topics
        ]

    assert codes("nope", "bad name") == [
        ("bad name", InvalidTopicException.code),
        ("nope", UnknownTopicOrPartition.code),
    ]
    assert codes("nope", "", "bad name") == [(name, UnknownServerError.code) for name in ("nope", "", "bad name")]


def test_the_first_version_of_update_features_cannot_downgrade(wire: Wire) -> None:
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0)
    update.allow_downgrade = True
    found = wire.call(m.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 0)
    assert found.error_code == InvalidUpdateVersion.code
    assert "either safe or unsafe downgrade" in found.error_message


@pytest.mark.parametrize("version", [1, 2])
def test_updates_of_unknown_features(version: int, wire: Wire) -> None:
    def refused(feature: str, level: int, kind: int = 1) -> str:
        update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        request = m.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=True)
        found = wire.call(request, version)
        assert found.error_code == InvalidUpdateVersion.code
        return found.error_message.partition(" had an error: ")[2]

    assert refused("nope", 0) == "Invalid update version 0 for feature nope. Feature nope not found."
    assert refused("nope", 1).endswith(" does not support this feature.")
    assert refused("kraft.version", 1, kind=2).endswith("Can't downgrade to a newer version.")


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_config_operation_fails_the_whole_request(version: int, topic: str, wire: Wire) -> None:
    request = m.IncrementalAlterConfigsRequest

    def change(name: str, operation: int) -> Any:
        config = request.AlterableConfig(name="retention.ms", config_operation=operation, value="1000000")
        return request.AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name, configs=[config]
        )

    asked = request(resources=[change(topic, 9), change("nope", AlterConfigOp.SET)], validate_only=False)
    assert [(found.error_code, found.error_message) for found in wire.call(asked, version).responses] == [
        (UnknownServerError.code, None)
    ] * 2


def test_scram_without_a_password(wire: Wire) -> None:
    upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    made = upsertion(name="u", mechanism=ScramMechanism.SCRAM_SHA_256, iterations=4096, salt=b"s", salted_password=b"")
    (found,) = wire.call(m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[made]), 0).results
    assert (found.error_code, found.error_message) == (UnknownServerError.code, None)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_acl_of_an_unknown_type_closes_the_connection(version: int, field: str, wire: Wire) -> None:
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:u",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    setattr(creation, field, 0)
    wire.send(m.CreateAclsRequest(creations=[creation]), version)
    assert wire.is_closed()


def test_voters_need_an_id_and_a_directory(wire: Wire) -> None:
    """A voter is identified with the id of its folder."""
    added = wire.call(m.AddRaftVoterRequest(cluster_id=None, timeout_ms=1000, voter_id=2, listeners=[]), 1)
    assert (added.error_code, added.error_message) == (
        InvalidRequest.code,
        "Add voter request didn't include a valid voter",
    )
    for voter_id, directory in ((2, ZERO_UUID), (-1, b"d" * 16)):
        request = m.RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory)
        removed = wire.call(request, 0)
        assert (removed.error_code, removed.error_message) == (
            InvalidRequest.code,
            "Remove voter request didn't include a valid voter",
        )
