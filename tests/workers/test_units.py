"""The parts of the workers that need no processes."""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from ottla.answers import Answer, Reply, started
from ottla.clock import ManualClock
from ottla.config import Config
from ottla.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NotController,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.log.checkpoint_writer import CheckpointWriter, FolderCheckpoints
from ottla.log.checkpoints import RECOVERY_POINTS_FILE, read_offsets, write_offsets
from ottla.log.files import MemoryDisk
from ottla.log.manager import LogManager
from ottla.log.options import LogConfig
from ottla.metadata.controller import Controller, NewTopic
from ottla.metadata.elections import directory_of, sharing_folders
from ottla.metadata.image import BrokerState, MetadataImage
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.server.randomness import SeededRandomness
from ottla.wire.stored import metadata as stored
from ottla.workers.checkpoints import ControllerCheckpoints, FollowerCheckpoints, SharedFolder
from ottla.workers.link import Link, LinkLost, receive_first
from ottla.workers.metadata import ForeignCluster, check_own_folders
from ottla.workers.process import LOST_CONTROLLER
from ottla.workers.supervisor import _Watch

FOLDER = b"f" * 16
SECOND = b"s" * 16
ELSEWHERE = b"e" * 16
ROOT = "/data"
LAST_WORDS = [("state", (bytes(2_000),)), ("gone", (5,))]


def image_of(brokers: dict[int, bytes], replicas: dict[str, list[list[int]]]) -> MetadataImage:
    image = MetadataImage()
    for broker_id, directory in brokers.items():
        image.brokers[broker_id] = BrokerState(
            broker_id, 10 + broker_id, bytes(16), [], None, False, False, [directory]
        )
    for number, (name, partitions) in enumerate(replicas.items()):
        topic_id = bytes(15) + bytes([number + 1])
        image.replay(stored.TopicRecord(name=name, topic_id=topic_id), 0)
        for index, chosen in enumerate(partitions):
            record = stored.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=chosen,
                isr=chosen,
                leader=chosen[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[FOLDER] * len(chosen),
            )
            image.replay(record, 0)
    return image


def leaders(image: MetadataImage, topic: str) -> list[int]:
    return [partition.leader for partition in image.topics[topic].partitions.values()]


# -- leaders of partitions


def test_the_workers_of_the_last_start_keep_their_partitions() -> None:
    image = image_of({1: FOLDER, 2: FOLDER}, {"t": [[2], [2], [1]]})
    assert list(sharing_folders(image, [1, 2], [FOLDER])) == []


@pytest.mark.parametrize("workers", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]])
def test_other_workers_share_each_topic_evenly(workers: list[int]) -> None:
    image = image_of({1: FOLDER, 5: FOLDER}, {"t": [[5]] * 12, "u": [[1]] * 12})
    for record in sharing_folders(image, workers, [FOLDER]):
        image.replay(record, 0)
    assert set(image.brokers) == {1}
    for topic in "tu":
        assert {worker: leaders(image, topic).count(worker) for worker in workers} == dict.fromkeys(
            workers, 12 // len(workers)
        )
        for partition in image.topics[topic].partitions.values():
            assert partition.replicas == partition.isr == [partition.leader]


def test_each_broker_of_a_folder_has_its_own_directory() -> None:
    """Apache Kafka does not start if two brokers have the same directory in the metadata."""
    directories = [directory_of(FOLDER, 1, worker) for worker in range(1, 33)]
    assert directories[0] == FOLDER
    assert len(set(directories)) == 32
    image = image_of({1: FOLDER, 2: directories[1]}, {"t": [[1], [2]]})
    check_own_folders(image, 1, [FOLDER])
    assert list(sharing_folders(image, [1, 2], [FOLDER])) == []
    for record in sharing_folders(image, [1, 2, 3], [FOLDER]):
        image.replay(record, 0)
    for partition in image.topics["t"].partitions.values():
        # A worker that keeps its partition has it in the same folder as before.
        assert partition.leader in (1, 2) or partition.directories == [directories[partition.leader - 1]]
    for record in sharing_folders(image, [1], [FOLDER]):
        image.replay(record, 0)
    assert set(image.brokers) == {1}


def test_partitions_stay_in_their_folders_when_other_workers_lead_them() -> None:
    folders = [FOLDER, SECOND]
    image = image_of({1: FOLDER}, {"t": [[1]] * 4})
    for index, partition in image.topics["t"].partitions.items():
        partition.directories = [folders[index % 2]]
    for workers in ([1, 2], [1, 2, 3], [1, 2], [1]):
        for record in sharing_folders(image, workers, folders, is_spread=True):
            image.replay(record, 0)
        for worker in workers:
            image.brokers[worker] = BrokerState(
                worker, worker, bytes(16), [], None, False, False, [directory_of(each, 1, worker) for each in folders]
            )
        assert {
            index: (partition.leader in workers, partition.directories)
            for index, partition in image.topics["t"].partitions.items()
        } == {
            index: (True, [directory_of(folders[index % 2], 1, partition.leader)])
            for index, partition in image.topics["t"].partitions.items()
        }


def test_partitions_with_replicas_elsewhere_are_not_changed() -> None:
    image = image_of({1: FOLDER, 2: FOLDER, 7: ELSEWHERE}, {"t": [[7, 2]], "u": [[2]]})
    changes = list(sharing_folders(image, [1], [FOLDER]))
    for record in changes:
        image.replay(record, 0)
    assert leaders(image, "t") == [7] and leaders(image, "u") == [1]
    assert set(image.brokers) == {1, 7}


def test_a_folder_of_a_larger_cluster_is_refused() -> None:
    check_own_folders(image_of({1: ELSEWHERE, 2: FOLDER}, {}), 1, [FOLDER])
    with pytest.raises(ForeignCluster, match="7"):
        check_own_folders(image_of({1: FOLDER, 7: ELSEWHERE}, {}), 1, [FOLDER])


# -- the metadata of a follower


def test_a_follower_writes_no_metadata() -> None:
    with pytest.raises(NotController):
        FollowedMetadata(MetadataImage(), 1).append([])


def test_one_folder_holds_one_replica() -> None:
    image = image_of({1: FOLDER, 2: FOLDER}, {})
    controller = Controller(
        image,
        FollowedMetadata(image, 1),
        lambda: Config.load(preset="dev"),
        SeededRandomness(1),
        lambda _: FOLDER,
        shares_folder=True,
    )
    with pytest.raises(InvalidReplicationFactor, match="only 1 broker"):
        controller.plan_topic(NewTopic("t", 1, 2))
    with pytest.raises(InvalidReplicaAssignment, match="2 replicas"):
        controller.plan_topic(NewTopic("t", assignments=[(0, [1, 2])]))
    _, topic = controller.plan_topic(NewTopic("t", 4, 1))
    assert sorted(partition.leader for partition in topic.partitions.values()) == [1, 1, 2, 2]


# -- checkpoints


def logs_of(disk: MemoryDisk, checkpoints: FolderCheckpoints) -> LogManager:
    return LogManager(
        disk,
        lambda topic: LogConfig(),
        ManualClock(),
        new_token=lambda: "0" * 32,
        folder_checkpoints=checkpoints,
    )


def controller_logs(disk: MemoryDisk) -> tuple[LogManager, ControllerCheckpoints]:
    folders = {ROOT: SharedFolder(disk, CheckpointWriter(disk, None))}
    checkpoints = ControllerCheckpoints(folders, lambda key: logs.holds(key), lambda key: ROOT)
    logs = logs_of(disk, checkpoints)
    return logs, checkpoints


def test_the_controller_writes_the_checkpoints_of_all_workers() -> None:
    disk = MemoryDisk()
    logs, checkpoints = controller_logs(disk)
    logs.open("cluster", 1, "AAAAAAAAAAAAAAAAAAAAAA")
    owners = {("t", 0): 1, ("t", 1): 2, ("t", 2): 3, ("u", 0): 2}
    write_offsets(disk, RECOVERY_POINTS_FILE, {("t", 1): 11, ("t", 2): 12, ("u", 0): 20, ("gone", 0): 5})
    logs.get_or_create("t", 0)
    checkpoints.share_out(1, owners.get)
    logs.checkpoint_recovery_points()
    assert read_offsets(disk, RECOVERY_POINTS_FILE) == {("t", 0): 0, ("t", 1): 11, ("t", 2): 12, ("u", 0): 20}
    checkpoints.hand_in(2, RECOVERY_POINTS_FILE, {ROOT: {("t", 1): 30}})
    assert read_offsets(disk, RECOVERY_POINTS_FILE) == {("t", 0): 0, ("t", 1): 30, ("t", 2): 12}


def test_each_folder_has_the_checkpoints_of_its_own_partitions() -> None:
    disks = {"one": MemoryDisk(), "two": MemoryDisk()}
    folders = {root: SharedFolder(disk, CheckpointWriter(disk, None)) for root, disk in disks.items()}
    checkpoints = ControllerCheckpoints(folders, lambda key: True, lambda key: "one" if key[1] == 0 else "two")
    write_offsets(disks["two"], RECOVERY_POINTS_FILE, {("t", 3): 3})
    checkpoints.share_out(1, lambda key: 2)
    checkpoints.write(RECOVERY_POINTS_FILE, {("t", 0): 10, ("t", 1): 11})

    def written() -> dict[str, dict[tuple[str, int], int]]:
        return {root: read_offsets(disk, RECOVERY_POINTS_FILE) for root, disk in disks.items()}

    assert written() == {"one": {("t", 0): 10}, "two": {("t", 1): 11, ("t", 3): 3}}
    checkpoints.hand_in(2, RECOVERY_POINTS_FILE, {"one": {("t", 3): 33}})  # it was moved
    assert written() == {"one": {("t", 0): 10, ("t", 3): 33}, "two": {("t", 1): 11}}
    checkpoints.leave_out("two")
    checkpoints.write(RECOVERY_POINTS_FILE, {("t", 0): 20, ("t", 1): 21})
    checkpoints.note_clean_stop(5)
    assert written() == {"one": {("t", 0): 20, ("t", 3): 33}, "two": {("t", 1): 11}}
    assert [disk.exists(".kafka_cleanshutdown") for disk in disks.values()] == [True, False]


@pytest.mark.parametrize("all_closed", [True, False])
def test_a_stop_is_clean_when_every_worker_closed_its_logs(all_closed: bool) -> None:
    disk = MemoryDisk()
    logs, checkpoints = controller_logs(disk)
    logs.open("cluster", 1, "AAAAAAAAAAAAAAAAAAAAAA")
    checkpoints.share_out(1, lambda key: 1)
    checkpoints.all_closed = all_closed
    logs.close()
    assert disk.exists(".kafka_cleanshutdown") is all_closed


def test_a_follower_opens_its_own_logs_and_leaves_the_clean_stop_marker() -> None:
    disk = MemoryDisk()
    whole, _ = controller_logs(disk)
    identity = whole.open("cluster", 1, "AAAAAAAAAAAAAAAAAAAAAA")
    for index in range(3):
        whole.get_or_create("t", index, bytes(16))
    handed: dict[str, dict[str, dict[tuple[str, int], int]]] = {}
    checkpoints = FollowerCheckpoints(handed.__setitem__, lambda key: logs.holds(key), lambda key: ROOT)
    logs = logs_of(disk, checkpoints)
    logs.open_part(identity, False, [("t", 1), ("not made yet", 0)])
    assert logs.partitions() == [("t", 1)]
    logs.close()
    assert handed[RECOVERY_POINTS_FILE] == {ROOT: {("t", 1): 0}}
    assert checkpoints.closed_cleanly and not disk.exists(".kafka_cleanshutdown")


# -- links


async def linked(service: Callable[[Link, str, tuple[Any, ...]], Answer[Any]]) -> tuple[Link, Link, list[Any]]:
    left, right = socket.socketpair()
    loop = asyncio.get_running_loop()
    received: list[Any] = []
    first, second = Link(left, 2, loop), Link(right, 1, loop)
    first.start(lambda *_: None, service, lambda _: None)
    second.start(lambda link, kind, arguments: received.append((kind, arguments)), service, received.append)
    return first, second, received


def test_messages_keep_their_order_however_large_they_are() -> None:
    async def run() -> None:
        first, second, received = await linked(lambda *_: None)
        sizes = [0, 1, 3_000_000, 5, 500_000]
        for size in sizes:
            first.send("bytes", bytes(size), {("t", 1): size})
        await second.call("that is all")  # answered after what was sent
        await first.call("that is all")
        assert [(kind, len(body), offsets["t", 1]) for kind, (body, offsets) in received] == [
            ("bytes", size, size) for size in sizes
        ]
        first.close()
        second.close()

    asyncio.run(run())


def test_calls_are_answered_at_once_later_or_with_an_error() -> None:
    async def double_later(value: int) -> int:
        await asyncio.sleep(0)
        return 2 * value

    def service(link: Link, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "later":
            return started(double_later(*arguments))
        if name == "fail":
            raise UnknownTopicOrPartition("no such thing")
        return arguments

    async def run() -> None:
        first, second, _ = await linked(service)
        assert await first.call("now", 1, b"2") == (1, b"2")
        assert await asyncio.gather(*(second.call("later", number) for number in range(50))) == [*range(0, 100, 2)]
        with pytest.raises(UnknownTopicOrPartition, match="no such thing"):
            await first.call("fail")
        first.close()
        second.close()

    asyncio.run(run())


def test_the_end_of_a_worker_fails_requests_that_wait_for_it() -> None:
    async def run() -> None:
        never: Reply[None] = Reply()
        first, second, received = await linked(lambda *_: never)
        call = asyncio.ensure_future(second.call("wait"))
        await asyncio.sleep(0)
        first.close()
        with pytest.raises(LinkLost):
            await call
        assert received == [second]
        second.send("nobody listens")
        with pytest.raises(LinkLost):
            await second.call("wait")

    asyncio.run(run())


def test_a_worker_that_dies_after_its_last_message_is_noticed() -> None:
    """uvloop reports a socket error only once: here the other end still had something to read."""

    async def run() -> None:
        left, right = socket.socketpair()
        right.send(b"never read")
        lost = asyncio.Event()
        received: list[Any] = []
        left.sendall(packed(*LAST_WORDS))
        left.close()
        link = Link(right, 1, asyncio.get_running_loop())
        link.start(lambda _, kind, arguments: received.append((kind, arguments)), lambda *_: None, lambda _: lost.set())
        await asyncio.wait_for(lost.wait(), 30)
        assert received == LAST_WORDS

    for new_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run())


def packed(*messages: tuple[str, tuple[Any, ...]]) -> bytes:
    return b"".join(struct.pack(">I", len(body)) + body for body in map(marshal.dumps, messages))


async def a_few_turns() -> None:
    """The loop finds the content of a socket in its next turn, and runs the resulting callbacks in the turn after
    that."""
    for _ in range(5):
        await asyncio.sleep(0)


async def beside_a_socket() -> tuple[Link, socket.socket, list[Any]]:
    """A link to whose other end the test writes, and all answers, in order."""
    here, there = socket.socketpair()
    link, told = Link(here, 2, asyncio.get_running_loop()), []  # type: ignore[var-annotated]
    link.start(
        lambda _, kind, arguments: told.append((kind, arguments)), lambda *_: None, lambda _: told.append("lost")
    )
    return link, there, told


def test_a_polled_answer_is_there_before_the_caller_continues() -> None:
    async def run() -> None:
        link, there, told = await beside_a_socket()
        there.sendall(packed(("answer", (1, "yes"))))
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        assert told == [("yes", None)]
        there.sendall(packed(("failure", (2, UnknownTopicOrPartition.code, "no such thing"))))
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        assert isinstance(told[1][1], UnknownTopicOrPartition)
        link.close()
        there.close()

    asyncio.run(run())


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
@pytest.mark.parametrize("first", ["word", "answer", "older answer"])
def test_other_messages_wait_for_the_loop_and_keep_their_order(first: str, at_once: int) -> None:
    """The caller is in the middle of a change that the answers might affect."""
    words = {"word": ("word", (1,)), "answer": ("answer", (2, "yes")), "older answer": ("answer", (1, "so"))}
    order = [words.pop(first), *words.values(), ("word", (2,))]

    async def run() -> None:
        link, there, told = await beside_a_socket()
        link.ask(lambda *answer: told.append(("answer", (1, answer[0]))), "older question")
        there.sendall(packed(*order[:at_once]))
        link.ask_and_look(lambda *answer: told.append(("answer", (2, answer[0]))), "question")
        assert told == (order[:1] if first == "answer" and at_once == 1 else [])
        there.sendall(packed(*order[at_once:]))
        await a_few_turns()
        assert told == order
        link.close()
        there.close()

    asyncio.run(run())


def test_no_answer_overtakes_messages_that_wait_for_the_loop() -> None:
    async def run() -> None:
        link, there, told = await beside_a_socket()
        there.sendall(packed(("word", (1,))))
        for _ in range(2):
            link.ask_and_look(lambda *answer: None, "question")
        there.sendall(packed(("answer", (3, "yes"))))
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        assert told == []
        await a_few_turns()
        assert told == [("word", (1,)), ("yes", None)]
        link.close()
        there.close()

    asyncio.run(run())


def test_after_a_failed_poll_requests_are_sent_without_polling() -> None:
    async def run() -> None:
        link, there, told = await beside_a_socket()
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        there.sendall(packed(("answer", (1, "late")), ("answer", (2, "soon"))))
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        assert told == []  # it had arrived, but was not polled
        await a_few_turns()
        there.sendall(packed(("answer", (3, "soon"))))
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        assert told == [("late", None), ("soon", None), ("soon", None)]
        link.close()
        there.close()

    asyncio.run(run())


def test_a_worker_that_dies_during_a_poll_is_noticed() -> None:
    async def run() -> None:
        link, there, told = await beside_a_socket()
        there.sendall(packed(("first", (1,))))
        there.close()
        link.ask_and_look(lambda *answer: told.append(answer), "question")
        await a_few_turns()
        assert told[0] == ("first", (1,)) and isinstance(told[1][1], LinkLost)
        for _ in range(2):
            link.ask_and_look(lambda *answer: told.append(answer), "question")
            assert isinstance(told.pop()[1], LinkLost)

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_messages_found_by_a_poll_are_handled_before_the_end(new_loop: Callable[[], Any]) -> None:
    async def run() -> None:
        link, there, told = await beside_a_socket()
        there.sendall(packed(*LAST_WORDS))
        link.ask_and_look(lambda result, error: told.append(type(error)), "question")
        there.close()
        link._on_readable()  # it may arrive before the messages that the poll left for the loop
        assert told == [*LAST_WORDS, LinkLost, "lost"]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_a_failing_service_is_answered_and_others_continue() -> None:
    def service(link: Link, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "break":
            raise ZeroDivisionError
        return name

    async def run() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        first, second, _ = await linked(service)
        broken, sound = first.call("break"), first.call("sound")
        with pytest.raises(UnknownServerError):
            await asyncio.wait_for(broken, 30)
        assert await asyncio.wait_for(sound, 30) == "sound"
        assert [type(error) for error in reported] == [ZeroDivisionError]
        first.close()
        second.close()

    asyncio.run(run())


def test_a_handle_and_the_first_message_arrive_before_the_loop_runs() -> None:
    left, right = socket.socketpair()
    reading, writing = os.pipe()

    async def send() -> None:
        link = Link(left, 2, asyncio.get_running_loop())
        link.send_handles([writing])
        link.send("state", 5)
        link.finish()

    asyncio.run(send())
    (handle,), kind, arguments = receive_first(right)
    assert (kind, arguments) == ("state", (5,))
    os.write(handle, b"x")
    assert os.read(reading, 1) == b"x"
    left.close()
    with pytest.raises(LinkLost):
        receive_first(right)
    right.close()
    for each in (reading, writing, handle):
        os.close(each)


def test_a_worker_stopped_during_its_start_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> _Watch:
        watch = _Watch({}, -1, lambda: None)
        watch._ended(1, 1)  # the first could not start
        watch._ended(2, -signal.SIGTERM)
        return watch

    assert asyncio.run(main())._code == 1
    assert capsys.readouterr().err == ""


def test_workers_that_end_while_the_group_stops_are_not_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> _Watch:
        watch = _Watch({}, -1, lambda: None)
        watch._is_ready = True
        watch._ended(1, 0)  # SIGTERM to the process group reached the worker first
        watch._ended(2, LOST_CONTROLLER)  # it missed the first one, which had stopped
        return watch

    assert asyncio.run(main())._code == 0
    assert capsys.readouterr().err == ""
