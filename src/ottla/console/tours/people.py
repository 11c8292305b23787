"""Tours about cooperating clients: a rebalance, and a transaction."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.group_member import ConsumerMember
from ottla.client.offsets import list_offsets
from ottla.client.transactions import force_terminate
from ottla.console.tours.tour import Stage, Step, Tour
from ottla.enums import CoordinatorType, IsolationLevel, OffsetTimestamp
from ottla.errors import ConcurrentTransactions, error_for
from ottla.records.batch import Record, build_batch
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

# -- a rebalance

_GROUP: Final = {"kind": "group", "group": "warehouse"}
_HISTORY: Final = {"kind": "group-history", "group": "warehouse"}


async def _join_first(stage: Stage) -> None:
    await stage.create("parcels", 6)
    stage.kept["members"], stage.kept["parts"] = {}, {}
    await _join(stage, "anna")
    await _settle(stage)


async def _join(stage: Stage, name: str) -> None:
    member = ConsumerMember(stage.client, "warehouse", ["parcels"])
    member.identity = member.identity._replace(member_id=name)
    stage.kept["members"][name] = member
    stage.kept["parts"][name] = await member.join()
    stage.note(f"{name} joins: ConsumerGroupHeartbeat with epoch 0")


async def _settle(stage: Stage) -> None:
    """Send heartbeats until everyone has their target assignment."""
    for turn in range(8):
        # The coordinator takes a moment before it makes a new assignment: others may join in that time.
        await stage.sandbox.steer("/clock/advance", {"seconds": 1})
        changed = False
        for name, member in stage.kept["members"].items():
            if await member.beat():
                stage.kept["parts"][name] = await member.join()
                changed = True
        if not changed and turn > 3:
            break
    for name, member in stage.kept["members"].items():
        parts = sorted(index for _, index in stage.kept["parts"][name])
        stage.note(
            f"{name} has partitions {', '.join(map(str, parts)) or 'none'}, member epoch {member.identity.generation}"
        )


async def _join_second(stage: Stage) -> None:
    await _join(stage, "ben")
    stage.note("anna's next heartbeat tells her to give up some partitions; when she confirms, ben gets them")
    await _settle(stage)


async def _leave(stage: Stage) -> None:
    member = stage.kept["members"].pop("ben")
    await member.leave()
    stage.note("ben leaves: ConsumerGroupHeartbeat with epoch -1")
    await _settle(stage)


async def _die(stage: Stage) -> None:
    await _join(stage, "cleo")
    await _settle(stage)
    stage.kept["members"].pop("cleo")
    stage.note("cleo stops without a word")
    for _ in range(12):
        await stage.sandbox.advance(seconds=5)
        for name, member in stage.kept["members"].items():
            if await member.beat():
                stage.kept["parts"][name] = await member.join()
    stage.note("The clock was advanced by a minute, while anna sent her heartbeats")
    await _settle(stage)


REBALANCE: Final = Tour(
    "rebalance",
    "A rebalance step by step",
    "Members come, go and die, and the coordinator shares out the partitions.",
    (
        Step(
            "One member gets all",
            "The topic `parcels` has six partitions. The consumer `anna` joined the group `warehouse`. One broker is "
            "the coordinator of the group: it knows the members and decides who reads which partition.\n\nAnna is "
            "alone, so she has all six.",
            _join_first,
            (_GROUP, _HISTORY),
        ),
        Step(
            "A second member joins",
            "`ben` joined. The coordinator made a new target: three partitions each. But a partition may only have "
            "one reader, so Ben has to wait until Anna gives up hers.\n\nIn the consumer protocol (KIP-848) all of "
            "this goes through heartbeats, and only the partitions that move are interrupted. In the classic "
            "protocol everybody stops, joins again, and one of the members does the sharing out.",
            _join_second,
            (_GROUP, _HISTORY),
        ),
        Step(
            "A member leaves",
            "Ben said goodbye, so the coordinator shared out his partitions at once. A consumer that closes properly "
            "costs the group hardly any time.",
            _leave,
            (_GROUP, _HISTORY),
        ),
        Step(
            "A member dies",
            "`cleo` joined, got her partitions and then died without a word. Nobody read her partitions until her "
            "session was over: the coordinator waits for `group.consumer.session.timeout.ms` before it believes that "
            "a member is dead.\n\nThat is the gap you see in production if a consumer is killed. The history names "
            "the cause.",
            _die,
            (_GROUP, _HISTORY),
        ),
    ),
)

# -- a transaction

_ID: Final = "checkout"
_PAIR: Final = (("orders", 0), ("payments", 0))
_HELD: Final = tuple({"kind": "held-back", "topic": topic} for topic, _ in _PAIR)
_PAST: Final = {"kind": "transactions"}


class _Identity(NamedTuple):
    producer_id: int
    epoch: int


async def _begin(stage: Stage) -> None:
    for topic, _ in _PAIR:
        await stage.create(topic, 1)
        await stage.produce(topic, None, "before the transaction")
    stage.kept["sequence"] = dict.fromkeys(_PAIR, 0)
    stage.kept["identity"] = await _init(stage)
    stage.note(f"InitProducerId for {_ID!r}: producer {stage.kept['identity'].producer_id}, epoch 0")


async def _init(stage: Stage) -> _Identity:
    async def attempt() -> _Identity:
        request = InitProducerIdRequest(transactional_id=_ID, transaction_timeout_ms=60_000)
        response = await stage.client.ask_coordinator(_ID, request, kind=CoordinatorType.TRANSACTION)
        if response.error_code == ConcurrentTransactions.code:
            raise ConcurrentTransactions
        if response.error_code:
            raise error_for(response.error_code)
        return _Identity(response.producer_id, response.producer_epoch)

    return await stage.client.retrying(attempt)


async def _write_both(stage: Stage) -> None:
    identity: _Identity = stage.kept["identity"]
    topic_of = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=_ID,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[topic_of(name=topic, partitions=[index]) for topic, index in _PAIR],
    )
    await stage.client.ask_coordinator(_ID, request, highest=3, kind=CoordinatorType.TRANSACTION)
    stage.note("AddPartitionsToTxn: orders-0 and payments-0")
    for topic, index in _PAIR:
        await _produce(stage, topic, index, identity)
    await stage.sandbox.settle()
    for tp in _PAIR:
        ends = [
            await _end(stage, tp, each) for each in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        ]
        stage.note(f"{tp[0]}-{tp[1]}: others read up to {ends[0]}, readers of committed records up to {ends[1]}")


async def _end(stage: Stage, tp: tuple[str, int], isolation: int) -> int:
    found = await list_offsets(stage.client, {tp: int(OffsetTimestamp.LATEST)}, isolation)
    return found[tp].offset


async def _produce(stage: Stage, topic: str, index: int, identity: _Identity) -> None:
    leader = (await stage.client.topic(topic)).partitions[index].leader
    now_ms = stage.sandbox.source.now_ms()
    sequence = stage.kept["sequence"][topic, index]
    records = [Record(number, now_ms, None, f"{topic} of the transaction".encode(), ()) for number in range(3)]
    batch = build_batch(records, 0, 0, identity.producer_id, identity.epoch, sequence, transactional=True)
    stage.kept["sequence"][topic, index] = sequence + len(records)
    part = ProduceRequest.PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        transactional_id=_ID,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[part])],
    )
    response = await stage.client.ask(request, leader, highest=11)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise error_for(code)


async def _commit(stage: Stage) -> None:
    identity: _Identity = stage.kept["identity"]
    request = EndTxnRequest(
        transactional_id=_ID, producer_id=identity.producer_id, producer_epoch=identity.epoch, committed=True
    )
    response = await stage.client.ask_coordinator(_ID, request, highest=4, kind=CoordinatorType.TRANSACTION)
    if response.error_code:
        raise error_for(response.error_code)
    await stage.sandbox.settle()
    stage.note("EndTxn: commit. The coordinator wrote a marker into orders-0 and payments-0")


async def _abort(stage: Stage) -> None:
    stage.kept["identity"] = await _init(stage)
    stage.kept["sequence"] = dict.fromkeys(_PAIR, 0)
    await _write_both(stage)
    await force_terminate(stage.client, _ID, 60_000)
    await stage.sandbox.settle()
    stage.note("A new producer with the same id came: the open transaction was aborted, the old producer is fenced")


_TRANSACTION_STEPS: Final[tuple[Step, ...]] = (
    Step(
        "A producer with a name",
        "An order and its payment go to two topics, and readers should see both or neither. The producer has a "
        "`transactional.id`: `checkout`. A broker is the coordinator of this id. It gave the producer a number and "
        "an epoch.\n\nIf another producer comes with the same id, it gets a higher epoch, and this one is fenced.",
        _begin,
        (*_HELD, _PAST),
    ),
    Step(
        "Writing, but not yet visible",
        "The producer told the coordinator which partitions it writes to, and wrote three records into each. They are "
        "in the logs already, at their offsets.\n\nBut the last stable offset stays before them: consumers with "
        "`isolation.level=read_committed` read up to there. Everything after it is held back, even records of "
        "other producers.",
        _write_both,
        (*_HELD, _PAST),
    ),
    Step(
        "Commit",
        "The coordinator first wrote its decision into its own log. From then on the outcome is fixed, "
        "whatever crashes. Then it wrote a commit marker into every partition of the transaction.\n\nThe last "
        "stable offset "
        "moved past the marker. The markers take an offset each, and consumers never see them.",
        _commit,
        (*_HELD, {"kind": "batches", "topic": "orders", "partition": 0}, _PAST),
    ),
    Step(
        "Abort",
        "A second transaction wrote to both topics and never ended: its producer hung. When a new producer with the "
        "same id came, the coordinator aborted it.\n\nThe records are still in the log, followed by an abort marker. "
        "Consumers of committed records skip them. Others had read them already.",
        _abort,
        (*_HELD, {"kind": "batches", "topic": "orders", "partition": 0}, _PAST),
    ),
)

TRANSACTION: Final = Tour(
    "transaction",
    "A transaction",
    "Records in two topics that readers see together or not at all.",
    _TRANSACTION_STEPS,
)
