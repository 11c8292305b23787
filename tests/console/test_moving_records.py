"""Dead letters that are sent back, and topics as JSON lines."""

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ottla.cli.main import main
from support.console import Console


@pytest.fixture
def letters(console: Console) -> Console:
    """A dead-letter topic: two letters from `orders`, and one without an origin."""
    for name in ("orders", "other", "orders.dead-letters"):
        console.broker.topic(name).create(2)
    origin = [("ottla.origin.topic", b"orders"), ("ottla.error", b"bad"), ("trace", b"1")]
    console.broker.topic("orders.dead-letters").append(
        [("k1", "v1", origin), ("k2", "v2", [("kafka_dlt-original-topic", b"orders")]), ("k3", "v3")], partition=0
    )
    return console


def test_a_preview_shows_where_letters_would_be_sent(letters: Console) -> None:
    found = letters.ask("POST", "/topics/orders.dead-letters/redrive", {}).data
    assert found == {
        "preview": True,
        "to": [{"topic": "orders", "records": 2}],
        "without_origin": 1,
        "next_offsets": None,
    }
    assert letters.broker.topic("orders").records() == []


def test_letters_are_sent_back_without_the_headers_of_the_dead_letter(letters: Console) -> None:
    body = {"preview": False, "to": "other"}
    found = letters.ask("POST", "/topics/orders.dead-letters/redrive", body).data
    assert found["to"] == [{"topic": "orders", "records": 2}, {"topic": "other", "records": 1}]
    back = {each.key: each for each in letters.broker.topic("orders").records()}
    assert back[b"k1"].headers == (("trace", b"1"),)
    assert back[b"k2"].headers == ()
    assert [each.value for each in letters.broker.topic("other").records()] == [b"v3"]


def test_a_single_dead_letter_can_be_sent_back(letters: Console) -> None:
    body = {"preview": False, "only": {"partition": 0, "offset": 1}}
    assert letters.ask("POST", "/topics/orders.dead-letters/redrive", body).status == 200
    assert [each.key for each in letters.broker.topic("orders").records()] == [b"k2"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"to": "orders.dead-letters"}, 400, "in that topic already"),
        ({"only": {"partition": 0, "offset": 99}}, 404, "no record at offset 99"),
        ({"only": 7}, 400, "'only' must be"),
        ({"preview": "yes"}, 400, "'preview' must be"),
        ({"to": "nope", "preview": False}, 404, "topic 'nope' does not exist"),
    ],
)
def test_a_bad_redrive_says_why(letters: Console, body: dict[str, object], status: int, message: str) -> None:
    answer = letters.ask("POST", "/topics/orders.dead-letters/redrive", body)
    assert answer.status == status
    assert message in answer.data["error"]


def test_a_topic_is_exported_whole_or_filtered(console: Console) -> None:
    topic = console.broker.topic("t")
    topic.create(1)
    topic.append([json.dumps({"n": number}) for number in range(500)])

    def exported(query: str) -> list[int]:
        with urlopen(f"{console.url}/api/v1/topics/t/export{query}", timeout=30) as response:
            assert "t.jsonl" in response.headers["Content-Disposition"]
            return [json.loads(json.loads(line)["value"]["text"])["n"] for line in response]

    assert exported("") == list(range(500))
    assert exported("?json=n%3E497") == [498, 499]
    assert exported("?from=offset:490&limit=3") == [490, 491, 492]
    with pytest.raises(HTTPError, match="400"):
        exported("?json=n%3Eold")


def test_exported_records_can_be_produced(console: Console, tmp_path: Path) -> None:
    """`ottla produce --format json` writes the same records again: text, bytes, tombstones and headers."""
    for name in ("t", "copy"):
        console.broker.topic(name).create(2)
    records = [
        ("k", "text é", [("trace", b"1"), ("raw", b"\xff"), ("none", None)]),
        (None, b"\xff\x00"),
        ("gone", None),
    ]
    console.broker.topic("t").append(records, partition=1)
    with urlopen(f"{console.url}/api/v1/topics/t/export", timeout=30) as response:
        (tmp_path / "t.jsonl").write_bytes(response.read())
    options = ["--bootstrap", console.broker.bootstrap, "--format", "json", "--input", str(tmp_path / "t.jsonl")]
    assert main(["produce", "copy", *options]) == 0

    def content(topic: str) -> list[object]:
        found = console.broker.topic(topic).records()
        return [(one.partition, one.timestamp_ms, one.key, one.value, one.headers) for one in found]

    assert content("copy") == content("t")
    assert len(content("copy")) == 3
