"""The console of a broker with ACLs, and of a cluster."""

import ottla
from ottla.console.own_broker import CLIENT_ID
from support.console import Console

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_with_acls_on_the_console_may_do_what_its_principal_may() -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root"}
    with ottla.serve(console=0, settings=settings) as broker:
        console = Console(broker.console_url)
        refused = console.ask("POST", "/topics", {"name": "orders"})
        assert (refused.status, refused.data["code"]) == (409, "TOPIC_AUTHORIZATION_FAILED")
    settings["super.users"] = f"User:root;User:{CLIENT_ID}"
    with ottla.serve(console=0, settings=settings) as broker:
        assert Console(broker.console_url).ask("POST", "/topics", {"name": "orders"}).status == 200


def test_no_listener_and_no_login_is_needed() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
    }
    with ottla.serve(console=0, settings=settings) as broker:
        console = Console(broker.console_url)
        assert console.ask("POST", "/topics", {"name": "orders"}).status == 200
        assert [each["name"] for each in console.get("/topics")] == ["orders"]


def test_a_cluster_has_one_console_for_all_brokers() -> None:
    with ottla.Cluster(3, console=0) as cluster:
        console = Console(cluster.console_url)
        body: dict[str, object] = {"name": "orders", "partitions": 6, "replication_factor": 3}
        assert console.ask("POST", "/topics", body).status == 200
        assert [each["broker"] for each in console.get("/overview")["brokers"]] == [1, 2, 3]
        for partition in range(6):
            body = {"value": {"text": "v"}, "partition": partition}
            assert console.ask("POST", "/topics/orders/records", body).status == 200
        assert len(console.get("/topics/orders/records")["records"]) == 6
        assert {each["broker"] for each in console.get("/requests")} == {1, 2, 3}
