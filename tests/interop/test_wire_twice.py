"""One thing twice in a request, and pages of topics whose cursor is nowhere."""

from collections.abc import Callable

import pytest
from interop.transacting import find_group
from interop.wire import Wire

from ottla.wire import messages as m

NONE, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC, DUPLICATE_RESOURCE = 0, -1, 3, 92
INT32_MAX = (1 << 31) - 1
SHA_256, SHA_512 = 1, 2


# -- offsets


def test_offsets_of_a_topic_that_is_named_twice(
    make_topic: Callable[..., str], wire: Wire, unique: Callable[[str], str]
) -> None:
    topic, other, group = make_topic(2), make_topic(), find_group(wire, unique("g"))
    entry, place = m.OffsetCommitRequest.OffsetCommitRequestTopic, m.OffsetCommitRequest.OffsetCommitRequestPartition
    commit = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[entry(name=topic, partitions=[place(partition_index=0, committed_offset=1)])],
    )
    assert wire.call(commit, 8).topics[0].partitions[0].error_code == NONE

    def delete(*wanted: tuple[str, list[int]]) -> list[tuple[str, list[tuple[int, int]]]]:
        kind = m.OffsetDeleteRequest
        topics = [
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in wanted
        ]
        answer = wire.call(kind(group_id=group, topics=topics), 0)
        assert answer.error_code == NONE
        return [
            (each.name, [(one.partition_index, one.error_code) for one in each.partitions]) for each in answer.topics
        ]

    # Only what does not exist makes Kafka put together what belongs together.
    assert delete((topic, [0]), (other, [0]), (topic, [1])) == [
        (topic, [(0, NONE)]),
        (other, [(0, NONE)]),
        (topic, [(1, NONE)]),
    ]
    assert delete((topic, [0]), (other, [7]), (topic, [1])) == [
        (other, [(7, UNKNOWN_TOPIC)]),
        (topic, [(0, NONE), (1, NONE)]),
    ]


# -- passwords


@pytest.mark.parametrize(
    ("passwords", "code"),
    [
        ([b""], UNKNOWN_SERVER_ERROR),
        ([b"", b""], DUPLICATE_RESOURCE),
        ([b"", b"x"], DUPLICATE_RESOURCE),
        ([b"x", b""], DUPLICATE_RESOURCE),
        ([b"", b"", b""], DUPLICATE_RESOURCE),
    ],
)
def test_a_user_twice_with_an_empty_password(
    passwords: list[bytes], code: int, wire: Wire, unique: Callable[[str], str]
) -> None:
    user = unique("u")
    new = [
        m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=SHA_256, iterations=4096, salt=b"salt", salted_password=password
        )
        for password in passwords
    ]
    new[-1].mechanism = SHA_512
    (found,) = wire.call(m.AlterUserScramCredentialsRequest(deletions=[], upsertions=new), 0).results
    assert (found.user, found.error_code) == (user, code)


# -- pages of topics


@pytest.mark.parametrize(
    ("limit", "cursor", "pages", "following"),
    [
        (0, None, [[0]], (0, 1)),
        (-5, 1, [[1]], (0, 2)),
        (4, 3, [[], [0, 1]], None),
        (1, 100, [[], [0]], (1, 1)),
        (1, INT32_MAX - 1, [[], [0]], (1, 1)),
        # A sum that needs more than 32 bits.
        (1, INT32_MAX, [[]], (0, -INT32_MAX - 1)),
        (2, INT32_MAX, [[]], (0, -INT32_MAX)),
    ],
)
def test_pages_of_topics(
    limit: int,
    cursor: int | None,
    pages: list[list[int]],
    following: tuple[int, int] | None,
    wire: Wire,
    unique: Callable[[str], str],
) -> None:
    name = unique("t")
    topics = [wire.make(f"{name}-a", 3), wire.make(f"{name}-b", 2)]
    kind = m.DescribeTopicPartitionsRequest
    request = kind(
        topics=[kind.TopicRequest(name=topic) for topic in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else kind.Cursor(topic_name=topics[0], partition_index=cursor),
    )
    answer = wire.call(request, 0)
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == list(
        zip(topics, pages, strict=False)
    )
    found = answer.next_cursor
    assert (None if found is None else (topics.index(found.topic_name), found.partition_index)) == following
