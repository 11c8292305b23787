from behave import given, then, when
from confluent_kafka import Producer


@given('a topic "{name}"')
def make_topic(context, name):
    context.kafka.topic(name).create()


@when('the shop sells "{what}"')
def sell(context, what):
    producer = Producer(context.kafka.client_config("confluent", "producer"))
    producer.produce("orders", what)
    producer.flush(10)


@then('"{name}" holds "{what}"')
def check(context, name, what):
    context.kafka.topic(name).expect([what])
