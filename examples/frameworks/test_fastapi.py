"""FastAPI and Starlette: the producer lives as long as the application (lifespan)."""

from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from fastapi import FastAPI
from fastapi.testclient import TestClient


def make_app(bootstrap: str, topic: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI):
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}")
    async def order(number: int):
        await app.state.producer.send_and_wait(topic, b'{"id": %d}' % number)
        return {"ok": True}

    return app


def test_an_order_is_written(kafka):
    topic = kafka.topic("orders")
    with TestClient(make_app(kafka.bootstrap, str(topic))) as client:
        assert client.post("/orders/7").json() == {"ok": True}
    topic.expect([{"id": 7}])
