"""Listeners, credentials, ACLs, tokens and quotas of a cluster: a change on one broker applies to all of them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer

import ottla
from ottla.client import admin
from ottla.client.routing import Client
from ottla.client.security import Security
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import SaslAuthenticationFailed, ThrottlingQuotaExceeded, TopicAuthorizationFailed
from ottla.records.batch import Record, build_batch
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ProduceRequest,
)

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" user_eve="e";'
UNSIGNED = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredValidatorAllowableClockSkewMs="3000";'
)
SASL = {
    "listeners": "CLIENT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.client.plain.sasl.jaas.config": PLAIN,
    "listener.name.client.oauthbearer.sasl.jaas.config": UNSIGNED,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
    "delegation.token.secret.key": "secret",
}
ADMIN = Security(mechanism="PLAIN", username="admin", password="admin-secret")
SHA_256 = 1
BROKERS = (1, 2, 3)


def on_cluster(scenario: Callable[[ottla.Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with ottla.Cluster(3, **options) as cluster:
            await scenario(cluster)

    asyncio.run(main())


async def produce(client: Client, broker: int, topic: str, index: int, size: int = 1) -> Any:
    records = build_batch([Record(0, 1_700_000_000_000, None, bytes(size))])
    data = ProduceRequest.PartitionProduceData(index=index, records=memoryview(records))
    entry = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return await client.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[entry]), broker, highest=9)


async def grant(client: Client, user: str, topic: str) -> None:
    acl = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=AclOperation.WRITE,
        permission_type=AclPermissionType.ALLOW,
    )
    answer = await client.ask(CreateAclsRequest(creations=[acl]))
    assert answer.results[0].error_code == 0


def test_clients_get_addresses_of_the_listener_that_they_use(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))

    async def scenario(cluster: ottla.Cluster) -> None:
        ways = {
            "INNER": Security(),
            "SSL": Security(tls=True, ca_file=str(tmp_path / "ca.pem")),
            "CLIENT": ADMIN,
        }
        for listener, security in ways.items():
            addresses = cluster.bootstrap_for(listener).split(",")
            async with Client(addresses[1], security=security) as client:
                known = (await client.refresh()).nodes
                assert [f"{node.host}:{node.port}" for node in known.values()] == addresses
                for broker in BROKERS:
                    answer = await client.ask(DescribeClusterRequest(), broker)
                    assert [f"{each.host}:{each.port}" for each in answer.brokers] == addresses
                    assert answer.controller_id in BROKERS
        assert cluster.bootstrap == cluster.bootstrap_for("INNER")
        with pytest.raises(ValueError, match="the listeners are INNER, SSL, CLIENT"):
            cluster.bootstrap_for("NOWHERE")

    on_cluster(
        scenario,
        settings={
            **{key: value for key, value in SASL.items() if key not in ("authorizer.class.name", "super.users")},
            "listeners": "INNER://127.0.0.1:0,SSL://127.0.0.1:0,CLIENT://127.0.0.1:0",
            "listener.security.protocol.map": "INNER:PLAINTEXT,SSL:SSL,CLIENT:SASL_PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "server.pem"),
        },
    )


def test_a_wildcard_listener_advertises_the_address_that_the_client_used() -> None:
    async def scenario(cluster: ottla.Cluster) -> None:
        port = cluster.bootstrap.split(",")[0].rpartition(":")[2]
        async with Client(f"127.0.0.1:{port}") as client:
            assert {node.host for node in (await client.refresh()).nodes.values()} == {"127.0.0.1"}

    on_cluster(scenario, host="0.0.0.0")


def test_users_and_acls_are_known_to_every_broker() -> None:
    async def scenario(cluster: ottla.Cluster) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        await cluster.wait_in_sync()
        bob = Security(mechanism="SCRAM-SHA-256", username="bob", password="bob-secret")
        async with Client(cluster.bootstrap, security=ADMIN) as boss:
            with pytest.raises(SaslAuthenticationFailed):
                async with Client(cluster.bootstrap, security=bob) as stranger:
                    await stranger.refresh()
            await boss.refresh()
            salted = _salted("bob-secret", b"salt")
            wanted = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name="bob", mechanism=SHA_256, iterations=4096, salt=b"salt", salted_password=salted
            )
            answer = await boss.ask(AlterUserScramCredentialsRequest(upsertions=[wanted]), 2)
            assert answer.results[0].error_code == 0
            for broker in BROKERS:
                shown = await boss.ask(DescribeUserScramCredentialsRequest(users=None), broker)
                assert [each.user for each in shown.results] == ["bob"]
            async with Client(cluster.bootstrap, security=bob) as client:
                await client.refresh()
                for number, broker in enumerate(BROKERS):
                    answer = await produce(client, broker, "t", number)
                    assert answer.responses[0].partition_responses[0].error_code == TopicAuthorizationFailed.code
                await grant(boss, "bob", "t")
                for number, broker in enumerate(BROKERS):
                    answer = await produce(client, broker, "t", number)
                    assert answer.responses[0].partition_responses[0].error_code == 0

    on_cluster(scenario, settings=SASL)


def _salted(password: str, salt: bytes) -> bytes:
    import hashlib

    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)


def test_delegation_tokens_are_known_to_every_broker_and_end_with_time() -> None:
    async def scenario(cluster: ottla.Cluster) -> None:
        async with Client(cluster.bootstrap, security=ADMIN) as boss:
            await boss.refresh()
            made = await boss.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=60_000), 3)
            assert made.error_code == 0
            for broker in BROKERS:
                shown = await boss.ask(DescribeDelegationTokenRequest(owners=None), broker)
                assert [token.token_id for token in shown.tokens] == [made.token_id]
                credential = cluster.broker(broker).server.security.scram("SCRAM-SHA-256")[2](made.token_id)
                assert credential is not None, "a client can log in with it"
            cluster.clock.advance(hours=2)
            for broker in BROKERS:
                assert cluster.broker(broker).server.metadata.delegation_tokens == {}

    on_cluster(scenario, settings=SASL, clock="virtual")


def test_unsigned_bearer_tokens_with_a_real_client() -> None:
    with ottla.Cluster(3, settings=SASL | {"super.users": "User:admin;User:carol"}) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=carol",
        }
        cluster.create_topic("t", assignments=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        producer = Producer(settings)
        for index in range(3):
            producer.produce("t", b"%d" % index, partition=index)
        assert producer.flush(60) == 0
        consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = set()
        while len(found) < 3:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            found.add(message.value())
        consumer.close()
        assert cluster.group("g").state in ("Stable", "Empty")


def test_each_broker_measures_its_own_rates() -> None:
    async def scenario(cluster: ottla.Cluster) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        await cluster.wait_in_sync()
        async with Client(cluster.bootstrap) as client:
            await client.refresh()
            await admin.alter_quotas(client, {"client-id": None}, {"producer_byte_rate": 1000.0})
            first = [await produce(client, broker, "t", n, 1000) for n, broker in enumerate(BROKERS)]
            assert [answer.throttle_time_ms for answer in first] == [0, 0, 0]
            assert (await produce(client, 1, "t", 0, 60_000)).throttle_time_ms > 0
            assert (await produce(client, 2, "t", 1, 100)).throttle_time_ms == 0, "broker 2 had little to do"

    on_cluster(scenario)


def test_changes_to_topics_are_counted_once_for_all_brokers() -> None:
    async def scenario(cluster: ottla.Cluster) -> None:
        async with Client(cluster.bootstrap) as client:
            await client.refresh()
            await admin.alter_quotas(client, {"client-id": None}, {"controller_mutation_rate": 0.001})

            async def create(name: str, broker: int) -> int:
                topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3, replication_factor=3)
                answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), broker)
                code: int = answer.topics[0].error_code
                return code

            assert await create("a", 1) == 0
            assert await create("b", 2) == ThrottlingQuotaExceeded.code
            assert await create("c", 3) == ThrottlingQuotaExceeded.code

    on_cluster(scenario)
