"""Django: a setting names the cluster, and `override_settings` points it to the test's broker."""

import django
from confluent_kafka import Producer
from django.conf import settings
from django.http import JsonResponse
from django.test import Client, override_settings
from django.urls import path

settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="test", KAFKA_BOOTSTRAP="", ORDERS_TOPIC="orders"
)
django.setup()


def order(request, number):
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP})
    producer.produce(settings.ORDERS_TOPIC, f'{{"id": {number}}}')
    producer.flush(10)
    return JsonResponse({"ok": True})


urlpatterns = [path("orders/<int:number>", order)]


def test_an_order_is_written(kafka):
    topic = kafka.topic("orders")
    with override_settings(KAFKA_BOOTSTRAP=kafka.bootstrap, ORDERS_TOPIC=str(topic)):
        assert Client().get("/orders/7").json() == {"ok": True}
    topic.expect([{"id": 7}])
