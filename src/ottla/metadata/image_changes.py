"""The difference between two images, as records for a broker that had to load a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.image_records import image_records
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored


def changes_between(old: MetadataImage, new: MetadataImage) -> Iterator[Message]:
    """First the removals, then all records of the new image: those without a change have no effect."""
    for topic_id in old.topics_by_id:
        if topic_id not in new.topics_by_id:
            yield stored.RemoveTopicRecord(topic_id=topic_id)
    for broker in old.brokers.values():
        if broker.broker_id not in new.brokers:
            yield stored.UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    for (resource_type, resource), values in old.configs.items():
        for name in values.keys() - new.configs.get((resource_type, resource), {}).keys():
            yield stored.ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=None)
    for entity, quotas in old.quotas.items():
        parts = [stored.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key in quotas.keys() - new.quotas.get(entity, {}).keys():
            yield stored.ClientQuotaRecord(entity=parts, key=key, remove=True)
    for user, mechanism in old.credentials.keys() - new.credentials.keys():
        yield stored.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
    for acl_id in old.acls.keys() - new.acls.keys():
        yield stored.RemoveAccessControlEntryRecord(id=acl_id)
    for token_id in old.delegation_tokens.keys() - new.delegation_tokens.keys():
        yield stored.RemoveDelegationTokenRecord(token_id=token_id)
    for record in image_records(new):
        if isinstance(record, stored.TopicRecord) and record.topic_id in old.topics_by_id:
            continue  # the record would replace it with an empty topic
        if isinstance(record, stored.PartitionRecord) and record.topic_id in old.topics_by_id:
            before = old.topics_by_id[record.topic_id].partitions.get(record.partition_id)
            if before is not None:
                yield from _steps(before, record)
                continue
        yield record


def _steps(old: PartitionState, new: stored.PartitionRecord) -> Iterator[stored.PartitionChangeRecord]:
    """As many changes as the difference of the epochs shows: each bumps the partition's epoch, and some bump the leader
    epoch."""
    count, elections = new.partition_epoch - old.partition_epoch, new.leader_epoch - old.leader_epoch
    for number in range(count):
        change = stored.PartitionChangeRecord(partition_id=new.partition_id, topic_id=new.topic_id)
        if number >= count - elections:
            change.leader = new.leader
        if number == count - 1:
            change.isr, change.replicas, change.directories = new.isr, new.replicas, new.directories
            change.removing_replicas, change.adding_replicas = new.removing_replicas, new.adding_replicas
            change.leader_recovery_state = new.leader_recovery_state
            change.eligible_leader_replicas = new.eligible_leader_replicas or []
            change.last_known_elr = new.last_known_elr or []
        yield change
