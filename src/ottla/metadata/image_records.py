"""The records of an image: the content of a metadata snapshot (KIP-630)."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.enums import ConfigResourceType
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import KRAFT_VERSION, MetadataImage, PartitionState
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored


def image_records(image: MetadataImage) -> Iterator[Message]:
    """In Kafka's order: features first, then the records that others depend on."""
    for name, level in sorted(image.features.items(), key=lambda item: item[0] != METADATA_VERSION):
        if name == KRAFT_VERSION:
            continue  # a control record, which the quorum writes
        yield stored.FeatureLevelRecord(name=name, feature_level=level)
    yield from _nodes(image)
    for topic in image.topics.values():
        yield stored.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            yield partition_record(partition)
    for (resource_type, resource), values in image.configs.items():
        for name, value in values.items():
            yield stored.ConfigRecord(
                resource_type=ConfigResourceType(resource_type), resource_name=resource, name=name, value=value
            )
    for entity, quotas in image.quotas.items():
        parts = [stored.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, number in quotas.items():
            yield stored.ClientQuotaRecord(entity=parts, key=key, value=number)
    if image.next_producer_id:
        yield stored.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from _security(image)


def partition_record(partition: PartitionState) -> stored.PartitionRecord:
    return stored.PartitionRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _nodes(image: MetadataImage) -> Iterator[Message]:
    broker_record, controller_record = stored.RegisterBrokerRecord, stored.RegisterControllerRecord
    for broker in image.brokers.values():
        yield broker_record(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=[
                broker_record.BrokerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in broker.endpoints
            ],
            features=[
                broker_record.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in broker.features.items()
            ],
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.log_dirs,
        )
    for controller in image.controllers.values():
        yield controller_record(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            end_points=[
                controller_record.ControllerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in controller.endpoints
            ],
            features=[
                controller_record.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in controller.features.items()
            ],
        )


def _security(image: MetadataImage) -> Iterator[Message]:
    for (user, mechanism), credential in image.credentials.items():
        yield stored.UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for acl_id, acl in image.acls.items():
        yield stored.AccessControlEntryRecord(id=acl_id, **acl._asdict())
    for token in image.delegation_tokens.values():
        yield stored.DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_ms,
            max_timestamp=token.max_ms,
            expiration_timestamp=token.expiry_ms,
            token_id=token.token_id,
        )
