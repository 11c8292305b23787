"""ACLs, quotas and users through the console."""

from typing import Any

import ottla
from support.console import Console

ACL = {"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:ann", "operation": "READ"}
OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ottla-console;User:ANONYMOUS",
}


def test_an_acl_is_added_listed_and_deleted() -> None:
    with ottla.serve(console=0, settings=OPEN) as broker:
        console = Console(broker.console_url)
        assert console.get("/acls") == []
        assert console.ask("POST", "/acls", ACL).status == 200
        (found,) = console.get("/acls")
        assert found == {**ACL, "pattern_type": "LITERAL", "host": "*", "permission": "ALLOW"}
        assert console.ask("POST", "/acls/delete", found).status == 200
        assert console.get("/acls") == []
        assert console.ask("POST", "/acls/delete", found).status == 404


def test_a_bad_acl_says_why(console: Console) -> None:
    def refused(**changes: Any) -> str:
        answer = console.ask("POST", "/acls", {**ACL, **changes})
        assert answer.status == 400
        return str(answer.data["error"])

    assert "is not one of TOPIC, GROUP" in refused(resource_type="TABLE")
    assert refused(principal="ann") == "principal='ann' has no type: write User:ann"


def test_without_acls_the_broker_says_so(console: Console) -> None:
    answer = console.ask("GET", "/acls")
    assert (answer.status, answer.data["code"]) == (409, "SECURITY_DISABLED")


def test_a_quota_is_set_and_removed(console: Console) -> None:
    body: dict[str, Any] = {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1024}}
    assert console.ask("POST", "/quotas", body).status == 200
    assert console.get("/quotas") == [{"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1024.0}}]
    body["quotas"] = {"producer_byte_rate": None}
    assert console.ask("POST", "/quotas", body).status == 200
    assert console.get("/quotas") == []
    assert console.ask("POST", "/quotas", {"entity": {}, "quotas": {}}).status == 400


def test_a_user_is_created_and_deleted(console: Console) -> None:
    body = {"user": "ann", "password": "secret", "mechanism": "SCRAM-SHA-256"}
    assert console.ask("POST", "/users", body).data == {"user": "ann"}
    assert console.get("/users") == [{"user": "ann", "mechanisms": {"SCRAM-SHA-256": 4096}}]
    assert console.ask("POST", "/users", {**body, "mechanism": "PLAIN"}).status == 400
    assert console.ask("DELETE", "/users/ann").status == 200
    assert console.get("/users") == []
    assert console.ask("DELETE", "/users/ann").data["code"] == "RESOURCE_NOT_FOUND"
