"""Members of streams groups on the wire: requests as a Kafka Streams application sends them."""

import uuid
from collections.abc import Callable
from typing import Any

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.wire.messages import (
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    StreamsGroupDescribeRequest,
)
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.waiting import ask_until_ready, wait_for
from support.wire import Wire

WAIT_S = 90
NO_WAITING = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


def tasks(found: Any) -> dict[str, list[int]] | None:
    return None if found is None else {each.subtopology_id: list(each.partitions) for each in found}


def ids(owned: dict[str, list[int]] | None) -> Any:
    return (
        None
        if owned is None
        else [Beat.TaskIds(subtopology_id=name, partitions=indexes) for name, indexes in owned.items()]
    )


class Member:
    """One member, which remembers its assignment."""

    def __init__(self, wire: Wire, group: str, shape: Any, process: str | None = None, **joining: Any) -> None:
        self.wire = wire
        self.group = group
        self.shape = shape
        self.member_id = uuid.uuid4().hex
        self.process = process or uuid.uuid4().hex
        self.joining = joining
        self.epoch = 0
        self.active: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}

    def request(self, **fields: Any) -> Any:
        basics: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": 0,
        }
        if fields.get("member_epoch", self.epoch) == 0:
            basics |= {
                "rebalance_timeout_ms": 60_000,
                "topology": self.shape,
                "process_id": self.process,
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "client_tags": [],
                **self.joining,
            }
        return Beat(**(basics | fields))

    def send(self, **fields: Any) -> Any:
        """Send one heartbeat and return the unchanged answer of a coordinator that has loaded the group."""
        return ask_until_ready(lambda: self.wire.call(self.request(**fields), 0))

    def beat(self, **fields: Any) -> Any:
        """Send one heartbeat that must succeed; the member applies the answer."""
        answer = self.send(**fields)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active, self.standby = tasks(answer.active_tasks) or {}, tasks(answer.standby_tasks) or {}
        return answer

    def own(self) -> Any:
        """A heartbeat that reports the assigned tasks as its own."""
        return self.beat(active_tasks=ids(self.active), standby_tasks=ids(self.standby), warmup_tasks=[])

    def follow(self, done: Callable[[], bool]) -> None:
        """Send heartbeats until the member has the expected assignment."""
        if self.epoch == 0:
            self.beat()
        wait_for(lambda: done() or (self.own() and done()), f"{self.active} {self.standby}")

    def leave(self) -> Any:
        return self.send(member_epoch=-1)


def described(wire: Wire, group: str) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return wire.call(request, 0).groups[0]


def find_coordinator(wire: Wire, group: str) -> None:
    """Waits until the group is served: the first lookup creates the offsets topic, which Apache Kafka then loads."""
    wait_for(lambda: wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code == 0)
    ask_until_ready(lambda: described(wire, group))


def configure(wire: Wire, group: str, configs: dict[str, str]) -> Any:
    """Sets a group's configs and waits until they apply. Returns the answer if they are refused."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = IncrementalAlterConfigsRequest.AlterableConfig
    entries = [config(name=name, config_operation=AlterConfigOp.SET, value=value) for name, value in configs.items()]
    wanted = resource(resource_type=ConfigResourceType.GROUP, resource_name=group, configs=entries)
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses[0]
    if answer.error_code == 0:
        wait_for(lambda: configs.items() <= group_configs(wire, group).items())
    return answer


def group_configs(wire: Wire, group: str) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name=group, configuration_keys=None
    )
    found = wire.call(DescribeConfigsRequest(resources=[resource]), 4).results[0]
    return {entry.name: entry.value for entry in found.configs}
