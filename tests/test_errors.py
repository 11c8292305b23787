"""The error table: complete, equal to Apache Kafka's, and pleasant to raise."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from ottla import errors

DUMP = """
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.errors.RetriableException;
public class Dump {
    public static void main(String[] arguments) {
        for (Errors e : Errors.values())
            System.out.println(e.code() + "\\t" + e.name() + "\\t" + (e.exception() instanceof RetriableException)
                + "\\t" + e.message());
    }
}
"""


def test_every_code_has_one_exception() -> None:
    assert sorted(errors.BY_CODE) == [-1, *range(1, 134)]
    assert len(set(errors.BY_CODE.values())) == len(errors.BY_CODE)
    for code, error in errors.BY_CODE.items():
        assert error.code == code
        assert getattr(errors, error.__name__) is error


def test_default_and_given_message() -> None:
    default = errors.OffsetOutOfRange()
    assert default.message == str(default) == errors.OffsetOutOfRange.default_message
    assert errors.OffsetOutOfRange("at 7").message == "at 7"
    assert errors.OffsetOutOfRange("").message == ""
    assert default.name == "OFFSET_OUT_OF_RANGE"
    assert not default.retriable
    assert errors.CorruptMessage.retriable


def test_error_for_code() -> None:
    found = errors.error_for(3, "no such topic")
    assert type(found) is errors.UnknownTopicOrPartition
    assert found.message == "no such topic"
    assert type(errors.error_for(9999)) is errors.UnknownServerError
    with pytest.raises(ValueError, match="not an error"):
        errors.error_for(errors.NONE)


def test_names() -> None:
    assert errors.name_of(0) == "NONE"
    assert errors.name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert errors.name_of(17) == "INVALID_TOPIC_EXCEPTION"
    assert errors.name_of(9999) == "UNKNOWN_CODE_9999"


def test_narrower_kind_keeps_the_code() -> None:
    class EmptyName(errors.InvalidTopicException):
        pass

    assert EmptyName.code == 17
    assert errors.BY_CODE[17] is errors.InvalidTopicException


def test_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(errors.NotController("ask node 3")))
    assert type(copy) is errors.NotController
    assert copy.message == "ask node 3"


@pytest.mark.jvm
def test_table_equals_apache_kafkas(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    script = pytestconfig.rootpath / "scripts" / "kafka-jars"
    jars = subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()
    source = tmp_path / "Dump.java"
    source.write_text(DUMP)
    dump = subprocess.run(["java", "-cp", f"{jars}/*", source], check=True, capture_output=True, text=True).stdout
    theirs = [line.split("\t") for line in dump.splitlines()]
    ours = [["0", "NONE", "false", "NONE"]]
    for code, error in errors.BY_CODE.items():
        ours.append([str(code), errors.name_of(code), str(error.retriable).lower(), error.default_message])
    assert sorted(ours) == sorted(theirs)
