"""Requests to all brokers while some of them are away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client import every_broker as module
from ottla.client.connection import ConnectionLost
from ottla.client.every_broker import every_broker

pytestmark = pytest.mark.asyncio

CLIENT: Any = SimpleNamespace(known=SimpleNamespace(nodes={1: None, 2: None, 3: None}))


async def test_brokers_that_are_away_or_silent_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.01)
    cancelled = []

    async def ask(node_id: int) -> str:
        if node_id == 2:
            raise ConnectionLost("gone")
        if node_id == 3:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(node_id)
        return f"answer of {node_id}"

    assert await every_broker(CLIENT, ask, partial=True) == {1: "answer of 1"}
    await asyncio.sleep(0)
    assert cancelled == [3]
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(every_broker(CLIENT, ask), 5)


async def test_if_all_are_away_the_error_is_raised() -> None:
    async def ask(node_id: int) -> str:
        raise ConnectionLost("gone")

    with pytest.raises(ConnectionLost):
        await every_broker(CLIENT, ask, partial=True)


async def test_other_errors_are_never_hidden() -> None:
    async def ask(node_id: int) -> str:
        if node_id == 2:
            raise AssertionError("a bug")
        return "answer"

    with pytest.raises(AssertionError):
        await every_broker(CLIENT, ask, partial=True)
