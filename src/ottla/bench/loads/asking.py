"""Repeats one request about one topic, to measure its cost on a broker with many other topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.bench import payloads
from ottla.bench.client import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    METADATA_VERSION,
    Client,
    connect,
    decode_response,
    frame,
    raise_for,
    receive_frame,
    retried,
)
from ottla.bench.load import Result, Spec
from ottla.bench.loads.requests import pipelined
from ottla.bench.loads.stream import OFFSET
from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest

DEPTH = 5


def _metadata(topic: str, offset: int) -> bytes:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    return frame(MetadataRequest(topics=[wanted]), METADATA_VERSION)


def _offsets(topic: str, offset: int) -> bytes:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=OffsetTimestamp.LATEST)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    return frame(
        ListOffsetsRequest(replica_id=-1, isolation_level=IsolationLevel.READ_UNCOMMITTED, topics=topics),
        LIST_OFFSETS_VERSION,
    )


def _fetch(topic: str, offset: int) -> bytes:
    encoded, where = payloads.fetch_frame(topic, 0)
    OFFSET.pack_into(encoded, where, offset)
    return bytes(encoded)


QUESTIONS: dict[str, tuple[Any, int, Callable[[str, int], bytes]]] = {
    "fetch": (FetchRequest, FETCH_VERSION, _fetch),
    "metadata": (MetadataRequest, METADATA_VERSION, _metadata),
    "offsets": (ListOffsetsRequest, LIST_OFFSETS_VERSION, _offsets),
}


def _error_in(kind: str, response: Any) -> int:
    if kind == "metadata":
        return int(response.topics[0].error_code)
    if kind == "fetch":
        return int(response.responses[0].partitions[0].error_code)
    return int(response.topics[0].partitions[0].error_code)


def asking(spec: Spec) -> Callable[[], Result]:
    """Send requests of one `kind` about partition 0 of `topic`, five in flight; a fetch gets its last record."""
    kind = spec["kind"]
    request_type, version, encode = QUESTIONS[kind]
    with Client((spec["host"], spec["port"])) as client:
        client.require(request_type, version)
        leader = client.leaders(spec["topic"])[0]
    sock = connect(leader, None)

    def once(encoded: bytes) -> bytearray:
        sock.sendall(encoded)
        answer = receive_frame(sock)
        raise_for(_error_in(kind, decode_response(request_type.API_KEY, version, answer)))
        return answer

    def produce_one() -> None:
        sock.sendall(payloads.produce_frame(spec["topic"], 0, payloads.batch(100, 1, "none").data))
        payloads.check_produced(bytes(4) + receive_frame(sock), spec["topic"])

    retried(produce_one)  # so that there is something to fetch
    with Client((spec["host"], spec["port"])) as client:
        (end,) = client.end_offsets(spec["topic"], 1)
    encoded = encode(spec["topic"], end - 1)
    first = once(encoded)

    def timed() -> Result:
        answered, last = pipelined(sock, encoded, 4 + len(first), DEPTH, spec["limit_seconds"])
        raise_for(_error_in(kind, decode_response(request_type.API_KEY, version, last[4:])))
        return {"requests": answered}

    return timed
