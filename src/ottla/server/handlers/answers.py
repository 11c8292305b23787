"""Helpers for the answers of several families."""

from __future__ import annotations

from ottla.errors import KafkaError


def own_message(error: KafkaError) -> str | None:
    """The message of an error if it says more than its code: where Kafka answers an exception, the rest is null."""
    return None if error.message == error.default_message else error.message
