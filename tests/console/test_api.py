"""The console's JSON API against a real broker."""

import base64
import json
import re
import threading
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.console.app import STREAMS
from ottla.console.operations import OPERATIONS
from ottla.console.server import ConsoleServer
from support.console import Console, served


def texts(page: Any) -> list[str]:
    return [record["value"]["text"] for record in page["records"]]


def test_the_overview_counts_topics_partitions_and_groups(console: Console) -> None:
    console.broker.topic("orders").create(3)
    found = console.get("/overview")
    assert (found["topics"], found["partitions"], found["groups"]) == (1, 3, 0)
    assert found["brokers"][0]["address"] == console.broker.bootstrap
    assert found["brokers"][0]["leads"] == 3
    assert found["warnings"] == []


def test_overview_counts_no_partitions_of_internal_topics(console: Console) -> None:
    console.broker.topic("orders").create(3)
    Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": "g"}).committed(
        [TopicPartition("orders", 0)], 30
    )
    found = console.get("/overview")
    assert (found["topics"], found["partitions"]) == (1, 3)
    assert found["brokers"][0]["leads"] > 3, "the broker also leads the offsets topic"


def test_overview_names_the_leader_of_the_quorum_as_controller() -> None:
    with ottla.Cluster(2, controllers=3, console=0) as cluster:
        console = Console(cluster.console_url)
        found = console.get("/overview")
        assert found["controller"] == console.get("/quorum")["leader"]
        assert found["controller"] not in [each["broker"] for each in found["brokers"]]
        for name in ("c1", "c2", "c3"):
            cluster.kill_controller(name)
        assert console.get("/overview")["controller"] is None


@pytest.mark.parametrize("way", ["kill", "pause"])
def test_the_pages_of_a_cluster_work_while_a_broker_is_away(way: str) -> None:
    """They also work before the controller notices, while the metadata still contains the broker."""
    with ottla.Cluster(3, console=0) as cluster:
        cluster.create_topic("orders", assignments=[[3, 1, 2], [1, 2, 3]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "shop"})
        producer.init_transactions(30)
        Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"}).committed([TopicPartition("orders", 0)], 30)
        console = Console(cluster.console_url)
        getattr(cluster, way)(3)
        for path in ("/overview", "/topics", "/groups", "/transactions", "/replicas", "/connections", "/topics/orders"):
            assert console.ask("GET", path).status == 200, path
        cluster.wait_until(lambda c: c.leader("orders") != 3)
        kinds = {each["kind"] for each in console.get("/overview")["warnings"] if each.get("topic") == "orders"}
        assert kinds == {"under-replicated"}
        getattr(cluster, {"kill": "start", "pause": "resume"}[way])(3)


def test_a_topic_is_created_changed_emptied_and_deleted(console: Console) -> None:
    made = console.ask("POST", "/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "5000"}})
    assert (made.status, made.data) == (200, {"name": "orders"})
    console.broker.topic("orders").append(["a", "b"], partition=1)
    assert [(each["name"], each["partitions"]) for each in console.get("/topics")] == [("orders", 2)]

    assert console.ask("PATCH", "/topics/orders", {"partitions": 4, "configs": {"retention.ms": None}}).status == 200
    described = console.get("/topics/orders")
    assert [each["end_offset"] for each in described["partitions"]] == [0, 2, 0, 0]
    assert {each["name"]: each["default"] for each in described["configs"]}["retention.ms"]

    assert console.ask("POST", "/topics/orders/empty", {}).data["start_offsets"]["1"] == 2
    assert console.get("/topics/orders/records")["records"] == []
    assert console.ask("DELETE", "/topics/orders").status == 200
    assert console.get("/topics") == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/topics/nope", None, 404, "topic 'nope' does not exist"),
        ("DELETE", "/topics/nope", None, 404, "topic 'nope' does not exist"),
        ("POST", "/topics", {"name": "bad/name"}, 409, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/topics", {"name": 7}, 400, "'name', a string"),
        ("POST", "/topics", {"name": "x", "partitions": 0}, 400, "partitions=0"),
        ("POST", "/topics", {"name": "x", "configs": {"no.such": "1"}}, 409, "no.such"),
        ("GET", "/groups/nope", None, 404, "no group 'nope'"),
        ("GET", "/nothing", None, 404, "there is no GET /api/v1/nothing"),
    ],
)
def test_refusals_have_a_reason(console: Console, method: str, path: str, body: Any, status: int, message: str) -> None:
    answer = console.ask(method, path, body)
    assert answer.status == status, answer
    assert message in f"{answer.data['error']} {answer.data.get('code')}"


def test_bad_json_is_refused(console: Console) -> None:
    answer = console.ask("POST", "/topics", ["a list"])
    assert (answer.status, answer.data["error"]) == (400, "the body must be a JSON object")


class TestRecords:
    def test_pages_of_the_newest_reach_every_record_once(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(2)
        for number in range(250):
            topic.append([f"v{number}"], partition=number % 2)
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 60}
        while True:
            page = console.get("/topics/t/records", **query)
            seen += texts(page)
            if page["cursor"] is None:
                break
            query["cursor"] = page["cursor"]
        assert sorted(seen) == sorted(f"v{number}" for number in range(250))
        assert seen[0] in ("v249", "v248")

    def test_pages_from_the_oldest_reach_every_record_once(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(3)
        for index in range(3):
            topic.append([f"{index}-{number}" for number in range(70)], partition=index)
        seen: list[str] = []
        query: dict[str, Any] = {"from_": "oldest", "limit": 50}
        while True:
            page = console.get("/topics/t/records", **query)
            seen += texts(page)
            if page["cursor"] is None:
                break
            query["cursor"] = page["cursor"]
        assert len(seen) == 210
        assert len(set(seen)) == 210

    def test_records_are_read_from_an_offset_and_from_a_time(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        topic.append([f"v{number}" for number in range(10)])
        assert texts(console.get("/topics/t/records", from_="offset:7")) == ["v7", "v8", "v9"]
        assert texts(console.get("/topics/t/records", from_="time:0")) == [f"v{number}" for number in range(10)]
        assert texts(console.get("/topics/t/records", from_="time:99999999999999")) == []

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            ({"value": "ann"}, ["ann"]),
            ({"json": "user.age >= 30"}, ["bob", "cleo"]),
            ({"json": "user.age > 30"}, ["cleo"]),
            ({"json": "user.name = bob"}, ["bob"]),
            ({"json": 'user.name == "bob"'}, ["bob"]),
            ({"json": "user.name != bob"}, ["ann", "cleo"]),
            ({"json": "$.tags[1]"}, ["cleo"]),
            ({"json": "tags[0] ~ y"}, ["cleo"]),
            ({"key": "k2"}, ["cleo"]),
            ({"header": "trace"}, ["bob"]),
            ({"header": "trace=12"}, ["bob"]),
            ({"header": "trace=9"}, []),
        ],
    )
    def test_filters(self, console: Console, query: dict[str, str], wanted: list[str]) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        people = [("ann", 20, []), ("bob", 30, []), ("cleo", 40, ["xy", "z"])]
        for number, (name, age, tags) in enumerate(people):
            value = json.dumps({"user": {"name": name, "age": age}, "tags": tags})
            headers = [("trace", b"123")] if name == "bob" else []
            topic.append([(f"k{number}", value, headers)])
        topic.append(["not json"])
        page = console.get("/topics/t/records", from_="oldest", **query)
        assert [json.loads(text)["user"]["name"] for text in texts(page)] == wanted
        assert page["scanned"] == 4

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ({"from_": "yesterday"}, "newest, oldest, offset:NUMBER"),
            ({"limit": "0"}, "less than 1"),
            ({"limit": "many"}, "not a whole number"),
            ({"cursor": "x"}, "cursor"),
            ({"json": "a > b"}, "compares with a number"),
            ({"json": "= 4"}, "not a path"),
            ({"isolation": "serializable"}, "not one of"),
        ],
    )
    def test_invalid_queries_are_refused(self, console: Console, query: dict[str, str], message: str) -> None:
        console.broker.topic("t").create(1)
        answer = console.ask("GET", "/topics/t/records", **query)
        assert answer.status == 400, answer
        assert message in answer.data["error"]

    def test_long_and_binary_values_are_cut_and_available_in_full(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        long, binary = "é" * 40_000, bytes(range(256))
        topic.append([long, binary])
        second, first = console.get("/topics/t/records")["records"]
        assert first["value"]["truncated"]
        assert first["value"]["bytes"] == 80_000
        assert long.startswith(first["value"]["text"])
        assert base64.b64decode(second["value"]["base64"]) == binary
        assert console.get("/topics/t/partitions/0/records/0", part="value")["text"] == long
        assert console.ask("GET", "/topics/t/partitions/0/records/2").status == 404

    def test_records_are_produced_with_all_their_fields(self, console: Console) -> None:
        console.broker.topic("t").create(2)
        sent = console.ask(
            "POST",
            "/topics/t/records",
            {
                "key": {"text": "k"},
                "value": {"base64": "AAE="},
                "headers": [{"name": "h", "value": {"text": "x"}}],
                "partition": 1,
                "timestamp": 1_700_000_000_000,
            },
        )
        assert sent.data == {"partition": 1, "offset": 0}
        console.ask("POST", "/topics/t/records", {"key": {"text": "k"}, "value": None, "partition": 1})
        first, second = console.broker.topic("t").records(1)
        assert (first.key, first.value, first.headers) == (b"k", b"\x00\x01", (("h", b"x"),))
        assert first.timestamp_ms == 1_700_000_000_000
        assert second.value is None
        assert console.ask("POST", "/topics/t/records", {"value": {"base64": "%"}}).status == 400
        assert console.ask("POST", "/topics/t/records", {"partition": 9}).status == 404

    def test_records_without_a_key_are_spread_over_the_partitions(self, console: Console) -> None:
        console.broker.topic("t").create(2)
        sent = [console.ask("POST", "/topics/t/records", {"value": {"text": "v"}}).data for _ in range(64)]
        assert {each["partition"] for each in sent} == {0, 1}


class TestTail:
    def test_new_records_arrive_as_events(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        topic.append(["before"])
        with urlopen(f"{console.url}/api/v1/topics/t/tail?value=new", timeout=30) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            assert events.readline() == b"event: status\n"
            topic.append(["new 1", "other", "new 2"])
            found: list[str] = []
            kind = b""
            while len(found) < 2:
                line = events.readline()
                if line.startswith(b"event: "):
                    kind = line
                elif line.startswith(b"data: ") and kind == b"event: record\n":
                    found.append(json.loads(line[6:])["value"]["text"])
        assert found == ["new 1", "new 2"]

    def test_a_flood_is_counted_and_not_lost_silently(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        with urlopen(f"{console.url}/api/v1/topics/t/tail", timeout=30) as events:
            events.readline()
            threading.Thread(target=topic.append, args=([f"v{number}" for number in range(5000)],)).start()
            shown, status, kind = 0, {"seen": 0, "skipped": 0}, b""
            while status["seen"] < 5000:
                line = events.readline()
                if line.startswith(b"event: "):
                    kind = line
                elif line.startswith(b"data: ") and kind == b"event: record\n":
                    shown += 1
                elif line.startswith(b"data: "):
                    status = json.loads(line[6:])
        assert shown + status["skipped"] == 5000
        assert status["skipped"] > 0

    def test_a_tail_continues_where_a_lost_connection_ended(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        with urlopen(f"{console.url}/api/v1/topics/t/tail", timeout=30) as events:
            assert events.readline() == b"event: status\n"
            cursor = json.loads(events.readline()[6:])["cursor"]
        topic.append(["while nobody listened"])
        with urlopen(f"{console.url}/api/v1/topics/t/tail?cursor={quote(cursor)}", timeout=30) as events:
            lines = [events.readline() for _ in range(5)]
        assert lines[3] == b"event: record\n"
        assert json.loads(lines[4][6:])["value"]["text"] == "while nobody listened"

    def test_a_bad_filter_is_refused_before_the_first_event(self, console: Console) -> None:
        console.broker.topic("t").create(1)
        assert console.ask("GET", "/topics/t/tail", json="= 4").status == 400


class TestGroups:
    def consume(self, console: Console, count: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": console.broker.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe(["t"])
            records = consumer.consume(count, 30)
            assert len(records) == count
            consumer.commit(records[-1], asynchronous=False)
        finally:
            consumer.close()

    def test_a_group_shows_its_lag_and_is_reset_and_deleted(self, console: Console) -> None:
        topic = console.broker.topic("t")
        topic.create(1)
        topic.append([f"v{number}" for number in range(10)])
        self.consume(console, 4)
        (listed,) = console.get("/groups")
        assert (listed["group"], listed["kind"], listed["state"]) == ("billing", "classic", "Empty")
        described = console.get("/groups/billing")
        assert described["lag"] == 6
        assert described["offsets"][0].pop("lag_ms", 0) in (None, described["lag_ms"])
        assert described["offsets"][0] == {
            "topic": "t",
            "partition": 0,
            "member_id": None,
            "committed": 4,
            "end": 10,
            "lag": 6,
        }

        preview = console.ask("POST", "/groups/billing/offsets", {"to": "shift:-2"})
        assert preview.data["offsets"] == [{"topic": "t", "partition": 0, "from": 4, "to": 2}]
        assert console.get("/groups/billing")["lag"] == 6
        for place, wanted in (("earliest", 0), ("latest", 10), ("offset:7", 7), ("offset:99", 10), ("time:0", 0)):
            console.ask("POST", "/groups/billing/offsets", {"to": place, "topic": "t", "preview": False})
            assert console.get("/groups/billing")["offsets"][0]["committed"] == wanted
        assert console.ask("POST", "/groups/billing/offsets", {"to": "noon"}).status == 400

        assert console.ask("DELETE", "/groups/billing").status == 200
        assert console.get("/groups") == []


class TestWhoIsServed:
    def test_foreign_pages_and_names_are_refused(self, console: Console) -> None:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            answer = console.ask("GET", "/topics", headers=headers)
            assert answer.status == 403, headers
        own = {"Origin": console.url}
        assert console.ask("GET", "/topics", headers=own).status == 200

    def test_a_token_opens_the_console_to_others(self) -> None:
        def make() -> ConsoleServer:
            return ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0, token="secret")

        with ottla.serve() as broker, served(make) as url:
            address, _, _ = url.partition("/?token=")
            console = Console(address)
            assert url.endswith("/?token=secret")
            assert console.ask("GET", "/topics").status == 403
            assert console.ask("GET", "/topics", token="wrong").status == 403
            opened = console.ask("GET", "/topics", token="secret", headers={"Host": "elsewhere:80"})
            assert opened.status == 200
            cookie = opened.headers["set-cookie"].split(";")[0]
            assert console.ask("GET", "/topics", headers={"Cookie": cookie}).status == 200
            assert console.ask("GET", "/topics", headers={"Authorization": "Bearer secret"}).status == 200

    def test_other_machines_need_a_token(self) -> None:
        with pytest.raises(ValueError, match="needs a token"):
            ConsoleServer(lambda: "127.0.0.1:9092", "0.0.0.0", 0)

    def test_read_only_refuses_every_change(self) -> None:
        def make() -> ConsoleServer:
            return ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0, read_only=True)

        with ottla.serve() as broker, served(make) as url:
            console = Console(url)
            broker.topic("t").create(1)
            changing = [each for each in OPERATIONS if each.changes]
            assert len(changing) >= 7
            for each in changing:
                path = re.sub(r"\{\w+(:int)?\}", "1", each.path)
                answer = console.ask(each.method, path, None if each.body is None else {})
                assert (answer.status, answer.data["error"]) == (403, "this console is read-only"), path
            assert len(console.get("/topics")) == 1

    def test_an_unreachable_cluster_is_reported_until_it_returns(self) -> None:
        with ottla.serve() as broker, served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0)) as url:
            console = Console(url)
            assert console.ask("GET", "/topics").status == 200
            broker.down()
            away = console.ask("GET", "/topics")
            assert away.status == 503
            assert "cannot be reached" in away.data["error"]
            broker.up()
            assert console.ask("GET", "/topics").status == 200


def test_the_page_and_its_files_have_strict_headers(console: Console) -> None:
    for path in ("/", "/topics/any", "/js/main.js", "/vendor/preact.js", "/console.css"):
        with urlopen(console.url + path) as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert response.headers["x-content-type-options"] == "nosniff"
    for path in ("/nope.js", "/../app.py", "/%2e%2e/app.py"):
        assert Console(console.url).ask("GET", "/../.." + path).status == 404


def test_every_operation_is_described(console: Console) -> None:
    described = console.get("/openapi.json")["paths"]
    wanted = {(each.method.lower(), each.path) for each in OPERATIONS} | {("get", each.path) for each in STREAMS}
    assert {(method, "/api/v1" + path.replace(":int}", "}")) for method, path in wanted} == {
        (method, path) for path, methods in described.items() for method in methods
    }
    assert all(each.summary for each in OPERATIONS)


def test_a_record_can_be_copied_from_another(console: Console) -> None:
    topic = console.broker.topic("t")
    topic.create(1)
    topic.append([(b"\xff", b"\x00\xff", [("h", None)])])
    like = {"like": {"partition": 0, "offset": 0}}
    assert console.ask("POST", "/topics/t/records", like).status == 200
    assert console.ask("POST", "/topics/t/records", {**like, "value": None}).status == 200
    assert [(each.key, each.value, list(each.headers)) for each in topic.records()] == [
        (b"\xff", b"\x00\xff", [("h", None)]),
        (b"\xff", b"\x00\xff", [("h", None)]),
        (b"\xff", None, [("h", None)]),
    ]
    for wrong, status in (("x", 400), ({"partition": 0}, 400), ({"partition": 0, "offset": 9}, 404)):
        assert console.ask("POST", "/topics/t/records", {"like": wrong}).status == status
