"""Share groups on the wire, request by request."""

import base64
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.enums import AlterConfigOp, ConfigResourceType, CoordinatorType
from ottla.records.batch import batches
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from support.waiting import ask_until_ready, wait_for
from support.wire import Wire

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
DEADLINE_S = 60

Place = tuple[bytes, int]
Acks = Mapping[Place, Sequence[tuple[int, int, list[int]]]]


def member_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Sharer:
    """A member of a share group, or an administrator of one."""

    def __init__(self, wire: Wire, group: str, name: str | None = None) -> None:
        self.wire = wire
        self.group = group
        self.name = member_id() if name is None else name
        self.epoch = 0
        """The epoch of the share session for the next request."""

    def find(self) -> None:
        request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=[self.group])
        ask_until_ready(lambda: self.wire.call(request, 6).coordinators[0])

    # Membership

    def beat(self, epoch: int, topics: list[str] | None = None, rack: str | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics
        )
        return ask_until_ready(lambda: self.wire.call(request, 1))

    def join(self, *topics: str) -> Any:
        """Join and wait for partitions. Returns the heartbeat's answer that assigns them."""
        self.find()
        answer = self.beat(0, list(topics))
        deadline = time.monotonic() + DEADLINE_S
        while not (answer.assignment and answer.assignment.topic_partitions):
            assert answer.error_code == 0, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
            answer = self.beat(answer.member_epoch)
        return answer

    # Offsets and settings

    def configure(self, **settings: Any) -> None:
        request = IncrementalAlterConfigsRequest
        config = request.AlterableConfig
        resource = request.AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP,
            resource_name=self.group,
            configs=[
                config(name=name.replace("_", "."), config_operation=AlterConfigOp.SET, value=str(value))
                for name, value in settings.items()
            ],
        )
        answer = self.wire.call(request(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0, answer

    def alter(self, **offsets: Mapping[int, int]) -> Any:
        request = AlterShareGroupOffsetsRequest
        partition = request.AlterShareGroupOffsetsRequestPartition
        return self.wire.call(
            request(
                group_id=self.group,
                topics=[
                    request.AlterShareGroupOffsetsRequestTopic(
                        topic_name=name,
                        partitions=[partition(partition_index=at, start_offset=to) for at, to in each.items()],
                    )
                    for name, each in offsets.items()
                ],
            ),
            0,
        )

    def start_at(self, topic: str, **offsets: int) -> None:
        """Set the group's start offsets; the group need not exist. Keys are `p0`, `p1`, …"""
        self.find()
        wanted = {topic: {int(name[1:]): offset for name, offset in offsets.items()}}

        def is_done() -> bool:
            answer = self.alter(**wanted)
            codes = {answer.error_code, *(each.error_code for one in answer.responses for each in one.partitions)}
            return codes == {0}

        wait_for(is_done, f"{self.group} to start at {wanted}")

    def forget(self, *topics: str) -> Any:
        request = DeleteShareGroupOffsetsRequest
        named = [request.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        return self.wire.call(request(group_id=self.group, topics=named), 0)

    def offsets(self, topics: Mapping[str, list[int]] | None = None, version: int = 1) -> Any:
        """Returns the group's response."""
        request = DescribeShareGroupOffsetsRequest
        topic = request.DescribeShareGroupOffsetsRequestTopic
        asked = request.DescribeShareGroupOffsetsRequestGroup(
            group_id=self.group,
            topics=None
            if topics is None
            else [topic(topic_name=name, partitions=each) for name, each in topics.items()],
        )
        return self.wire.call(request(groups=[asked]), version).groups[0]

    def stands(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(start offset, lag) of a partition."""
        (found,) = self.offsets({topic: [partition]}).topics[0].partitions
        return found.start_offset, found.lag

    # Records

    def fetch_request(
        self,
        places: Iterable[Place] = (),
        acks: Acks | None = None,
        *,
        epoch: int | None = None,
        most: int = 500,
        batch_size: int = 500,
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        exact: bool = False,
        renews: bool = False,
        forgotten: Iterable[Place] = (),
    ) -> Any:
        request = ShareFetchRequest
        told = dict(acks or {})
        by_topic: dict[bytes, list[Any]] = {}
        for topic_id, index in dict.fromkeys([*places, *told]):
            by_topic.setdefault(topic_id, []).append(
                request.FetchPartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                        for first, last, types in told.get((topic_id, index), ())
                    ],
                )
            )
        left: dict[bytes, list[int]] = {}
        for topic_id, index in forgotten:
            left.setdefault(topic_id, []).append(index)
        return request(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=most,
            batch_size=batch_size,
            share_acquire_mode=int(exact),
            is_renew_ack=renews,
            topics=[request.FetchTopic(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()],
            forgotten_topics_data=[
                request.ForgottenTopic(topic_id=topic_id, partitions=each) for topic_id, each in left.items()
            ],
        )

    def fetch(self, places: Iterable[Place] = (), acks: Acks | None = None, **more: Any) -> Any:
        answer = self.wire.call(self.fetch_request(places, acks, **more), 2)
        if answer.error_code == 0 and more.get("epoch") is None:
            self.epoch += 1
        return answer

    def take(self, *places: Place, **more: Any) -> list[tuple[int, int, int]]:
        """What it acquires from the only partition that has records: (first, last, delivery count)."""
        return taken(self.fetch(places, **more))

    def take_soon(self, *places: Place, **more: Any) -> list[tuple[int, int, int]]:
        """The same, as soon as records are available."""
        return wait_for(lambda: self.take(*places, **{"wait_ms": 200, **more}), "records to be handed out")

    def acknowledge(self, acks: Acks, *, epoch: int | None = None, renews: bool = False, version: int = 2) -> Any:
        request = ShareAcknowledgeRequest
        by_topic: dict[bytes, list[Any]] = {}
        for (topic_id, index), each in acks.items():
            by_topic.setdefault(topic_id, []).append(
                request.AcknowledgePartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                        for first, last, types in each
                    ],
                )
            )
        answer = self.wire.call(
            request(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                is_renew_ack=renews,
                topics=[
                    request.AcknowledgeTopic(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()
                ],
            ),
            version,
        )
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    def tell(self, place: Place, *acks: tuple[int, int, list[int]], **more: Any) -> tuple[int, str]:
        """The error and the message for one partition's acknowledgements."""
        answer = self.acknowledge({place: acks}, **more)
        if answer.error_code:
            return answer.error_code, answer.error_message or ""
        (found,) = answer.responses[0].partitions
        return found.error_code, found.error_message or ""


def taken(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def sent(answer: Any) -> list[tuple[int, int]]:
    """The first and last offset of each batch in an answer."""
    return [
        (batch.base_offset, batch.last_offset)
        for topic in answer.responses
        for partition in topic.partitions
        for batch in batches(memoryview(bytes(partition.records or b"")))
    ]
