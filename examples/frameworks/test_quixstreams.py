"""Quix Streams: an application runs for a number of messages."""

from quixstreams import Application


def test_temperatures_are_converted(kafka, tmp_path):
    celsius, fahrenheit = kafka.topic("celsius"), kafka.topic("fahrenheit")
    celsius.append([("sensor", {"value": 100})])
    app = Application(
        broker_address=kafka.bootstrap,
        consumer_group=str(kafka.group()),
        auto_offset_reset="earliest",
        state_dir=tmp_path,
        loglevel="ERROR",
    )
    stream = app.dataframe(app.topic(str(celsius)))
    stream["value"] = stream["value"] * 9 / 5 + 32
    stream.to_topic(app.topic(str(fahrenheit)))
    app.run(count=1, timeout=30)
    fahrenheit.expect([{"value": 212}])
