"""The plugin in separate test runs."""

import pytest

import ottla

pytest_plugins = ["pytester"]

HELPERS = """
    import pytest

    def confluent(kafka, topic):
        from confluent_kafka import Consumer, Producer
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(str(topic), b"x")
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": str(kafka.group()),
                             "auto.offset.reset": "earliest"})
        consumer.subscribe([str(topic)])
        value = consumer.poll(10).value()
        consumer.close()
        return value

    def kafka_python(kafka, topic):
        from kafka import KafkaConsumer, KafkaProducer
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
        producer.send(str(topic), b"x").get(10)
        producer.close()
        consumer = KafkaConsumer(str(topic), bootstrap_servers=kafka.bootstrap, group_id=str(kafka.group()),
                                 auto_offset_reset="earliest", consumer_timeout_ms=10000)
        value = next(consumer).value
        consumer.close()
        return value

    async def aio(kafka, topic):
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            await producer.send_and_wait(str(topic), b"x")
        async with AIOKafkaConsumer(str(topic), bootstrap_servers=kafka.bootstrap, group_id=str(kafka.group()),
                                    auto_offset_reset="earliest") as consumer:
            return (await consumer.getone()).value
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(helpers=HELPERS)
    pytester.makeini("[pytest]\nasyncio_mode = strict\n")
    return pytester


def passed(project: pytest.Pytester, count: int, *options: str) -> pytest.RunResult:
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning", *options)
    result.assert_outcomes(passed=count)
    return result


CLIENTS = """
    import asyncio
    import pytest
    from helpers import aio, confluent, kafka_python

    @pytest.mark.parametrize("client", [confluent, kafka_python, lambda *a: asyncio.run(aio(*a))])
    def test_client(kafka, client):
        topic = kafka.topic()
        assert client(kafka, topic) == b"x"
        topic.wait_for(lambda record: record.value == b"x")
"""


def test_the_fixtures_work_with_every_client(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=CLIENTS)
    passed(project, 3)


@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "2", "--ottla-shared")])
def test_the_plugin_works_with_xdist(project: pytest.Pytester, options: tuple[str, ...]) -> None:
    project.makepyfile(
        test_it=CLIENTS,
        test_where="""
            import pathlib
            import pytest

            @pytest.mark.parametrize("number", range(4))
            def test_where(kafka, number, worker_id):
                kafka.topic().append(["x"])
                with (pathlib.Path(__file__).parent / "seen").open("a") as file:
                    file.write(f"{worker_id} {kafka.bootstrap}\\n")
        """,
    )
    passed(project, 7, *options)
    seen = set((project.path / "seen").read_text().splitlines())
    workers = {line.split()[0] for line in seen}
    brokers = {line.split()[1] for line in seen}
    assert len(brokers) == (1 if "--ottla-shared" in options else len(workers))


def test_asynchronous_tests_use_the_fixtures(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest
        from helpers import aio

        @pytest.mark.asyncio
        async def test_asyncio(kafka):
            topic = kafka.topic()
            assert await aio(kafka, topic) == b"x"
            await topic.wait_for_async(lambda record: record.text == "x")

        @pytest.mark.anyio
        async def test_anyio(kafka):
            assert await aio(kafka, kafka.topic()) == b"x"

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """
    )
    passed(project, 2)


def test_unittest_classes_use_the_fixtures(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import unittest
        import pytest
        from helpers import confluent

        @pytest.mark.usefixtures("kafka")
        class TestIt(unittest.TestCase):
            def test_it(self):
                self.assertEqual(confluent(self.kafka, self.kafka.topic()), b"x")

            def test_other(self):
                self.assertEqual(self.kafka.broker.topics(), [])
        """
    )
    passed(project, 2)


def test_tests_do_not_see_each_other(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def ottla_options():
            return {"partitions": 3}

        @pytest.fixture(scope="session")
        def reference(ottla_session):
            return ottla_session.topic("reference").create().append(["kept"])
        """
    )
    project.makepyfile(
        test_it="""
        from helpers import confluent

        def test_first(kafka, reference):
            assert kafka.topic().partitions == 3
            kafka.broker.topic("fixed").append(["x"])
            confluent(kafka, kafka.broker.topic("fixed"))
            kafka.faults.error("Produce", "INVALID_RECORD")

        def test_second(kafka, reference):
            assert kafka.broker.topics() == ["reference"]
            assert kafka.broker.groups() == []
            assert len(kafka.faults) == 0 and kafka.requests(api="Produce") == []
            assert kafka.topic().name != kafka.topic().name
        """
    )
    passed(project, 2)


def test_fresh_brokers_and_factories(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.ottla(clock="virtual", partitions=4)
        def test_marked(kafka, ottla_session):
            assert kafka.bootstrap != ottla_session.bootstrap
            assert kafka.topic().partitions == 4
            kafka.clock.advance(minutes=1)

        def test_factory(ottla_broker):
            one, other = ottla_broker(partitions=2, preset="kafka"), ottla_broker(as_version="2.8")
            assert one.topic("t").create().partitions == 2
            assert other.topics() == []
            other.stop()
        """
    )
    passed(project, 2)


def test_a_marked_test_keeps_the_options_of_the_suite(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def ottla_options():
            return {"partitions": 3, "settings": {"log.retention.ms": 1000, "log.segment.bytes": 2000000}}
        """
    )
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.ottla(clock="virtual", settings={"log.retention.ms": 2000})
        def test_marked(kafka):
            kafka.clock.advance(minutes=1)
            assert kafka.topic().partitions == 3
            config = kafka.broker.embedded.server.config
            assert (config["log.retention.ms"], config["log.segment.bytes"]) == (2000, 2000000)

        @pytest.mark.ottla(partitions=5)
        def test_own_option(kafka):
            assert kafka.topic().partitions == 5
        """
    )
    passed(project, 2)


def test_a_failed_test_shows_the_topics_and_groups_of_its_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        from helpers import confluent

        def test_it(kafka):
            topic = kafka.topic("orders")
            confluent(kafka, topic)
            kafka.faults.error("Produce", "INVALID_RECORD")
            assert False

        def test_own(ottla_broker):
            ottla_broker().topic("mine").append(["y"])
            assert False
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*Kafka at test-it-*",
            "topic orders-test-it-*: 1 record in 1 partition",
            '  orders-test-it-*-0@0: "x"',
            "group test-it-*",
            "fault: INVALID_RECORD for Produce, fired 0 times",
            "client rdkafka (*",
            "  Produce v* orders-test-it-*",
            "topic mine: 1 record in 1 partition",
        ]
    )


def test_a_failed_expectation_shows_the_line_of_the_test_only(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_records(kafka):
            kafka.topic("orders").expect(["paid"])

        def test_fault(kafka):
            kafka.faults.error("Produce", "INVALID_RECORD").expect_fired()
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([">*expect(*paid*)", ">*expect_fired()"])
    result.stdout.no_fnmatch_line("*raise AssertionError*")


def test_tests_run_on_another_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest
        from helpers import confluent

        def test_it(kafka):
            topic, group = kafka.topic(partitions=2), kafka.group()
            confluent(kafka, topic)
            assert topic.texts() == ["x"]
            topic.append([("k", "y")], partition=1)
            topic.wait_for(lambda record: record.key_text == "k")
            topic.expect(["x", ("k", "y")]) if topic.records()[0].partition == 0 else None
            assert group.committed() == {} and group.lag(of=topic) == 2

        def test_faults(kafka):
            kafka.faults.error("Produce", "INVALID_RECORD")

        @pytest.fixture
        def broken(kafka):
            kafka.faults.error("Produce", "INVALID_RECORD")

        def test_fixture(broken):
            pass

        def test_clock(kafka):
            kafka.clock.advance(minutes=1)

        def test_own(ottla_broker):
            pass

        def test_cluster(kafka_cluster):
            pass

        @pytest.mark.ottla(partitions=2)
        def test_marked(kafka):
            pass
        """
    )
    with ottla.serve() as broker:
        result = project.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-bootstrap", broker.bootstrap)
        result.assert_outcomes(passed=1, skipped=6)
        assert broker.topics() == []  # it cleaned up


def test_clusters(project: pytest.Pytester) -> None:
    """In synchronous and asynchronous tests, in unittest classes, with options, and in the report of a failed test."""
    project.makepyfile(
        test_it="""
        import unittest
        import pytest
        from helpers import aio

        class Kafka:
            def __init__(self, cluster):
                self.bootstrap = cluster.bootstrap

            def group(self):
                return "g"

        def test_it(kafka_cluster):
            assert kafka_cluster.topics() == [] and kafka_cluster.running() == [1, 2, 3]
            kafka_cluster.create_topic("orders", assignments=[[1, 2, 3]])
            kafka_cluster.wait_in_sync()
            kafka_cluster.topic("orders").append(["x"])
            kafka_cluster.topic("orders").wait_for(timeout=60)
            kafka_cluster.stop(1)
            assert kafka_cluster.leader("orders") == 2
            assert False

        @pytest.mark.ottla_cluster(brokers=2, partitions=2, clock="virtual")
        @pytest.mark.asyncio
        async def test_async(kafka_cluster):
            kafka_cluster.create_topic("t")
            await kafka_cluster.wait_in_sync_async()
            assert await aio(Kafka(kafka_cluster), "t") == b"x"
            assert kafka_cluster.topic("t").partitions == 2
            kafka_cluster.clock.advance(minutes=1)
            with pytest.raises(RuntimeError, match="wait_until_async"):
                kafka_cluster.wait_in_sync()

        def test_factory(ottla_cluster):
            one, other = ottla_cluster(1), ottla_cluster(brokers=2, preset="kafka")
            assert (len(one.brokers), len(other.brokers)) == (1, 2)

        @pytest.mark.usefixtures("kafka_cluster")
        class TestIt(unittest.TestCase):
            def test_it(self):
                self.assertEqual(self.kafka_cluster.topics(), [])
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Kafka cluster at 127.0.0.1:*",
            "broker 1: down",
            "orders-0: leader 2, replicas [[]1, 2, 3[]], isr [[]2, 3[]]",
            "control: stop 1",
            "topic orders: 1 record in 1 partition",
        ]
    )


def test_bad_use_says_what_to_do(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.ottla(3)
        def test_marked(kafka):
            pass

        @pytest.mark.ottla(partition=3)
        def test_misspelled(kafka):
            pass
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.ottla takes options by name*",
            "@pytest.mark.ottla: there is no option partition; did you mean partitions?",
        ]
    )


REGISTRY = """
    import json
    import urllib.request

    ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}

    def subjects(url):
        with urllib.request.urlopen(f"{url}/subjects") as answer:
            return json.load(answer)

    def test_registers(kafka, schema_registry):
        topic = kafka.topic()
        schema_registry.register(f"{topic}-value", ORDER)
        own = kafka.subject("own")
        schema_registry.register(own, ORDER)
        topic.append([schema_registry.encode(f"{topic}-value", {"id": 1})])
        topic.expect([{"id": 1}])
        assert {f"{topic}-value", own} <= set(subjects(kafka.registry_url))

    def test_starts_without_subjects(schema_registry):
        assert subjects(schema_registry.url) == []
"""


@pytest.mark.parametrize("way", ["own", "shared", "elsewhere"])
def test_subjects_are_deleted_after_their_test(project: pytest.Pytester, way: str) -> None:
    project.makepyfile(REGISTRY)
    if way == "own":
        passed(project, 2)
    elif way == "shared":
        passed(project, 2, "--ottla-shared", "-n", "1")
    else:
        with ottla.serve(registry=0) as broker:
            address = ["--ottla-bootstrap", broker.bootstrap, "--ottla-registry", broker.registry_url]
            passed(project, 2, *address)
            assert broker.topics() == []
