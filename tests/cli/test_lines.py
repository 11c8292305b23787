"""Records as lines: written records are read back byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.lines import (
    FORMATS,
    LineError,
    compile_template,
    from_json,
    from_plain,
    to_json,
    to_json_bytes,
    to_plain,
)

nullable = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
names = st.text(max_size=10)
headers = st.lists(st.tuples(names, nullable), max_size=4)


@given(
    topic=st.text(min_size=1, max_size=10),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(-1, 2**63 - 1),
    key=nullable,
    value=nullable,
    headers=headers,
)
def test_a_json_line_holds_all_of_a_record(topic, partition, offset, timestamp, key, value, headers) -> None:
    text = to_json(topic, partition, offset, timestamp, key, value, headers)
    assert "\n" not in text
    assert text.isascii(), "no reader may see another line end in it"
    line = from_json(text)
    assert (line.topic, line.partition, line.offset, line.timestamp) == (topic, partition, offset, timestamp)
    assert (line.key, line.value, line.headers) == (key, value, headers)


@given(key=st.binary(max_size=30), value=st.binary(max_size=30), form=st.sampled_from(["hex", "base64"]))
def test_encoded_lines_are_read_back(key: bytes, value: bytes, form: str) -> None:
    line = to_plain(key, value, form, b":", b"~")
    assert b"\n" not in line
    assert from_plain(line, form, b":", b"~")[:2] == (value, key)


def test_null_is_not_empty() -> None:
    assert to_plain(None, b"", "hex", b":", b"NULL") == b"NULL:"
    assert from_plain(b"NULL:", "hex", b":", b"NULL")[:2] == (b"", None)
    assert from_plain(b"k:NULL", "raw", b":", b"NULL").value is None
    assert from_plain(b"k:NULL", "raw", b":", None).value == b"NULL"


def test_only_the_first_separator_counts() -> None:
    assert from_plain(b"a:b:c", "raw", b":", None)[:2] == (b"b:c", b"a")


def test_text_stays_readable_and_bytes_are_encoded() -> None:
    assert to_json_bytes("zażółć".encode()) == "zażółć"
    assert to_json_bytes(b"\xff\x00") == {"base64": "/wA="}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"key": "k"}', '"value" is missing'),
        ('{"value": 1}', "value must be a string"),
        ('{"value": {"base64": "%"}}', "not base64"),
        ('{"value": {"base64": "YQ==", "more": 1}}', "value must be"),
        ('{"value": "v", "valeu": "x"}', "unknown field 'valeu'"),
        ('{"value": "v", "partition": -1}', "partition"),
        ('{"value": "v", "partition": true}', "partition"),
        ('{"value": "v", "timestamp": 1.5}', "timestamp"),
        ('{"value": "v", "headers": ["a"]}', "pairs"),
        ('{"value": "v", "headers": [["a", 1]]}', "header 'a'"),
        ('{"value": "v", "topic": 7}', "topic"),
        ('{"value": "\\ud800"}', "surrogate"),
    ],
)
def test_a_line_that_is_not_a_record_is_reported(text: str, problem: str) -> None:
    with pytest.raises(LineError, match=problem):
        from_json(text)


def test_headers_may_be_an_object_when_written_by_hand() -> None:
    assert from_json(json.dumps({"value": None, "headers": {"a": "1", "b": None}})).headers == [
        ("a", b"1"),
        ("b", None),
    ]


@pytest.mark.parametrize(("form", "text"), [("hex", b"zz"), ("base64", b"a")])
def test_lines_that_cannot_be_decoded(form: str, text: bytes) -> None:
    with pytest.raises(LineError, match="value is not"):
        from_plain(text, form, None, None)


def test_a_line_without_the_separator() -> None:
    with pytest.raises(LineError, match="separator"):
        from_plain(b"abc", "raw", b":", None)


def test_templates() -> None:
    render = compile_template(r"%t/%p@%o %T %k=%v [%h] %K %S %N 100%%\n", "raw", b"NULL")
    record = ("t", 1, 2, 3, b"key", None, [("a", b"1"), ("b", None)])
    assert render(*record) == b"t/1@2 3 key=NULL [a=1,b=NULL] 3 -1 2 100%\n"
    assert compile_template("%v", "hex", b"")("t", 0, 0, 0, None, b"\xff", []) == b"ff"


def test_the_formats_are_those_that_are_documented() -> None:
    assert FORMATS == ("raw", "json", "hex", "base64")
