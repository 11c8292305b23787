"""The error of a stopped broker. Handles on brokers in other processes need it without importing the broker."""

from __future__ import annotations


class BrokerStopped(RuntimeError):
    """The broker is not running; the message says what to do."""
