"""A configuration for several brokers on a single one: internal topics need more replicas than there are brokers."""

import logging
from typing import Any

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import CoordinatorNotAvailable
from ottla.wire.messages import FindCoordinatorRequest
from support.running import running_broker

FOR_THREE = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}


@pytest.mark.parametrize("kind", [CoordinatorType.GROUP, CoordinatorType.TRANSACTION])
def test_a_missing_coordinator_is_logged_at_the_start_and_answered(
    run: Any, caplog: pytest.LogCaptureFixture, kind: int
) -> None:
    async def main() -> None:
        async with running_broker(settings=FOR_THREE) as running:
            assert "offsets.topic.replication.factor=1, transaction.state.log.replication.factor=1" in caplog.text
            wire = await running.connect()
            for _ in range(3):
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
                (answer,) = (await wire.call(request, 4)).coordinators
                assert (answer.error_code, answer.node_id) == (CoordinatorNotAvailable.code, -1)

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.text.count("there is no coordinator, because topic __") == 1


def test_settings_for_a_single_broker_are_not_warned_about(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running_broker():
            pass

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "replication.factor" not in caplog.text
