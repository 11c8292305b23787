"""Settings from the environment of the image: Apache's, Confluent's and Bitnami's variables."""

import pytest

from ottla.image.environment import from_environment, key_of
from ottla.image.settings import as_properties
from ottla.image.start import settings_of


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("LOG_RETENTION_MS", "log.retention.ms"),
        ("FOO__BAR_BAZ", "foo_bar.baz"),
        ("FOO___BAR_BAZ", "foo-bar.baz"),
        (
            "LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        ),
    ],
)
def test_underscores(variable: str, key: str) -> None:
    assert key_of(variable) == key


def test_variables_of_each_image() -> None:
    found = from_environment({"KAFKA_NUM_PARTITIONS": "2", "KAFKA_CFG_LOG_RETENTION_MS": "5", "HOME": "/"})
    assert found.settings == {"num.partitions": "2", "log.retention.ms": "5"}
    assert (found.cluster_id, found.notes) == (None, [])
    assert from_environment({"KAFKA_CFG_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITIONS": "2"}).settings == {
        "num.partitions": "3"
    }


def test_variables_that_are_not_settings_are_left_out() -> None:
    assert from_environment({"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_OPTS": "", "KAFKA_JMX_PORT": "9"}).settings == {}


def test_roles_and_zookeeper_are_noted() -> None:
    found = from_environment({"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ZOOKEEPER_CONNECT": "zoo:2181"})
    assert found.settings == {}
    assert [note.split("=")[0] for note in found.notes] == ["KAFKA_PROCESS_ROLES", "KAFKA_ZOOKEEPER_CONNECT"]


def test_the_log_folder_is_a_setting() -> None:
    assert from_environment({"KAFKA_LOG_DIR": "/data"}).settings == {"log.dir": "/data"}
    assert "log.dirs" not in settings_of({"KAFKA_LOG_DIR": "/data"}, None)[0]
    assert settings_of({"KAFKA_NUM_PARTITIONS": "2"}, None)[0]["log.dirs"] == "/var/lib/kafka/data"


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",  # Apache's
        "KAFKA_LISTENER_NAME_SASL___SSL_SCRAM__SHA__512_SASL_JAAS_CONFIG",  # Confluent's
    ],
)
def test_dashes_and_underscores_of_both_mappings(variable: str) -> None:
    found = from_environment({variable: "x", "KAFKA_LISTENERS": "SASL_SSL://:9092"}).settings
    assert found["listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"] == "x"


def test_users_of_bitnami_are_noted() -> None:
    found = from_environment({"KAFKA_CLIENT_USERS": "alice", "KAFKA_CLIENT_PASSWORDS": "secret"})
    assert found.settings == {}
    assert len(found.notes) == 2 and "secret" not in "".join(found.notes)


@pytest.mark.parametrize("variable", ["CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"])
def test_the_id_of_the_cluster(variable: str) -> None:
    assert from_environment({variable: "4L6g3nShT-eMCtK--X86sw"}).cluster_id == "4L6g3nShT-eMCtK--X86sw"


def test_listeners_follow_the_advertised_ones() -> None:
    found = from_environment({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,V6://[::1]:9094,"}).settings
    assert found["advertised.listeners"] == "PLAINTEXT://kafka:9092,V6://[::1]:9094"
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9092,V6://0.0.0.0:9094"


def test_two_ids_are_one() -> None:
    found = from_environment({"KAFKA_NODE_ID": "2", "KAFKA_BROKER_ID": "1"})
    assert found.settings == {"node.id": "2"}
    assert "broker.id=1 is ignored" in found.notes[0]
    assert from_environment({"KAFKA_BROKER_ID": "-1"}).settings == {}


def test_settings_as_a_file() -> None:
    assert as_properties({"a": "b\\c", "d": "e\nf"}) == "a=b\\\\c\nd=e\\nf\n"
