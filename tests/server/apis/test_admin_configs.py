"""Configs over the wire: describe, alter with immediate effect, and restart. The answers match Apache Kafka 4.3.1."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import InvalidConfig, InvalidRequest, InvalidTopicException, MessageTooLarge, UnknownTopicOrPartition
from ottla.log.files import MemoryDisk
from ottla.server.apis import configs
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

NODE = {"node.id": 1}


async def described(
    client: Any, kind: int, name: str, *keys: str, version: int = 4, **fields: Any
) -> tuple[int, str | None, dict[str, Any]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    [result] = (await client.call(DescribeConfigsRequest(resources=[resource], **fields), version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message, {config.name: config for config in result.configs}


async def value(client: Any, kind: int, name: str, key: str) -> tuple[str | None, int]:
    _, _, configs = await described(client, kind, name, key)
    return configs[key].value, configs[key].config_source


async def increment(
    client: Any, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1, **fields: Any
) -> tuple[int, str | None]:
    request = IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[request.AlterableConfig(name=key, config_operation=op, value=text) for key, op, text in changes],
    )
    [result] = (await client.call(request(resources=[resource], **fields), version)).responses
    return result.error_code, result.error_message


async def replace(client: Any, kind: int, name: str, version: int = 2, **values: str) -> tuple[int, str | None]:
    request = AlterConfigsRequest
    config = request.AlterableConfig
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[config(name=key.replace("_", "."), value=text) for key, text in values.items()],
    )
    [result] = (await client.call(request(resources=[resource]), version)).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", range(5))
def test_a_topics_configs_are_described(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t", retention_ms="1000")
            fields = {"include_synonyms": True, "include_documentation": True}
            code, message, configs = await described(client, ConfigResourceType.TOPIC, "t", version=version, **fields)
            assert (code, message) == (0, "")
            assert len(configs) == 33
            retention, segment = configs["retention.ms"], configs["segment.bytes"]
            assert (retention.value, retention.read_only, retention.is_sensitive) == ("1000", False, False)
            assert segment.value == "1073741824"
            if version == 0:
                assert (retention.is_default, segment.is_default) == (False, False), "as in Kafka 3.9.1"
            else:
                assert (retention.config_source, segment.config_source) == (1, 5)
                assert [(s.name, s.value, s.source) for s in retention.synonyms] == [("retention.ms", "1000", 1)]
                assert [(s.name, s.value, s.source) for s in segment.synonyms] == [
                    ("log.segment.bytes", "1073741824", 5)
                ]
            if version >= 3:
                assert (retention.config_type, segment.config_type) == (5, 3)
                assert retention.documentation

    run(main())


def test_synonyms_and_documentation_come_on_request(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            _, _, configs = await described(client, ConfigResourceType.TOPIC, "t", "retention.ms", "nope")
            assert list(configs) == ["retention.ms"]
            assert configs["retention.ms"].synonyms == []
            assert configs["retention.ms"].documentation is None

    run(main())


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (ConfigResourceType.TOPIC, "none", UnknownTopicOrPartition.code, ""),
        (
            ConfigResourceType.TOPIC,
            "",
            InvalidTopicException.code,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            ConfigResourceType.BROKER,
            "2",
            InvalidRequest.code,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (ConfigResourceType.BROKER, "x", InvalidRequest.code, "Broker id must be an integer, but it is: x"),
        (ConfigResourceType.BROKER_LOGGER, "", InvalidRequest.code, "Broker id must not be empty"),
        (ConfigResourceType.BROKER_LOGGER, "2", InvalidRequest.code, "Unexpected broker id, expected 1 but received 2"),
        (
            ConfigResourceType.CLIENT_METRICS,
            "",
            InvalidRequest.code,
            "Client metrics subscription name must not be empty",
        ),
        (ConfigResourceType.GROUP, "", InvalidRequest.code, "Group name must not be empty"),
    ],
)
def test_describing_an_unknown_resource_is_an_error(
    run: Any, run_broker: Any, kind: int, name: str, code: int, message: str
) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            assert await described(await running.connect(), kind, name) == (code, message, {})

    run(main())


def test_a_request_that_names_a_topic_thousands_of_times_is_bounded(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's settings are read once. The answer contains as many entries as fit, and ends there."""
    made: list[object] = []
    entries = configs._entries
    monkeypatch.setattr(configs, "_entries", lambda *arguments: made.append(1) or entries(*arguments))
    monkeypatch.setattr(configs, "_ENTRIES_MAX", 1000)

    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.create_topic("u", retention_ms="5")
            resource = DescribeConfigsRequest.DescribeConfigsResource
            wanted = [resource(resource_type=ConfigResourceType.TOPIC, resource_name=n) for n in "tutt" * 1000]
            results = (await client.call(DescribeConfigsRequest(resources=wanted), 4)).results
            assert [each.resource_name for each in results] == list("tutt" * 1000)
            assert len(made) == 2
            whole = [each for each in results if each.error_code == 0]
            assert whole == results[: len(whole)]
            assert 1000 - 40 < sum(len(each.configs) for each in whole) <= 1000
            assert {each.error_code for each in results[len(whole) :]} == {InvalidRequest.code}
            values = {each.resource_name: {e.name: e.value for e in each.configs} for each in whole}
            assert values["u"]["retention.ms"] == "5"
            assert values["t"]["retention.ms"] == "604800000"

    run(main())


def test_an_unknown_resource_type_fails_the_whole_request(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            resource = DescribeConfigsRequest.DescribeConfigsResource
            request = DescribeConfigsRequest(
                resources=[
                    resource(resource_type=7, resource_name="x", configuration_keys=None),
                    resource(resource_type=ConfigResourceType.TOPIC, resource_name="t", configuration_keys=None),
                ]
            )
            assert [result.error_code for result in (await client.call(request, 4)).results] == [
                InvalidRequest.code,
                InvalidRequest.code,
            ]

    run(main())


def test_secrets_are_never_described(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            for key in ("listener.name.plaintext.ssl.keystore.password", "my.plugin.key"):
                assert await increment(client, ConfigResourceType.BROKER, "1", (key, AlterConfigOp.SET, "secret")) == (
                    0,
                    None,
                )
                _, _, configs = await described(client, ConfigResourceType.BROKER, "1", key, include_synonyms=True)
                assert (configs[key].value, configs[key].is_sensitive, configs[key].read_only) == (None, True, True)
                assert [synonym.value for synonym in configs[key].synonyms] == [None]

    run(main())


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t", retention_ms="1000")
            assert await replace(client, ConfigResourceType.TOPIC, "t", version, segment_ms="5000") == (0, None)
            assert await value(client, ConfigResourceType.TOPIC, "t", "segment.ms") == ("5000", 1)
            assert await value(client, ConfigResourceType.TOPIC, "t", "retention.ms") == ("604800000", 5)
            assert await replace(client, ConfigResourceType.BROKER_LOGGER, "1", version) == (
                42,
                "Unknown resource type 8",
            )

    run(main())


def test_a_resource_that_comes_twice_is_refused_both_times(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.create_topic("u")
            kinds: list[tuple[Any, int]] = [(AlterConfigsRequest, 2), (IncrementalAlterConfigsRequest, 1)]
            for request, version in kinds:
                resources = [
                    request.AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=name)
                    for name in ("t", "u", "t")
                ]
                response = await client.call(request(resources=resources), version)
                assert [(r.error_code, r.error_message) for r in response.responses] == [
                    (InvalidRequest.code, "Each resource must appear at most once."),
                    (0, None),
                    (InvalidRequest.code, "Each resource must appear at most once."),
                ]

    run(main())


@pytest.mark.parametrize("version", range(2))
def test_single_settings_are_changed_incrementally(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            change = ("cleanup.policy", AlterConfigOp.APPEND, "compact")
            assert await increment(
                client, ConfigResourceType.TOPIC, "t", change, version=version, validate_only=True
            ) == (0, None)
            assert await value(client, ConfigResourceType.TOPIC, "t", "cleanup.policy") == ("delete", 5)
            assert await increment(client, ConfigResourceType.TOPIC, "t", change, version=version) == (0, None)
            assert await value(client, ConfigResourceType.TOPIC, "t", "cleanup.policy") == ("delete,compact", 1)
            assert await increment(
                client, ConfigResourceType.TOPIC, "t", ("retention.ms", AlterConfigOp.SET, "x"), version=version
            ) == (
                40,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            )
            assert await increment(
                client, ConfigResourceType.TOPIC, "t", ("retention.ms", 9, "1"), version=version
            ) == (-1, None)

    run(main())


def test_a_changed_topic_limit_holds_when_it_is_answered(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            assert (await client.produce("t", bytes(5000))).error_code == 0
            await increment(client, ConfigResourceType.TOPIC, "t", ("max.message.bytes", AlterConfigOp.SET, "1000"))
            assert (await client.produce("t", bytes(5000))).error_code == MessageTooLarge.code
            await increment(client, ConfigResourceType.TOPIC, "t", ("max.message.bytes", AlterConfigOp.DELETE, None))
            assert (await client.produce("t", bytes(5000))).error_code == 0

    run(main())


def test_dynamic_settings_of_brokers_are_in_force_and_survive(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.create_topic("own", max_message_bytes="2000")
            assert await increment(
                client, ConfigResourceType.BROKER, "", ("message.max.bytes", AlterConfigOp.SET, "1000")
            ) == (0, None)
            assert running.broker.config["message.max.bytes"] == 1000
            assert (await client.produce("t", bytes(1500))).error_code == MessageTooLarge.code
            assert (await client.produce("own", bytes(1500))).error_code == 0, "a topic's own setting has priority"
            assert await value(client, ConfigResourceType.TOPIC, "t", "max.message.bytes") == ("1000", 3)
            assert await value(client, ConfigResourceType.BROKER, "1", "message.max.bytes") == ("1000", 3)
            assert await increment(
                client, ConfigResourceType.BROKER, "1", ("message.max.bytes", AlterConfigOp.SET, "3000")
            ) == (0, None)
            assert await value(client, ConfigResourceType.TOPIC, "t", "max.message.bytes") == ("3000", 2)
            assert (await client.produce("t", bytes(1500))).error_code == 0
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            assert (await client.produce("t", bytes(3500))).error_code == MessageTooLarge.code
            assert await value(client, ConfigResourceType.BROKER, "", "message.max.bytes") == ("1000", 3)
            assert await increment(
                client, ConfigResourceType.BROKER, "1", ("message.max.bytes", AlterConfigOp.DELETE, None)
            ) == (0, None)
            assert (await client.produce("t", bytes(1500))).error_code == MessageTooLarge.code
            assert await increment(
                client, ConfigResourceType.BROKER, "", ("message.max.bytes", AlterConfigOp.DELETE, None)
            ) == (0, None)
            assert await value(client, ConfigResourceType.BROKER, "1", "message.max.bytes") == ("1048588", 5)
            assert (await client.produce("t", bytes(3500))).error_code == 0

    run(main())


def test_stored_settings_that_no_longer_fit_do_not_stop_a_start(
    run: Any, run_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings={**NODE, "group.consumer.max.session.timeout.ms": 60_000}) as running:
            client = await running.connect()
            key = "log.cleaner.threads"
            assert await increment(client, ConfigResourceType.BROKER, "1", (key, AlterConfigOp.SET, "2")) == (0, None)
        with caplog.at_level(logging.ERROR, "ottla.server"):
            async with run_broker(
                disk=disk, settings={**NODE, "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024}
            ) as running:
                assert running.broker.config["log.cleaner.threads"] == 1
        assert "dynamic settings are ignored: log.cleaner.dedupe.buffer.size" in caplog.text

    run(main())


@pytest.fixture
def restored_levels() -> Iterator[None]:
    logger = logging.getLogger("ottla")
    server = logging.getLogger("ottla.server")
    before = logger.level, server.level
    yield
    logger.setLevel(before[0])
    server.setLevel(before[1])


@pytest.mark.usefixtures("restored_levels")
def test_log_levels_can_be_set_while_the_broker_runs(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            assert await increment(
                client, ConfigResourceType.BROKER_LOGGER, "1", ("root", AlterConfigOp.SET, "ERROR")
            ) == (0, None)
            assert await increment(
                client, ConfigResourceType.BROKER_LOGGER, "1", ("ottla.server", AlterConfigOp.SET, "DEBUG")
            ) == (0, None)
            assert await value(client, ConfigResourceType.BROKER_LOGGER, "1", "root") == ("ERROR", 6)
            assert await value(client, ConfigResourceType.BROKER_LOGGER, "1", "ottla.server") == ("DEBUG", 6)
            assert logging.getLogger("ottla.server").isEnabledFor(logging.DEBUG)
            assert await increment(
                client, ConfigResourceType.BROKER_LOGGER, "1", ("ottla.server", AlterConfigOp.DELETE, None)
            ) == (0, None)
            assert await value(client, ConfigResourceType.BROKER_LOGGER, "1", "ottla.server") == ("ERROR", 6)

    run(main())


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("1", ("no.such", AlterConfigOp.SET, "INFO"), InvalidConfig.code, "Logger no.such does not exist!"),
        (
            "1",
            ("root", AlterConfigOp.SET, "LOUD"),
            InvalidConfig.code,
            "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are DEBUG, "
            "ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("1", ("root", AlterConfigOp.SET, None), InvalidRequest.code, "Null value not supported for : root"),
        (
            "1",
            ("root", AlterConfigOp.APPEND, "INFO"),
            InvalidRequest.code,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            "1",
            ("root", AlterConfigOp.DELETE, None),
            InvalidRequest.code,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            "2",
            ("root", AlterConfigOp.SET, "INFO"),
            InvalidRequest.code,
            "Unexpected node id. Expected 1, but received 2",
        ),
        ("", ("root", AlterConfigOp.SET, "INFO"), InvalidRequest.code, "Node id must be an integer, but it is: "),
    ],
)
def test_log_levels_are_checked(
    run: Any, run_broker: Any, name: str, change: tuple[str, int, str | None], code: int, message: str
) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            assert await increment(client, ConfigResourceType.BROKER_LOGGER, name, change) == (code, message)

    run(main())


def test_groups_and_subscriptions_have_configs_too(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            change = ("consumer.session.timeout.ms", AlterConfigOp.SET, "50000")
            assert await increment(client, ConfigResourceType.GROUP, "g", change) == (0, None)
            assert await increment(
                client, ConfigResourceType.CLIENT_METRICS, "s", ("interval.ms", AlterConfigOp.SET, "1000")
            ) == (0, None)
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            assert await value(client, ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms") == ("50000", 8)
            assert await value(client, ConfigResourceType.GROUP, "h", "consumer.session.timeout.ms") == ("45000", 5)
            assert await value(client, ConfigResourceType.CLIENT_METRICS, "s", "interval.ms") == ("1000", 7)

    run(main())


def test_resources_are_listed(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await client.create_topic("t")
            await increment(
                client, ConfigResourceType.GROUP, "g", ("consumer.session.timeout.ms", AlterConfigOp.SET, "50000")
            )
            await increment(client, ConfigResourceType.CLIENT_METRICS, "s", ("interval.ms", AlterConfigOp.SET, "1000"))

            async def listed(version: int, *types: int) -> tuple[int, list[tuple[int, str]]]:
                response = await client.call(ListConfigResourcesRequest(resource_types=list(types)), version)
                return response.error_code, [(r.resource_type, r.resource_name) for r in response.config_resources]

            everything = [
                (ConfigResourceType.GROUP, "g"),
                (ConfigResourceType.CLIENT_METRICS, "s"),
                (ConfigResourceType.BROKER_LOGGER, "1"),
                (ConfigResourceType.BROKER, "1"),
                (ConfigResourceType.TOPIC, "t"),
            ]
            assert await listed(0) == (0, [(ConfigResourceType.CLIENT_METRICS, "s")])
            assert await listed(1) == (0, everything)
            assert await listed(1, ConfigResourceType.TOPIC, ConfigResourceType.GROUP) == (
                0,
                [(ConfigResourceType.GROUP, "g"), (ConfigResourceType.TOPIC, "t")],
            )
            assert await listed(1, ConfigResourceType.CLIENT_METRICS, 7) == (35, [])

    run(main())
