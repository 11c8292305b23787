"""The conditions of faults: the same keywords for all kinds, checked when they are passed."""

from typing import Any

import pytest

from ottla.embedded.rules import Conditions, Targets, Turns
from ottla.testing import serve


def test_every_kind_accepts_the_conditions() -> None:
    with serve() as broker:
        given: dict[str, Any] = {"client_id": "c", "topic": "t", "partition": 0, "times": 2, "after": 1, "seed": 7}
        more: dict[str, Any] = {**given, "version": "3-9", "chance": 0.5}
        made = [
            broker.faults.error("Produce", 6, **more),
            broker.faults.delay("Produce", ms=1, **more),
            broker.faults.drop("Produce", **more),
            broker.faults.black_hole("Produce", **more),
            broker.faults.corrupt(**given),
        ]
        for fault in made:
            assert fault.where is not None
            found = (fault.where.client_id, fault.where.topic, fault.where.partition)
            assert (*found, fault.turn.times, fault.turn.skip) == ("c", "t", 0, 2, 1)
        assert made[0].where is not None and made[0].where.versions == (3, 9)


@pytest.mark.parametrize("way", ["method", "by name"])
def test_an_unknown_keyword_is_refused(way: str) -> None:
    with serve() as broker:
        for kind, options in (("error", {"error": 6, "api": "Produce", "tpoic": "t"}), ("corrupt", {"group": "g"})):
            bad = "tpoic" if kind == "error" else "group"
            with pytest.raises((TypeError, ValueError), match=f"{kind} has no option '{bad}'.*topic, partition"):
                if way == "method":
                    getattr(broker.faults, kind)(**options)
                else:
                    broker.faults.apply(kind, **options)
        assert list(broker.faults) == []


def test_the_lists_of_keywords() -> None:
    assert set(Turns.__annotations__) < set(Targets.__annotations__) < set(Conditions.__annotations__)
