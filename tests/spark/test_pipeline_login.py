"""Pipelines against a cluster that wants TLS and a password, which shows up nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.jobs import open_job
from ottla.spark.pipelines.login import client_properties, java_properties

PASSWORD = 'al"ice; 5ecret\\'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def secured(start_broker: Callable[..., Any], tmp_path: Path) -> tuple[Any, Path]:
    """A broker that only speaks SASL in TLS, and the properties of a client without the password itself."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf = authority.issue_cert("localhost", "127.0.0.1", common_name="localhost")
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "server.pem").write_bytes(pem + b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    settings = {
        "listeners": "OUT://127.0.0.1:0",
        "listener.security.protocol.map": "OUT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} user_alice="{quoted}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "server.pem",
    }
    broker = start_broker(**settings)
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=${env:ALICE_PASSWORD}\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    return broker, properties


def test_pipelines_log_in_and_do_not_print_the_password(
    spark: Any,
    secured: tuple[Any, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    broker, properties = secured
    login = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    admin = AdminClient(login)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    producer = Producer(login)
    for n in range(20):
        producer.produce("t", key=b"k", value=b'{"n": %d}' % n if n else b"bad")
    assert producer.flush(60) == 0

    monkeypatch.setenv("ALICE_PASSWORD", PASSWORD)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "client_config": str(properties), "spark": spark}
    for source in ("kafka", "ottla"):
        out = str(tmp_path / source)
        assert ottla.spark.archive("t", out, source=source, group=f"g-{source}", **options).records == 20
        assert ottla.spark.verify(out, source=source, content=True, **options).problems == []
        job = open_job("archive", "t", {**options, "source": source})
        job.read_batch(*job.range()).explain("formatted")
        job.read_batch(*job.range()).explain(extended=True)
        print(job, job.cluster)
    assert ottla.spark.replay(out, to_topic="again", **options).records == 20
    # As a file of declarations, and with a dead letter, which is written by the connector.
    entry = {"pipeline": "parse", "topics": "t", "out": str(tmp_path / "p"), "value_format": "json", "schema": "n INT"}
    file = {"bootstrap": broker.bootstrap, "client_config": str(properties), "pipelines": [entry]}
    (tmp_path / "p.yaml").write_text(json.dumps(file))
    from ottla.cli.main import main

    assert main(["pipeline", "run", str(tmp_path / "p.yaml")]) == 0
    words = ["pipeline", "quality", "t", "-b", broker.bootstrap, "--client-config", str(properties)]
    assert main(words) == 0
    seen = "".join(capfd.readouterr())
    assert "20 records" in seen
    for folder, _, names in os.walk(tmp_path):
        if "data-0" not in folder:
            seen += "".join(Path(folder, name).read_text(errors="replace") for name in names if name != "server.pem")
    assert "5ecret" not in seen

    monkeypatch.setenv("ALICE_PASSWORD", "wrong")
    with pytest.raises(Exception, match=r"[Aa]uthentication failed"):
        ottla.spark.archive("t", str(tmp_path / "wrong"), **options)
    monkeypatch.delenv("ALICE_PASSWORD")
    assert main(words) == 1
    assert "names the variable ALICE_PASSWORD, which is not set" in capfd.readouterr().err


def test_one_login_in_both_dialects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", 'p"w\\')
    (tmp_path / "key.pem").write_text("KEY")
    (tmp_path / "chain.pem").write_text("CHAIN")
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": "${env:SECRET}",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.location": str(tmp_path / "chain.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "enable.idempotence": True,
    }
    own = client_properties(given)
    assert own == {**given, "sasl.password": 'p"w\\', "enable.idempotence": "true"}
    assert java_properties(own) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="p\\"w\\\\";'
        ),
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
        "enable.idempotence": "true",
    }
    assert client_properties(None) == java_properties({}) == {}
    for wrong, words in (
        (str(tmp_path / "gone"), "the client config: cannot read .*gone: No such file"),
        ({"sasl.password": "${env:NOT_SET}"}, "sasl.password of the client config names the variable NOT_SET"),
        (["a"], "client_config is a file of properties, or the properties themselves"),
    ):
        with pytest.raises(PipelineError, match=words):
            client_properties(wrong)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"nokey\.pem of the client config cannot be read"):
        java_properties({"security.protocol": "SSL", "ssl.key.location": "/nokey.pem"})
