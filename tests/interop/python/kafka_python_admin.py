"""What kafka-python's admin client can do besides topics and groups; 2.0.2 can do a part of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.errors
from driver_loop import Refused
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

OLD = kafka.__version__.startswith("2.")
ANY_TOPIC = ResourcePatternFilter(ResourceType.TOPIC, None, kafka.admin.ACLResourcePatternType.ANY)


def check(outcome: Any) -> None:
    """Raise an error that came as a class, an instance, a code or as text: `[Error 40] Name: message`, or `OK`."""
    if isinstance(outcome, str):
        found = re.match(r"\[Error (\d+)\]", outcome)
        if found is None and outcome != "OK":
            raise Refused(None, "KafkaError", outcome)
        outcome = int(found[1]) if found else 0
    if isinstance(outcome, int):
        outcome = kafka.errors.for_code(outcome)
    if outcome is None or outcome is kafka.errors.NoError or isinstance(outcome, kafka.errors.NoError):
        return
    raise outcome() if isinstance(outcome, type) else outcome


class Administration:
    bootstrap: str

    @contextmanager
    def _open(self) -> Iterator[KafkaAdminClient]:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    def configs_describe(self, kind: str, name: str) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        with self._open() as admin:
            if not OLD:
                found = admin.describe_configs([resource], config_filter="all")[kind][name]
                return {
                    key: {
                        "value": entry["value"],
                        "source": _source(entry["config_source"]),
                        "sensitive": entry["is_sensitive"],
                    }
                    for key, entry in found.items()
                }
            response = admin.describe_configs([resource])[0]
        code, message, _, _, entries = response.resources[0]
        if code:
            raise Refused(code, kafka.errors.for_code(code).__name__, message or "")
        return {entry[0]: {"value": entry[1], "source": entry[3], "sensitive": entry[4]} for entry in entries}

    def configs_alter(
        self,
        kind: str,
        name: str,
        set: dict[str, str] | None = None,
        delete: list[str] | None = None,
        append: dict[str, str] | None = None,
        subtract: dict[str, str] | None = None,
    ) -> None:
        changes: dict[str, Any] = {key: ("SET", value) for key, value in (set or {}).items()}
        changes |= dict.fromkeys(delete or (), ("DELETE", None))
        changes |= {key: ("APPEND", value) for key, value in (append or {}).items()}
        changes |= {key: ("SUBTRACT", value) for key, value in (subtract or {}).items()}
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, changes)
        with self._open() as admin:
            check(admin.alter_configs([resource], raise_on_unknown=False, incremental=True)[kind][name])

    def configs_replace(self, kind: str, name: str, configs: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, configs)
        with self._open() as admin:
            if OLD:
                code, message = admin.alter_configs([resource]).resources[0][:2]
                if code:
                    raise Refused(code, kafka.errors.for_code(code).__name__, message or "")
            else:
                check(admin.alter_configs([resource], raise_on_unknown=False, incremental=False)[kind][name])

    def partitions_create(self, topic: str, count: int) -> None:
        with self._open() as admin:
            if OLD:
                from kafka.admin import NewPartitions

                admin.create_partitions({topic: NewPartitions(count)})
            else:
                admin.create_partitions({topic: count})

    def records_delete(self, topic: str, partition: int, offset: int) -> int | None:
        place = TopicPartition(topic, partition)
        with self._open() as admin:
            done = admin.delete_records({place: offset})[place]
        check(done["error_code"])
        return int(done["low_watermark"])

    def acls_create(self, user: str, topic: str) -> None:
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        acl = ACL(f"User:{user}", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
        with self._open() as admin:
            for failed in admin.create_acls([acl])["failed"]:
                check(failed[1] if isinstance(failed, tuple) else failed)

    def acls_describe(self) -> int:
        asked = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY_TOPIC)
        with self._open() as admin:
            found, error = admin.describe_acls(asked)
        check(error)
        return len(found)

    def acls_delete(self) -> int:
        asked = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY_TOPIC)
        with self._open() as admin:
            (_, gone, error) = admin.delete_acls([asked])[0]
        check(error)
        return len(gone)

    def log_dirs(self, topic: str) -> list[dict[str, Any]]:
        with self._open() as admin:
            brokers = admin.describe_log_dirs([topic])
        return [
            {
                "path": folder["log_dir"],
                "partitions": {
                    str(place["partition_index"]): place["partition_size"]
                    for each in folder["topics"]
                    if each["name"] == topic
                    for place in each["partitions"]
                },
            }
            for one in brokers
            for folder in one["log_dirs"]
        ]

    def scram_alter(self, user: str, mechanism: str, iterations: int = 0, password: str | None = None) -> None:
        from kafka.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion

        change = (
            UserScramCredentialDeletion(user, mechanism)
            if password is None
            else UserScramCredentialUpsertion(user, mechanism, password, iterations)
        )
        with self._open() as admin:
            outcome = admin.alter_user_scram_credentials([change])[user]
        if outcome is not None:
            raise Refused(None, "SCRAM", str(outcome))

    def scram_describe(self, user: str) -> list[list[Any]]:
        with self._open() as admin:
            found = admin.describe_user_scram_credentials([user])[user]
        if found.get("error"):
            raise Refused(None, "SCRAM", str(found["error"]))
        return sorted(
            [info["mechanism"].name.replace("_", "-"), info["iterations"]] for info in found["credential_infos"]
        )

    def elect_leaders(self, topic: str, partition: int) -> None:
        with self._open() as admin:
            done = admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)
        for result in done.replica_election_results:
            for place in result.partition_result:
                check(place.error_code)

    def reassign(self, topic: str, partition: int, replicas: list[int] | None) -> None:
        place = TopicPartition(topic, partition)
        with self._open() as admin:
            check(admin.alter_partition_reassignments({place: replicas})[place])

    def reassignments(self, topic: str, partition: int) -> list[list[Any]]:
        with self._open() as admin:
            found = admin.list_partition_reassignments({topic: [partition]})
        return sorted([place.topic, place.partition] for place in found)

    def group_offsets_alter(self, group: str, topic: str, partition: int, offset: int) -> None:
        from kafka.structs import OffsetAndMetadata

        place = TopicPartition(topic, partition)
        with self._open() as admin:
            check(admin.alter_group_offsets(group, {place: OffsetAndMetadata(offset, "", -1)})[place])

    def group_offsets(self, group: str) -> list[list[Any]]:
        with self._open() as admin:
            found = admin.list_consumer_group_offsets(group) if OLD else admin.list_group_offsets([group])[group]
        return sorted([place.topic, place.partition, one.offset] for place, one in found.items())

    def group_offsets_delete(self, group: str, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)
        with self._open() as admin:
            check(admin.delete_group_offsets(group, [place])[place])


def _source(given: Any) -> int:
    if isinstance(given, int):
        return int(given)
    return int(kafka.admin._configs.ConfigSourceType[str(given).upper()])
