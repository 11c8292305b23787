"""What confluent-kafka's AdminClient can do besides topics and groups."""

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

WAIT_S = 60
KINDS = {"topic": ConfigResource.Type.TOPIC, "broker": ConfigResource.Type.BROKER}
ANY_TOPIC = AclBindingFilter(
    ResourceType.TOPIC,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class Administration:
    admin: AdminClient

    def configs_describe(self, kind: str, name: str) -> dict[str, Any]:
        resource = ConfigResource(KINDS[kind], name)
        found = self.admin.describe_configs([resource])[resource].result(WAIT_S)
        return {
            key: {"value": entry.value, "source": int(entry.source), "sensitive": entry.is_sensitive}
            for key, entry in found.items()
        }

    def configs_alter(
        self,
        kind: str,
        name: str,
        set: dict[str, str] | None = None,
        delete: list[str] | None = None,
        append: dict[str, str] | None = None,
        subtract: dict[str, str] | None = None,
    ) -> None:
        changes = [(key, value, AlterConfigOpType.SET) for key, value in (set or {}).items()]
        changes += [(key, None, AlterConfigOpType.DELETE) for key in delete or ()]
        changes += [(key, value, AlterConfigOpType.APPEND) for key, value in (append or {}).items()]
        changes += [(key, value, AlterConfigOpType.SUBTRACT) for key, value in (subtract or {}).items()]
        entries = [ConfigEntry(key, value, incremental_operation=op) for key, value, op in changes]
        resource = ConfigResource(KINDS[kind], name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def configs_replace(self, kind: str, name: str, configs: dict[str, str]) -> None:
        resource = ConfigResource(KINDS[kind], name, set_config=configs)
        self.admin.alter_configs([resource])[resource].result(WAIT_S)

    def partitions_create(self, topic: str, count: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S)

    def records_delete(self, topic: str, partition: int, offset: int) -> int:
        place = TopicPartition(topic, partition, offset)
        return int(self.admin.delete_records([place])[place].result(WAIT_S).low_watermark)

    def acls_create(self, user: str, topic: str) -> None:
        acl = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        self.admin.create_acls([acl])[acl].result(WAIT_S)

    def acls_describe(self) -> int:
        return len(self.admin.describe_acls(ANY_TOPIC).result(WAIT_S))

    def acls_delete(self) -> int:
        return len(self.admin.delete_acls([ANY_TOPIC])[ANY_TOPIC].result(WAIT_S))

    def scram_alter(self, user: str, mechanism: str, iterations: int = 0, password: str | None = None) -> None:
        kind = ScramMechanism[mechanism.replace("-", "_")]
        change = (
            UserScramCredentialDeletion(user, kind)
            if password is None
            else UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, iterations), password.encode())
        )
        self.admin.alter_user_scram_credentials([change])[user].result(WAIT_S)

    def scram_describe(self, user: str) -> list[list[Any]]:
        found = self.admin.describe_user_scram_credentials([user])[user].result(WAIT_S)
        return sorted([info.mechanism.name.replace("_", "-"), info.iterations] for info in found.scram_credential_infos)

    def elect_leaders(self, topic: str, partition: int) -> None:
        done = self.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(WAIT_S)
        for outcome in done.values():
            if outcome is not None:
                raise outcome if isinstance(outcome, KafkaException) else KafkaException(outcome)

    def group_offsets_alter(self, group: str, topic: str, partition: int, offset: int) -> None:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        done = self.admin.alter_consumer_group_offsets([asked])[group].result(WAIT_S)
        for place in done.topic_partitions:
            if isinstance(place.error, KafkaError):
                raise KafkaException(place.error)

    def group_offsets(self, group: str) -> list[list[Any]]:
        asked = ConsumerGroupTopicPartitions(group)
        found = self.admin.list_consumer_group_offsets([asked])[group].result(WAIT_S)
        return sorted([place.topic, place.partition, place.offset] for place in found.topic_partitions)
