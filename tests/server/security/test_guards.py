"""The cost of guards: one decision per item, no matter how many items there are."""

from types import SimpleNamespace
from typing import Any

from ottla.errors import TopicAuthorizationFailed
from ottla.server.security.guards.parts import parted


class Item:
    """Counts how often any item is compared with another."""

    comparisons = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        Item.comparisons += 1
        return isinstance(other, Item) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


def test_allowed_and_denied_items_are_separated_in_one_pass() -> None:
    """Half of 8,000 items are denied: one decision each, and no item is compared with another."""
    decisions = 0

    def allowed(ctx: Any, item: Item) -> bool:
        nonlocal decisions
        decisions += 1
        return item.number % 2 == 0

    def handler(ctx: Any, request: Any) -> Any:
        return SimpleNamespace(results=[item.number for item in request.items])

    def on_error(ctx: Any, request: Any, error: Exception) -> Any:
        assert isinstance(error, TopicAuthorizationFailed)
        return SimpleNamespace(results=[-item.number for item in request.items])

    api: Any = SimpleNamespace(handler=handler, on_error=on_error)
    ctx: Any = SimpleNamespace()
    response: Any = parted("items", "results", allowed)(api, ctx, SimpleNamespace(items=[*map(Item, range(8000))]))
    assert response.results == [*range(0, 8000, 2), *range(-1, -8000, -2)]
    assert decisions == 8000
    assert Item.comparisons == 0
