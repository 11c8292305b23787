"""One test suite for every kind of broker: a handle works the same wherever the broker runs."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

import ottla
from ottla.embedded.options import InProcessOptions, PlainOptions
from ottla.testing import ANY, BrokerHandle, ExternalBroker, Kafka, NotFoundError, serve
from ottla.testing.over_http import Control, RemoteBroker, RemoteError
from ottla.testing.plain_kafka import NeedsOttla

Scenario = Callable[[BrokerHandle], Awaitable[None]]
ROOT = Path(__file__).parents[2]
KINDS = ("embedded", "threaded", "child", "http", "kafka")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def on(kind: str, run: Any) -> Callable[[Scenario], None]:
    """Runs a scenario on a broker of each kind, on an event loop, because one kind of broker needs it."""

    def go(scenario: Scenario) -> None:
        async def embedded() -> None:
            async with ottla.Broker(clock="virtual") as broker:
                await scenario(broker)

        if kind == "embedded":
            run(embedded())
        elif kind == "child":
            with ottla.spawn(clock="virtual") as child:
                run(scenario(child))
        else:
            with serve(clock="virtual", control=0) as served:
                handles: dict[str, Callable[[], BrokerHandle]] = {
                    "threaded": lambda: served,
                    "http": lambda: RemoteBroker(served.bootstrap, served.control_url),
                    "kafka": lambda: ExternalBroker(served.bootstrap),
                }
                run(scenario(handles[kind]()))

    return go


def test_a_topic(on: Any, tmp_path: Path) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        topic = broker.topic("orders")
        assert (str(topic), repr(topic), topic.exists, topic.partitions) == ("orders", "<topic orders>", False, 0)
        with pytest.raises(NotFoundError, match="there is no topic 'orders'"):
            topic.records()
        assert topic.create(2, {"retention.ms": 60_000_000}).partitions == 2
        done = topic.append(["a", {"n": 1}], partition=1, timestamp_ms=1_700_000_000_000)
        assert done == topic.records() == topic.records(1) and topic.records(0) == []
        topic.append([("k", b"\xff", {"h": "v"})], partition=0)
        assert topic.end_offsets() == {0: 1, 1: 2}
        topic.expect([("k", b"\xff", {"h": "v"}), "a", {"n": ANY}])
        assert topic.values()[1:] == [b"a", b'{"n": 1}'] and broker.topics() == ["orders"]
        with pytest.raises(AssertionError, match="- "):
            topic.expect(["b"])
        with pytest.raises(ValueError, match="partitions 0 to 1"):
            topic.append(["x"], partition=7)
        with pytest.raises(TypeError, match="list of records"):
            topic.append("text")
        assert (await topic.wait_for_async(lambda record: record.key == b"k")).headers == (("h", b"v"),)
        assert len(await topic.wait_for_all_async(count=3)) == 3
        with pytest.raises(AssertionError, match="in topic orders met the condition"):
            await topic.wait_for_async(lambda record: False, timeout=0.05)
        with pytest.raises(AssertionError, match=r"no record in topic typo .*: the topic does not exist"):
            await broker.topic("typo").wait_for_async(timeout=0.05)
        assert topic.save(tmp_path / "saved.jsonl") == 3
        copy = broker.topic("copy")
        copy.load(tmp_path / "saved.jsonl")
        assert [(r.partition, r.key, r.value, r.headers) for r in copy.records()] == [
            (r.partition, r.key, r.value, r.headers) for r in topic.records()
        ]
        topic.delete()
        assert broker.topics() == ["copy"]

    on(scenario)


def test_open_transactions(on: Any) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        topic = broker.topic("t").create()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
        await _in_thread(_write_without_commit, producer)
        assert topic.texts() == []
        assert [record.text for record in topic.records(committed_only=False)] == ["open"]
        await _in_thread(producer.abort_transaction, 5)

    on(scenario)


def _write_without_commit(producer: Producer) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"open")
    producer.flush(5)


async def _in_thread(work: Callable[..., Any], *arguments: Any) -> None:

    await asyncio.to_thread(work, *arguments)


def test_a_group(on: Any, consumer: Any) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        topic, group = broker.topic("t").create(), broker.group("g")
        topic.append(["a", "b"])
        assert (str(group), group.state, group.members(), group.committed()) == ("g", "Dead", [], {})
        with pytest.raises(NotFoundError, match="lag"):
            group.lag()
        assert group.lag(of=topic) == 2
        with pytest.raises(NotFoundError, match="there is no topic 'typo'"):
            group.lag(of="typo")

        def read_one() -> None:
            reader = consumer(broker.bootstrap, client_id="reader")
            reader.subscribe(["t"])
            message = reader.poll(10)
            assert message is not None
            reader.commit(message, asynchronous=False)

        await _in_thread(read_one)
        assert (group.state, group.committed(), group.lags()) == ("Stable", {("t", 0): 1}, {("t", 0): 1})
        assert group.lag() == group.lag(of=topic) == 1
        await group.wait_until_stable_async(members=1)
        with pytest.raises(AssertionError, match=r"within 0.05 s: it is Stable and has 1 members, not 2"):
            await group.wait_until_stable_async(members=2, timeout=0.05)
        with pytest.raises(AssertionError, match="it has still to read 1 records"):
            await group.wait_until_caught_up_async(timeout=0.05)
        with pytest.raises(RuntimeError, match="would block this event loop"):
            group.wait_until_caught_up()
        (member,) = group.members()
        assert (member.client_id, member.assignment) == ("reader", (("t", 0),))
        assert broker.groups() == ["g"]

    on(scenario)


def test_faults_time_and_requests(on: Any, kind: str, produce: Any) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        broker.topic("t").create()
        if kind == "kafka":
            for use in (lambda: broker.faults, lambda: broker.clock, broker.requests, broker.reset):
                with pytest.raises(NeedsOttla, match="only Ottla"):
                    use()
            return
        with broker.faults.error("Produce", ottla.errors.NotLeaderOrFollower, topic="t") as fault:
            assert fault.text == "NOT_LEADER_OR_FOLLOWER for Produce, topic=t"
            assert [each.text for each in broker.faults] == [fault.text]
            assert repr(broker.faults) == f"<faults: {fault.text}>"
            await _in_thread(produce, broker.bootstrap, "t")
            await fault.wait_async()
            fault.expect_fired(1)
            assert "fired 1 times" in repr(fault)
            assert list(broker.faults) == [] and repr(broker.faults) == "<faults: none>"
        seen = broker.requests(api="Produce")
        assert [(request.topics, request.errors) for request in seen] == [
            (["t"], ["NOT_LEADER_OR_FOLLOWER"]),
            (["t"], []),
        ]
        broker.clock.advance(minutes=1)
        assert repr(broker.clock).startswith("<clock")
        broker.reset()
        assert broker.topics() == []

    on(scenario)


def test_an_external_kafka_is_not_stopped() -> None:
    other = ExternalBroker("127.0.0.1:1")
    for verb in (other.down, other.up, other.kill, other.restart):
        with pytest.raises(NeedsOttla, match="stopping and starting it: only Ottla has that"):
            verb()


def test_the_registry(kind: str, run: Any) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        async def ask(verb: str, *arguments: Any, **options: Any) -> Any:
            found = getattr(broker.registry, verb)(*arguments, **options)
            return await found if kind == "embedded" else found

        assert broker.registry.url == broker.registry_url
        assert (await ask("register", "t-value", {"type": "string"})).id == 1
        assert await ask("subjects") == ["t-value"] and await ask("versions", "t-value") == [1]
        broker.topic("t").append([await ask("encode", "t-value", "hello")])
        await ask("expect_incompatible", "t-value", {"type": "int"}, error="TYPE_MISMATCH")
        if kind == "kafka":
            for use in (lambda: broker.registry.faults, broker.registry.down):
                with pytest.raises(NeedsOttla):
                    use()
        else:
            with broker.registry.faults.error("GET *", 503) as fault:
                assert [each.text for each in broker.registry.faults] == [fault.text]
            assert list(broker.registry.faults) == []
            broker.topic("t").expect(["hello"])
            broker.reset()
            assert await ask("subjects") == []

    async def embedded() -> None:
        async with ottla.Broker(registry=0) as broker:
            await scenario(broker)

    if kind == "embedded":
        run(embedded())
    elif kind == "child":
        with ottla.spawn(registry=0) as child:
            run(scenario(child))
    else:
        with serve(control=0, registry=0) as served:
            handles: dict[str, Callable[[], BrokerHandle]] = {
                "threaded": lambda: served,
                "http": lambda: RemoteBroker(served.bootstrap, served.control_url, served.registry_url),
                "kafka": lambda: ExternalBroker(served.bootstrap, served.registry_url),
            }
            run(scenario(handles[kind]()))


@pytest.mark.parametrize("client", ["confluent", "aiokafka", "kafka-python"])
def test_clients_accept_their_client_settings(client: Any, run: Any) -> None:
    with serve() as broker:
        topic, group = broker.topic("t").create(), broker.group("g")
        topic.append(["a", "b"])
        assert group.lag(of="t") == 2
        if client == "aiokafka":
            run(_read_with_aiokafka(broker.client_config(client, "consumer"), broker.client_config(client, "producer")))
        elif client == "kafka-python":
            _read_with_kafka_python(broker.client_config(client, "consumer"))
        else:
            own = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
            confluent = Consumer({**broker.client_config(client, "consumer"), **own})
            confluent.subscribe(["t"])
            assert [confluent.poll(10).value(), confluent.poll(10).value()] == [b"a", b"b"]
            confluent.commit(asynchronous=False)
            group.wait_until_stable(members=1)
            confluent.close()
        group.wait_until_caught_up()
        group.wait_until_caught_up(of="t")
        with pytest.raises(ValueError, match="no settings are known for 'rust'"):
            broker.client_config(cast(Any, "rust"))


def _read_with_kafka_python(settings: Any) -> None:
    """In a child process, because the import of kafka-python emits deprecation warnings."""
    code = (
        "import json, sys; from kafka import KafkaConsumer;"
        "reader = KafkaConsumer('t', group_id='g', auto_offset_reset='earliest', **json.loads(sys.argv[1]));"
        "print(next(reader).value, next(reader).value); reader.commit(); reader.close()"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "b'a' b'b'"


async def _read_with_aiokafka(consumer: Any, producer: Any) -> None:
    async with AIOKafkaProducer(**producer) as writer:
        await writer.send_and_wait("t", b"c")
    reader = AIOKafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **consumer)
    async with reader:
        assert [(await reader.getone()).value for _ in range(3)] == [b"a", b"b", b"c"]
        await reader.commit()


def test_waits_on_groups_over_http(consumer: Any) -> None:
    with serve(control=0) as broker:
        broker.topic("t").append(["a"])
        control = Control(broker.control_url)
        with pytest.raises(RemoteError, match="it is Dead and has 0 members, not 1"):
            control.ask("POST", "/groups/g/wait_until_stable", {"members": 1, "timeout": 0.05})
        reader = consumer(broker.bootstrap)
        reader.subscribe(["t"])
        assert reader.poll(10) is not None
        assert control.ask("POST", "/groups/g/wait_until_stable", {"members": 1}) == {"state": "Stable"}
        with pytest.raises(RemoteError, match="still to read 1 records"):
            control.ask("POST", "/groups/g/wait_until_caught_up", {"of": "t", "timeout": 0.05})
        reader.commit(asynchronous=False)
        assert control.ask("POST", "/groups/g/wait_until_caught_up", {"of": "t"}) == {"state": "Stable"}


def test_scenarios_run_on_each_kind() -> None:
    steps = [{"create": {"topic": "t"}}, {"append": {"topic": "t", "records": ["a"]}}]
    with ottla.spawn() as child, serve(control=0) as served:
        remote = RemoteBroker(served.bootstrap, served.control_url)
        assert [step["verb"] for step in child.run_scenario(steps)] == ["create", "append"]
        assert child.topic("t").texts() == ["a"]
        assert len(remote.run_scenario(steps)) == 2 and served.topic("t").texts() == ["a"]
        assert served.run_scenario([{"append": {"topic": "t", "records": ["b"]}}])[0]["appended"] == 1
        with pytest.raises(NeedsOttla):
            ExternalBroker(served.bootstrap).run_scenario(steps)


def test_options_are_those_of_a_broker() -> None:
    """Type checkers see the options of `serve` and `spawn` in these lists."""
    options = set(get_type_hints(ottla.Broker.__init__)) - {"return"}
    assert set(InProcessOptions.__annotations__) | {"config"} == options
    assert set(PlainOptions.__annotations__) == options - {"config", "disk", "chance", "apis"}
    with pytest.raises(TypeError, match="partition"):
        cast(Any, serve)(partition=3)


MISTAKES = """
import ottla
from ottla.testing import BrokerHandle, Kafka

def test(kafka: Kafka) -> None:
    kafka.topic("orders").recrods()
    kafka.group().lagg()
    kafka.faults.eror("Produce", 1)
    kafka.faults.error("Produce", 1, topik="t")
    kafka.clock.advance(minute=1)
    ottla.serve(partition=3)
    ottla.spawn(partition=3)
    with ottla.serve() as broker:
        broker.topic("orders").recrods()
    with ottla.Cluster() as cluster:
        cluster.topic("orders").recrods()

def use(broker: BrokerHandle) -> None:
    broker.registry.subjets()
    ottla.srve()
    ottla.testing.replay_request("run.jsonl", broker.bootstrap)
"""
FINE = """
import ottla
from ottla.testing import BrokerHandle, ExternalBroker, Kafka, SpawnedBroker

def test(kafka: Kafka, child: SpawnedBroker, other: ExternalBroker) -> None:
    orders, billing = kafka.topic("orders"), kafka.group("billing")
    orders.wait_for(lambda record: record.text == "x").key
    fault = kafka.faults.error(["Produce", "Fetch"], "NOT_LEADER_OR_FOLLOWER", topic=orders, times=2)
    kafka.faults.delay("JoinGroup", ms=5, group=billing)
    kafka.faults.rebalance(billing)
    assert fault.active and fault.fired + 1 == 1
    with ottla.serve(partitions=3, clock="virtual") as broker:
        handles: list[BrokerHandle] = [broker, child, other, ottla.Broker()]
        handles[0].topic("t").append(["a"])
        handles[0].registry.url.upper()
        assert ottla.testing.replay_requests("run.jsonl", broker.bootstrap).differences == []
"""


WRONG_LINES = [
    number
    for number, line in enumerate(MISTAKES.splitlines(), 1)
    if re.search(r"recrods|lagg|eror|topik|ition=|ute=|subjets|srve|replay_request\(", line)
]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_find_mistakes(checker: str, tmp_path: Path) -> None:
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "fine.py").write_text(FINE)
    # The PyPI package that contains pyright and its runtime; "standard" is pyright's default set of rules.
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    files = [str(tmp_path / name) for name in ("fine.py", "mistakes.py")]
    programs = {
        "mypy": ["mypy", "--no-error-summary", *files],
        "pyright": ["basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable, *files],
    }
    cwd = {"mypy": ROOT, "pyright": tmp_path}[checker]
    command = [sys.executable, "-m", *programs[checker]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd, check=False)
    found = re.findall(r"(\w+)\.py:(\d+)(?::\d+ -)?:? error", done.stdout)
    # One mistake may be found in each type of a union.
    assert list(dict.fromkeys(found)) == [("mistakes", str(number)) for number in WRONG_LINES], (
        done.stdout + done.stderr
    )


def test_reprs_and_names() -> None:
    assert dir(ottla) == sorted(ottla.__all__)
    with serve() as broker:
        assert repr(broker) == f"<ServedBroker at {broker.bootstrap}>"
        assert repr(Kafka(broker, "my_test")).startswith("<Kafka my-test-")
    assert repr(broker) == "<ServedBroker not running>"


def test_compaction_and_retention_on_demand(on: Any, kind: str) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        topic = broker.topic("c").create(1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1})
        topic.append([("a", "1")])
        topic.append([("b", "2")])
        topic.append([("a", "3")])
        old = broker.topic("d").create(1, {"retention.ms": 1000})
        old.append(["old"], timestamp_ms=1_700_000_000_000)
        if kind == "kafka":
            for verb in (topic.compact_now, old.delete_old_now):
                with pytest.raises(NeedsOttla, match="on demand"):
                    verb()
            return
        topic.compact_now()
        topic.expect([("b", "2"), ("a", "3")])
        topic.compact_now()
        with pytest.raises(ValueError, match=r"cleanup\.policy=compact"):
            old.compact_now()
        assert old.delete_old_now() == 1
        assert old.texts() == []
        with pytest.raises(NotFoundError):
            broker.topic("nope").compact_now()

    on(scenario)


def test_waiting_for_a_request(on: Any, kind: str) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        if kind == "kafka":
            with pytest.raises(NeedsOttla):
                await broker.wait_for_request_async("Produce")
            return
        broker.topic("t").create()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "me", "log_level": 0})
        producer.produce("t", b"x")
        await _in_thread(producer.flush, 5)
        seen = await broker.wait_for_request_async("Produce", client_id="me", topic="t")
        assert (seen.api, seen.topics) == ("Produce", ["t"])
        with pytest.raises(AssertionError, match=r"1 of 2 such Produce requests came within 0\.05 s"):
            await broker.wait_for_request_async("Produce", count=2, timeout=0.05)
        with pytest.raises(RuntimeError, match="wait_for_request_async"):
            broker.wait_for_request("Produce")

    on(scenario)


def test_snapshots_and_recordings(on: Any, kind: str, tmp_path: Path) -> None:
    async def scenario(broker: BrokerHandle) -> None:
        if kind == "kafka":
            for verb in (broker.snapshot, lambda: broker.record(tmp_path / "run.jsonl")):
                with pytest.raises(NeedsOttla):
                    verb()
            return
        topic = broker.topic("t").create()
        topic.append(["a"])
        state = broker.snapshot()
        assert repr(state).startswith("<snapshot")
        topic.append(["b"])
        recording = broker.record(tmp_path / "run.jsonl")
        assert repr(recording).startswith(f"<Recording {tmp_path / 'run.jsonl'}")
        if kind == "embedded":
            await broker.restore(state)  # type: ignore[attr-defined]
        else:
            broker.restore(state)  # type: ignore[attr-defined]
            with broker.branch() as other:  # type: ignore[attr-defined]
                other.topic("t").append(["c"])
                assert other.topic("t").texts() == ["a", "c"]
        assert topic.texts() == ["a"]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("t", b"x")
        await _in_thread(producer.flush, 5)
        recording.stop()
        recording.stop()
        text = await asyncio.to_thread(Path(recording.path).read_text)
        lines = [json.loads(line) for line in text.splitlines()]
        (produced,) = [line for line in lines[1:] if line["api"] == "Produce"]
        records = produced["request"]["topic_data"][0]["partition_data"][0]["records"]
        assert records["batches"][0]["records"][0]["value"] == "x"
        assert produced["response"]["responses"][0]["partition_responses"][0]["base_offset"] == 1
        state.close()
        state.close()

    on(scenario)


def test_faults_and_requests_accept_handles(on: Any, kind: str, produce: Any, consumer: Any) -> None:
    """A handle can replace the name of a topic or a group."""

    async def scenario(broker: BrokerHandle) -> None:
        if kind == "kafka":
            return
        topic, group = broker.topic("t").create(), broker.group("g")
        topic.append(["a"])

        def use() -> None:
            produce(broker.bootstrap, "t", b"x")
            reader = consumer(broker.bootstrap)
            reader.subscribe(["t"])
            assert reader.poll(10) is not None
            reader.close()

        await _in_thread(use)
        assert len(broker.requests(api="Produce", topic=topic)) == 1
        assert {"Produce", "Fetch"} <= {request.api for request in broker.requests(topic=topic)}
        assert "JoinGroup" in {request.api for request in broker.requests(group=group)}
        assert (await broker.wait_for_request_async(api="JoinGroup", group=group)).groups == ["g"]
        assert broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic).text.endswith("topic=t")
        for immediate in (broker.faults.rebalance, broker.faults.evict):
            with pytest.raises(ValueError, match=r"group 'g' .*join first"):
                immediate(group)
        assert broker.faults.bump_leader_epoch(topic).text == "a new leader epoch of t-0"
        assert broker.faults.move_coordinator(group=group).text == "the coordinator of g moves"
        assert broker.faults.disk_full(topic=topic).text.endswith("topic=t")

    on(scenario)
