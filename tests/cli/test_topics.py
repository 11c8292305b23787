"""`ottla topics`, on Ottla or, with --bootstrap, on Apache Kafka."""

from collections.abc import Callable
from typing import Any

from ottla import serve


def test_create_list_describe_delete(cli: Callable[..., Any], unique: Callable[[str], str], eventually: Any) -> None:
    one, two = unique("a"), unique("b")
    made = cli("topics", "create", one, "-p", 3, two, "-c", "retention.ms=1000000", "--json")
    assert [(row["name"], row["partitions"], row["replication_factor"], row["error"]) for row in made.json] == [
        (one, 3, 1, None),
        (two, 3, 1, None),
    ]
    listed = {row["name"]: row for row in cli("topics", "list", "--json", "--sizes").json}
    assert listed[one]["partitions"] == 3
    assert listed[one]["records"] == 0
    assert one in cli("topics", "list", "--names").out.split()

    (described,) = cli("topics", "describe", one, "--json").json
    assert described["configs"]["retention.ms"] == "1000000"
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all(p["healthy"] and p["start_offset"] == p["end_offset"] == 0 for p in described["partitions"])
    table = cli("topics", "describe", one).out
    assert one in table
    assert "PARTITION" in table

    assert cli("topics", "delete", one, two).out == f"deleted {one}\ndeleted {two}\n"
    eventually(lambda: one not in cli("topics", "list", "--names").out.split(), "the topic to go")


def test_a_refused_topic_is_one_line_and_the_others_are_created(
    cli: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    good = unique("good")
    done = cli("topics", "create", good, "not valid", code=1)
    assert done.out == f"created {good}: 1 partition, 1 replica\n"
    (line,) = done.err.splitlines()
    assert "not valid" in line
    assert "INVALID_TOPIC" in line
    again = cli("topics", "create", good, code=1)
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert cli("topics", "create", good, "--if-not-exists").out == f"{good} exists\n"


def test_a_dry_run_creates_nothing(cli: Callable[..., Any], unique: Callable[[str], str]) -> None:
    name = unique("dry")
    assert "would create" in cli("topics", "create", name, "--dry-run").out
    assert name not in cli("topics", "list", "--names").out.split()
    typo = cli("topics", "create", name, "-c", "retntion.ms=1", code=1)
    assert "(INVALID_CONFIG); did you mean retention.ms?" in typo.err
    wrong = cli("topics", "create", name, "-c", "no.such.key=1", "--dry-run", code=1)
    assert "no.such.key" in wrong.err


def test_assignments(cli: Callable[..., Any], unique: Callable[[str], str]) -> None:
    name = unique("placed")
    broker_id = cli("topics", "describe", cli_topic(cli, unique), "--json").json[0]["partitions"][0]["leader"]
    cli("topics", "create", name, "--assign", f"0:{broker_id}", "--assign", f"1:{broker_id}")
    (described,) = cli("topics", "describe", name, "--json").json
    assert [p["replicas"] for p in described["partitions"]] == [[broker_id]] * 2
    assert cli("topics", "create", unique("x"), "--assign", "0", code=2).err.count("\n") == 1


def cli_topic(cli: Callable[..., Any], unique: Callable[[str], str]) -> str:
    name = unique("some")
    cli("topics", "create", name)
    return name


def test_alter(cli: Callable[..., Any], topic: str, eventually: Any) -> None:
    cli("topics", "alter", topic, "-p", 5, "-c", "segment.bytes=2000000")

    def altered() -> bool:
        (found,) = cli("topics", "describe", topic, "--json").json
        return len(found["partitions"]) == 5 and found["configs"] == {"segment.bytes": "2000000"}

    eventually(altered, "the change")
    cli("topics", "alter", topic, "-d", "segment.bytes")
    eventually(lambda: cli("topics", "describe", topic, "--json").json[0]["configs"] == {}, "the default")
    assert "INVALID_PARTITIONS" in cli("topics", "alter", topic, "-p", 2, code=1).err
    assert "nothing to alter" in cli("topics", "alter", topic, code=2).err


def test_old_records_can_be_deleted(cli: Callable[..., Any], topic: str, eventually: Any) -> None:
    cli("produce", topic, "-p", 0, *["-v", "x"] * 5)
    cli("produce", topic, "-p", 1, *["-v", "x"] * 5)
    cli("topics", "alter", topic, "--delete-records-before", "0:3", "--delete-records-before", "1:end")

    def starts() -> list[int]:
        return [p["start_offset"] for p in cli("topics", "describe", topic, "--json").json[0]["partitions"]]

    eventually(lambda: starts() == [3, 5, 0], "the log starts to move")
    beyond = cli("topics", "alter", topic, "--delete-records-before", "0:99", code=1)
    assert "OFFSET_OUT_OF_RANGE" in beyond.err


def test_a_pattern_deletes_only_when_confirmed(cli: Callable[..., Any], topic: str) -> None:
    done = cli("topics", "delete", f"{topic[:-1]}*", code=1)
    assert "--yes" in done.err
    assert topic in cli("topics", "list", "--names").out.split()
    cli("topics", "delete", f"{topic[:-1]}*", "--yes")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli("topics", "delete", topic, code=1).err
    cli("topics", "delete", topic, "--if-exists")


def test_all_is_healthy(cli: Callable[..., Any], topic: str) -> None:
    assert "all partitions have" in cli("topics", "describe", topic, "--unhealthy").err


def test_no_broker(ottla: Callable[..., Any]) -> None:
    done = ottla("topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.2", code=1)
    (line,) = done.err.splitlines()
    assert "cannot connect to 127.0.0.1:1: Connection refused" in line
    assert "--bootstrap" in line
    assert ottla("topics", "list", "-b", "nonsense:port", code=2).err.count("\n") == 1


def test_patterns_leave_internal_topics_alone(ottla: Any) -> None:
    with serve() as broker:
        ottla("topics", "create", "one", "__two", on=broker)
        ottla("topics", "delete", "*", "--yes", on=broker)
        assert ottla("topics", "list", "-q", "--internal", on=broker).out == "__two\n"
        refused = ottla("topics", "delete", "__*", "--yes", on=broker, code=1)
        assert "no topic matches '__*'; internal topics need --internal" in refused.err
        ottla("topics", "delete", "__*", "--internal", "--yes", on=broker)
        assert ottla("topics", "list", "-q", "--internal", on=broker).out == ""
