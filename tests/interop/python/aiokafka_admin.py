"""What aiokafka's admin client can do besides topics and groups."""

from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from driver_loop import Refused


def refuse(code: int, message: str | None) -> None:
    if code:
        raise Refused(code, for_code(code).__name__, message or "")


class Administration:
    # The driver's: opens an admin client, and runs a coroutine on its loop.
    _with_admin: Callable[[Any], Any]
    _run: Callable[[Any], Any]

    def configs_describe(self, kind: str, name: str) -> dict[str, Any]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, Any]:
            resource = ConfigResource(ConfigResourceType[kind.upper()], name)
            found = (await admin.describe_configs([resource]))[0].to_object()["resources"][0]
            refuse(found["error_code"], found["error_message"])
            return {
                entry["config_names"]: {
                    "value": entry["config_value"],
                    "source": entry["config_source"],
                    "sensitive": entry["is_sensitive"],
                }
                for entry in found["config_entries"]
            }

        return self._run(self._with_admin(work))

    def configs_replace(self, kind: str, name: str, configs: dict[str, str]) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            resource = ConfigResource(ConfigResourceType[kind.upper()], name, configs)
            for response in await admin.alter_configs([resource]):
                for found in response.to_object()["resources"]:
                    refuse(found["error_code"], found["error_message"])

        self._run(self._with_admin(work))

    def partitions_create(self, topic: str, count: int) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            await admin.create_partitions({topic: NewPartitions(count)})

        self._run(self._with_admin(work))

    def records_delete(self, topic: str, partition: int, offset: int) -> int:
        async def work(admin: AIOKafkaAdminClient) -> int:
            place = TopicPartition(topic, partition)
            return (await admin.delete_records({place: RecordsToDelete(offset)}))[place]

        return self._run(self._with_admin(work))

    def group_offsets(self, group: str) -> list[list[Any]]:
        async def work(admin: AIOKafkaAdminClient) -> list[list[Any]]:
            found = await admin.list_consumer_group_offsets(group)
            return sorted([place.topic, place.partition, one.offset] for place, one in found.items())

        return self._run(self._with_admin(work))
