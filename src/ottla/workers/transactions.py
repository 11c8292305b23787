"""Transactions across workers: markers for partitions that another one leads, and asking another one's coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply, attempt, settled, then
from ottla.coordinator.transactions.shard import Marker
from ottla.coordinator.transactions.state import EPOCH_BUMP_VERSION, Identity, TopicPartition
from ottla.errors import NONE, CoordinatorNotAvailable, KafkaError, NotLeaderOrFollower, error_for
from ottla.metadata.image import NO_LEADER
from ottla.server.transactions import LocalMarkers, Refusals, TransactionsOfOneOfMany, for_writers

if TYPE_CHECKING:
    from ottla.workers.broker import WorkerBroker

MARKERS, ADMIT = "markers", "admit"
"""What WriteTxnMarkers and AddPartitionsToTxn are between brokers of Apache Kafka."""

Done = Callable[[TopicPartition, KafkaError | None], None]
Waiting = list[tuple[Marker, TopicPartition, Done]]
Denied = list[tuple[TopicPartition, int]]


class SharedMarkers(LocalMarkers):
    """Writes markers here, or has the worker write them that leads the partition."""

    __slots__ = ("_waiting", "_will_send", "_worker")

    def __init__(self, worker: WorkerBroker) -> None:
        super().__init__(worker)
        self._worker = worker
        self._waiting: dict[int, Waiting] = {}
        self._will_send = True  # by `start`

    def write(self, marker: Marker, partition: TopicPartition, done: Done) -> None:
        leader = self._worker.directory.leader_of(partition)
        if leader is None or leader[0] in (self._worker.node_id, NO_LEADER):
            super().write(marker, partition, done)
            return
        self._waiting.setdefault(leader[0], []).append((marker, partition, done))

    def send(self) -> None:
        if not self._waiting or self._will_send:
            return
        pace = self._worker.pace
        if pace is not None and pace.is_with_one:
            # Before the end is answered: its producer comes back soon, and its partitions should be free by then.
            self._send_all()
        else:
            # What others end in this turn of the loop goes with it.
            self._will_send = True
            self._worker.loop.call_soon(self._send_all)

    def start(self) -> None:
        """The links are in use. What a stop interrupted is known before: a worker that is just being told who it is
        would take its markers for that."""
        self._send_all()

    def _send_all(self) -> None:
        self._will_send = False
        while self._waiting:
            self._ask(*self._waiting.popitem())

    def _ask(self, worker_id: int, waiting: Waiting) -> None:

        def answered(codes: Any, error: Exception | None) -> None:
            for number, (_, partition, done) in enumerate(waiting):
                # A worker that is gone: tried again later, or at the next start.
                code = codes[number] if error is None else NotLeaderOrFollower.code
                done(partition, error_for(code) if code else None)

        self._worker.links[worker_id].ask(
            answered, MARKERS, [(tuple(marker), *partition) for marker, partition, _ in waiting]
        )

    def write_for_another(self, wanted: list[tuple[tuple[Any, ...], str, int]]) -> list[int]:
        """The error code of each marker that another worker wants written here."""
        return [self._code(Marker(*marker), topic, index) for marker, topic, index in wanted]

    def _code(self, marker: Marker, topic: str, index: int) -> int:
        try:
            self.append(marker, topic, index)
        except KafkaError as error:
            return error.code
        return NONE


class TransactionsOfWorker(TransactionsOfOneOfMany):
    """The transaction coordinator of a worker; some partitions of its topic are led by other workers."""

    # The markers are on their way then. What the producer does next waits for them in the coordinator; and a worker
    # that writes them says so on the same link on which it asks for the next transaction, so that seldom takes time.
    ANSWERS_BEFORE_MARKERS = True

    def __init__(self, worker: WorkerBroker) -> None:
        self.shared_markers = SharedMarkers(worker)
        super().__init__(worker, self.shared_markers)
        self._worker = worker

    def _admit_there(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        admitted: Reply[Refusals] = Reply()

        def answered(refused: Any, error: Exception | None) -> None:
            if error is not None:
                refused = [(partition, CoordinatorNotAvailable.code) for partition in partitions]
            admitted.resolve(
                {partition: for_writers(error_for(code), abortable=abortable) for partition, code in refused}
            )

        link, pace = self._worker.links[coordinator_id], self._worker.pace
        ask = link.ask_and_look if pace is not None and pace.is_with_one else link.ask
        ask(answered, ADMIT, transactional_id, tuple(producer), [tuple(partition) for partition in partitions], adds)
        return settled(admitted)

    def admit_for_another(
        self, transactional_id: str, producer: tuple[int, int], partitions: list[TopicPartition], adds: bool
    ) -> Answer[Denied]:
        """The partitions that another worker must not write, with the code that says why."""

        def ask() -> Answer[Denied]:
            if not adds:
                missing = self.coordinator.missing_partitions(transactional_id, Identity(*producer), partitions)
                return [(partition, error.code) for partition, error in missing.items()]
            added = self.coordinator.add_partitions(
                transactional_id, Identity(*producer), partitions, EPOCH_BUMP_VERSION
            )
            return then(added, lambda _: [])

        return attempt(ask, lambda error: [(partition, error.code) for partition in partitions])
