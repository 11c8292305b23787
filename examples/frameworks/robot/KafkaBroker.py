"""A library for Robot Framework: its keywords are the methods."""

import ottla


class KafkaBroker:
    ROBOT_LIBRARY_SCOPE = "SUITE"

    def start_broker(self) -> str:
        self._broker = ottla.serve()
        self._broker.start()
        return self._broker.bootstrap

    def stop_broker(self) -> None:
        self._broker.stop()

    def append_record(self, topic: str, value: str) -> None:
        self._broker.topic(topic).append([value])

    def topic_should_hold(self, topic: str, *values: str) -> None:
        self._broker.topic(topic).expect(values)
