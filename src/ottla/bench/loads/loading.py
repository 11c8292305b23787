"""A group that commits many offsets, for a broker to load at its next start."""

from __future__ import annotations

from collections.abc import Callable

from ottla.bench.client import Client, connect, decode_response, frame, raise_for, receive_frame, retried
from ottla.bench.load import Result, Spec
from ottla.wire.messages import OffsetCommitRequest

COMMIT_VERSION = 8
UNDER_WAY = 20


def many_offsets(spec: Spec) -> Callable[[], Result]:
    """Send `commits` requests that each commit an offset for all `partitions`."""
    with Client((spec["host"], spec["port"])) as client:
        client.require(OffsetCommitRequest, COMMIT_VERSION)
        sock = connect(client.coordinator(spec["group"], "group"), None)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        group_id=spec["group"],
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=spec["topic"],
                partitions=[
                    partition(partition_index=index, committed_offset=1, committed_metadata="")
                    for index in range(spec["partitions"])
                ],
            )
        ],
    )
    encoded = frame(request, COMMIT_VERSION)

    def answered() -> None:
        response = decode_response(OffsetCommitRequest.API_KEY, COMMIT_VERSION, receive_frame(sock))
        for each in response.topics[0].partitions:
            raise_for(each.error_code)

    def once() -> None:
        sock.sendall(encoded)
        answered()

    retried(once)

    def timed() -> Result:
        for start in range(1, spec["commits"], UNDER_WAY):
            count = min(UNDER_WAY, spec["commits"] - start)
            sock.sendall(encoded * count)
            for _ in range(count):
                answered()
        return {"commits": spec["commits"]}

    return timed
