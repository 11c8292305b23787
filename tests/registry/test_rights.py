"""Access control: rights by the prefix of a subject's name, tokens, and TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaRegistryError,
    ServerConfig,
)

import ottla
from ottla.registry.http_client import HttpRegistry
from ottla.testing import RegistryError, RegistryOptions

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
USERS = {"alice": "a", "bob": "b", "root": "r"}
RIGHTS = {"alice": ["write:orders-", "read:shared-"], "bob": ["manage:bobs-"], "root": ["admin"], "*": ["read:public-"]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ottla.serve(registry=RegistryOptions(users=USERS, rights=RIGHTS)) as broker:
        for subject in ("orders-value", "shared-value", "bobs-value", "public-value", "secret-value"):
            broker.registry.register(subject, ORDER.replace("Order", subject.partition("-")[0]))
        yield broker.registry_url


@pytest.fixture
def user(url: str) -> Iterator[Callable[[str], HttpRegistry]]:
    """Makes clients that log in with their name."""
    clients = {name: HttpRegistry(url, user=f"{name}:{password}") for name, password in USERS.items()}
    yield clients.__getitem__
    for client in clients.values():
        client.close()


def refused(client: HttpRegistry, method: str, path: str, body: Any = None) -> str:
    with pytest.raises(RegistryError) as error:
        client.ask(method, path, body)
    assert (error.value.status, error.value.code) == (403, 40301)
    return error.value.message


def test_lists_show_what_may_be_read(user: Any) -> None:
    assert user("alice").ask("GET", "/subjects", None) == ["orders-value", "public-value", "shared-value"]
    assert user("bob").ask("GET", "/subjects", None) == ["bobs-value", "public-value"]
    assert len(user("root").ask("GET", "/schemas", None)) == 5
    assert {each["subject"] for each in user("bob").ask("GET", "/schemas", None)} == {"bobs-value", "public-value"}


def test_a_prefix_limits_reads_and_writes(user: Any) -> None:
    alice, body = user("alice"), {"schema": ORDER}
    assert alice.ask("POST", "/subjects/orders-new/versions", body)["version"] == 1
    assert alice.ask("POST", "/subjects/orders-new", body)["version"] == 1
    assert alice.ask("GET", "/subjects/shared-value/versions", None) == [1]
    message = refused(alice, "POST", "/subjects/shared-value/versions", body)
    assert message == "User is denied operation Write on Subject: shared-value"
    refused(alice, "GET", "/subjects/secret-value/versions/1")
    refused(alice, "POST", "/compatibility/subjects/secret-value/versions/latest", body)
    refused(alice, "DELETE", "/subjects/orders-new")
    refused(alice, "PUT", "/config/orders-new", {"compatibility": "NONE"})
    refused(alice, "PUT", "/config", {"compatibility": "NONE"})
    refused(alice, "PUT", "/mode", {"mode": "READONLY"})


def test_a_manager_of_subjects_may_delete_them(user: Any) -> None:
    bob = user("bob")
    assert bob.ask("PUT", "/config/bobs-value", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    bob.ask("POST", "/subjects/bobs-new/versions", {"schema": ORDER})
    assert bob.ask("DELETE", "/subjects/bobs-new", None) == [1]
    refused(bob, "DELETE", "/contexts/.c")
    refused(bob, "POST", "/subjects/%3A.c%3Abobs-new/versions", {"schema": ORDER})


def test_ids_and_guids_belong_to_their_subjects(user: Any) -> None:
    bob, root = user("bob"), user("root")
    secret = root.ask("GET", "/subjects/secret-value/versions/1", None)
    refused(bob, "GET", f"/schemas/ids/{secret['id']}")
    refused(bob, "GET", f"/schemas/ids/{secret['id']}/schema")
    refused(bob, "GET", f"/schemas/guids/{secret['guid']}")
    assert bob.ask("GET", f"/schemas/ids/{secret['id']}/subjects", None) == []
    public = root.ask("GET", "/subjects/public-value/versions/1", None)
    assert bob.ask("GET", f"/schemas/ids/{public['id']}", None)["schema"] == public["schema"]
    assert bob.ask("GET", "/schemas/types", None)


def test_an_alias_gives_no_rights_to_its_target(user: Any) -> None:
    bob = user("bob")
    bob.ask("PUT", "/config/bobs-alias", {"alias": "secret-value"})
    message = refused(bob, "GET", "/subjects/bobs-alias/versions/1")
    assert message == "User is denied operation Read on Subject: secret-value"
    refused(bob, "GET", "/subjects/bobs-alias/versions/1/schema")
    refused(bob, "POST", "/subjects/bobs-alias/versions", {"schema": ORDER})
    refused(bob, "DELETE", "/subjects/bobs-alias")
    bob.ask("DELETE", "/config/bobs-alias", None)


def test_another_context_needs_its_own_rights(user: Any) -> None:
    bob, root = user("bob"), user("root")
    hidden = root.ask("POST", "/subjects/%3A.hidden%3Abobs-plans/versions", {"schema": ORDER})
    for path in ("versions/1", "versions/latest", "versions/1/schema", "versions/1/referencedby"):
        refused(bob, "GET", f"/subjects/bobs-plans/{path}")
    refused(bob, "POST", "/subjects/bobs-plans", {"schema": ORDER})
    own = root.ask("GET", "/subjects/bobs-value/versions/1", None)["id"]
    for _ in range(own - hidden["id"]):
        root.ask("PUT", "/config/%3A.hidden%3Abobs-plans", {"compatibility": "NONE"})
        hidden = root.ask(
            "POST", "/subjects/%3A.hidden%3Abobs-plans/versions", {"schema": ORDER.replace("Order", f"P{hidden['id']}")}
        )
    assert hidden["id"] == own
    refused(bob, "GET", f"/schemas/ids/{own}?subject=bobs-plans")
    assert bob.ask("GET", f"/schemas/ids/{own}?subject=bobs-value", None)["subject"] == "bobs-value"


def test_a_reference_needs_the_right_to_read_it(user: Any) -> None:
    bob, root = user("bob"), user("root")
    reference = {"name": "secret", "subject": "secret-value", "version": 1}
    body = {"schema": '{"type":"array","items":"secret"}', "references": [reference]}
    refused(bob, "POST", "/subjects/bobs-list/versions", body)
    refused(bob, "POST", "/compatibility/subjects/bobs-list/versions/latest", body)
    assert root.ask("POST", "/subjects/bobs-list/versions", body)["version"] == 1


def test_confluents_client_sees_a_403(url: str, confluent_client: Any) -> None:
    client = confluent_client(url, {"basic.auth.user.info": "bob:b", "max.retries": 0})
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema("orders-value", Schema(ORDER, "AVRO"))
    assert (error.value.http_status_code, error.value.error_code) == (403, 40301)
    with pytest.raises(SchemaRegistryError):
        client.set_config(config=ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rights": {"a": ["own:"]}, "users": {"a": "b"}}, "'own:' is not a right"),
        ({"rights": {"a": ["admin"]}}, "rights need users"),
        ({"port": 70000}, "not a port"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegistryOptions(**options)


def test_tls_and_tokens_from_a_file(tmp_path: Path, confluent_client: Any) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    (tmp_path / "access.toml").write_text(
        '[users]\nalice = "secret"\n[tokens]\nci = "t0ken"\n[rights]\nci = ["read:"]\nalice = ["admin"]\n'
        '[tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    )
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--ephemeral", "--no-console", "--json"]
    with subprocess.Popen(
        [*command, "--registry", "0", "--registry-access", str(tmp_path / "access.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["registry"]
            assert url.startswith("https://127.0.0.1:")
            more = {"ssl.ca.location": str(tmp_path / "ca.pem"), "max.retries": 0}
            alice = confluent_client(url, {"basic.auth.user.info": "alice:secret", **more})
            assert alice.register_schema("s", Schema(ORDER, "AVRO")) == 1
            token = HttpRegistry(url, token="t0ken", ca_file=str(tmp_path / "ca.pem"))
            assert token.ask("GET", "/subjects", None) == ["s"]
            refused(token, "POST", "/subjects/s/versions", {"schema": ORDER})
            token.close()
            with pytest.raises(OSError, match="certificate verify failed"):
                HttpRegistry(url, token="t0ken").ask("GET", "/subjects", None)
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[user]\na = 'b'\n", "[user] is unknown"),
        ("[users]\na = 1\n", "users.a must be a string"),
        ("[users]\na = 'b'\n[tls]\nkey = 'k'\n", "needs the first two"),
        ("[users\n", "access.toml: "),
        ("[users]\na = 'b'\n[rights]\na = ['x']\n", "'x' is not a right"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "access.toml").write_text(text)
    command = [sys.executable, "-m", "ottla.cli.main", "registry", "--port", "0"]
    done = subprocess.run(
        [*command, "--access", str(tmp_path / "access.toml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and message in done.stderr
