"""Rates, measured as in Kafka: a rate over several windows, and a token bucket."""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """A sum over the last windows, divided by the time that they span.

    A new rate counts as if all windows except one had passed, so a burst after silence is not
    penalised.
    """

    __slots__ = ("_samples", "count", "window_ms")

    def __init__(self, window_ms: float, count: int) -> None:
        self.window_ms = window_ms
        self.count = count
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: float) -> None:
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self.window_ms:
            samples[-1][1] += value
        else:
            samples.append([now_ms, value])

    def measure(self, now_ms: float) -> tuple[float, float]:
        """(amount per second, measured milliseconds)"""
        samples = self._samples
        while samples and samples[0][0] + self.count * self.window_ms <= now_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0][0] if samples else 0.0
        missing = self.count - 1 - int(elapsed_ms // self.window_ms)
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        elapsed_ms = max(elapsed_ms, self.window_ms)
        return sum(value for _, value in samples) / elapsed_ms * 1000, elapsed_ms

    def excess_ms(self, bound: float, now_ms: float) -> int:
        """How long to pause until the rate is down to `bound`; 0 if it is not above it."""
        rate, span_ms = self.measure(now_ms)
        return round((rate - bound) / bound * span_ms) if rate > bound else 0


class TokenBucket:
    """Fills at a rate up to a burst; may be overdrawn once, and refuses further requests until it is no longer empty
    (KIP-599).
    """

    __slots__ = ("_last_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = float("inf")
        self._last_ms = 0.0

    def debt_ms(self, rate: float, burst: float, now_ms: float) -> int:
        """How long until the bucket is out of debt."""
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return round(-self._tokens / rate * 1000) if self._tokens < 0 else 0

    def take(self, amount: float) -> None:
        self._tokens -= amount
