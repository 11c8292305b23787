"""What a broker raises that does not run. Handles of brokers in other processes need it without the broker."""

from __future__ import annotations


class BrokerStopped(RuntimeError):
    """The broker is not running; the message says what to do."""
