"""Loads and lines on a broker of two workers."""

import pytest

from ottla.bench.lines.groups import coordinated_group
from ottla.bench.lines.workers import compared, transactions
from ottla.bench.load import drive
from ottla.bench.model import NotMeasurable, Size
from ottla.bench.targets import OttlaMaker, Target
from ottla.wire.messages import ListGroupsRequest
from support.ports import free_ports

QUICK = Size(quick=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = OttlaMaker("ottla", tmp_path_factory.mktemp("data"), free_ports(3)[0]).with_workers(2).start()
    yield running
    running.stop()


def test_idle_groups_are_made_where_their_coordinators_are(broker):
    drive(broker, "idle_groups", group=coordinated_group(broker), first=0, groups=20)
    with broker.client() as client:
        coordinators = {client.coordinator(f"g-{number}", "group") for number in range(20)}
        assert len(coordinators) == 2
    found = 0
    for address in coordinators:
        with Target("worker", address, None).client() as client:
            found += len(client.call(ListGroupsRequest(), 2).groups)
    assert found == 20


@pytest.mark.parametrize("across", [False, True])
def test_transactions_on_one_worker_and_across(broker, across):
    assert transactions(QUICK, across, broker)["rate"] > 0


def test_the_first_is_compared_with_the_second_in_turns():
    asked = []

    def measure(target):
        asked.append(target.name)
        return {"rate": {"a": 3.0, "b": 2.0}[target.name] + len(asked), "ms": 10.0 - len(asked)}

    pair = [Target("a", ("", 0), None), Target("b", ("", 0), None)]
    # The best turns: the fifth and the sixth.
    assert compared(pair, Size(), measure, {"rate": True, "ms": False}) == {"rate": 8 / 8, "ms": 5 / 4}
    assert asked == ["a", "b"] * 3


def test_only_what_the_benchmark_starts_has_workers():
    from ottla.bench.lines.workers import brokers

    with pytest.raises(NotMeasurable), brokers(Target("other", ("", 0), None), 2, 1):
        pass
