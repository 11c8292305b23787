"""Transactions on the wire: both protocols, and the error code for everything that can be wrong with a request."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import IsolationLevel
from ottla.errors import (
    NONE,
    ConcurrentTransactions,
    IllegalGeneration,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ottla.records.batch import CREATE_TIME, LOG_APPEND_TIME
from support.batches import batch, batches_of
from support.interop.transacting import (
    Transacting,
    committed_offset,
    describe,
    find_group,
    list_transactions,
    mark,
    produce_to,
    producers,
    read_committed,
)
from support.wire import Wire

KIP890, FIRST = 12, 11


@pytest.fixture
def begin(wire: Wire, unique: Callable[[str], str]) -> Callable[..., Transacting]:
    """A transactional id with a producer id and epoch, ready to begin."""
    return lambda **more: Transacting(wire, unique("tx"), **more).start()


def group_of(wire: Wire, unique: Callable[[str], str]) -> str:
    return find_group(wire, unique("g"))


# -- whole transactions


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_every_produce_version(version: int, commit: bool, begin, topic: str, wire: Wire) -> None:
    one = begin()
    if version < KIP890:
        assert set(one.add((topic, [0])).values()) == {NONE}
    assert one.produce(topic, b"a", b"b", version=version).error_code == NONE
    assert read_committed(wire, topic) == []
    one.finish(commit, 5 if version >= KIP890 else 3)
    assert read_committed(wire, topic) == ([b"a", b"b"] if commit else [])


def test_a_marker_has_the_time_of_its_topic(begin, make_topic, wire: Wire) -> None:
    topic, other = make_topic(message_timestamp_type="LogAppendTime"), make_topic()
    one = begin()
    for name in (topic, other):
        assert one.produce(name, b"a").error_code == NONE
    one.finish(True)
    records, marker = batches_of(wire.fetch(topic, 0))
    assert (records.timestamp_type, marker.timestamp_type) == (LOG_APPEND_TIME, LOG_APPEND_TIME)
    assert marker.crc_ok()
    assert [batch.timestamp_type for batch in batches_of(wire.fetch(other, 0))] == [CREATE_TIME, CREATE_TIME]


@pytest.mark.parametrize("version", range(6))
def test_every_end_version(version: int, begin, topic: str, wire: Wire) -> None:
    one = begin()
    one.add((topic, [0]), version=min(version, 3))
    one.produce(topic, b"x", version=FIRST)
    epoch = one.epoch
    answer = one.end(True, version)
    assert answer.error_code == NONE
    assert one.settle() == "CompleteCommit"
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (one.producer_id, epoch + 1)
    assert describe(wire, one.name).producer_epoch == epoch + (version >= 5)
    assert read_committed(wire, topic) == [b"x"]


def test_interleaved_transactions(begin, topic: str, wire: Wire) -> None:
    kept, dropped = begin(), begin()
    kept.produce(topic, b"k1")
    dropped.produce(topic, b"d1")
    wire.produce(topic, batch(b"plain"))
    kept.produce(topic, b"k2", sequence=1)
    answer = wire.fetch(topic, 0, isolation_level=IsolationLevel.READ_COMMITTED)
    assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (4, 0, [])
    kept.finish(True)
    assert wire.fetch(topic, 0, isolation_level=IsolationLevel.READ_COMMITTED).last_stable_offset == 1
    assert read_committed(wire, topic) == [b"k1"]
    dropped.finish(False)
    answer = wire.fetch(topic, 0, isolation_level=IsolationLevel.READ_COMMITTED)
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(dropped.producer_id, 1)]
    assert answer.last_stable_offset == answer.high_watermark == 6
    assert wire.fetch(topic, 0).aborted_transactions is None
    assert read_committed(wire, topic) == [b"k1", b"plain", b"k2"]


def test_the_epoch_grows_with_every_end(begin, topic: str, wire: Wire) -> None:
    one = begin()
    start = one.epoch
    for number in range(3):
        assert one.produce(topic, b"%d" % number).error_code == NONE
        one.finish(number != 1)
        assert one.epoch == start + number + 1
        assert producers(wire, topic)[one.producer_id].producer_epoch == one.epoch
    assert read_committed(wire, topic) == [b"0", b"2"]


def test_a_new_producer_aborts_the_old_one_and_fences_it(begin, topic: str, wire: Wire, unique) -> None:
    old = begin()
    old.produce(topic, b"old")
    assert old.init().error_code == ConcurrentTransactions.code
    assert old.settle() == "CompleteAbort"
    new = Transacting(wire, old.name).start()
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
    group = group_of(wire, unique)
    assert old.produce(topic, b"zombie", sequence=1).error_code == InvalidProducerEpoch.code
    assert old.produce(topic, b"zombie", sequence=1, version=FIRST).error_code == InvalidProducerEpoch.code
    assert old.add((topic, [0])) == {(topic, 0): ProducerFenced.code}
    assert old.add((topic, [0]), version=1) == {(topic, 0): InvalidProducerEpoch.code}
    assert (old.add_offsets(group), old.add_offsets(group, version=1)) == (
        ProducerFenced.code,
        InvalidProducerEpoch.code,
    )
    assert [old.commit_offsets(group, topic, {0: 1}, version) for version in (5, 4, 3)] == [
        {0: InvalidProducerEpoch.code}
    ] * 3
    assert (old.end(True).error_code, old.end(False, 4).error_code) == (ProducerFenced.code, ProducerFenced.code)
    assert old.end(True, 1).error_code == InvalidProducerEpoch.code
    assert old.init(old.producer_id, old.epoch).error_code == ProducerFenced.code
    assert old.init(old.producer_id, old.epoch, version=3).error_code == InvalidProducerEpoch.code
    new.produce(topic, b"new")
    new.finish(True)
    assert read_committed(wire, topic) == [b"new"]


def test_a_late_record_of_an_ended_transaction_is_refused(begin, topic: str, wire: Wire) -> None:
    one = begin()
    old_epoch = one.epoch
    one.produce(topic, b"a")
    one.finish(True)
    assert one.produce(topic, b"late", sequence=1, producer_epoch=old_epoch).error_code == InvalidProducerEpoch.code
    assert one.produce(topic, b"b", sequence=1).error_code == OutOfOrderSequenceNumber.code
    assert one.produce(topic, b"b").error_code == NONE
    one.finish(True)
    assert read_committed(wire, topic) == [b"a", b"b"]


# -- InitProducerId


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, InvalidRequest.code),
        ({"transaction_timeout_ms": 0}, InvalidTransactionTimeout.code),
        ({"transaction_timeout_ms": -1}, InvalidTransactionTimeout.code),
        ({"transaction_timeout_ms": 900_001}, InvalidTransactionTimeout.code),
        ({"epoch": 5}, InvalidRequest.code),
        ({"producer_id": 5}, InvalidRequest.code),
        ({"transactional_id": None, "epoch": 5}, InvalidRequest.code),
        ({"producer_id": 987_654, "epoch": 0}, ProducerFenced.code),
    ],
)
def test_init_refused(fields: dict[str, Any], code: int, begin) -> None:
    one = begin()
    answer = one.init(**fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    assert one.describe().producer_epoch == one.epoch


def test_init_bumps_the_epoch_and_recognizes_a_repeated_request(begin) -> None:
    one = begin()
    assert one.init().producer_epoch == one.epoch + 1
    recovered = one.init(one.producer_id, one.epoch + 1)
    assert (recovered.error_code, recovered.producer_epoch) == (NONE, one.epoch + 2)
    assert one.init(one.producer_id, one.epoch + 1).producer_epoch == one.epoch + 2
    assert one.init(one.producer_id, one.epoch).error_code == ProducerFenced.code
    assert one.init(one.producer_id, one.epoch + 9).error_code == ProducerFenced.code


def test_a_fenced_producer_may_return_if_no_other_took_over(begin, topic: str) -> None:
    one = begin()
    one.produce(topic, b"x")
    assert one.init(one.producer_id, one.epoch).error_code == ConcurrentTransactions.code
    assert one.settle() == "CompleteAbort"
    assert one.init(one.producer_id, one.epoch).producer_epoch == one.epoch + 1
    assert one.init(one.producer_id, one.epoch + 1).producer_epoch == one.epoch + 2


# -- AddPartitionsToTxn


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({"transactional_id": "nobody knows this id"}, 3, InvalidProducerIdMapping.code),
        ({"transactional_id": ""}, 3, InvalidRequest.code),
        ({"producer_id": 987_654}, 3, InvalidProducerIdMapping.code),
        ({"producer_epoch": 99}, 3, ProducerFenced.code),
        ({"producer_epoch": 99}, 2, ProducerFenced.code),
        ({"producer_epoch": 99}, 1, InvalidProducerEpoch.code),
        ({"producer_epoch": 99}, 0, InvalidProducerEpoch.code),
        ({"producer_epoch": 99, "verify_only": True}, 4, ProducerFenced.code),
        ({"producer_id": 987_654, "verify_only": True}, 5, InvalidProducerIdMapping.code),
        ({"transactional_id": "", "verify_only": True}, 5, InvalidRequest.code),
        ({"transactional_id": "nobody knows this id", "verify_only": True}, 5, InvalidProducerIdMapping.code),
        ({"verify_only": True}, 4, TransactionAbortable.code),
        ({"verify_only": True}, 5, TransactionAbortable.code),
    ],
)
def test_add_refused(fields: dict[str, Any], version: int, code: int, begin, topic: str) -> None:
    one = begin()
    assert one.add((topic, [0]), version=version, **fields) == {(topic, 0): code}
    assert one.describe().transaction_state == "Empty"


def test_one_bad_partition_fails_the_whole_request(begin, topic: str, unique) -> None:
    one = begin()
    nowhere = unique("nowhere")
    assert one.add((topic, [0, 9])) == {
        (topic, 0): OperationNotAttempted.code,
        (topic, 9): UnknownTopicOrPartition.code,
    }
    assert one.add((topic, [0]), (nowhere, [0])) == {
        (topic, 0): OperationNotAttempted.code,
        (nowhere, 0): UnknownTopicOrPartition.code,
    }
    assert one.add(("__transaction_state", [0])) == {("__transaction_state", 0): TopicAuthorizationFailed.code}
    assert one.describe().transaction_state == "Empty"


def test_partitions_are_added_and_verified(begin, make_topic, wire: Wire) -> None:
    topic = make_topic(3)
    one = begin()
    assert one.add((topic, [0, 1])) == {(topic, 0): NONE, (topic, 1): NONE}
    assert one.add((topic, [1])) == {(topic, 1): NONE}
    assert one.add((topic, [0, 2]), version=5, verify_only=True) == {
        (topic, 0): NONE,
        (topic, 2): TransactionAbortable.code,
    }
    assert one.add((topic, [2]), version=4) == {(topic, 2): NONE}
    state = one.describe()
    assert state.transaction_state == "Ongoing" and state.transaction_start_time_ms > 0
    assert [(entry.topic, sorted(entry.partitions)) for entry in state.topics] == [(topic, [0, 1, 2])]
    one.finish(False)


# -- Produce


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"version": 9}, InvalidTxnState.code),
        ({"version": 10}, InvalidTxnState.code),
        ({"version": 11}, TransactionAbortable.code),
        ({"version": 11, "transactional_id": ""}, InvalidRequest.code),
        ({"version": 11, "transactional_id": "nobody knows this id"}, InvalidProducerIdMapping.code),
        ({"version": 11, "producer_id": 987_654}, InvalidProducerIdMapping.code),
        ({"version": 11, "producer_epoch": 99}, InvalidProducerEpoch.code),
        ({"version": 11, "transactional_id": None}, TransactionalIdAuthorizationFailed.code),
        ({"version": 12, "transactional_id": ""}, InvalidRequest.code),
        ({"version": 12, "transactional_id": "nobody knows this id"}, InvalidProducerIdMapping.code),
        ({"version": 12, "producer_id": 987_654}, InvalidProducerIdMapping.code),
        ({"version": 12, "producer_epoch": 99}, InvalidProducerEpoch.code),
        ({"version": 12, "transactional_id": None}, TransactionalIdAuthorizationFailed.code),
    ],
)
def test_produce_refused(fields: dict[str, Any], code: int, begin, topic: str, wire: Wire) -> None:
    one = begin()
    answer = one.produce(topic, b"x", **fields)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)
    assert one.describe().transaction_state == "Empty"
    assert wire.fetch(topic, 0).high_watermark == 0


def test_a_transaction_that_begins_inside_a_sequence(begin, topic: str) -> None:
    one = begin()
    assert one.produce(topic, b"x", sequence=5).error_code == OutOfOrderSequenceNumber.code
    # It joined the transaction nevertheless, as on Kafka.
    assert one.describe().transaction_state == "Ongoing"
    one.finish(False)


def test_several_partitions_in_one_request(begin, make_topic, wire: Wire) -> None:
    topic = make_topic(2)
    one, other = begin(), begin()

    def records(who: Transacting, **more: Any) -> bytearray:
        fields = {"producer_id": who.producer_id, "producer_epoch": who.epoch, "base_sequence": 0, **more}
        return batch(b"x", transactional=True, **fields)

    for version in (FIRST, KIP890):
        found = produce_to(wire, one.name, topic, [(0, records(one)), (1, records(other))], version)
        assert {answer.error_code for answer in found.values()} == {InvalidProducerIdMapping.code}
    found = produce_to(wire, None, topic, [(0, records(one)), (1, batch(b"plain"))])
    assert {answer.error_code for answer in found.values()} == {TransactionalIdAuthorizationFailed.code}
    found = produce_to(wire, one.name, topic, [(0, records(one)), (9, records(one))])
    assert (found[0].error_code, found[9].error_code) == (NONE, UnknownTopicOrPartition.code)
    assert [(entry.topic, entry.partitions) for entry in one.describe().topics] == [(topic, [0])]
    one.finish(False)


def test_a_plain_batch_within_a_transaction(begin, topic: str) -> None:
    one = begin()
    one.produce(topic, b"x")
    assert one.produce(topic, b"y", sequence=1, transactional=False).error_code == InvalidTxnState.code
    one.finish(False)


# -- EndTxn


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({"transactional_id": "nobody knows this id"}, 5, InvalidProducerIdMapping.code),
        ({"transactional_id": ""}, 5, InvalidRequest.code),
        ({"producer_id": 987_654}, 5, InvalidProducerIdMapping.code),
        ({"producer_epoch": 99}, 5, ProducerFenced.code),
        ({"producer_id": 987_654}, 4, InvalidProducerIdMapping.code),
        ({"producer_epoch": 99}, 4, ProducerFenced.code),
        ({"producer_epoch": 99}, 1, InvalidProducerEpoch.code),
    ],
)
def test_end_refused(fields: dict[str, Any], version: int, code: int, begin, topic: str) -> None:
    one = begin()
    one.add((topic, [0]))
    for commit in (True, False):
        answer = one.end(commit, version, **fields)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    assert one.describe().transaction_state == "Ongoing"
    one.finish(False)


def test_ends_of_the_first_protocol(begin, topic: str) -> None:
    one = begin()
    assert (one.end(True, 4).error_code, one.end(False, 4).error_code) == (InvalidTxnState.code, InvalidTxnState.code)
    one.add((topic, [0]))
    one.finish(True, 4)
    assert (one.end(True, 4).error_code, one.end(False, 4).error_code) == (NONE, InvalidTxnState.code)
    one.add((topic, [0]))
    one.finish(False, 4)
    assert (one.end(True, 4).error_code, one.end(False, 4).error_code) == (InvalidTxnState.code, NONE)


def test_repeated_ends(begin, topic: str) -> None:
    one = begin()
    first = one.epoch

    def codes(epoch: int) -> tuple[int, int]:
        """The error codes of a commit and an abort that change nothing."""
        return one.end(True, producer_epoch=epoch).error_code, one.end(False, producer_epoch=epoch).error_code

    assert one.end(True).error_code == InvalidTxnState.code
    assert codes(first - 1) == (ProducerFenced.code, ProducerFenced.code)
    one.finish(False)  # no transaction was started: only the epoch ends
    assert one.epoch == first + 1
    assert codes(first) == (InvalidTxnState.code, NONE)
    one.produce(topic, b"x")
    assert codes(first) == (ProducerFenced.code, ProducerFenced.code)
    one.finish(True)
    assert codes(first + 1) == (NONE, InvalidTxnState.code)
    assert one.end(True, producer_epoch=first + 1).producer_epoch == first + 2
    assert one.end(True).error_code == InvalidTxnState.code
    one.finish(False)
    assert one.epoch == first + 3


# -- offsets


def test_offsets_count_when_the_transaction_commits(begin, topic: str, wire: Wire, unique) -> None:
    one, group = begin(), group_of(wire, unique)
    assert one.commit_offsets(group, topic, {0: 5}) == {0: NONE}
    assert committed_offset(wire, group, topic) == (UnstableOffsetCommit.code, -1)
    assert committed_offset(wire, group, topic, stable=False) == (NONE, -1)
    one.finish(True)
    assert committed_offset(wire, group, topic) == (NONE, 5)
    assert one.commit_offsets(group, topic, {0: 9}) == {0: NONE}
    one.finish(False)
    assert committed_offset(wire, group, topic) == (NONE, 5)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_the_first_protocol(version: int, begin, topic: str, wire: Wire, unique) -> None:
    one, group = begin(), group_of(wire, unique)
    assert one.commit_offsets(group, topic, {0: 5}, version) == {
        0: TransactionAbortable.code if version >= 4 else InvalidTxnState.code
    }
    assert one.add_offsets(group, version) == NONE
    assert one.commit_offsets(group, topic, {0: 5}, version) == {0: NONE}
    one.finish(True, 3)
    assert committed_offset(wire, group, topic) == (NONE, 5)


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_refused(version: int, begin, topic: str, wire: Wire, unique) -> None:
    one, group = begin(), group_of(wire, unique)

    def code(**fields: Any) -> int:
        return one.commit_offsets(fields.pop("group", group), topic, {0: 1}, version, **fields)[0]

    assert code(transactional_id="nobody knows this id") == InvalidProducerIdMapping.code
    assert code(transactional_id="") == InvalidRequest.code
    assert code(producer_id=987_654) == InvalidProducerIdMapping.code
    assert code(producer_epoch=99) == InvalidProducerEpoch.code
    assert code(group="") == InvalidGroupId.code
    assert one.describe().transaction_state == "Empty"
    assert one.add_offsets(group) == NONE
    assert code(generation_id=5) == IllegalGeneration.code
    assert one.commit_offsets(group, topic, {0: 1, 9: 1}, version) == {0: NONE, 9: UnknownTopicOrPartition.code}
    assert one.commit_offsets(group, unique("nowhere"), {0: 1}, version) == {0: UnknownTopicOrPartition.code}
    one.finish(False)


def test_adding_offsets_refused(begin, wire: Wire, unique) -> None:
    one, group = begin(), group_of(wire, unique)
    assert one.add_offsets(group, transactional_id="nobody knows this id") == InvalidProducerIdMapping.code
    assert one.add_offsets(group, transactional_id="") == InvalidRequest.code
    assert one.add_offsets(group, producer_id=987_654) == InvalidProducerIdMapping.code
    assert one.add_offsets(group, producer_epoch=99) == ProducerFenced.code


# -- markers


def test_an_operator_aborts_a_hanging_transaction(begin, topic: str, wire: Wire) -> None:
    one = begin()
    one.produce(topic, b"hangs")
    wire.produce(topic, batch(b"waits"))
    assert read_committed(wire, topic) == []
    found = producers(wire, topic)[one.producer_id]
    assert (found.producer_epoch, found.current_txn_start_offset, found.coordinator_epoch) == (one.epoch, 0, -1)
    assert mark(wire, (one.producer_id, one.epoch), False, topic, 0) == [NONE]
    assert producers(wire, topic)[one.producer_id].current_txn_start_offset == -1
    assert read_committed(wire, topic) == [b"waits"]


def test_markers_refused(begin, topic: str, wire: Wire) -> None:
    one = begin()
    one.start()
    one.produce(topic, b"x")
    own = (one.producer_id, one.epoch)
    assert mark(wire, own, False, topic, 9) == [UnknownTopicOrPartition.code]
    assert mark(wire, (own[0], own[1] - 1), False, topic, 0) == [InvalidProducerEpoch.code]
    assert mark(wire, (own[0], -1), False, topic, 0) == [UnknownServerError.code]
    assert mark(wire, own, False, topic, 0, version=2, transaction_version=2) == [InvalidProducerEpoch.code]
    assert mark(wire, own, False, topic, 0, coordinator_epoch=4) == [NONE]
    assert mark(wire, own, False, topic, 0, coordinator_epoch=3) == [TransactionCoordinatorFenced.code]
    assert mark(wire, own, False, topic, 0, version=2, transaction_version=2, coordinator_epoch=4) == [NONE]


# -- describing and listing transactions


def test_describe(begin, topic: str, wire: Wire) -> None:
    assert describe(wire, "nobody knows this id").error_code == TransactionalIdNotFound.code
    assert describe(wire, "").error_code == InvalidRequest.code
    one = begin(timeout_ms=12_345)
    state = one.describe()
    assert (state.transaction_state, state.transaction_timeout_ms, state.transaction_start_time_ms) == (
        "Empty",
        12_345,
        -1,
    )
    assert (state.producer_id, state.producer_epoch, state.topics) == (one.producer_id, one.epoch, [])


def test_list(begin, topic: str, wire: Wire) -> None:
    idle, opened = begin(), begin()
    opened.produce(topic, b"x")

    def names(**filters: Any) -> set[str]:
        answer = list_transactions(wire, **filters)
        assert answer.error_code == NONE
        return {one.transactional_id for one in answer.transaction_states} & {idle.name, opened.name}

    both = {idle.name, opened.name}
    assert names() == both
    assert names(state_filters=["Ongoing"]) == {opened.name}
    assert names(state_filters=["Empty", "Nonsense"]) == {idle.name}
    assert list_transactions(wire, state_filters=["ongoing"]).unknown_state_filters == ["ongoing"]
    assert names(producer_id_filters=[idle.producer_id]) == {idle.name}
    assert names(producer_id_filters=[idle.producer_id], state_filters=["Ongoing"]) == set()
    assert names(duration_filter=600_000) == {idle.name}
    assert names(transactional_id_pattern=opened.name[:-1] + ".") == {opened.name}
    assert names(transactional_id_pattern=opened.name[:-1]) == set()
    assert names(transactional_id_pattern="") == both
    assert list_transactions(wire, transactional_id_pattern="(").error_code == InvalidRegularExpression.code
    opened.finish(False)


def test_a_transaction_over_a_deleted_topic_ends(begin, make_topic, wire: Wire) -> None:
    from ottla.wire.messages import DeleteTopicsRequest

    gone, kept = make_topic(), make_topic()
    one = begin()
    one.produce(gone, b"x")
    one.produce(kept, b"y")
    wire.call(DeleteTopicsRequest(topic_names=[gone], timeout_ms=10_000), 5)
    one.finish(True)
    assert read_committed(wire, kept) == [b"y"]
