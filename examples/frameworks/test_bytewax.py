"""Bytewax: a dataflow from one topic to another, run in the test's own thread until the input ends."""

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kafka_operators
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main


def test_words_are_shouted(kafka):
    words, shouted = kafka.topic("words"), kafka.topic("shouted")
    words.append(["hello"])
    flow = Dataflow("shouter")
    source = KafkaSource([kafka.bootstrap], [str(words)], tail=False)
    stream = op.input("words", flow, source)
    loud = op.map("shout", stream, lambda message: KafkaSinkMessage(None, message.value.upper()))
    kafka_operators.output("shouted", loud, brokers=[kafka.bootstrap], topic=str(shouted))
    run_main(flow)
    shouted.expect(["HELLO"])
