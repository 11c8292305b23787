"""Items of an array that were encoded before."""

import pytest

from ottla.wire.messages.metadata import MetadataResponse


@pytest.mark.parametrize("version", range(14))
def test_ready_made_items_are_the_same_bytes(version: int) -> None:
    topics = [
        MetadataResponse.MetadataResponseTopic(
            name=f"topic-{number}",
            topic_id=bytes([number]) * 16,
            partitions=[
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1, 2], isr_nodes=[2]
                )
                for index in range(number)
            ],
        )
        for number in range(4)
    ]
    plain = MetadataResponse(controller_id=7, topics=[*topics])
    mixed = MetadataResponse(controller_id=7, topics=[topics[0], *(topic.encode_item(version) for topic in topics[1:])])
    assert mixed.encode(version) == plain.encode(version)
