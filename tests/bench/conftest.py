"""Lines and brokers that only exist in memory."""

import pytest

from ottla.bench.model import Figure, Line, at_least
from ottla.bench.targets import Target

TWICE = (at_least(2),)


@pytest.fixture
def targets():
    return [Target("ottla", ("127.0.0.1", 1), None), Target("kafka", ("127.0.0.1", 2), None)]


@pytest.fixture
def scripted_line():
    """A line that plays back values: scripted_line(ottla=[…], kafka=[…]); an exception in the list is raised."""

    def make(name="speed", bars=TWICE, reference=True, **values):
        played = {broker: iter(each) for broker, each in values.items()}
        calls = []

        def run(target, size):
            calls.append(target.name)
            value = next(played[target.name])
            if isinstance(value, Exception):
                raise value
            return {"mb_s": value}

        line = Line(name, f"the {name}", (Figure("mb_s", "MB/s", True, bars),), run, 3, reference)
        return line, calls

    return make
