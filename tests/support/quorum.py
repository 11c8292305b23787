"""Requests to the nodes of a cluster with a quorum of controllers, as clients send them."""

from typing import Any

from ottla.answers import Reply
from ottla.raft.messages import TOPIC
from ottla.server.api import RequestContext
from ottla.server.peers import PeerConnection
from ottla.wire.messages import CreateTopicsRequest, DescribeQuorumRequest


def asked(node: Any, request: Any, version: int) -> Any:
    """A client's request to a broker or a controller, through its registry."""
    server = node.server
    api = server.registry.apis[request.API_KEY]
    connection = PeerConnection(server.services, server.config.listeners[0], 99)
    ctx = RequestContext(connection, request.API_KEY, version, 1, "c", 1)
    return api.handler(ctx, request)


async def answer_of(node: Any, request: Any, version: int) -> Any:
    answer = asked(node, request, version)
    return await answer if isinstance(answer, Reply) else answer


def new_topic(name: str, replicas: int = 3) -> CreateTopicsRequest:
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=1000)


def describe_quorum() -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequest.TopicData(topic_name=TOPIC, partitions=[partition])])
