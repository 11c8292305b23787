"""The same with anyio: a session-scoped `anyio_backend` gives session-scoped async fixtures."""

import pytest
from aiokafka import AIOKafkaProducer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
async def application(anyio_backend, ottla_session):
    async with AIOKafkaProducer(bootstrap_servers=ottla_session.bootstrap) as producer:
        yield producer


async def test_one_producer_for_all_tests(application, kafka):
    topic = kafka.topic("orders")
    await application.send_and_wait(str(topic), b"x")
    topic.expect(["x"])
