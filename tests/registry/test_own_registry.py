"""The registry that is part of a broker: embedded, spawned, in clusters, and from the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

import ottla
from ottla.registry.options import RegistryOptions

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'


def client(url: str, **more: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "max.retries": 0, **more})


def register(url: str, subject: str = "orders-value", schema: str = AVRO) -> int:
    with client(url) as registry:
        found: int = registry.register_schema(subject, Schema(schema, "AVRO"))
    return found


def subjects(url: str) -> list[str]:
    with client(url) as registry:
        return list(registry.get_subjects())


def test_a_broker_in_a_thread_has_a_registry() -> None:
    with ottla.serve(registry=0) as broker:
        assert register(broker.registry_url) == 1
        assert subjects(broker.registry_url) == ["orders-value"]


def test_a_broker_on_the_loop_has_a_registry() -> None:
    async def run() -> None:
        async with ottla.Broker(registry=0) as broker:
            assert await asyncio.to_thread(register, broker.registry_url) == 1

    asyncio.run(run())


@pytest.mark.slow
def test_a_broker_in_a_process_keeps_the_address_of_its_registry(tmp_path: Path) -> None:
    with ottla.spawn(registry=0, data=tmp_path) as broker:
        url = broker.registry_url
        assert register(url) == 1
        broker.kill()
        broker.start()
        assert broker.registry_url == url
        assert register(url) == 1
        assert register(url, "other-value", AVRO.replace("Order", "Other")) == 2


def test_a_registry_of_a_cluster_continues_when_a_broker_is_lost() -> None:
    with ottla.Cluster(brokers=3, registry=0) as cluster:
        assert register(cluster.registry_url) == 1
        assert len(cluster.partition("_schemas").replicas) == 3
        cluster.kill(cluster.leader("_schemas"))
        assert register(cluster.registry_url, "other-value", AVRO.replace("Order", "Other")) == 2


def test_without_a_registry_its_address_says_how_to_get_one() -> None:
    with ottla.serve() as broker, pytest.raises(RuntimeError, match="registry=0"):
        _ = broker.registry_url


def test_a_registry_may_have_users() -> None:
    with ottla.serve(registry=RegistryOptions(users={"alice": "secret"})) as broker:
        with client(broker.registry_url, **{"basic.auth.user.info": "alice:secret"}) as known:
            assert known.get_subjects() == []
        with pytest.raises(SchemaRegistryError) as refused:
            subjects(broker.registry_url)
        assert refused.value.http_status_code == 401


def test_faults_time_and_releases_do_not_affect_the_registry() -> None:
    with ottla.serve(registry=0, as_version="1.0", clock="virtual") as broker:
        fault = broker.faults.error("Produce", "REQUEST_TIMED_OUT")
        broker.clock.advance(days=1)
        assert register(broker.registry_url) == 1
        assert not fault.fired
        assert broker.requests() == []


def test_a_broker_with_logins_needs_none_from_its_own_registry() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
    }
    with ottla.serve(registry=0, settings=settings) as broker:
        assert register(broker.registry_url) == 1


@contextmanager
def serving(*options: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--no-console", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", [[], ["--control", "0"], ["--workers", "2"], ["--brokers", "2"]])
def test_serve_prints_the_address_of_its_registry(way: list[str], tmp_path: Path) -> None:
    with serving("--registry", "0", "--data", str(tmp_path), *way) as found:
        assert register(found["registry"]) == 1
    with serving("--registry", "0", "--data", str(tmp_path), *way) as found:
        assert subjects(found["registry"]) == ["orders-value"]


def test_serve_refuses_a_registry_for_other_machines_without_users(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--data", str(tmp_path)]
    done = subprocess.run(
        [*command, "--registry", "0.0.0.0:0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: a registry on 0.0.0.0 can be reached from other machines: it needs users")


def test_a_snapshot_and_a_branch_have_their_schemas() -> None:
    with ottla.serve(registry=0) as broker:
        register(broker.registry_url, "kept-value")
        state = broker.snapshot()
        register(broker.registry_url, "gone-value")
        with broker.branch() as branch:
            assert branch.registry.subjects() == ["gone-value", "kept-value"]
            assert branch.registry_url != broker.registry_url
        broker.restore(state)
        assert subjects(broker.registry_url) == ["kept-value"]


def test_acls_of_the_command_line_do_not_hide_the_topic_of_the_registry() -> None:
    rules = ["--user", "alice:secret", "--acl", "alice read topic:orders"]
    with serving("--registry", "0", "--ephemeral", *rules) as found:
        assert register(found["registry"]) == 1
