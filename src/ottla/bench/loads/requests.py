"""Loads of many small requests on one connection, with a fixed number of them in flight."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from ottla.bench import payloads
from ottla.bench.client import (
    PRODUCE_VERSION,
    Client,
    connect,
    decode_response,
    frame,
    raise_for,
    receive_frame,
    retried,
)
from ottla.bench.load import Result, Spec
from ottla.wire.messages import OffsetCommitRequest, ProduceRequest

OFFSET_COMMIT_VERSION = 8
RECEIVE_BYTES = 65536


def pipelined(
    sock: socket.socket, request: bytes, response_bytes: int, depth: int, seconds: float
) -> tuple[int, bytes]:
    """Keep `depth` copies of a request in flight; returns how many were answered, and the last answer.

    All answers have the same length, so they are counted by bytes. Each answer triggers the next request.
    """
    repeated = memoryview(request * depth)
    request_bytes = len(request)
    buffer = bytearray(RECEIVE_BYTES)
    sock.sendall(repeated)
    answered = partial_bytes = 0
    tail = b""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        received = sock.recv_into(buffer)
        if not received:
            raise ConnectionError("the broker closed the connection")
        complete, partial_bytes = divmod(partial_bytes + received, response_bytes)
        answered += complete
        sock.sendall(repeated[: complete * request_bytes])
    left = depth * response_bytes - partial_bytes
    while left:
        chunk = sock.recv(left)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        tail = (tail + chunk)[-response_bytes:]
        left -= len(chunk)
    return answered + depth, tail


def requests(spec: Spec) -> Callable[[], Result]:
    """Produce requests with one small record each: the fixed cost of a request."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(ProduceRequest, PRODUCE_VERSION)
        leader = client.leaders(spec["topic"])[0]
    batch = payloads.batch(spec["record_bytes"], 1, "none")
    request = payloads.produce_frame(spec["topic"], 0, batch.data)
    sock = connect(leader, None)
    sock.sendall(request)
    response_bytes = 4 + len(receive_frame(sock))

    def timed() -> Result:
        started = time.perf_counter()
        answered, _ = pipelined(sock, request, response_bytes, spec["depth"], spec["limit_seconds"])
        seconds = time.perf_counter() - started
        with Client(address) as client:
            (stored,) = client.end_offsets(spec["topic"], 1)
        if stored < answered + 1:
            raise RuntimeError(f"{answered} requests answered but only {stored} records stored")
        return {"seconds": seconds, "requests": answered}

    return timed


def commits(spec: Spec) -> Callable[[], Result]:
    """Offset commits for one partition, by a consumer without a group membership."""
    address = (spec["host"], spec["port"])
    topic, partition = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        group_id=spec["group"],
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            topic(
                name=spec["topic"],
                partitions=[partition(partition_index=0, committed_offset=1, committed_metadata="")],
            )
        ],
    )
    with Client(address) as client:
        client.require(OffsetCommitRequest, OFFSET_COMMIT_VERSION)
        coordinator = client.coordinator(spec["group"], "group")
    encoded = frame(request, OFFSET_COMMIT_VERSION)
    sock = connect(coordinator, None)

    def commit() -> bytearray:
        sock.sendall(encoded)
        answer = receive_frame(sock)
        _check_commit(answer)
        return answer

    first = retried(commit)

    def timed() -> Result:
        answered, last = pipelined(sock, encoded, 4 + len(first), spec["depth"], spec["limit_seconds"])
        _check_commit(last[4:])
        return {"requests": answered}

    return timed


def _check_commit(payload: bytes | bytearray) -> None:
    response = decode_response(OffsetCommitRequest.API_KEY, OFFSET_COMMIT_VERSION, payload)
    raise_for(response.topics[0].partitions[0].error_code)
