"""An application that lives as long as the test session, with pytest-asyncio: fixtures and tests share one loop."""

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def application(ottla_session):
    async with AIOKafkaProducer(bootstrap_servers=ottla_session.bootstrap) as producer:
        yield producer


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("number", [1, 2])
async def test_each_test_has_names_of_its_own(application, kafka, number):
    topic = kafka.topic("orders")
    await application.send_and_wait(str(topic), str(number).encode())
    topic.expect([str(number)])
